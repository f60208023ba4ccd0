package policy

// uniform is the number in [0, 1) for draw n of a request with this seed:
// splitmix64 (Steele, Lea & Flood 2014) of the two. A request's draws depend on
// its own seed alone, never on what is decoded beside it.
func uniform(seed int64, n int) float64 {
	x := mix(uint64(seed)) ^ mix(uint64(n)+0x632be59bd9b4e019)
	return float64(mix(x)>>11) / (1 << 53)
}

func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb
	return x ^ (x >> 31)
}
