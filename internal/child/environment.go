package child

import (
	"os"
	"runtime"
	"slices"
	"strings"
)

// inherited are the variables of our environment that a program gets without
// being named: those that the MCP SDKs for Python and TypeScript pass on, and
// beside them the language, the time zone and the folder for temporary files.
// Keys (OPENAI_API_KEY, HF_TOKEN, what .env has) are not among them.
var inherited = []string{"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ"}

// inheritedWindows is the same list there.
var inheritedWindows = []string{"APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE",
	"SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "USERNAME", "USERPROFILE", "LANG", "LC_ALL", "LC_CTYPE", "TZ"}

// markName is a variable by which all that a program has started is found.
const markName = "AGENTCLI_PROGRAM"

// environment is what a program sees: the inherited variables, those named in
// pass, and its own.
func environment(pass, own []string) []string {
	names := inherited
	if runtime.GOOS == "windows" {
		names = inheritedWindows
	}
	var env []string
	for _, name := range slices.Concat(names, pass) {
		// A shell's exported function is code.
		if v, ok := os.LookupEnv(name); ok && !strings.HasPrefix(v, "()") {
			env = append(env, name+"="+v)
		}
	}
	return append(env, own...)
}

// minSecret is the length from which the value of a variable is taken for a
// secret where a program's words are shown.
const minSecret = 8

// secrets are the values that messages about a program do not show.
func (c Command) secrets() []string {
	var list []string
	add := func(v string) {
		if len(v) >= minSecret {
			list = append(list, v)
		}
	}
	for _, kv := range c.Env {
		_, v, _ := strings.Cut(kv, "=")
		add(v)
	}
	for _, name := range c.Pass {
		add(os.Getenv(name))
	}
	return list
}
