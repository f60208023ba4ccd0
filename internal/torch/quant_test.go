//go:build libtorch

package torch_test

import (
	"math/rand/v2"
	"testing"

	"agentcli/internal/torch"
)

// Rows of several forms below each other come back as they were, wherever a panel begins.
func TestQuantDenseGivesWhatWasPacked(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	part := func(rows, cols, group, bits int, least bool) torch.Quant {
		q := torch.Quant{Rows: rows, Cols: cols, Group: group, Bits: bits, Q: make([]int8, rows*cols), Scale: make([]float32, rows*cols/group)}
		for i := range q.Q {
			if q.Q[i] = int8(random.IntN(256) - 128); bits == 4 {
				q.Q[i] = int8(random.IntN(16))
			}
		}
		if least {
			q.Least = make([]float32, len(q.Scale))
		}
		for i := range q.Scale {
			q.Scale[i] = float32(1+random.IntN(100)) / 64
			if least {
				q.Least[i] = float32(random.IntN(200)-100) / 8
			}
		}
		return q
	}
	for name, parts := range map[string][]torch.Quant{
		"one":           {part(64, 64, 32, 8, false)},
		"less":          {part(3, 32, 32, 4, true)},
		"groups of 16":  {part(70, 96, 16, 8, false)},
		"4 bits":        {part(130, 64, 32, 4, true)},
		"mixed":         {part(64, 64, 32, 4, true), part(64, 64, 16, 8, false), part(10, 64, 32, 8, true)},
		"within panels": {part(40, 64, 32, 4, true), part(40, 64, 16, 8, false), part(40, 64, 32, 8, false)},
	} {
		s := torch.NewScope()
		got := s.Float32s(s.To(s.QuantDense(s.PackQuant(parts...)), torch.Float32, torch.CPU))
		if s.Err() != nil {
			t.Fatalf("%s: %v", name, s.Err())
		}
		var want []float32
		for _, p := range parts {
			for i, q := range p.Q {
				g := i / p.Group
				x := p.Scale[g] * float32(q)
				if p.Least != nil {
					x += p.Least[g]
				}
				want = append(want, x)
			}
		}
		exact := s.Float32s(s.To(s.To(s.Float32(want, int64(len(want))), torch.BFloat16, torch.CPU), torch.Float32, torch.CPU))
		if len(got) != len(exact) {
			t.Fatalf("%s: %d numbers of %d", name, len(got), len(exact))
		}
		for i := range got {
			if got[i] != exact[i] {
				t.Fatalf("%s: number %d is %v, was %v", name, i, got[i], exact[i])
			}
		}
		s.Close()
	}
	for name, parts := range map[string][]torch.Quant{
		"rows of two lengths": {part(3, 32, 32, 4, true), part(3, 64, 32, 4, true)},
		"odd rows":            {part(3, 48, 16, 8, false)},
		"a wrong group":       {part(3, 64, 8, 8, false)},
		"too few numbers":     {{Rows: 2, Cols: 32, Group: 32, Bits: 8, Q: make([]int8, 32), Scale: make([]float32, 2)}},
	} {
		s := torch.NewScope()
		if s.PackQuant(parts...); s.Err() == nil {
			t.Errorf("%s: no error", name)
		}
		s.Close()
	}
}
