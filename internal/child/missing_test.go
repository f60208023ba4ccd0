package child

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAProgramThatIsNotThereIsFoundWithoutStartingIt(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("PATH", os.Getenv("PATH")+":"+filepath.Join(t.TempDir(), "bin"))
	for _, name := range []string{"script.py", "tool"} {
		if err := os.WriteFile(name, []byte("#!/bin/sh\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for line, want := range map[string]string{
		"sh":                        "",
		"sh -c x":                   "",
		"/bin/sh script":            "",
		"cd /":                      "", // the shell's own
		"exec sh":                   "",
		"KEY=1 sh x":                "",
		"perl script.py":            "",
		"perl -u script.py":         "",
		"perl -e print":             "",
		"perl -I lib nonesuch.py":   "", // whose value lib may be
		"perl nonesuch":             "", // what it takes for a name is its own affair
		"perl 'no such.py'":         "",
		"nonesuch || sh":            "",
		"cd / && nonesuch":          "",
		"$HOME/nonesuch":            "",
		"'./no such' x":             "",
		"PATH=/elsewhere nonesuch":  "",
		"-x":                        "",
		"":                          "",
		"nonesuch":                  `"nonesuch"`,
		"nonesuch --x 'a b'":        `"nonesuch"`,
		"exec nonesuch":             `"nonesuch"`,
		"KEY=1 nonesuch":            `"nonesuch"`,
		"./nonesuch":                `"./nonesuch"`,
		"./tool":                    `"./tool"`,
		"perl nonesuch.py":          `"nonesuch.py"`,
		"perl -u x/nonesuch.py --a": `"x/nonesuch.py"`,
	} {
		err := Command{Shell: line}.Check()
		if (err == nil) != (want == "") || err != nil && (!errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", line, err, want)
		}
	}
	for args, want := range map[string]string{"perl|script.py": "", "cd|/": `"cd"`, "perl|no such.py": `"no such.py"`,
		"no such": `"no such"`} {
		err := Command{Args: strings.Split(args, "|")}.Check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
	if err := (Command{Args: []string{"nonesuch"}, Env: []string{"PATH=/elsewhere"}}).Check(); err != nil {
		t.Error(err)
	}
}
