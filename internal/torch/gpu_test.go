//go:build libtorch

package torch_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"agentcli/internal/torch"
	"agentcli/internal/torch/testdevice"
)

// kernelDevice runs our GPU kernels: the tests' device, or with AGENTCLI_TEST_DEVICE=cuda
// a GPU.
var kernelDevice torch.Device

func TestMain(m *testing.M) {
	testdevice.FromEnvironment()
	if kernelDevice = torch.DefaultDevice; kernelDevice == torch.CPU {
		kernelDevice = torch.TestDevice
	}
	torch.DefaultDevice = torch.CPU
	os.Exit(m.Run())
}

// The kernels of a GPU compile for each generation, on a machine that has none.
func TestOurKernelsCompileForEachArchitecture(t *testing.T) {
	nvrtc := filepath.Join(filepath.Dir(torch.LibraryPath()), "../../nvidia/cu13/lib/libnvrtc.so.13")
	if _, err := os.Stat(nvrtc); err != nil {
		if os.Getenv("AGENTCLI_PYTHON") != "" { // make test, which fetches it
			t.Fatal(err)
		}
		t.Skip(err)
	}
	if found, err := torch.NVRTCOf(nvrtc); err != nil || found.Major != 13 || filepath.Base(found.Path) != filepath.Base(nvrtc) {
		t.Errorf("%s is %+v, %v", nvrtc, found, err)
	}
	if found, err := torch.NVRTCOf(nvrtc + ".missing"); err == nil {
		t.Errorf("a compiler that is not there is %+v", found)
	}
	for _, c := range [][2]int{{7, 5}, {8, 0}, {9, 0}, {10, 0}} {
		code, err := torch.CompileKernels(nvrtc, torch.Architecture(c[0], c[1]))
		if err != nil || len(code) < 1000 || string(code[1:4]) != "ELF" {
			t.Errorf("%d.%d: %d bytes, %v", c[0], c[1], len(code), err)
		}
	}
	if _, err := torch.CompileKernels(nvrtc, "sm_1"); err == nil {
		t.Error("an architecture that does not exist is compiled for")
	}
	if _, err := torch.CompileKernels(nvrtc+".missing", "sm_80"); err == nil {
		t.Error("a compiler that is not there compiles")
	}
}

// PeakMemory counts a tensor of a device, and nothing of the processor.
func TestPeakMemoryCountsATensorOfADevice(t *testing.T) {
	const bytes = 64 << 20
	onWorker(t, func(s *torch.Scope) {
		s.Empty(torch.Float32, kernelDevice, bytes/4)
		free, err := torch.FreeMemory(kernelDevice)
		if err != nil || free <= 0 {
			t.Errorf("%d bytes are free, %v", free, err)
		}
		allocated, reserved, err := torch.PeakMemory(kernelDevice)
		if err != nil || allocated < bytes || reserved < allocated {
			t.Errorf("%d bytes were allocated of %d reserved, %v; a tensor has %d", allocated, reserved, err, bytes)
		}
	})
	torch.EmptyCache(kernelDevice)
	if allocated, reserved, err := torch.PeakMemory(torch.CPU); allocated != 0 || reserved != 0 || err != nil {
		t.Errorf("of the processor: %d, %d, %v", allocated, reserved, err)
	}
}

// withKernels runs f on kernelDevice with our kernels, and fails if none ran.
func withKernels(t *testing.T, f func(s *torch.Scope)) {
	t.Helper()
	testdevice.Kernels(true)
	defer testdevice.Kernels(false)
	before := testdevice.Launches()
	onWorker(t, f)
	if kernelDevice == torch.TestDevice && testdevice.Launches() == before {
		t.Error("none of our kernels ran")
	}
}

func onWorker(t *testing.T, f func(s *torch.Scope)) {
	t.Helper()
	w := torch.NewWorker(1)
	defer w.Close()
	if err := w.Do(func(s *torch.Scope) error { f(s); return s.Err() }); err != nil {
		t.Fatal(err)
	}
}

func normal(r *rand.Rand, n int64) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(r.NormFloat64())
	}
	return out
}

// apart is the largest difference of a and b.
func apart(a, b []float64) (d float64) {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	for i := range a {
		if x := math.Abs(a[i] - b[i]); !(x <= d) {
			d = x
		}
	}
	return d
}

// tolerance of results of the size of 1.
func tolerance(d torch.DType) float64 {
	if d == torch.BFloat16 {
		return 1e-2
	}
	return 2e-6
}

