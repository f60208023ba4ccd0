//go:build unix && !linux

package child

import (
	"os/exec"
	"syscall"
)

// ownGroup makes the program the leader of a process group: a ^C at the terminal
// is ours alone, and what it starts can be ended with it.
func ownGroup(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
