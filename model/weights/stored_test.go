package weights

import (
	"math"
	"testing"

	"agentcli/model/gguf"
)

// What a block is taken apart into is what it is decoded to.
func TestStoredPartsGiveTheBlock(t *testing.T) {
	for kind, form := range storedBlocks {
		d := decoders[kind]
		for seed := range 50 {
			src := manyBlocks(kind.String(), d.bytes, nil)[seed*d.bytes:][:d.bytes]
			want := make([]byte, 4*d.values)
			d.f(want, src)
			got := newStored(1, d.values, d.values, form)
			form.f(got.part(0, 1), src)
			for i, q := range got.Q {
				w := float64(math.Float32frombits(le.Uint32(want[4*i:])))
				if math.IsNaN(w) || math.IsInf(w, 0) {
					continue
				}
				g := i / form.group
				scale, least := float64(halves[got.Scale[0]]), 0.0
				if got.Factor != nil {
					scale *= float64(got.Factor[g])
				}
				if got.Least != nil {
					least = float64(halves[got.Least[0]])
				}
				if got.LeastFactor != nil {
					least *= float64(got.LeastFactor[g])
				}
				if math.IsInf(least, 0) && kind == gguf.Q4_0 {
					continue // StoredMatrix refuses it
				}
				if x := scale*float64(q) + least; math.Abs(x-w) > 1e-6*(math.Abs(w)+math.Abs(least)) {
					t.Fatalf("%v: number %d is %v, decoded %v", kind, i, x, w)
				}
				if form.bits == 4 && (q < 0 || q > 15) {
					t.Fatalf("%v: %d is no number of 4 bits", kind, q)
				}
			}
		}
	}
}
