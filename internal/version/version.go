// Package version names the commit that the program was built from. It is layer 0
// and imports the standard library only.
package version

import "runtime/debug"

// String is the commit, with a "+" where files had changed since; "devel" where it is
// not known.
func String() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		rev, dirty := "", ""
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision" && len(s.Value) >= 12:
				rev = s.Value[:12]
			case s.Key == "vcs.modified" && s.Value == "true":
				dirty = "+"
			}
		}
		if rev != "" {
			return rev + dirty
		}
	}
	return "devel"
}
