// Package exit has the kinds of errors that decide a command's exit code. The table
// from errors to codes is the command's. It is layer 0.
package exit

import "agentcli/internal/setting"

// UsageError is a mistake on the command line or in a configuration file.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap gives the mistake itself.
func (e UsageError) Unwrap() error { return e.Err }

// Usagef is fmt.Errorf for a UsageError, which may name settings.
func Usagef(format string, args ...any) error {
	return UsageError{Err: setting.Errorf(format, args...)}
}

// PartialError is the end of a run that is done, or that ended since the server was gone,
// in which some trajectories failed for infrastructure reasons.
type PartialError struct {
	Message string
	Err     error // the first of the failures; may be nil
}

func (e PartialError) Error() string { return e.Message }

// Unwrap gives the first of the failures.
func (e PartialError) Unwrap() error { return e.Err }

// InterruptedError is the end of a run by ^C or by its budget; what was finished is
// saved.
type InterruptedError struct{ Message string }

func (e InterruptedError) Error() string { return e.Message }
