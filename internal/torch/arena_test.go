//go:build libtorch

package torch_test

import (
	"math/rand/v2"
	"testing"

	"agentcli/internal/torch"
)

// Large tensors of any sizes, freed in any order: none lies on another, what is
// freed is used again, and nothing stays in use.
func TestLargeTensorsShareKeptMemoryAndNeverOverlap(t *testing.T) {
	w := worker(t, 2)
	before, _ := torch.Arena()
	round := func(seed uint64) (held int64) {
		run(t, w, func(s *torch.Scope) {
			rng := rand.New(rand.NewPCG(1, seed))
			type one struct {
				x torch.Tensor
				n int64
				v float64
			}
			var alive []one
			for i := range 300 {
				if len(alive) > 20 || (len(alive) > 0 && rng.IntN(3) == 0) {
					k := rng.IntN(len(alive))
					o := alive[k]
					if got := s.Float64s(s.Sum(o.x, torch.Float64))[0]; got != o.v*float64(o.n) {
						t.Errorf("tensor %d of %d values has the sum %v, want %v: another was written over it", i, o.n, got, o.v*float64(o.n))
					}
					s.Free(o.x)
					alive = append(alive[:k], alive[k+1:]...)
				}
				n := rng.Int64N(1 << (8 + rng.IntN(14)))
				v := float64(rng.IntN(100))
				alive = append(alive, one{s.Full(v, torch.Float32, torch.CPU, n), n, v})
			}
		})
		_, held = torch.Arena()
		return held
	}
	first := round(7)
	for range 5 {
		if held := round(7); held > first {
			t.Errorf("the same work again takes %d bytes more", held-first)
		}
	}
	if after, _ := torch.Arena(); after != before {
		t.Errorf("%d bytes are still in use", after-before)
	}
}
