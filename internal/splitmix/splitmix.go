// Package splitmix is splitmix64 (Steele, Lea & Flood 2014, "Fast splittable
// pseudorandom number generators"): seeds that follow from other seeds, and
// draws that depend on nothing but a seed and a number. It is in layer 0 and
// imports nothing.
package splitmix

// Gamma is what the generator's state grows by from one number to the next:
// 2⁶⁴ / φ, made odd.
const Gamma = 0x9e3779b97f4a7c15

// Next is the number that follows the state x: Mix(x + Gamma).
func Next(x uint64) uint64 { return Mix(x + Gamma) }

// Mix is the generator's finaliser: it scatters a number over all 64 bits, and
// is one to one.
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
