//go:build libtorch

package torch_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"agentcli/internal/torch"
)

// Rows of several forms below each other come back as they were, wherever a panel begins.
func TestQuantDenseGivesWhatWasPacked(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	half := func() (uint16, float32) { // a positive float16 of some size
		bits := uint16(random.IntN(1<<10)) | uint16(8+random.IntN(8))<<10
		return bits, float32(1+float64(bits&1023)/1024) * float32(math.Pow(2, float64(bits>>10)-15))
	}
	// A part, and the numbers that it is.
	part := func(rows, cols, group, block, bits int, least, factors bool) (q torch.Quant, want []float32) {
		q = torch.Quant{Rows: rows, Cols: cols, Group: group, Block: block, Bits: bits, Q: make([]int8, rows*cols)}
		for i := range q.Q {
			if q.Q[i] = int8(random.IntN(256) - 128); bits == 4 {
				q.Q[i] = int8(random.IntN(16))
			}
		}
		scales := func() (units []uint16, factor []int8, wide []float32) {
			for range rows * cols / block {
				u, x := half()
				units = append(units, u)
				for range block / group {
					f := float32(1)
					if factors {
						factor = append(factor, int8(random.IntN(256)-128))
						f = float32(factor[len(factor)-1])
					}
					wide = append(wide, x*f)
				}
			}
			return units, factor, wide
		}
		var scale, floor []float32
		q.Scale, q.Factor, scale = scales()
		if least {
			q.Least, q.LeastFactor, floor = scales()
		}
		for i, x := range q.Q {
			y := scale[i/group] * float32(x)
			if least {
				y += floor[i/group]
			}
			want = append(want, y)
		}
		return q, want
	}
	type parts struct {
		q    []torch.Quant
		want []float32
	}
	join := func(q torch.Quant, want []float32) parts { return parts{[]torch.Quant{q}, want} }
	and := func(a parts, q torch.Quant, want []float32) parts {
		return parts{append(a.q, q), append(a.want, want...)}
	}
	all := map[string]parts{
		"one":           join(part(64, 64, 32, 32, 8, false, false)),
		"less":          join(part(3, 32, 32, 32, 4, true, false)),
		"groups of 16":  join(part(70, 512, 16, 256, 8, false, true)),
		"4 bits":        join(part(130, 64, 32, 32, 4, true, false)),
		"blocks of 256": join(part(130, 768, 32, 256, 4, true, true)),
	}
	mixed := func(first, second int) parts {
		q, want := part(second, 256, 16, 256, 8, false, true)
		p := and(join(part(first, 256, 32, 32, 4, true, false)), q, want)
		q, want = part(10, 256, 32, 256, 4, true, true)
		p = and(p, q, want)
		q, want = part(10, 256, 32, 32, 8, false, false)
		return and(p, q, want)
	}
	all["mixed"], all["within panels"] = mixed(64, 64), mixed(40, 40)
	for name, p := range all {
		s := torch.NewScope()
		got := s.Float32s(s.To(s.QuantDense(s.PackQuant(p.q...)), torch.Float32, torch.CPU))
		if s.Err() != nil {
			t.Fatalf("%s: %v", name, s.Err())
		}
		exact := s.Float32s(s.To(s.To(s.Float32(p.want, int64(len(p.want))), torch.BFloat16, torch.CPU), torch.Float32, torch.CPU))
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
	made := func(rows, cols, group, block int) torch.Quant {
		q, _ := part(rows, cols, group, block, 8, false, false)
		return q
	}
	for name, parts := range map[string][]torch.Quant{
		"rows of two lengths": {made(3, 32, 32, 32), made(3, 64, 32, 32)},
		"odd rows":            {made(3, 48, 16, 16)},
		"a wrong group":       {made(3, 64, 8, 32)},
		"a wrong block":       {made(3, 64, 32, 64)},
		"too few numbers":     {{Rows: 2, Cols: 32, Group: 32, Block: 32, Bits: 8, Q: make([]int8, 32), Scale: make([]uint16, 2)}},
	} {
		s := torch.NewScope()
		if s.PackQuant(parts...); s.Err() == nil {
			t.Errorf("%s: no error", name)
		}
		s.Close()
	}
}
