package tokenizer

import (
	"math"
	"testing"
)

// The tokenizers library reads scores by serde_json, which is off by a bit now and
// then: these were read by it.
func TestScoresAreReadAsTheLibraryDoes(t *testing.T) {
	for s, want := range map[string]float64{
		"-3.9385565259815802": -3.93855652598158, "-7.2280156022896715": -7.228015602289672, "-7.4818556080358185": -7.481855608035819,
		"0": 0, "-0.0": math.Copysign(0, -1), "7": 7, "1e3": 1000, "-1.5E-3": -0.0015,
		"123456789012345678901234567890": 123456789012345678901234567890, "0.1234567890123456789012345": 0.12345678901234568,
	} {
		if got := serdeFloat(s); math.Float64bits(got) != math.Float64bits(want) {
			t.Errorf("%s: %v, want %v", s, got, want)
		}
	}
	for _, s := range []string{"1e999", "1e-999"} {
		if got := serdeFloat(s); !math.IsNaN(got) {
			t.Errorf("%s: %v", s, got)
		}
	}
}
