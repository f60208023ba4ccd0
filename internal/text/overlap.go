package text

import "strings"

// Overlap is how many bytes at the end of s begin mark: fewer than the whole mark.
func Overlap(s, mark string) int {
	for n := min(len(mark)-1, len(s)); n > 0; n-- {
		if strings.HasSuffix(s, mark[:n]) {
			return n
		}
	}
	return 0
}
