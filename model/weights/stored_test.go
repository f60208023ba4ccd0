package weights

import (
	"math"
	"testing"
)

// What a block is taken apart into is what it is decoded to.
func TestStoredPartsGiveTheBlock(t *testing.T) {
	for kind, form := range storedBlocks {
		d := decoders[kind]
		for seed := range 50 {
			src := manyBlocks(kind.String(), d.bytes, nil)[seed*d.bytes:][:d.bytes]
			want := make([]byte, 4*d.values)
			d.f(want, src)
			groups := d.values / form.group
			q, scale, least := make([]int8, d.values), make([]float32, groups), make([]float32, groups)
			form.f(q, scale, least, src)
			for i := range q {
				w := float64(math.Float32frombits(le.Uint32(want[4*i:])))
				got := float64(scale[i/form.group])*float64(q[i]) + float64(least[i/form.group])
				if math.IsNaN(w) || math.IsInf(w, 0) {
					continue
				}
				if math.Abs(got-w) > 1e-6*(math.Abs(w)+math.Abs(float64(least[i/form.group]))) {
					t.Fatalf("%v: number %d is %v, decoded %v", kind, i, got, w)
				}
				if form.bits == 4 && (q[i] < 0 || q[i] > 15) {
					t.Fatalf("%v: %d is no number of 4 bits", kind, q[i])
				}
				if !form.least && least[i/form.group] != 0 {
					t.Fatalf("%v has a least value", kind)
				}
			}
		}
	}
}
