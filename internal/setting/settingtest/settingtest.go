// Package settingtest lets tests ask for the settings that an error names, in place of
// its words, and words settings as flags in the tests of libraries.
package settingtest

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"agentcli/internal/setting"
)

// Names reports whether an error, or what it wraps, names a setting.
func Names(err error, name setting.Name) bool {
	for e := (*setting.Error)(nil); errors.As(err, &e); err = e.Unwrap() {
		if slices.Contains(e.Names, name) {
			return true
		}
	}
	return false
}

var words = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])`)

// Flag is a field's name as a flag, whatever the command calls it: OldLogprobs is
// old-logprobs behind two hyphens.
func Flag(n setting.Name) string {
	if n == "Beta1" {
		n = "Betas"
	}
	name := words.ReplaceAllString(strings.ReplaceAll(string(n), ".", "-"), "$1$3-$2$4")
	return strings.Repeat("-", 2) + strings.ToLower(strings.ReplaceAll(name, "--", "-"))
}

// UseFlags words settings so from now on. A TestMain calls it.
func UseFlags() { setting.Reword(Flag) }
