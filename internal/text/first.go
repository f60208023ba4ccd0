package text

import "strings"

// FirstOf is where the first of several strings begins in s, and which it is; -1
// if there is none of them. Empty ones do not count.
func FirstOf(s string, of []string) (int, string) {
	best, which := -1, ""
	for _, o := range of {
		if o == "" {
			continue
		}
		if i := strings.Index(s, o); i >= 0 && (best < 0 || i < best) {
			best, which = i, o
		}
	}
	return best, which
}
