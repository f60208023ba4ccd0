package sandbox

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// judge runs a filter as the kernel does.
func judge(t *testing.T, f []unix.SockFilter, arch, nr uint32, args ...uint64) uint32 {
	t.Helper()
	data := func(off uint32) uint32 {
		switch off {
		case offNr:
			return nr
		case offArch:
			return arch
		}
		i := int(off-offArg0) / 8
		if i >= len(args) {
			return 0
		}
		if off%8 == 4 {
			return uint32(args[i] >> 32)
		}
		return uint32(args[i])
	}
	var a uint32
	for pc := 0; pc < len(f); pc++ {
		x := f[pc]
		jump := func(yes bool) {
			if yes {
				pc += int(x.Jt)
			} else {
				pc += int(x.Jf)
			}
		}
		switch x.Code {
		case bpfLoad:
			a = data(x.K)
		case bpfAnd:
			a &= x.K
		case bpfEq:
			jump(a == x.K)
		case bpfGe:
			jump(a >= x.K)
		case bpfSet:
			jump(a&x.K != 0)
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(x.K)
		case bpfRet:
			return x.K
		default:
			t.Fatalf("unknown instruction %#x", x.Code)
		}
	}
	t.Fatalf("system call %d runs off the filter's end", nr)
	return 0
}

// TestTheFilterAllowsTheListAndNothingElse goes through all numbers, those of
// other tables included.
func TestTheFilterAllowsTheListAndNothingElse(t *testing.T) {
	f, err := filter()
	if err != nil {
		t.Skip(err)
	}
	if len(f) > unix.BPF_MAXINSNS {
		t.Fatalf("%d instructions", len(f))
	}
	list := allowedCalls()
	for nr := range uint32(2000) {
		if slices.Contains(judged, nr) || nr == unix.SYS_FLOCK {
			continue
		}
		want := eperm
		switch {
		case slices.Contains(list, nr):
			want = allow
		case nr >= firstNew:
			want = nosys
		}
		if got := judge(t, f, auditArch, nr); got != want {
			t.Errorf("system call %d: %#x, want %#x", nr, got, want)
		}
	}
	for _, nr := range []uint32{0x40000000, 0x40000000 + unix.SYS_READ, 1 << 31, 1<<32 - 1} { // x32's, and none at all
		if got := judge(t, f, auditArch, nr); got == allow {
			t.Errorf("system call %#x is allowed", nr)
		}
	}
	if got := judge(t, f, unix.AUDIT_ARCH_I386, unix.SYS_READ); got != kill {
		t.Errorf("another architecture: %#x", got)
	}
	const high = 1 << 32
	for _, c := range []struct {
		nr   uint32
		args []uint64
		want uint32
	}{
		{unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_THREAD}, allow},
		{unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER | 17}, eperm},
		{unix.SYS_CLONE3, nil, nosys},
		{unix.SYS_FCNTL, []uint64{3, unix.F_GETFL}, allow},
		{unix.SYS_FCNTL, []uint64{3, unix.F_SETLK}, granted},
		{unix.SYS_FCNTL, []uint64{3, unix.F_GETLK}, einval},
		{unix.SYS_FCNTL, []uint64{3, unix.F_NOTIFY}, einval},
		{unix.SYS_FCNTL, []uint64{3, unix.F_SETLEASE}, einval},
		{unix.SYS_FLOCK, []uint64{3, unix.LOCK_EX}, nosys},
		{unix.SYS_IOCTL, []uint64{0, unix.TCGETS}, allow},
		{unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, notty},
		{unix.SYS_IOCTL, []uint64{0, unix.TIOCLINUX}, notty},
		{unix.SYS_PRCTL, []uint64{unix.PR_SET_NAME}, allow},
		{unix.SYS_PRCTL, []uint64{unix.PR_SET_MM}, eperm},
		{unix.SYS_SETRLIMIT, []uint64{unix.RLIMIT_NOFILE}, allow},
		{unix.SYS_SETRLIMIT, []uint64{unix.RLIMIT_CORE}, granted},
		{unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_CORE, 0}, allow},
		{unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_CORE, 8}, granted},
		{unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_CORE, high}, granted},
		{unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_AS, 8}, allow},
		{unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC}, allow},
		{unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_DGRAM}, eperm},
		{unix.SYS_SOCKETPAIR, []uint64{unix.AF_NETLINK, unix.SOCK_STREAM}, eperm},
	} {
		if got := judge(t, f, auditArch, c.nr, c.args...); got != c.want {
			t.Errorf("system call %d%v: %#x, want %#x", c.nr, c.args, got, c.want)
		}
	}
}

// TestTheCodesFilterTakesWhatIsTheZygotes, and nothing else.
func TestTheCodesFilterTakesWhatIsTheZygotes(t *testing.T) {
	for _, grouped := range []bool{false, true} {
		f, err := codeFilter(grouped)
		if err != nil {
			t.Skip(err)
		}
		for nr := range uint32(600) {
			want := uint32(allow)
			if slices.Contains(allowedZygote, nr) || grouped && slices.Contains(deniedGrouped, nr) {
				want = eperm
			}
			if got := judge(t, f, auditArch, nr); nr != unix.SYS_PRCTL && got != want {
				t.Errorf("system call %d: %#x, want %#x", nr, got, want)
			}
		}
		for option, want := range map[[2]uint64]uint32{
			{unix.PR_SET_DUMPABLE, 0}: allow, {unix.PR_SET_DUMPABLE, 1}: eperm, {unix.PR_SET_DUMPABLE, 2}: eperm,
			{unix.PR_SET_NAME, 5}: allow, {unix.PR_CAPBSET_DROP, 0}: eperm, {unix.PR_SET_SECUREBITS, 0}: eperm, {unix.PR_CAP_AMBIENT, 2}: eperm,
		} {
			if got := judge(t, f, auditArch, unix.SYS_PRCTL, option[0], option[1]); got != want {
				t.Errorf("prctl%v: %#x, want %#x", option, got, want)
			}
		}
	}
}
