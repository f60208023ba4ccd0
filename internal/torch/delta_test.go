//go:build libtorch

package torch_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentcli/internal/torch"
)

// deltaCase is a call of GatedDelta: runs of these lengths, each behind its parent.
type deltaCase struct {
	name    string
	heads   torch.DeltaHeads
	lengths []int32
	parents []int32
	gate    float64            // added to the logits of the decays
	from    []int32            // of each run its slot in the pool; nil: no pool
	saves   []torch.SavedState // with a pool
}

var deltaCases = []deltaCase{
	{name: "one token", heads: torch.DeltaHeads{2, 2, 32, 32}, lengths: []int32{1}, parents: []int32{-1}},
	{name: "two tokens", heads: torch.DeltaHeads{1, 3, 16, 48}, lengths: []int32{2}, parents: []int32{-1}},
	{name: "runs of one token", heads: torch.DeltaHeads{1, 2, 16, 16}, lengths: []int32{1, 1, 1, 1}, parents: []int32{-1, 0, 1, 1}},
	{name: "as many as go token by token", heads: torch.DeltaHeads{2, 4, 32, 16}, lengths: []int32{16, 3}, parents: []int32{-1, 0}},
	{name: "one more", heads: torch.DeltaHeads{2, 4, 32, 16}, lengths: []int32{17, 17}, parents: []int32{-1, 0}},
	{name: "a whole chunk", heads: torch.DeltaHeads{1, 1, 64, 64}, lengths: []int32{64}, parents: []int32{-1}},
	{name: "a chunk and a token", heads: torch.DeltaHeads{1, 1, 64, 64}, lengths: []int32{65, 30}, parents: []int32{-1, -1}},
	{name: "as Qwen3.5", heads: torch.DeltaHeads{1, 2, 128, 128}, lengths: []int32{200}, parents: []int32{-1}},
	{name: "sizes that fill no vector", heads: torch.DeltaHeads{2, 6, 20, 13}, lengths: []int32{75, 5}, parents: []int32{-1, 0}},
	{name: "one dimension", heads: torch.DeltaHeads{1, 1, 1, 1}, lengths: []int32{20, 2}, parents: []int32{-1, -1}},
	{name: "a tree", heads: torch.DeltaHeads{2, 2, 32, 16}, lengths: []int32{70, 3, 40, 130, 1, 9, 64, 5, 20},
		parents: []int32{-1, 0, 0, 2, -1, 4, 2, 6, 0}},
	{name: "a decay that erases the state", heads: torch.DeltaHeads{1, 2, 32, 32}, lengths: []int32{90, 20}, parents: []int32{-1, 0},
		gate: 40},
	{name: "nearly no decay", heads: torch.DeltaHeads{1, 2, 32, 32}, lengths: []int32{150, 20}, parents: []int32{-1, 0}, gate: -12},
	{name: "decoding", heads: torch.DeltaHeads{2, 4, 32, 48}, lengths: []int32{1, 1, 1}, parents: []int32{-1, -1, -1},
		from: []int32{1, 2, 3}, saves: []torch.SavedState{{0, 1}, {1, 2}, {2, 3}}},
	{name: "a sequence with snapshots", heads: torch.DeltaHeads{1, 2, 20, 13}, lengths: []int32{70, 16, 5, 1}, parents: []int32{-1, 0, 1, -1},
		from: []int32{0, 0, 0, 4}, saves: []torch.SavedState{{0, 2}, {1, 3}, {1, 5}, {2, 1}, {3, 4}}},
	{name: "states that another overwrites", heads: torch.DeltaHeads{2, 2, 16, 32}, lengths: []int32{1, 1, 40, 1, 20},
		parents: []int32{-1, -1, -1, -1, 3},
		from:    []int32{2, 2, 2, 5, 0}, saves: []torch.SavedState{{0, 2}, {1, 3}, {2, 5}, {3, 1}, {4, 4}}},
	{name: "a run that is not saved", heads: torch.DeltaHeads{1, 1, 32, 32}, lengths: []int32{1, 33, 1}, parents: []int32{-1, -1, -1},
		from: []int32{1, 2, 3}, saves: []torch.SavedState{{2, 3}}},
}

const deltaSlots = 6

func (c deltaCase) rows() (n int64) {
	for _, x := range c.lengths {
		n += int64(x)
	}
	return n
}

