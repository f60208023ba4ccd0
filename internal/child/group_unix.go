//go:build unix

package child

import (
	"os"
	"syscall"
)

func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
