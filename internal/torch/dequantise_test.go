//go:build libtorch

package torch_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"agentcli/internal/codes"
	"agentcli/internal/torch"
)

// sameNumber reports whether the bits are equal, or both are no numbers.
func sameNumber(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || math.IsNaN(float64(a)) && math.IsNaN(float64(b))
}

// A device computes the numbers of codes to the bit as the CPU does.
func TestTheKernelOfCodesIsTheCPUs(t *testing.T) {
	cases := codeCases()
	cases["two below each other"] = nil
	for name, c := range cases {
		parts := []*codes.Matrices{c}
		if c == nil {
			c = cases["int4"]
			parts = []*codes.Matrices{c, c}
		}
		for _, d := range kernelTypes {
			var want, got []float32
			compute := func(s *torch.Scope, dev torch.Device) []float32 {
				shape := shapeOf(c)
				shape[0] = int64(len(parts) * c.Count)
				return s.Float32s(s.To(s.FromCodes(parts, d, dev, shape...), torch.Float32, torch.CPU))
			}
			onWorker(t, func(s *torch.Scope) { want = compute(s, torch.CPU) })
			withKernels(t, func(s *torch.Scope) { got = compute(s, kernelDevice) })
			if !slices.EqualFunc(got, want, sameNumber) {
				t.Errorf("%s: other numbers in %v", name, d)
			}
		}
	}
}

// A device computes the numbers of blocks of every type as the CPU does, also of blocks that come to it in several pieces.
func TestTheKernelsOfBlocksAreTheCPUs(t *testing.T) {
	for name, block := range map[string]struct{ values, bytes int }{
		"Q4_0": {32, 18}, "Q4_1": {32, 20}, "Q5_0": {32, 22}, "Q5_1": {32, 24}, "Q8_0": {32, 34}, "Q2_K": {256, 84}, "Q3_K": {256, 110},
		"Q4_K": {256, 144}, "Q5_K": {256, 176}, "Q6_K": {256, 210}, "IQ1_S": {256, 50}, "IQ1_M": {256, 56}, "IQ2_XXS": {256, 66},
		"IQ2_XS": {256, 74}, "IQ2_S": {256, 82}, "IQ3_XXS": {256, 98}, "IQ3_S": {256, 110}, "IQ4_NL": {32, 18}, "IQ4_XS": {256, 136},
		"TQ1_0": {256, 54}, "TQ2_0": {256, 66}, "MXFP4": {32, 17}, "NVFP4": {64, 36}, "Q4_K of several pieces": {256, 144},
	} {
		r := rand.New(rand.NewPCG(3, uint64(block.bytes)))
		rows, columns := 7, 1024
		name, large := strings.CutSuffix(name, " of several pieces")
		if large {
			rows, columns = 4400, 256*64
		}
		data := make([]byte, rows*columns/block.values*block.bytes)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		b, ok := torch.BlocksOf(name)
		if !ok {
			t.Fatal(name)
		}
		parts := [][]byte{data[:3*block.bytes], data[3*block.bytes:]}
		for _, d := range kernelTypes {
			numbers := func(s *torch.Scope, dev torch.Device) []float32 {
				return s.Float32s(s.To(s.FromBlocks(parts, b, d, dev, int64(rows), int64(columns)), torch.Float32, torch.CPU))
			}
			var want, got []float32
			onWorker(t, func(s *torch.Scope) { want = numbers(s, torch.CPU) })
			withKernels(t, func(s *torch.Scope) { got = numbers(s, kernelDevice) })
			if !slices.EqualFunc(got, want, sameNumber) {
				t.Errorf("%s: other numbers in %v", name, d)
			}
		}
	}
}

// Bytes that a device is given in several places, and that are more than it is given at once, are there in order.
func TestManyBytesComeToADeviceInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	all := make([]byte, 72<<20)
	for i := 0; i+8 <= len(all); i += 8 {
		x := r.Uint64()
		for j := range 8 {
			all[i+j] = byte(x >> (8 * j))
		}
	}
	parts := [][]byte{all[:5], all[5:5], all[5 : 33<<20], all[33<<20:]}
	onWorker(t, func(s *torch.Scope) {
		on := s.FromParts(parts, torch.Float32, kernelDevice, int64(len(all)/4/1024), 1024)
		if !bytes.Equal(s.Bytes(s.To(on, torch.Float32, torch.CPU)), all) {
			t.Error("the device has other bytes")
		}
	})
}
