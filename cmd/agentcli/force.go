package main

import "errors"

// forced is a check that --force overrides: with it, why is said in a line and the run
// goes on; without, why and how to mend it are the error.
func forced(force bool, note func(string, ...any), why, mend string) error {
	if !force {
		return errors.New(why + mend)
	}
	note("warning: %s; going on all the same (--force)", why)
	return nil
}
