// Package store keeps what is trained on out of memory: the bodies of episodes in a Spill,
// a temporary file, and numbers that are computed once for each token in columns beside
// it. A Loader reads both where they are needed: it gives an algorithm its groups
// (Loader.Groups) and its micro-batches (Loader.MicroBatches), and the same of episodes
// that are in memory. It knows no algorithm and no settings: how an episode is laid out is
// a function that it is given.
package store
