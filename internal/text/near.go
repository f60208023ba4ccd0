package text

import "strings"

// Nearest is the one of names that is most like name, or "" where none is like
// it.
func Nearest(name string, names []string) string {
	best, least := "", 0
	for _, n := range names {
		d := Distance(strings.ToLower(name), strings.ToLower(n))
		if d > max(2, 1+len(n)/3) || d >= len(name) {
			continue
		}
		if best == "" || d < least {
			best, least = n, d
		}
	}
	return best
}

// Distance is the edit distance, two neighbours swapped counting one.
func Distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
