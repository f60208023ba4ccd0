package weights

import "math"

// InverseFrequencies are θ^(−2i/d), one a pair of a head's dimensions, in the
// scaling that the configuration asks for.
func (c Config) InverseFrequencies() []float64 {
	inv := make([]float64, c.HeadDim/2)
	for i := range inv {
		inv[i] = c.frequency(i)
		if c.RopeScaling != nil {
			inv[i] = c.RopeScaling.scale(inv[i])
		}
	}
	return inv
}

// frequency is θ^(−2i/d), unscaled.
func (c Config) frequency(i int) float64 {
	return math.Pow(c.RopeTheta, -float64(2*i)/float64(c.HeadDim))
}

// scale makes a frequency slower: by the factor where the type is linear; in
// Llama 3's way, from the paper's code, long waves by the whole factor, short
// ones not at all, between them a smooth step. Other types leave it as it is.
func (s RopeScaling) scale(f float64) float64 {
	switch s.Type {
	case "linear":
		return f / s.Factor
	case "llama3":
		wave, old := 2*math.Pi/f, float64(s.OriginalMaxPositions)
		low, high := old/s.LowFreqFactor, old/s.HighFreqFactor
		switch {
		case wave > low:
			return f / s.Factor
		case wave >= high:
			smooth := (old/wave - s.LowFreqFactor) / (s.HighFreqFactor - s.LowFreqFactor)
			return (1-smooth)*f/s.Factor + smooth*f
		}
	}
	return f
}
