//go:build libtorch

package torch_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"agentcli/internal/codes"
	"agentcli/internal/torch"
)

// codedMatrices are matrices of random codes and scales, with all codes among them.
func codedMatrices(random *rand.Rand, c codes.Matrices) *codes.Matrices {
	rows := c.Count * c.Rows
	if c.Stride == 0 {
		c.Stride = (c.Cols*c.Bits + 31) / 32 * 4
	}
	stored := rows
	if c.Order == codes.Down {
		c.Stride, stored = 4*c.Cols, rows*c.Bits/32
	}
	c.Data = make([]byte, stored*c.Stride)
	for i := range c.Data {
		c.Data[i] = byte(random.Uint32())
		if c.Meaning == codes.E4M3 && c.Data[i]&0x7f == 0x7f {
			c.Data[i] = 0
		}
	}
	blocks := (rows + c.High - 1) / c.High * c.Across
	for range blocks {
		c.Scales = append(c.Scales, float32(math.Exp2(random.Float64()*30-20)))
		if c.Zeros != nil && len(c.Zeros) < blocks {
			c.Zeros = append(c.Zeros, float32(random.IntN(1<<c.Bits)))
		}
	}
	for i := range c.Groups {
		c.Groups[i] = int32(random.IntN(blocks / map[bool]int{true: c.Across, false: rows}[c.Transposed]))
	}
	return &c
}

// codeCases are all kinds of codes, in shapes whose last pieces are not whole.
func codeCases() map[string]*codes.Matrices {
	random, zeros := rand.New(rand.NewPCG(7, 8)), []float32{3}
	const half, brain = codes.ToFloat16, codes.ToBFloat16
	fp8 := codes.Matrices{Bits: 8, Meaning: codes.E4M3, High: 1}
	int8s := codes.Matrices{Bits: 8, Meaning: codes.Signed, High: 1, Zeros: zeros}
	words := codes.Matrices{Bits: 4, High: 1, Zeros: zeros}
	gptq := codes.Matrices{Bits: 4, Order: codes.Down, Transposed: true, Wide: 1, Zeros: zeros}
	awq := codes.Matrices{Bits: 4, Order: codes.Interleaved, Transposed: true, Wide: 1, Zeros: zeros, Rounding: half}
	mxfp4 := codes.Matrices{Bits: 4, Meaning: codes.E2M1, Transposed: true, High: 1, Wide: 32}
	cases := map[string]*codes.Matrices{}
	for name, x := range map[string]struct {
		like codes.Matrices
		set  func(c *codes.Matrices)
	}{
		"fp8": {fp8, func(c *codes.Matrices) {
			c.Rows, c.Cols, c.Stride, c.Across, c.High, c.Wide = 200, 328, 328, 3, 128, 128
		}},
		"fp8 to bfloat16": {fp8, func(c *codes.Matrices) {
			c.Rows, c.Cols, c.Stride, c.Across, c.Wide, c.Rounding = 64, 1100, 1100, 1, 1100, brain
		}},
		"int8":          {int8s, func(c *codes.Matrices) { c.Rows, c.Cols, c.Stride, c.Across, c.Wide = 70, 600, 600, 1, 600 }},
		"int8 in words": {words, func(c *codes.Matrices) { c.Rows, c.Cols, c.Bits, c.Across, c.Wide = 65, 130, 8, 5, 26 }},
		"int4":          {words, func(c *codes.Matrices) { c.Rows, c.Cols, c.Across, c.Wide, c.Rounding = 130, 1160, 8, 145, brain }},
		"int4 of odd columns": {words, func(c *codes.Matrices) {
			c.Rows, c.Cols, c.Across, c.Wide, c.Rounding = 3, 1162, 2, 581, half
		}},
		"int2": {words, func(c *codes.Matrices) { c.Rows, c.Cols, c.Bits, c.Across, c.High, c.Wide = 66, 90, 2, 3, 2, 30 }},
		"int4 in order": {words, func(c *codes.Matrices) {
			c.Rows, c.Cols, c.Across, c.Wide, c.Groups = 66, 256, 4, 64, make([]int32, 256)
		}},
		"GPTQ": {gptq, func(c *codes.Matrices) { c.Rows, c.Cols, c.Across, c.High, c.Rounding = 160, 680, 680, 32, half }},
		"GPTQ in order": {gptq, func(c *codes.Matrices) {
			c.Rows, c.Cols, c.Across, c.High, c.Groups = 160, 64, 64, 32, make([]int32, 160)
		}},
		"GPTQ of 2 bits": {gptq, func(c *codes.Matrices) { c.Rows, c.Cols, c.Bits, c.Across, c.High = 160, 72, 2, 72, 160 }},
		"GPTQ of 8 bits": {gptq, func(c *codes.Matrices) {
			c.Rows, c.Cols, c.Bits, c.Across, c.High, c.Rounding = 132, 100, 8, 100, 44, brain
		}},
		"AWQ":                     {awq, func(c *codes.Matrices) { c.Rows, c.Cols, c.Across, c.High = 130, 1096, 1096, 65 }},
		"MXFP4":                   {mxfp4, func(c *codes.Matrices) { c.Rows, c.Cols, c.Across, c.Rounding = 96, 128, 4, brain }},
		"MXFP4 of three matrices": {mxfp4, func(c *codes.Matrices) { c.Count, c.Rows, c.Cols, c.Across = 3, 70, 96, 3 }},
	} {
		c := x.like
		x.set(&c)
		c.Count = max(c.Count, 1)
		c.Zeros = slices.Clone(c.Zeros)
		cases[name] = codedMatrices(random, c)
	}
	all := *cases["AWQ"] // numbers that float16 has no room for, at both ends
	all.Scales = slices.Clone(all.Scales)
	for i := range all.Scales {
		all.Scales[i] *= float32(math.Exp2(float64(i%50 - 25)))
	}
	cases["AWQ of all sizes"] = &all
	return cases
}

