//go:build libtorch

package torch_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"agentcli/internal/torch"
)

// The kernel chooses the experts that the CPU chooses, in its order, and weighs them alike.
func TestTheKernelThatChoosesExpertsIsTheCPUs(t *testing.T) {
	type shape struct {
		rows, experts int64
		corrected     bool
		how           torch.Router
	}
	for _, x := range []shape{
		{5, 128, false, torch.Router{Active: 8, Normalise: true}},
		{1, 8, false, torch.Router{Active: 2}},
		{4, 4, false, torch.Router{Active: 4, Normalise: true}},
		{3, 512, false, torch.Router{Active: 10, Normalise: true}},
		{9, 64, true, torch.Router{Active: 32, Sigmoid: true, Normalise: true, Scale: 2.5}},
		{6, 40, true, torch.Router{Active: 6, Sigmoid: true, Normalise: true, Groups: 4, TopGroups: 2, Scale: 1.5}},
		{7, 96, true, torch.Router{Active: 3, Sigmoid: true, Groups: 32, TopGroups: 5}},
		{2, 33, false, torch.Router{Active: 5, Sigmoid: true, Normalise: true, Epsilon: .5}},
	} {
		for _, d := range kernelTypes {
			t.Run(fmt.Sprint(d, x), func(t *testing.T) {
				r := rand.New(rand.NewPCG(11, uint64(x.experts)))
				logits := make([]float32, x.rows*x.experts)
				for row := range x.rows { // no two are equal: numbers of bfloat16 that follow each other
					for i, at := range r.Perm(int(x.experts)) {
						logits[int(row*x.experts)+at] = math.Float32frombits(uint32(0x3f00+i) << 16)
					}
				}
				by := normal(r, x.experts)
				for i := range by {
					by[i] /= 8
				}
				choose := func(s *torch.Scope, dev torch.Device) (ids, weights []float64) {
					var correction torch.Tensor
					if x.corrected {
						correction = s.To(s.Float32(by, x.experts), torch.Float32, dev)
					}
					i, w := s.Route(s.To(s.Float32(logits, x.rows, x.experts), d, dev), correction, torch.Tensor{}, x.how)
					return s.Float64s(i), s.Float64s(w)
				}
				var ids, weights, wantIDs, wantWeights []float64
				onWorker(t, func(s *torch.Scope) { wantIDs, wantWeights = choose(s, torch.CPU) })
				withKernels(t, func(s *torch.Scope) { ids, weights = choose(s, kernelDevice) })
				if !slices.Equal(ids, wantIDs) {
					t.Errorf("chosen are %v, by the CPU %v", ids, wantIDs)
				}
				if a := apart(weights, wantWeights); a > 1e-6 {
					t.Errorf("the weights are %g from the CPU's", a)
				}
			})
		}
	}
}

// Among equals the kernel chooses the first.
func TestTheKernelChoosesTheFirstOfEqualExperts(t *testing.T) {
	withKernels(t, func(s *torch.Scope) {
		z := make([]float32, 80)
		z[70], z[41], z[9], z[40] = 3, 2, 2, 2
		ids, _ := s.Route(s.To(s.Float32(z, 1, 80), torch.Float32, kernelDevice), torch.Tensor{}, torch.Tensor{}, torch.Router{Active: 5})
		if got := s.Float64s(ids); !slices.Equal(got, []float64{70, 9, 40, 41, 0}) {
			t.Errorf("chosen are %v", got)
		}
	})
}

// The kernels of experts give what the CPU gives: of sizes that fill no piece of theirs, of experts without rows, and of experts
// with more rows than are computed together. What a row gets does not depend on the others.
func TestTheKernelsOfExpertsAreTheCPUs(t *testing.T) {
	type shape struct {
		rows, experts, active, hidden, size int64
		clamped, gelu                       bool
	}
	for _, x := range []shape{
		{rows: 1, experts: 8, active: 2, hidden: 64, size: 32},
		{rows: 5, experts: 4, active: 4, hidden: 40, size: 24, gelu: true},
		{rows: 43, experts: 2, active: 1, hidden: 136, size: 8},
		{rows: 9, experts: 16, active: 3, hidden: 32, size: 200},
		{rows: 1, experts: 8, active: 2, hidden: 64, size: 32, clamped: true},
		{rows: 43, experts: 2, active: 1, hidden: 72, size: 24, clamped: true},
		{rows: 9, experts: 16, active: 3, hidden: 136, size: 40, clamped: true},
	} {
		for _, d := range kernelTypes {
			t.Run(fmt.Sprint(d, x), func(t *testing.T) {
				r := rand.New(rand.NewPCG(12, uint64(x.rows)))
				ids, weights := make([]int64, x.rows*x.active), make([]float32, x.rows*x.active)
				for row := range x.rows {
					for k, e := range r.Perm(int(x.experts))[:x.active] {
						if row%10 != 0 && x.active == 1 {
							e = 1 // has most rows
						}
						ids[row*x.active+int64(k)], weights[row*x.active+int64(k)] = int64(e), .2+r.Float32()
					}
				}
				in, gateUp, down := normal(r, x.rows*x.hidden), normal(r, x.experts*2*x.size*x.hidden), normal(r, x.experts*x.size*x.hidden)
				biases := [2][]float32{normal(r, x.experts*2*x.size), normal(r, x.experts*x.hidden)}
				for i := range gateUp {
					gateUp[i] /= 8
				}
				for i := range down {
					down[i] /= 8
				}
				compute := func(s *torch.Scope, dev torch.Device, first, rows int64) []float64 {
					at := func(data []float32, shape ...int64) torch.Tensor { return s.To(s.Float32(data, shape...), d, dev) }
					h := at(in[first*x.hidden:][:rows*x.hidden], rows, x.hidden)
					chosen := s.To(s.Int64(ids[first*x.active:][:rows*x.active], rows, x.active), torch.Int64, dev)
					shares := s.To(s.Float32(weights[first*x.active:][:rows*x.active], rows, x.active), torch.Float32, dev)
					if x.clamped {
						return s.Float64s(s.ClampedExperts(h, chosen, shares, torch.ClampedExperts{
							GateUp: at(gateUp, x.experts, x.hidden, 2*x.size), GateUpBias: at(biases[0], x.experts, 2*x.size),
							Down: at(down, x.experts, x.size, x.hidden), DownBias: at(biases[1], x.experts, x.hidden), Alpha: 1.702,
							Limit: 1.5}))
					}
					return s.Float64s(s.Experts(h, chosen, shares, torch.PlainExperts{GateUp: at(gateUp, x.experts*2*x.size, x.hidden),
						Down: at(down, x.experts*x.hidden, x.size), Count: int(x.experts), GELU: x.gelu}))
				}
				var want, got []float64
				onWorker(t, func(s *torch.Scope) { want = compute(s, torch.CPU, 0, x.rows) })
				withKernels(t, func(s *torch.Scope) { got = compute(s, kernelDevice, 0, x.rows) })
				most := tolerance(d) * float64(x.active)
				for _, w := range want {
					most = max(most, tolerance(d)*2*max(w, -w))
				}
				if a := apart(got, want); a > most {
					t.Errorf("%g from the CPU's, want at most %g", a, most)
				}
				for _, row := range []int64{0, x.rows / 2, x.rows - 1} {
					var alone []float64
					withKernels(t, func(s *torch.Scope) { alone = compute(s, kernelDevice, row, 1) })
					if !slices.Equal(got[row*x.hidden:][:x.hidden], alone) {
						t.Errorf("row %d has other bits beside others", row)
					}
				}
			})
		}
	}
}
