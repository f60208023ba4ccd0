//go:build !race

package trainer

const walkEvery = 1
