package arch

import (
	"math"
	"slices"
	"testing"
)

func TestScalingsChangeTheFrequenciesThatTheyShould(t *testing.T) {
	r := Rope{Theta: 500000, Dim: 128}
	plain := r.InverseFrequencies(10)
	if plain[0] != 1 || plain[32] != math.Pow(500000, -.5) {
		t.Errorf("%v", plain)
	}
	divisors := func(s Scaling) []float64 {
		r := r
		r.Scaling = &s
		d := r.InverseFrequencies(10)
		for i := range d {
			d[i] = plain[i] / d[i]
		}
		return d
	}
	d := divisors(Scaling{Type: "llama3", Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, Original: 8192})
	if d[0] != 1 || d[63] != 8 || !slices.IsSorted(d) {
		t.Errorf("llama3: %v", d)
	}
	if d := divisors(Scaling{Type: "linear", Factor: 4}); d[0] != 4 || d[63] != 4 {
		t.Errorf("linear: %v", d)
	}
}
