//go:build libtorch

package torch_test

import (
	"math/rand/v2"
	"testing"

	"agentcli/internal/torch"
)

// blockTypes are how many numbers and bytes a block of a type has, and where its float16 numbers are.
var blockTypes = map[string]struct {
	values, bytes int
	scales        []int
}{"Q4_0": {32, 18, []int{0}}, "Q4_1": {32, 20, []int{0, 2}}, "Q8_0": {32, 34, []int{0}}, "Q4_K": {256, 144, []int{0, 2}},
	"Q5_K": {256, 176, []int{0, 2}}, "Q6_K": {256, 210, []int{208}}, "Q5_0": {32, 22, []int{0}}, "Q5_1": {32, 24, []int{0, 2}},
	"Q2_K": {256, 84, []int{80, 82}}, "Q3_K": {256, 110, []int{108}}, "IQ4_NL": {32, 18, []int{0}}, "IQ4_XS": {256, 136, []int{0}}}

// Rows of several types below each other come back as the numbers that their blocks are, wherever a panel begins.
func TestQuantDenseGivesWhatWasPacked(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	part := func(kind string, rows, cols int) torch.Quant {
		b, ok := torch.BlocksOf(kind)
		if !ok {
			t.Fatalf("no blocks of %s", kind)
		}
		f := blockTypes[kind]
		q := torch.Quant{Rows: rows, Cols: cols, Blocks: b, Data: make([]byte, rows*cols/f.values*f.bytes)}
		for i := range q.Data {
			q.Data[i] = byte(random.Uint32())
		}
		for at := 0; at < len(q.Data); at += f.bytes {
			for _, s := range f.scales {
				q.Data[at+s+1] &= 0xbb // finite, also eight times it
			}
		}
		return q
	}
	type parts []torch.Quant
	mixed := func(first, second int) parts {
		return parts{part("Q4_1", first, 256), part("Q6_K", second, 256), part("Q4_K", 10, 256), part("Q8_0", 10, 256), part("Q5_K", 3, 256)}
	}
	all := map[string]parts{
		"one":            {part("Q8_0", 64, 64)},
		"less":           {part("Q4_0", 3, 32)},
		"groups of 16":   {part("Q6_K", 70, 512)},
		"4 bits":         {part("Q4_1", 130, 288)},
		"blocks of 256":  {part("Q4_K", 130, 768)},
		"fifth bits":     {part("Q5_K", 65, 256)},
		"4 bits in 8":    {part("Q4_0", 30, 320), part("Q8_0", 30, 320)},
		"blocks in 256":  {part("Q4_0", 30, 512), part("Q4_K", 30, 512)},
		"mixed":          mixed(64, 64),
		"within panels":  mixed(40, 40),
		"within a panel": mixed(2, 3),
	}
	for kind := range blockTypes {
		all["only "+kind] = parts{part(kind, 70, 512)}
	}
	for name, p := range all {
		s := torch.NewScope()
		got := s.Float32s(s.To(s.QuantDense(s.PackQuant(p...)), torch.Float32, torch.CPU))
		var want []float32
		for _, q := range p {
			x := s.FromBlocks([][]byte{q.Data}, q.Blocks, torch.BFloat16, torch.CPU, int64(q.Rows), int64(q.Cols))
			want = append(want, s.Float32s(s.To(x, torch.Float32, torch.CPU))...)
		}
		if s.Err() != nil {
			t.Fatalf("%s: %v", name, s.Err())
		}
		if len(got) != len(want) {
			t.Fatalf("%s: %d numbers of %d", name, len(got), len(want))
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%s: number %d is %v, was %v", name, i, got[i], want[i])
			}
		}
		s.Close()
	}
	short := part("Q8_0", 2, 32)
	short.Data = short.Data[1:]
	odd := part("Q8_0", 4, 32)
	odd.Rows, odd.Cols = 2, 48
	for name, p := range map[string]parts{
		"rows of two lengths":    {part("Q8_0", 3, 32), part("Q8_0", 3, 64)},
		"rows of no block":       {odd},
		"rows of half a block":   {part("Q8_0", 3, 128), {Rows: 1, Cols: 128, Blocks: part("Q4_K", 1, 256).Blocks, Data: make([]byte, 72)}},
		"too few bytes":          {short},
		"no rows":                {{Cols: 32, Blocks: short.Blocks}},
		"a type that is no type": {{Rows: 1, Cols: 32, Blocks: 99, Data: make([]byte, 34)}},
	} {
		s := torch.NewScope()
		if s.PackQuant(p...); s.Err() == nil {
			t.Errorf("%s: no error", name)
		}
		s.Close()
	}
}