var kernelTypes = []torch.DType{torch.Float32, torch.BFloat16}

// Decoding on a GPU is the CPU's, whatever the heads, the window and the length; a
// sequence's bits do not depend on what is decoded beside it.
func TestTheKernelThatDecodesIsTheCPUs(t *testing.T) {
	type shape struct{ heads, kv, dim, window int64 }
	for _, d := range kernelTypes {
		for _, x := range []shape{{4, 4, 8, 0}, {9, 3, 64, 0}, {14, 2, 64, 300}, {8, 1, 128, 0},
			{16, 1, 96, 40}, {2, 2, 256, 1}, {20, 2, 80, 0}, {4, 1, 512, 0}, {3, 3, 328, 50}} {
			t.Run(fmt.Sprint(d, x), func(t *testing.T) {
				const block, blocks = 16, 80
				r := rand.New(rand.NewPCG(1, 2))
				contexts := []int32{1, 700, 17, 256, 257, 40}
				var segs []torch.CachedSegment
				var table []int32
				free := r.Perm(blocks * 2)
				for i, c := range contexts {
					rows := int32(1)
					if i == 2 {
						rows = 5 // a prompt among them
					}
					start := int32(0)
					if i > 0 {
						start = segs[i-1].Start + segs[i-1].Len
					}
					segs = append(segs, torch.CachedSegment{Start: start, Len: rows, Context: c, FirstBlock: int32(len(table))})
					for range (c + block - 1) / block {
						table, free = append(table, int32(free[0])), free[1:]
					}
				}
				rows := int64(segs[len(segs)-1].Start + segs[len(segs)-1].Len)
				q, k, v := normal(r, rows*x.heads*x.dim), normal(r, rows*x.kv*x.dim), normal(r, rows*x.kv*x.dim)
				pool := [2][]float32{normal(r, 2*blocks*block*x.kv*x.dim), normal(r, 2*blocks*block*x.kv*x.dim)}
				attend := func(s *torch.Scope, dev torch.Device, segs []torch.CachedSegment, q, k, v []float32) []float64 {
					n := int64(segs[len(segs)-1].Start + segs[len(segs)-1].Len)
					at := func(data []float32, shape ...int64) torch.Tensor { return s.To(s.Float32(data, shape...), d, dev) }
					out := s.CachedAttention(at(q, n, x.heads, x.dim), at(k, n, x.kv, x.dim), at(v, n, x.kv, x.dim),
						at(pool[0], 2*blocks, block, x.kv, x.dim), at(pool[1], 2*blocks, block, x.kv, x.dim), s.PlanCache(segs, table),
						torch.Look{Window: x.window})
					return s.Float64s(out)
				}
				var want, got, alone []float64
				onWorker(t, func(s *torch.Scope) { want = attend(s, torch.CPU, segs, q, k, v) })
				withKernels(t, func(s *torch.Scope) { got = attend(s, kernelDevice, segs, q, k, v) })
				if a := apart(got, want); a > tolerance(d) {
					t.Errorf("%g from the CPU's", a)
				}
				one := segs[1]
				hq, hk := x.heads*x.dim, x.kv*x.dim
				row := int64(one.Start)
				one.Start = 0
				withKernels(t, func(s *torch.Scope) {
					alone = attend(s, kernelDevice, []torch.CachedSegment{one}, q[row*hq:][:hq], k[row*hk:][:hk], v[row*hk:][:hk])
				})
				if !slices.Equal(alone, got[row*hq:][:hq]) {
					t.Errorf("alone the sequence's result is %g apart", apart(alone, got[row*hq:][:hq]))
				}
			})
		}
	}
}

