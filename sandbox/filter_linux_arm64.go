package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// allowedHere are the allowed system calls that only this processor has, or has
// under this name.
var allowedHere = []uint32{
	unix.SYS_RENAMEAT, unix.SYS_FSTATAT,
}
