package weights

import (
	"math"
	"testing"

	"agentcli/model/gguf"
)

func TestABlockOfQ4_0HasALeastValueUpToAnEighthOfTheLargestFloat16(t *testing.T) {
	for bits := range 1 << 15 {
		data := append(make([]byte, 18), byte(bits), byte(bits>>8|bits&1<<7)) // of both signs
		data = append(data, make([]byte, 16)...)
		least := 8 * math.Abs(float64(halves[bits]))
		want := least <= 65504 // false of a number that is none, too
		if got := LeastValuesFit(Tensor{DType: DType(gguf.Q4_0.String()), Data: data}); got != want {
			t.Fatalf("scale %v: %v", halves[bits], got)
		}
		if !LeastValuesFit(Tensor{DType: DType(gguf.Q8_0.String()), Data: data}) {
			t.Fatal("Q8_0 has no least values that could be too large")
		}
	}
}