// Heads that one kernel norms, rotates and writes into the cache are those of the CPU's operations.
func TestTheKernelOfTheHeadsIsTheCPUs(t *testing.T) {
	type shape struct {
		queries, keys, dim, half int64
		normed, pairs, apart     bool
	}
	for _, d := range kernelTypes {
		for _, x := range []shape{{4, 4, 8, 4, false, false, false}, {9, 3, 64, 32, false, false, false}, {14, 2, 64, 0, true, false, false},
			{8, 1, 128, 64, true, false, true}, {16, 2, 96, 24, true, true, false}, {2, 2, 256, 32, true, true, true},
			{3, 1, 80, 9, false, false, false}, {2, 1, 512, 256, true, false, false}, {3, 1, 328, 40, true, true, true}} {
			t.Run(fmt.Sprint(d, x), func(t *testing.T) {
				const block, blocks, rows = 8, 9, 11
				r := rand.New(rand.NewPCG(8, 9))
				all := x.queries + 2*x.keys
				data, w := normal(r, rows*all*x.dim), [2][]float32{normal(r, x.dim), normal(r, x.dim)}
				var turns [4][]float32
				for i := range turns {
					turns[i] = normal(r, rows*x.half)
				}
				pool := [2][]float32{normal(r, blocks*block*x.keys*x.dim), normal(r, blocks*block*x.keys*x.dim)}
				segs := []torch.CachedSegment{{Start: 0, Len: 10, Context: 13}, {Start: 10, Len: 1, Context: 17, FirstBlock: 2}}
				table := []int32{7, 2, 1, 0, 5}
				compute := func(s *torch.Scope, dev torch.Device) [][]float64 {
					at := func(data []float32, shape ...int64) torch.Tensor { return s.To(s.Float32(data, shape...), d, dev) }
					heads := at(data, rows, all, x.dim)
					kpool, vpool := at(pool[0], blocks, block, x.keys, x.dim), at(pool[1], blocks, block, x.keys, x.dim)
					rule := torch.HeadRule{Norm: torch.Norm{Eps: 1e-6, Offset: 1}, Interleaved: x.pairs}
					if x.normed {
						rule.QNorm, rule.KNorm = at(w[0], x.dim), at(w[1], x.dim)
					}
					if x.half > 0 {
						var by [4]torch.Tensor
						for i := range by {
							by[i] = s.To(s.Float32(turns[i], rows, x.half), torch.Float32, dev)
						}
						rule.KCos, rule.KSin = by[0], by[1]
						if rule.QCos, rule.QSin = by[0], by[1]; x.apart {
							rule.QCos, rule.QSin = by[2], by[3]
						}
					}
					plan := s.PlanCache(segs, table)
					if q, ok := s.CachedHeads(heads, rule, kpool, vpool, plan); ok {
						attended := s.CachedAttention(q, torch.Tensor{}, torch.Tensor{}, kpool, vpool, plan, torch.Look{})
						return [][]float64{s.Float64s(q), s.Float64s(kpool), s.Float64s(vpool), s.Float64s(attended)}
					}
					if dev != torch.CPU {
						t.Fatal("the device has no kernel for these heads")
					}
					parts := s.Split(heads, 1, x.queries, x.keys, x.keys)
					q, k := parts[0], parts[1]
					if x.normed {
						q, k = s.RMSNorm(q, rule.QNorm, rule.Norm), s.RMSNorm(k, rule.KNorm, rule.Norm)
					}
					if x.half > 0 {
						q, k = s.Rope(q, rule.QCos, rule.QSin, x.pairs), s.Rope(k, rule.KCos, rule.KSin, x.pairs)
					}
					attended := s.CachedAttention(q, k, parts[2], kpool, vpool, plan, torch.Look{})
					return [][]float64{s.Float64s(q), s.Float64s(kpool), s.Float64s(vpool), s.Float64s(attended)}
				}
				var want, got [][]float64
				onWorker(t, func(s *torch.Scope) { want = compute(s, torch.CPU) })
				withKernels(t, func(s *torch.Scope) { got = compute(s, kernelDevice) })
				for i, what := range []string{"queries", "the keys of the cache", "the values of the cache", "what they attend to"} {
					if a := apart(got[i], want[i]); a > 16*tolerance(d) { // numbers of up to 10, rounded twice
						t.Errorf("%s are %g from the CPU's", what, a)
					}
				}
				if !slices.Equal(got[2], want[2]) {
					t.Error("values are not those of the projection")
				}
			})
		}
	}
}