// numbersOf are the numbers of a tensor of codes, by package codes and libtorch's rounding.
func numbersOf(s *torch.Scope, c *codes.Matrices, d torch.DType) []float32 {
	all, row := make([]byte, 4*c.Count*c.Rows*c.Cols), make([]float32, c.Cols)
	for i := range c.Count * c.Rows {
		c.Row(i, row)
		for j, x := range row {
			at := i*c.Cols + j
			if c.Transposed {
				at = (i/c.Rows*c.Cols+j)*c.Rows + i%c.Rows
			}
			binary.LittleEndian.PutUint32(all[4*at:], math.Float32bits(x))
		}
	}
	x := s.FromBytes(all, torch.Float32, int64(len(all)/4))
	for _, rounded := range map[codes.Rounding][]torch.DType{codes.ToFloat32: {d}, codes.ToFloat16: {torch.Float16, d},
		codes.ToBFloat16: {torch.BFloat16, d}}[c.Rounding] {
		x = s.To(x, rounded, torch.CPU)
	}
	return s.Float32s(s.To(x, torch.Float32, torch.CPU))
}

func shapeOf(c *codes.Matrices) []int64 {
	if c.Transposed {
		return []int64{int64(c.Count), int64(c.Cols), int64(c.Rows)}
	}
	return []int64{int64(c.Count), int64(c.Rows), int64(c.Cols)}
}

// Codes have the numbers that package codes computes, to the bit, also where they go straight into panels.
func TestCodesHaveTheNumbersOfPackageCodes(t *testing.T) {
	was := os.Getenv("AGENTCLI_TEST_KERNELS")
	t.Cleanup(func() { _ = torch.UseKernels(was) })
	for _, kernels := range []string{"", "avx512", "avx2", "base"} {
		if torch.UseKernels(kernels) != nil {
			continue // this processor has none of them
		}
		for name, c := range codeCases() {
			for _, d := range []torch.DType{torch.Float32, torch.BFloat16} {
				s := torch.NewScope()
				want, shape := numbersOf(s, c, d), shapeOf(c)
				plain := s.FromCodes([]*codes.Matrices{c}, d, torch.CPU, shape...)
				if got := s.Float32s(s.To(plain, torch.Float32, torch.CPU)); !slices.EqualFunc(got, want, sameNumber) {
					t.Errorf("%s: %s: other numbers in %v", kernels, name, d)
				}
				if c.Count == 1 {
					packedCodesEqual(t, s, name, c, d, plain)
				}
				if s.Err() != nil {
					t.Fatalf("%s: %s: %v", kernels, name, s.Err())
				}
				s.Close()
			}
		}
	}
}

// packedCodesEqual packs a matrix twice below itself, straight from its codes and from its numbers.
func packedCodesEqual(t *testing.T, s *torch.Scope, name string, c *codes.Matrices, d torch.DType, plain torch.Tensor) {
	t.Helper()
	parts, shape := []*codes.Matrices{c, c}, shapeOf(c)[1:]
	if fit := torch.CodesFit(parts); fit == (c.Transposed && c.Cols%64 != 0) {
		t.Errorf("%s: two matrices below each other are taken: %v", name, fit)
	}
	if !torch.CodesFit(parts) {
		parts = parts[:1]
	}
	rows, numbers := int64(len(parts))*shape[0], slices.Repeat(s.Bytes(plain), len(parts))
	both := s.FromBytes(numbers, d, rows, shape[1])
	want := s.PackLinear(both)
	if s.Err() != nil || !s.InPanels(want, both) {
		return // oneDNN has another layout
	}
	like := s.PackLinear(s.Full(1, d, torch.CPU, rows, shape[1]))
	_, a := s.PackParts(like, [][]byte{numbers}, d)
	weight, b := s.PackCodes(like, parts)
	if !slices.Equal(s.Bytes(a), s.Bytes(b)) || !s.InPanels(weight, both) {
		t.Errorf("%s: other panels in %v", name, d)
	}
}

// Codes that do not fit the shape, or whose bytes, scales or groups are too few, are refused before one is read.
func TestTooFewCodesAreRefused(t *testing.T) {
	cases := codeCases()
	for name, change := range map[string]func(c *codes.Matrices){
		"bytes":  func(c *codes.Matrices) { c.Data = c.Data[:len(c.Data)-1] },
		"scales": func(c *codes.Matrices) { c.Scales = c.Scales[:len(c.Scales)-1] },
		"zeros":  func(c *codes.Matrices) { c.Zeros = c.Zeros[:len(c.Zeros)-1] },
		"groups": func(c *codes.Matrices) { c.Groups = c.Groups[:len(c.Groups)-1] },
		"stride": func(c *codes.Matrices) { c.Stride = c.Cols / 4 },
		"shape":  func(c *codes.Matrices) { c.Rows-- },
	} {
		c := *cases["int4 in order"]
		shape := shapeOf(&c)
		s := torch.NewScope()
		if s.FromCodes([]*codes.Matrices{&c}, torch.Float32, torch.CPU, shape...); s.Err() != nil {
			t.Fatal(s.Err())
		}
		change(&c)
		if s.FromCodes([]*codes.Matrices{&c}, torch.Float32, torch.CPU, shape...); s.Err() == nil {
			t.Errorf("%s: taken", name)
		}
		s.Close()
	}
}
