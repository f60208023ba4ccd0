package policy

import "agentcli/internal/splitmix"

// uniform is the number in [0, 1) for draw n of a request with this seed:
// splitmix64 of the two. A request's draws depend on its own seed alone, never
// on what is decoded beside it.
func uniform(seed int64, n int) float64 {
	x := splitmix.Next(uint64(seed)) ^ splitmix.Next(uint64(n)+0x632be59bd9b4e019)
	return float64(splitmix.Next(x)>>11) / (1 << 53)
}
