//go:build race

package trainer

// walkEvery thins the walk over all settings out: the race detector makes it slow, and
// what it looks at has no goroutines.
const walkEvery = 23
