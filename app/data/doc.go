// Package data works on datasets: Describe says what is known of one, Verify looks whether
// one is whole and can be graded, Overlap finds the rows that two have in common.
package data
