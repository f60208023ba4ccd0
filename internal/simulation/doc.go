// Package simulation has no code of its own: its test plays whole runs (engine,
// client, servers, journal, Parquet file) in one process, on a clock and a file
// system in memory, under faults that follow from a seed. It may import every
// package but cmd.
package simulation
