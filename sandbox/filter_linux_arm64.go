package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// deniedHere are the denied system calls that only this processor has.
var deniedHere = []uint32{unix.SYS_KEXEC_FILE_LOAD, unix.SYS_NFSSERVCTL, unix.SYS_LOOKUP_DCOOKIE}
