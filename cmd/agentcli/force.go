package main

import (
	"errors"
	"fmt"
)

// forced is a check that --force overrides: with it, why is said in a line and the run
// goes on; without, why and how to mend it are the error.
func forced(force bool, note func(string, ...any), why, mend string) error {
	if !force {
		return errors.New(why + mend)
	}
	note("warning: %s; going on all the same (--force)", why)
	return nil
}

// andMore names the first of several files.
func andMore(name string, n int) string {
	if n < 2 {
		return name
	}
	return fmt.Sprintf("%s (and %d more)", name, n-1)
}