// values are those of what the call makes, by name: the result, and the states or the gradients.
func (c deltaCase) values(s *torch.Scope, d, inputs torch.DType, seed int) map[string]torch.Tensor {
	rng := rand.New(rand.NewPCG(uint64(seed), uint64(len(c.name))))
	draw := func(of torch.DType, shift float64, shape ...int64) torch.Tensor {
		v := make([]float64, numel(shape))
		for i := range v {
			v[i] = rng.NormFloat64() + shift
		}
		x := s.To(s.To(s.Float64(v, shape...), of, torch.CPU), d, torch.CPU)
		return s.RequiresGrad(x, c.from == nil)
	}
	h, rows := c.heads, c.rows()
	values := int64(h.ValueHeads)
	in := map[string]torch.Tensor{
		"q, k and v": draw(inputs, 0, rows, int64(2*h.KeyHeads*h.KeyDim+h.ValueHeads*h.ValueDim)),
		"b and a":    draw(inputs, 0, rows, 2*values), "a_log": draw(inputs, 0, values), "dt_bias": draw(inputs, c.gate-2, values),
	}
	runs, start := make([]torch.Run, len(c.lengths)), int32(0)
	for i, n := range c.lengths {
		runs[i] = torch.Run{Start: start, Len: n, Parent: c.parents[i]}
		if start += n; c.from != nil {
			runs[i].From = c.from[i]
		}
	}
	plan := s.PlanRuns(runs, c.saves)
	call := func(pool torch.Tensor) torch.Tensor {
		parts := s.Split(in["b and a"], 1, values, values)
		return s.GatedDelta(in["q, k and v"], parts[0], parts[1], in["a_log"], in["dt_bias"], h, plan, pool)
	}
	if c.from != nil {
		acc := torch.Float32
		if d == torch.Float64 {
			acc = torch.Float64
		}
		pool := s.To(draw(torch.Float32, 0, deltaSlots, values, int64(h.KeyDim), int64(h.ValueDim)), acc, torch.CPU)
		return map[string]torch.Tensor{"result": call(pool), "states": pool}
	}
	out := map[string]torch.Tensor{}
	s.WithGrad(func() {
		out["result"] = call(torch.Tensor{})
		s.Backward(out["result"], draw(inputs, 0, rows, values*int64(h.ValueDim)))
	})
	for name, x := range in {
		out["gradient of "+name] = s.Grad(x)
	}
	return out
}

// deltaValues computes a case with the kernels of a name.
func deltaValues(t *testing.T, w *torch.Worker, kernels string, c deltaCase, d, inputs torch.DType, seed int) map[string][]float64 {
	t.Helper()
	err := torch.UseKernels(kernels)
	switch {
	case err != nil && strings.HasPrefix(kernels, "avx"):
		t.Skip(err) // of another processor
	case err != nil:
		t.Fatal(err)
	}
	defer torch.UseKernels("")
	out := map[string][]float64{}
	run(t, w, func(s *torch.Scope) {
		for name, x := range c.values(s, d, inputs, seed) {
			out[name] = s.Float64s(x)
		}
	})
	return out
}

// With float64 as the truth, the kernels are as near to it as libtorch's operations in the same type,
// over some draws: the gradient of a_log is one number for each head.
func TestTheDeltaKernelsAreAsExactAsLibtorch(t *testing.T) {
	w := worker(t, 2)
	const draws = 12
	for d, unit := range map[torch.DType]float64{torch.Float32: 0x1p-23, torch.BFloat16: 0x1p-9} {
		for _, c := range deltaCases {
			var want, theirs [draws]map[string][]float64
			for i := range draws {
				want[i], theirs[i] = deltaValues(t, w, "none", c, torch.Float64, d, i), deltaValues(t, w, "none", c, d, d, i)
			}
			for _, kernels := range []string{"avx512", "avx2", "base"} {
				t.Run(fmt.Sprint(d, "/", c.name, "/", kernels), func(t *testing.T) {
					var got [draws]map[string][]float64
					for i := range draws {
						got[i] = deltaValues(t, w, kernels, c, d, d, i)
					}
					for name := range want[0] {
						var off, other, size float64
						for i := range draws {
							off, size = off+squares(got[i][name], want[i][name]), size+squares(want[i][name], nil)
							other += squares(theirs[i][name], want[i][name])
						}
						if !(math.Sqrt(off) <= 1.5*math.Sqrt(other)+unit*math.Sqrt(size)) {
							t.Errorf("%s: %.3g of %.3g beside float64, libtorch %.3g", name, math.Sqrt(off), math.Sqrt(size), math.Sqrt(other))
						}
					}
				})
			}
		}
	}
}

