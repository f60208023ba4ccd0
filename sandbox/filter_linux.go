package sandbox

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data; arguments are read by their low halves.
const (
	offNr   = 0
	offArch = 4
	offArg0 = 16
	offArg1 = 24
)

const newNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWTIME

// lastKnown is the newest system call that was judged here; later ones do not
// exist for a sandboxed process.
const lastKnown = 466 // removexattrat

// deniedAlways are the system calls that neither the zygote nor its processes
// need, and that reach other processes, the kernel or the network, or keep
// memory that no limit counts.
var deniedAlways = append([]uint32{
	// other processes
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE,
	unix.SYS_PROCESS_MRELEASE, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD,
	// the network: descriptors of sockets come with socketpair only
	unix.SYS_SOCKET, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT, unix.SYS_ACCEPT4,
	// file systems
	unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG,
	unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_OPEN_BY_HANDLE_AT,
	unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_ACCT,
	unix.SYS_FANOTIFY_INIT, unix.SYS_FANOTIFY_MARK, unix.SYS_STATMOUNT, unix.SYS_LISTMOUNT,
	// the kernel
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_KEXEC_LOAD, unix.SYS_REBOOT, unix.SYS_SYSLOG, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_IO_SETUP, unix.SYS_VHANGUP,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
	unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_PERSONALITY, unix.SYS_LSM_SET_SELF_ATTR,
	unix.SYS_MBIND, unix.SYS_SET_MEMPOLICY, unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES, unix.SYS_VMSPLICE,
	// memory and messages that outlive a process, or that RLIMIT_AS does not count
	unix.SYS_MEMFD_CREATE, unix.SYS_MEMFD_SECRET, unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SEMGET, unix.SYS_SEMCTL,
	unix.SYS_SEMTIMEDOP, unix.SYS_SEMOP, unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL,
	unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK,
}, deniedHere...)

// deniedCode are those that the zygote needs to prepare a process, and that no
// process may use any more once it is prepared.
var deniedCode = []uint32{unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_UNSHARE, unix.SYS_SETNS}

// deniedGrouped are denied where processes are kept together by their process
// group, for want of a pid namespace.
var deniedGrouped = []uint32{unix.SYS_SETSID, unix.SYS_SETPGID}

const (
	bpfLoad = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	bpfEq   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	bpfGt   = unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K
	bpfSet  = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	bpfAnd  = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	bpfRet  = unix.BPF_RET | unix.BPF_K

	allow = unix.SECCOMP_RET_ALLOW
	kill  = unix.SECCOMP_RET_KILL_PROCESS
	eperm = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	nosys = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
)

// opening loads the system call's number; a call of another architecture kills.
func opening() []unix.SockFilter {
	return []unix.SockFilter{
		{Code: bpfLoad, K: offArch},
		{Code: bpfEq, K: auditArch, Jt: 1},
		{Code: bpfRet, K: kill},
		{Code: bpfLoad, K: offNr},
	}
}

func deny(f []unix.SockFilter, list []uint32) []unix.SockFilter {
	for _, nr := range list {
		f = append(f, unix.SockFilter{Code: bpfEq, K: nr, Jf: 1}, unix.SockFilter{Code: bpfRet, K: eperm})
	}
	return f
}

// filter is the seccomp program of the zygote, which its processes inherit.
// Denied calls fail with EPERM, unknown ones with ENOSYS.
func filter() ([]unix.SockFilter, error) {
	if auditArch == 0 {
		return nil, errNoFilter
	}
	f := append(opening(),
		unix.SockFilter{Code: bpfGt, K: lastKnown, Jf: 1}, // the x32 calls of amd64, too
		unix.SockFilter{Code: bpfRet, K: nosys},
		// clone3's flags are in memory, where a filter cannot look: libc falls back to clone.
		unix.SockFilter{Code: bpfEq, K: unix.SYS_CLONE3, Jf: 1},
		unix.SockFilter{Code: bpfRet, K: nosys},
	)
	f = deny(f, deniedAlways)
	return append(f,
		// A pair of connected streams cannot be pointed at anybody else; a pair of
		// datagram sockets can.
		unix.SockFilter{Code: bpfEq, K: unix.SYS_SOCKETPAIR, Jf: 7},
		unix.SockFilter{Code: bpfLoad, K: offArg0},
		unix.SockFilter{Code: bpfEq, K: unix.AF_UNIX, Jf: 3},
		unix.SockFilter{Code: bpfLoad, K: offArg1},
		unix.SockFilter{Code: bpfAnd, K: ^uint32(unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK)},
		unix.SockFilter{Code: bpfEq, K: unix.SOCK_STREAM, Jt: 1},
		unix.SockFilter{Code: bpfRet, K: eperm},
		unix.SockFilter{Code: bpfRet, K: allow},
		// characters typed into a terminal
		unix.SockFilter{Code: bpfEq, K: unix.SYS_IOCTL, Jf: 3},
		unix.SockFilter{Code: bpfLoad, K: offArg1},
		unix.SockFilter{Code: bpfEq, K: unix.TIOCSTI, Jf: 1},
		unix.SockFilter{Code: bpfRet, K: eperm},
		unix.SockFilter{Code: bpfRet, K: allow},
	), nil
}

// codeFilter is what a process adds before it runs code: no namespaces and no
// mounts any more. It is short, because the kernel compiles it for each call.
// grouped is for processes that are kept together by their process group.
func codeFilter(grouped bool) ([]unix.SockFilter, error) {
	if auditArch == 0 {
		return nil, errNoFilter
	}
	f := deny(opening(), deniedCode)
	if grouped {
		f = deny(f, deniedGrouped)
	}
	return append(f,
		unix.SockFilter{Code: bpfEq, K: unix.SYS_CLONE, Jf: 3},
		unix.SockFilter{Code: bpfLoad, K: offArg0},
		unix.SockFilter{Code: bpfSet, K: newNamespaces, Jf: 1},
		unix.SockFilter{Code: bpfRet, K: eperm},
		unix.SockFilter{Code: bpfRet, K: allow},
	), nil
}

// program gives a filter's bytes, as the zygote hands them to the kernel.
func program(f []unix.SockFilter) []byte {
	var b []byte
	for _, i := range f {
		b = binary.NativeEndian.AppendUint16(b, i.Code)
		b = append(b, i.Jt, i.Jf)
		b = binary.NativeEndian.AppendUint32(b, i.K)
	}
	return b
}

// install puts the calling thread behind a filter.
func install(f []unix.SockFilter) error {
	p := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&p))); errno != 0 {
		return kernel("seccomp", errno)
	}
	return nil
}