func TestTheKernelsThatNormAreTheCPUs(t *testing.T) {
	for _, d := range kernelTypes {
		for _, shape := range [][2]int64{{5, 64}, {1, 1024}, {3, 1032}, {2, 4096}, {0, 64}, {9, 8}} {
			r := rand.New(rand.NewPCG(3, 4))
			x, y, w := normal(r, shape[0]*shape[1]), normal(r, shape[0]*shape[1]), normal(r, shape[1])
			norm := func(s *torch.Scope, dev torch.Device) (out []float64) {
				at := func(data []float32, shape ...int64) torch.Tensor { return s.To(s.Float32(data, shape...), d, dev) }
				a, b, f := at(x, shape[:]...), at(y, shape[:]...), at(w, shape[1])
				sum, h := s.AddRMSNorm(a, b, f, torch.Norm{Eps: 1e-5, Offset: 1})
				return slices.Concat(s.Float64s(sum), s.Float64s(h), s.Float64s(s.RMSNorm(a, f, torch.Norm{Eps: 1e-6})))
			}
			var want, got []float64
			onWorker(t, func(s *torch.Scope) { want = norm(s, torch.CPU) })
			if shape[0] > 0 {
				withKernels(t, func(s *torch.Scope) { got = norm(s, kernelDevice) })
			}
			if a := apart(got, want); a > 6*tolerance(d) {
				t.Errorf("%v %v: %g from the CPU's", d, shape, a)
			}
		}
	}
}

// In float32 a seed's tokens are the CPU's.
func TestTheKernelThatDrawsDrawsTheCPUsTokens(t *testing.T) {
	for _, v := range []int64{97, 1024, 2500} {
		r := rand.New(rand.NewPCG(5, uint64(v)))
		const rows = 84
		z := normal(r, rows*v)
		var how []torch.SampleRow
		for i := range rows {
			for j := range int(v) {
				z[i*int(v)+j] *= 3
				if i%3 == 0 { // many that are equal, as in low precision
					z[i*int(v)+j] = float32(math.Round(float64(z[i*int(v)+j])))
				}
			}
			how = append(how, torch.SampleRow{Temperature: []float64{1, .7, 1.6, 0}[i%4], TopP: []float64{1, .9, .3, .99, 0}[i%5],
				TopK: []int64{0, 1, 7, 50, 100000, 3}[i%6], MinP: []float64{0, 0, .05, .5, 0, 0, 1}[i%7], Uniform: r.Float64(), Tempered: int64(i % 2)})
		}
		how[0].Uniform, how[1].Uniform, how[2].Uniform = 0, math.Nextafter(1, 0), math.Nextafter(1, 0)
		var want, got []int32
		var wantLP, gotLP []float32
		draw := func(s *torch.Scope, dev torch.Device) ([]int32, []float32) {
			return s.Sample(s.To(s.Float32(z, rows, v), torch.Float32, dev), how)
		}
		onWorker(t, func(s *torch.Scope) { want, wantLP = draw(s, torch.CPU) })
		withKernels(t, func(s *torch.Scope) { got, gotLP = draw(s, kernelDevice) })
		for i := range want {
			if got[i] != want[i] || math.Abs(float64(gotLP[i]-wantLP[i])) > 3e-6 {
				t.Errorf("vocabulary %d, %+v: token %d with log-prob %v, want %d with %v", v, how[i], got[i], gotLP[i], want[i], wantLP[i])
			}
		}
	}
}

func TestLogitsThatAreNotFiniteAreAnErrorOfTheKernel(t *testing.T) {
	testdevice.Kernels(true)
	defer testdevice.Kernels(false)
	w := torch.NewWorker(1)
	defer w.Close()
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
		err := w.Do(func(s *torch.Scope) error {
			s.Sample(s.To(s.Float32([]float32{1, 2, bad, 4}, 1, 4), torch.Float32, kernelDevice), []torch.SampleRow{{Temperature: 1}})
			return s.Err()
		})
		if err == nil {
			t.Errorf("%v is drawn from", bad)
		}
	}
}

