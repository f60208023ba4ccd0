package child

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// ErrMissing is in the errors of Check.
var ErrMissing = errors.New("the program cannot be started")

var (
	simpleWord   = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)
	assignment   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
	interpreters = regexp.MustCompile(`^(python[0-9.]*|pypy[0-9.]*|node|ruby|perl|Rscript)$`)
	bareFlag     = regexp.MustCompile(`^-[uOB]+$`) // of Python, without a value
)

// Check finds out, without starting it, that a command names a program, or a script for an
// interpreter, that is not there. Where a line for the shell is more than one plain command,
// it says nothing: the shell decides.
func (c Command) Check() error {
	words := c.Args
	if c.Shell != "" {
		if strings.ContainsAny(c.Shell, "|&;<>(){}\n`") {
			return nil
		}
		words = strings.Fields(c.Shell)
		for len(words) > 0 && (assignment.MatchString(words[0]) || words[0] == "exec") {
			if strings.HasPrefix(words[0], "PATH=") {
				return nil
			}
			words = words[1:]
		}
	}
	plain := func(word string) bool { return c.Shell == "" || simpleWord.MatchString(word) }
	if len(words) == 0 || !plain(words[0]) || strings.HasPrefix(words[0], "-") {
		return nil
	}
	if err := c.missing(words[0]); err != nil {
		return err
	}
	if !interpreters.MatchString(filepath.Base(words[0])) {
		return nil
	}
	for words = words[1:]; len(words) > 0 && bareFlag.MatchString(words[0]); {
		words = words[1:]
	}
	if len(words) == 0 || !plain(words[0]) || strings.HasPrefix(words[0], "-") || filepath.Ext(words[0]) == "" {
		return nil
	}
	if _, err := os.Stat(words[0]); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: there is no file %q", ErrMissing, words[0])
	}
	return nil
}

// missing says why a program cannot be started; nil: nothing is known against it.
func (c Command) missing(name string) error {
	for _, own := range c.Env {
		if strings.HasPrefix(own, "PATH=") {
			return nil
		}
	}
	_, err := exec.LookPath(name)
	switch {
	case err == nil || errors.Is(err, exec.ErrDot):
		return nil
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %q is not executable; make it so with chmod +x, or name its interpreter", ErrMissing, name)
	case strings.ContainsRune(name, '/'):
		return fmt.Errorf("%w: there is no program %q", ErrMissing, name)
	case c.Shell != "": // the shell has some of its own
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		var exit *exec.ExitError
		if err := exec.CommandContext(ctx, "/bin/sh", "-c", `command -v "$1"`, "sh", name).Run(); !errors.As(err, &exit) || !exit.Exited() {
			return nil
		}
	}
	return fmt.Errorf("%w: there is no program %q in PATH", ErrMissing, name)
}
