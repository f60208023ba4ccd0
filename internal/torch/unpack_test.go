//go:build libtorch

package torch_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"agentcli/internal/codes"
	"agentcli/internal/torch"
)

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
			if !slices.Equal(got, want) {
				t.Errorf("%s: other numbers in %v", name, d)
			}
		}
	}
}

// Blocks that come to a device in several pieces have the CPU's numbers.
func TestBlocksOfSeveralPiecesAreTheCPUs(t *testing.T) {
	const bytesOfABlock, rows, columns = 144, 2000, 256 * 64
	r := rand.New(rand.NewPCG(3, 4))
	data := make([]byte, rows*columns/256*bytesOfABlock)
	for i := range data {
		if data[i] = byte(r.Uint32()); i%bytesOfABlock < 4 { // two float16 numbers
			data[i] &= 0xbb
		}
	}
	b, _ := torch.BlocksOf("Q4_K")
	parts := [][]byte{data[:100*bytesOfABlock], data[100*bytesOfABlock:]}
	numbers := func(s *torch.Scope, dev torch.Device) []byte {
		return s.Bytes(s.To(s.FromBlocks(parts, b, torch.BFloat16, dev, rows, columns), torch.BFloat16, torch.CPU))
	}
	var want, got []byte
	onWorker(t, func(s *torch.Scope) { want = numbers(s, torch.CPU) })
	withKernels(t, func(s *torch.Scope) { got = numbers(s, kernelDevice) })
	if !bytes.Equal(got, want) {
		t.Error("other numbers")
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
