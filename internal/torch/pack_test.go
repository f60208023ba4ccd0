//go:build libtorch

package torch_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/cpu"

	"agentcli/internal/torch"
)

// A weight that was packed from the parts of a file is the one that was packed from a plain copy:
// its panels hold the same numbers, and a product has the same bits.
func TestPackPartsGivesWhatPackLinearDoes(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	numbers := func(d torch.DType, n int64) (b []byte) {
		for range n {
			x := math.Float32bits(float32(random.NormFloat64()))
			if d == torch.BFloat16 {
				b = binary.LittleEndian.AppendUint16(b, uint16(x>>16))
			} else {
				b = binary.LittleEndian.AppendUint32(b, x)
			}
		}
		return b
	}
	for name, c := range map[string]struct {
		file, dtype torch.DType
		cols        int64
		rows        []int64
	}{
		"bfloat16":                 {torch.BFloat16, torch.BFloat16, 128, []int64{64}},
		"float32":                  {torch.Float32, torch.Float32, 128, []int64{64}},
		"widened":                  {torch.BFloat16, torch.Float32, 128, []int64{64}},
		"widened, three parts":     {torch.BFloat16, torch.Float32, 576, []int64{576, 192, 192}},
		"float32, three parts":     {torch.Float32, torch.Float32, 576, []int64{576, 192, 192}},
		"three parts":              {torch.BFloat16, torch.BFloat16, 576, []int64{576, 192, 192}},
		"within panels":            {torch.BFloat16, torch.BFloat16, 70, []int64{100, 7, 30}},
		"within panels, float32":   {torch.Float32, torch.Float32, 70, []int64{100, 7, 30}},
		"within panels, widened":   {torch.BFloat16, torch.Float32, 70, []int64{100, 7, 30}},
		"fewer rows than a panel":  {torch.BFloat16, torch.BFloat16, 258, []int64{3}},
		"longer than a block once": {torch.Float32, torch.Float32, 65 * 2, []int64{64, 1}},
	} {
		s := torch.NewScope()
		var parts [][]byte
		rows := int64(0)
		for _, n := range c.rows {
			parts = append(parts, numbers(c.file, n*c.cols))
			rows += n
		}
		plain := s.To(s.FromParts(parts, c.file, rows, c.cols), c.dtype, torch.CPU)
		want := s.PackLinear(plain)
		if !s.InPanels(want, plain) {
			s.Close()
			fullPanels := rows%64 == 0 && c.cols%64 == 0 // for others oneDNN may have another layout in float32
			if fullPanels && torch.Kernels() == "avx512_bf16" && !cpu.X86.HasAMXBF16 {
				t.Errorf("%s: not in panels on a processor that has them", name)
			}
			continue // PackParts is not asked for such a layout
		}
		like := s.PackLinear(s.Full(1, c.dtype, torch.CPU, rows, c.cols))
		got, bytes := s.PackParts(like, parts, c.file)
		if s.Err() != nil {
			t.Fatalf("%s: %v", name, s.Err())
		}
		if !bytes.Defined() || !s.InPanels(got, plain) {
			t.Errorf("%s: the numbers are not where they were", name)
		}
		x := s.To(s.FromBytes(numbers(torch.Float32, 5*c.cols), torch.Float32, 5, c.cols), c.dtype, torch.CPU)
		product := func(w torch.Tensor) []float32 {
			return s.Float32s(s.To(s.LinearPacked(x, w, torch.Tensor{}), torch.Float32, torch.CPU))
		}
		a, b := product(want), product(got)
		for i := range a {
			if a[i] != b[i] {
				t.Fatalf("%s: number %d of the product is %v, was %v", name, i, b[i], a[i])
			}
		}
		if s.Err() != nil {
			t.Fatalf("%s: %v", name, s.Err())
		}
		if s.PackParts(like, parts[:1], torch.Float64); s.Err() == nil {
			t.Errorf("%s: numbers of float64 were packed", name)
		}
		s.Close()
	}
	s := torch.NewScope()
	defer s.Close()
	like := s.PackLinear(s.Full(1, torch.Float32, torch.CPU, 64, 64))
	if s.PackParts(like, [][]byte{make([]byte, 63*64*4)}, torch.Float32); s.Err() == nil {
		t.Error("63 rows were packed as 64")
	}
}