func TestTheKernelsOfTheHeadAreTheCPUs(t *testing.T) {
	const n, h, v = 13, 16, 700
	r := rand.New(rand.NewPCG(7, 8))
	x, m := normal(r, n*h), normal(r, v*h)
	targets, scales, g, ge := make([]int32, n), make([]float64, n), make([]float64, n), make([]float64, n)
	for i := range targets {
		targets[i], scales[i], g[i], ge[i] = int32(4+r.IntN(v-5)), .5+r.Float64(), r.NormFloat64(), r.NormFloat64()
	}
	for _, d := range kernelTypes {
		for _, entropic := range []bool{false, true} {
			for _, scaled := range []bool{false, true} {
				compute := func(s *torch.Scope, dev torch.Device) (out [][]float64) {
					hidden := s.RequiresGrad(s.To(s.Float32(x, n, h), d, dev), true)
					weight := s.RequiresGrad(s.To(s.Float32(m, v, h), d, dev), true)
					rule := torch.Head{Chunk: 5}
					if scaled {
						rule.Scale, rule.Barred = s.Float64(scales), s.IDs([]int32{3, v - 1})
					}
					var lp, ent torch.Tensor
					s.WithGrad(func() { lp, ent = s.HeadLogprobsOf(hidden, weight, s.IDs(targets), rule) })
					out = [][]float64{s.Float64s(lp), s.Float64s(ent)}
					ys, gs := []torch.Tensor{lp}, []torch.Tensor{s.To(s.Float64(g), s.DType(lp), dev)}
					if entropic {
						ys, gs = append(ys, ent), append(gs, s.To(s.Float64(ge), s.DType(ent), dev))
					}
					s.BackwardAll(ys, gs)
					return append(out, s.Float64s(s.Grad(hidden)), s.Float64s(s.Grad(weight)))
				}
				var want, got [][]float64
				onWorker(t, func(s *torch.Scope) { want = compute(s, torch.CPU) })
				withKernels(t, func(s *torch.Scope) { got = compute(s, kernelDevice) })
				for i, what := range []string{"log-probs", "entropies", "the gradient of the states", "of the weight"} {
					top := 0.0
					for _, x := range want[i] {
						top = max(top, math.Abs(x))
					}
					if a := apart(got[i], want[i]); a > 2*tolerance(d)*top {
						t.Errorf("%v, entropic %v, scaled %v: %s are %g from the CPU's, of %g", d, entropic, scaled, what, a, top)
					}
				}
			}
		}
	}
}

// What a layer computes in training besides products and attention is the CPU's, and its gradient.
func TestTheKernelsOfTrainingAreTheCPUs(t *testing.T) {
	const rows, heads = 37, 3
	r := rand.New(rand.NewPCG(11, 12))
	for _, d := range kernelTypes {
		for _, width := range []int64{8, 48, 1024, 1032, 4096} { // of the rows that are normed: a warp's, and a block's
			x, w, g := normal(r, rows*width), normal(r, width), normal(r, rows*width)
			gu, dy := normal(r, rows*2*width), normal(r, rows*width)
			cos, sin, hs := normal(r, rows*3), normal(r, rows*3), normal(r, rows*heads*8)
			compute := func(s *torch.Scope, dev torch.Device) (out [][]float64) {
				at := func(v []float32, shape ...int64) torch.Tensor { return s.To(s.Float32(v, shape...), d, dev) }
				leaf := func(v []float32, shape ...int64) torch.Tensor { return s.RequiresGrad(at(v, shape...), true) }
				turns := func(v []float32) torch.Tensor { return s.To(s.Float32(v, rows, 3), torch.Float32, dev) }
				in, weight, gates, turned := leaf(x, rows, width), leaf(w, width), leaf(gu, rows, 2*width), leaf(hs, rows, heads, 8)
				var normed, gated, round, pairs torch.Tensor
				s.WithGrad(func() {
					normed, gated = s.RMSNorm(in, weight, torch.Norm{Eps: 1e-5, Offset: 1}), s.SiluMul(gates)
					round = s.Rope(turned, turns(cos), turns(sin), false)
					pairs = s.Rope(round, turns(sin), turns(cos), true)
				})
				s.BackwardAll([]torch.Tensor{normed, gated, pairs}, []torch.Tensor{at(g, rows, width), at(dy, rows, width), at(hs, rows, heads, 8)})
				gelu := s.GELUMul(at(gu, rows, 2*width))
				for _, y := range []torch.Tensor{normed, gated, round, pairs, s.Grad(in), s.Grad(weight), s.Grad(gates), s.Grad(turned), gelu} {
					out = append(out, s.Float64s(y))
				}
				return out
			}
			var want, got [][]float64
			onWorker(t, func(s *torch.Scope) { want = compute(s, torch.CPU) })
			withKernels(t, func(s *torch.Scope) { got = compute(s, kernelDevice) })
			for i, what := range []string{"norm", "gate", "turned", "turned in pairs", "the norm's gradient", "its weight's", "the gate's",
				"the turned heads'", "GELU's gate"} {
				top := 0.0
				for _, x := range want[i] {
					top = max(top, math.Abs(x))
				}
				if a := apart(got[i], want[i]); a > 2*tolerance(d)*top {
					t.Errorf("%v, rows of %d: %s is %g from the CPU's, of %g", d, width, what, a, top)
				}
			}
		}
	}
}