// squares is the sum of (x−y)²; y may be nil: zeros.
func squares(x, y []float64) (sum float64) {
	for i, v := range x {
		if y != nil {
			v -= y[i]
		}
		sum += v * v
	}
	return sum
}

// A slot that no run is saved in keeps its bits, and a state that two runs begin with, one of
// which is saved over it, is the old one for both, in any order.
func TestTheDeltaKernelsWriteWhatIsSavedAlone(t *testing.T) {
	w := worker(t, 2)
	for _, c := range deltaCases {
		if c.from == nil {
			continue
		}
		none := c
		none.saves = nil
		before := deltaValues(t, w, "", none, torch.Float32, torch.Float32, 1)
		after := deltaValues(t, w, "", c, torch.Float32, torch.Float32, 1)
		if !slices.Equal(before["result"], after["result"]) {
			t.Errorf("%s: the result depends on what is saved", c.name)
		}
		each := len(after["states"]) / deltaSlots
		for slot := range deltaSlots {
			saved := slices.ContainsFunc(c.saves, func(x torch.SavedState) bool { return int(x.Slot) == slot })
			same := slices.Equal(before["states"][slot*each:(slot+1)*each], after["states"][slot*each:(slot+1)*each])
			if saved == same {
				t.Errorf("%s: slot %d is saved: %v, is as before: %v", c.name, slot, saved, same)
			}
		}
	}
}

func TestDeltaBitsDependOnNoThreads(t *testing.T) {
	for _, d := range []torch.DType{torch.Float32, torch.BFloat16} {
		var want []map[string][]byte
		for _, threads := range []int{1, 2, 3} {
			w := worker(t, threads)
			for i, c := range deltaCases {
				got := map[string][]byte{}
				run(t, w, func(s *torch.Scope) {
					for name, x := range c.values(s, d, d, 1) {
						got[name] = s.Bytes(x)
					}
				})
				if threads == 1 {
					want = append(want, got)
					continue
				}
				for name := range got {
					if !bytes.Equal(got[name], want[i][name]) {
						t.Errorf("%s, %v: %d threads give other bits of %s", c.name, d, threads, name)
					}
				}
			}
		}
	}
}

// A sequence's numbers are those that it has alone, bit for bit, beside others of any length.
func TestDeltaBitsDependOnNoOtherSequence(t *testing.T) {
	w := worker(t, 2)
	h := torch.DeltaHeads{KeyHeads: 1, ValueHeads: 2, KeyDim: 32, ValueDim: 16}
	lengths := []int32{1, 90, 5, 17, 1, 64}
	run(t, w, func(s *torch.Scope) {
		rng := rand.New(rand.NewPCG(1, 2))
		draw := func(shape ...int64) torch.Tensor {
			v := make([]float32, numel(shape))
			for i := range v {
				v[i] = float32(rng.NormFloat64())
			}
			return s.Float32(v, shape...)
		}
		n := int64(178)
		qkv, b, a, aLog, bias := draw(n, 96), draw(n, 2), draw(n, 2), draw(2), draw(2)
		of := func(from int64, lengths ...int32) []byte {
			var runs []torch.Run
			rows := int32(0)
			for _, l := range lengths {
				runs = append(runs, torch.Run{Start: rows, Len: l, Parent: -1})
				rows += l
			}
			part := func(x torch.Tensor) torch.Tensor { return s.Narrow(x, 0, from, int64(rows)) }
			return s.Bytes(s.GatedDelta(part(qkv), part(b), part(a), aLog, bias, h, s.PlanRuns(runs, nil), torch.Tensor{}))
		}
		together, from := of(0, lengths...), int64(0)
		for i, l := range lengths {
			alone := of(from, l)
			if at := int(from) * 32 * 4; !bytes.Equal(alone, together[at:at+len(alone)]) {
				t.Errorf("sequence %d has other bits beside others", i)
			}
			from += int64(l)
		}
	})
}

