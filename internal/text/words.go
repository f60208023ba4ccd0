package text

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// AndMore is the first of n files, and how many more there are.
func AndMore(name string, n int) string {
	if n < 2 {
		return name
	}
	return fmt.Sprintf("%s (and %d more)", name, n-1)
}

// Dollars is Money with the sign of the dollar.
func Dollars(x float64) string { return "$" + Money(x) }

// Money is an amount to the cent, or to two digits where that is less.
func Money(x float64) string {
	decimals := 2
	if x > 0 && x < 0.1 {
		decimals = 1 - int(math.Floor(math.Log10(x)))
	}
	return strconv.FormatFloat(x, 'f', decimals, 64)
}

// Plural is n and the word, in the plural unless n is 1.
func Plural(n int, word string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(word, "y"):
		word = strings.TrimSuffix(word, "y") + "ies"
	default:
		word += "s"
	}
	return fmt.Sprintf("%d %s", n, word)
}

// FirstFew is the first n of several names, with an ellipsis where there are more.
func FirstFew(names []string, n int) string {
	if len(names) > n {
		return strings.Join(names[:n], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}
