//go:build libtorch

package torch_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
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
		plain := s.To(s.FromParts(parts, c.file, torch.CPU, rows, c.cols), c.dtype, torch.CPU)
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
		got, held := s.PackParts(like, parts, c.file)
		if s.Err() != nil {
			t.Fatalf("%s: %v", name, s.Err())
		}
		if !held.Defined() || !s.InPanels(got, plain) {
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

// Numbers of float16, all of them, have libtorch's values in float32 and bfloat16, and so have their panels.
func TestFloat16NumbersHaveTheirValues(t *testing.T) {
	was := os.Getenv("AGENTCLI_TEST_KERNELS")
	t.Cleanup(func() { _ = torch.UseKernels(was) })
	half, ok := torch.BlocksOf("F16")
	if !ok {
		t.Fatal("float16 is not taken")
	}
	var all []byte
	for i := range 1 << 16 {
		if i&0x7c00 == 0x7c00 && i&0x3ff != 0 { // not a number: its bits may differ
			i = 0
		}
		all = binary.LittleEndian.AppendUint16(all, uint16(i))
	}
	for _, kernels := range []string{"", "avx2", "base"} {
		if torch.UseKernels(kernels) != nil {
			continue
		}
		for _, d := range []torch.DType{torch.Float32, torch.BFloat16} {
			s := torch.NewScope()
			want := s.To(s.FromBytes(all, torch.Float16, 256, 256), d, torch.CPU)
			got := s.FromBlocks([][]byte{all[:512*100], all[512*100:]}, half, d, torch.CPU, 256, 256)
			if !bytes.Equal(s.Bytes(got), s.Bytes(want)) {
				t.Errorf("%s: other numbers in %v", kernels, d)
			}
			if like := s.PackLinear(want); s.Err() == nil && s.InPanels(like, want) {
				_, a := s.PackParts(like, [][]byte{s.Bytes(want)}, d)
				_, b := s.PackBlocks(like, [][]byte{all[:512*100], all[512*100:]}, half)
				if !bytes.Equal(s.Bytes(a), s.Bytes(b)) {
					t.Errorf("%s: other panels in %v", kernels, d)
				}
			}
			if s.Err() != nil {
				t.Fatal(s.Err())
			}
			if s.PackQuant(torch.Quant{Rows: 256, Cols: 256, Blocks: half, Data: all}); s.Err() == nil {
				t.Error("float16 is multiplied as stored")
			}
			s.Close()
		}
	}
}