// What would be read or written outside of the states is an error.
func TestDeltaSlotsOutsideOfThePoolAreErrors(t *testing.T) {
	w := worker(t, 1)
	for _, c := range []deltaCase{
		{name: "read", from: []int32{deltaSlots}},
		{name: "read below", from: []int32{-1}},
		{name: "written", from: []int32{0}, saves: []torch.SavedState{{0, deltaSlots}}},
		{name: "of no run", from: []int32{0}, saves: []torch.SavedState{{1, 0}}},
		{name: "written twice", from: []int32{0}, saves: []torch.SavedState{{0, 1}, {0, 1}}},
	} {
		c.heads, c.lengths, c.parents = torch.DeltaHeads{1, 1, 16, 16}, []int32{2}, []int32{-1}
		if err := w.Do(func(s *torch.Scope) error { c.values(s, torch.Float32, torch.Float32, 1); return s.Err() }); err == nil {
			t.Errorf("a slot that is %s: no error", c.name)
		}
	}
}

// BenchmarkGatedDelta is the gated delta rule alone, of a layer of Qwen3.5-0.8B in bfloat16 on one
// thread, by the kernels of each instruction set and by libtorch's operations: decoding, a prompt of
// 512 tokens, and forward and backward of eight rows of 256. See bench/recurrent.sh.
func BenchmarkGatedDelta(b *testing.B) {
	w := worker(b, 1)
	for _, x := range []deltaWork{{1, 1, false}, {8, 1, false}, {32, 1, false}, {1, 512, false}, {8, 256, true}} {
		for _, kernels := range []string{"avx512", "avx2", "none"} {
			b.Run(fmt.Sprintf("%s/%s", x, kernels), func(b *testing.B) {
				if err := torch.UseKernels(kernels); err != nil {
					b.Skip(err)
				}
				defer torch.UseKernels("")
				run(b, w, func(s *torch.Scope) { x.measure(b, s) })
			})
		}
	}
}

// deltaWork is so many sequences of so many tokens.
type deltaWork struct {
	sequences, tokens int32
	backward          bool
}

func (x deltaWork) String() string {
	if x.backward {
		return fmt.Sprintf("train=%dx%d", x.sequences, x.tokens)
	}
	return fmt.Sprintf("forward=%dx%d", x.sequences, x.tokens)
}

// measure reports the processor's time, which other programs on the machine change less than the clock's.
func (x deltaWork) measure(b *testing.B, s *torch.Scope) {
	const inputs = 16 // in turn: of the same keys again and again a state would get too small for normal floats
	h := torch.DeltaHeads{KeyHeads: 16, ValueHeads: 16, KeyDim: 128, ValueDim: 128}
	rows, rng := int64(x.sequences*x.tokens), rand.New(rand.NewPCG(1, 1))
	draw := func(shift float32, shape ...int64) torch.Tensor {
		v := make([]float32, numel(shape))
		for i := range v {
			v[i] = float32(rng.NormFloat64()) + shift
		}
		return s.RequiresGrad(s.To(s.Float32(v, shape...), torch.BFloat16, torch.CPU), x.backward)
	}
	var qkv, gates [inputs]torch.Tensor
	for i := range inputs {
		if i > 0 && rows > 32 {
			qkv[i], gates[i] = qkv[0], gates[0]
			continue
		}
		qkv[i], gates[i] = draw(0, rows, 6144), draw(0, rows, 32)
	}
	aLog, bias, grad := draw(0, 16), draw(-3, 16), draw(0, rows, 2048)
	pool := s.Full(0, torch.Float32, torch.CPU, int64(x.sequences), 16, 128, 128)
	var runs []torch.Run
	var saves []torch.SavedState
	for i := range x.sequences {
		runs = append(runs, torch.Run{Start: i * x.tokens, Len: x.tokens, Parent: -1, From: i})
		saves = append(saves, torch.SavedState{i, i})
	}
	plan, n := s.PlanRuns(runs, saves), 0
	once := func() {
		c := s.Child()
		defer c.Close()
		i := n % inputs
		n++
		if !x.backward {
			parts := c.Split(gates[i], 1, 16, 16)
			c.GatedDelta(qkv[i], parts[0], parts[1], aLog, bias, h, plan, pool)
			return
		}
		c.WithGrad(func() {
			parts := c.Split(gates[i], 1, 16, 16)
			c.Backward(c.GatedDelta(qkv[i], parts[0], parts[1], aLog, bias, h, plan, torch.Tensor{}), grad)
		})
	}
	once()
	before := cpuTime(b)
	for b.Loop() {
		once()
	}
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1e3/float64(b.N), "cpu-ms/op")
}

// cpuTime is how long processors have worked for this process.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
