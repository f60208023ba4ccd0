package sandbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"agentcli/internal/text"
)

// refusals are the errors by which a kernel says that it does not do something,
// or not for us: forbidden (EPERM, EACCES), not built in or too old (ENOSYS,
// EINVAL), switched off (EOPNOTSUPP; ENOSPC is what a limit of 0 namespaces
// gives). Any other error is a fault of ours, or of the moment: it is told as
// it is, no part is left out for it, and no test is skipped.
// zygote.py has the same list.
var refusals = []syscall.Errno{syscall.EPERM, syscall.EACCES, syscall.ENOSYS, syscall.EINVAL, syscall.EOPNOTSUPP, syscall.ENOSPC}

// errNoFilter is a processor that there is no seccomp filter for.
var errNoFilter = errors.New("no filter was written for this processor")

// kernelError is the error of a system call that makes a part of the sandbox.
// The same number from any other call, a mkdir that set-up needs, says nothing
// of what the kernel grants.
type kernelError struct {
	what string
	err  error
}

func (e *kernelError) Error() string { return e.what + ": " + e.err.Error() }
func (e *kernelError) Unwrap() error { return e.err }

// kernel marks the error of such a call; nil stays nil.
func kernel(what string, err error) error {
	if err == nil {
		return nil
	}
	return &kernelError{what, err}
}

// refused says whether an error is the kernel's refusal.
func refused(err error) bool {
	var k *kernelError
	var errno syscall.Errno
	return errors.Is(err, errNoFilter) || errors.As(err, &k) && errors.As(k.err, &errno) && slices.Contains(refusals, errno)
}

// notGranted is what an error in making a part comes to: a refusal, or a fault,
// which is a refusal of no part.
func notGranted(part Part, err error) *refusal {
	if refused(err) {
		return &refusal{part, err.Error()}
	}
	return &refusal{"", fmt.Sprintf("%s: %v", part, err)}
}

func (r *refusal) both() (Part, string) { return r.Part, r.Reason }

// reported is the error that a report of the init or of a process stands for, in
// one line. A part that there is not is no part: the report is a fault's.
func reported(part Part, reason string) error {
	reason = text.Cut(text.OneLine(strings.ToValidUTF8(reason, "\uFFFD")), maxReason)
	if !slices.Contains(required, part) {
		return errors.New("sandbox: " + strings.TrimPrefix(reason, ": "))
	}
	return &refusal{part, reason}
}

// maxReason is how many characters of a report's reason are shown; a path in it may
// have 4096.
const maxReason = 5000
