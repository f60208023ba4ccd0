//go:build libtorch

package torch_test

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"agentcli/internal/torch"
)

// ones is a tensor of ones.
func ones(s *torch.Scope, shape ...int64) torch.Tensor {
	return s.Full(1, torch.Float32, torch.CPU, shape...)
}

// badCalls are calls that libtorch or the shim refuses, with words of the error.
var badCalls = []struct {
	name  string
	words []string
	call  func(s *torch.Scope)
}{
	{"add", []string{"add", "[2 3]", "[2 4]"}, func(s *torch.Scope) { s.Add(ones(s, 2, 3), ones(s, 2, 4)) }},
	{"mul", []string{"mul", "[2 3]", "[3 2]"}, func(s *torch.Scope) { s.Mul(ones(s, 2, 3), ones(s, 3, 2)) }},
	{"matmul", []string{"matmul", "[2 3]", "[4 5]"}, func(s *torch.Scope) { s.MatMul(ones(s, 2, 3), ones(s, 4, 5)) }},
	{"index_select", []string{"index_select", "out of range", "[2 3]"},
		func(s *torch.Scope) { s.IndexSelect(ones(s, 2, 3), 0, s.Int64([]int64{2})) }},
	{"linear", []string{"linear", "[2, 3]", "[5, 4]"}, func(s *torch.Scope) { s.Linear(ones(s, 2, 3), ones(s, 5, 4), torch.Tensor{}) }},
	{"linear bias", []string{"linear", "5", "6"}, func(s *torch.Scope) { s.Linear(ones(s, 2, 3), ones(s, 5, 3), ones(s, 6)) }},
	{"linear_packed", []string{"linear", "[2, 3]", "[5, 4]"},
		func(s *torch.Scope) { s.LinearPacked(ones(s, 2, 3), s.PackLinear(ones(s, 5, 4)), torch.Tensor{}) }},
	{"linear_packed type", []string{"Float", "Double"},
		func(s *torch.Scope) {
			s.LinearPacked(s.Full(1, torch.Float64, torch.CPU, 2, 4), s.PackLinear(ones(s, 5, 4)), torch.Tensor{})
		}},
	{"linear_packed unpacked", []string{"not packed"}, func(s *torch.Scope) { s.LinearPacked(ones(s, 2, 4), ones(s, 5, 4), torch.Tensor{}) }},
	{"rms_norm", []string{"[2, 3]", "[4]"}, func(s *torch.Scope) { s.RMSNorm(ones(s, 2, 3), ones(s, 4), torch.Norm{Eps: 1e-5}) }},
	{"rms_norm with grad", []string{"[2, 3]", "[4]"}, func(s *torch.Scope) {
		s.WithGrad(func() {
			s.RMSNorm(ones(s, 2, 3), ones(s, 4),
				torch.Norm{Eps: 1e-5})
		})
	}},
	{"rms_norm type", []string{"Float", "BFloat16"}, func(s *torch.Scope) {
		s.RMSNorm(ones(s, 2, 3), s.Full(1, torch.BFloat16, torch.CPU, 3),
			torch.Norm{Eps: 1e-5})
	}},
	{"rms_norm integers", []string{"Long"}, func(s *torch.Scope) {
		s.RMSNorm(s.Int64([]int64{1, 2}), s.Int64([]int64{1, 2}), torch.Norm{Eps: 1e-5})
	}},
	{"add_rms_norm", []string{"[2, 3]", "[3, 3]"}, func(s *torch.Scope) {
		s.AddRMSNorm(ones(s, 2, 3), ones(s, 3, 3), ones(s, 3), torch.Norm{Eps: 1e-5})
	}},
	{"add_rms_norm with grad", []string{"[2, 3]", "[3]"},
		func(s *torch.Scope) {
			s.WithGrad(func() { s.AddRMSNorm(ones(s, 2, 3), ones(s, 3), ones(s, 3), torch.Norm{Eps: 1e-5}) })
		}},
	{"embedding", []string{"token id 11", "vocabulary of 11"}, func(s *torch.Scope) { s.Embedding(ones(s, 11, 2), s.IDs([]int32{0, 11})) }},
	{"embedding, negative", []string{"token id -1", "vocabulary of 11"},
		func(s *torch.Scope) { s.Embedding(ones(s, 11, 2), s.IDs([]int32{0, -1})) }},
	{"rope", []string{"[2, 1, 6]", "[2, 4]"}, func(s *torch.Scope) { s.Rope(ones(s, 2, 1, 6), ones(s, 2, 4), ones(s, 2, 4), false) }},
	{"rope sin", []string{"[2, 3]", "[1, 3]"}, func(s *torch.Scope) { s.Rope(ones(s, 2, 1, 6), ones(s, 2, 3), ones(s, 1, 3), false) }},
	{"rope type", []string{"Double", "Float"}, func(s *torch.Scope) {
		s.Rope(s.Full(1, torch.Float64, torch.CPU, 2, 1, 6), ones(s, 2, 3), ones(s, 2, 3),
			false)
	}},
	{"silu_mul", []string{"[2, 5]", "not even"}, func(s *torch.Scope) { s.SiluMul(ones(s, 2, 5)) }},
	{"tree_attention", []string{"[2, 4, 6]", "[2, 3, 6]"}, func(s *torch.Scope) {
		s.TreeAttention(ones(s, 2, 4, 6), ones(s, 2, 3, 6), ones(s, 2, 3, 6), s.PlanTree([]torch.TreeNode{{0, 2, -1}}), torch.Look{})
	}},
	{"tree_attention tokens", []string{"hold 2 tokens", "[3, 1, 4]"}, func(s *torch.Scope) {
		s.TreeAttention(ones(s, 3, 1, 4), ones(s, 3, 1, 4), ones(s, 3, 1, 4), s.PlanTree([]torch.TreeNode{{0, 2, -1}}), torch.Look{})
	}},
	{"tree_attention parent", []string{"node 1", "parent 1"}, func(s *torch.Scope) {
		s.TreeAttention(ones(s, 3, 1, 4), ones(s, 3, 1, 4), ones(s, 3, 1, 4), s.PlanTree([]torch.TreeNode{{0, 2, -1}, {2, 1, 1}}), torch.Look{})
	}},
	{"cached_attention", []string{"[1, 2, 4]", "[3, 2, 1, 6]"}, func(s *torch.Scope) {
		s.CachedAttention(ones(s, 1, 2, 4), ones(s, 1, 1, 4), ones(s, 1, 1, 4), ones(s, 3, 2, 1, 6), ones(s, 3, 2, 1, 6),
			s.PlanCache([]torch.CachedSegment{{0, 1, 1, 0}}, []int32{0}), torch.Look{})
	}},
	{"cached_attention block", []string{"block 3", "cache of 3"}, func(s *torch.Scope) {
		s.CachedAttention(ones(s, 1, 2, 4), ones(s, 1, 1, 4), ones(s, 1, 1, 4), ones(s, 3, 2, 1, 4), ones(s, 3, 2, 1, 4),
			s.PlanCache([]torch.CachedSegment{{0, 1, 4, 0}}, []int32{3, 1}), torch.Look{})
	}},
	{"cached_attention list", []string{"uses 2 blocks", "list of 1"}, func(s *torch.Scope) {
		s.CachedAttention(ones(s, 1, 2, 4), ones(s, 1, 1, 4), ones(s, 1, 1, 4), ones(s, 3, 2, 1, 4), ones(s, 3, 2, 1, 4),
			s.PlanCache([]torch.CachedSegment{{0, 1, 4, 0}}, []int32{1}), torch.Look{})
	}},
	{"cached_attention rows", []string{"hold 1 rows", "q has 2"}, func(s *torch.Scope) {
		s.CachedAttention(ones(s, 2, 2, 4), ones(s, 2, 1, 4), ones(s, 2, 1, 4), ones(s, 3, 2, 1, 4), ones(s, 3, 2, 1, 4),
			s.PlanCache([]torch.CachedSegment{{0, 1, 1, 0}}, []int32{1}), torch.Look{})
	}},
	{"cached_attention type", []string{"Float", "BFloat16"}, func(s *torch.Scope) {
		s.CachedAttention(ones(s, 1, 2, 4), ones(s, 1, 1, 4), ones(s, 1, 1, 4), s.Full(0, torch.BFloat16, torch.CPU, 3, 2, 1, 4),
			s.Full(0, torch.BFloat16, torch.CPU, 3, 2, 1, 4), s.PlanCache([]torch.CachedSegment{{0, 1, 1, 0}}, []int32{1}), torch.Look{})
	}},
	{"head_logprobs id", []string{"token id 5", "vocabulary of 5"},
		func(s *torch.Scope) {
			s.HeadLogprobs(ones(s, 2, 3), ones(s, 5, 3), s.IDs([]int32{4, 5}), torch.Tensor{}, 8)
		}},
	{"head_logprobs negative id", []string{"token id -2", "vocabulary of 5"},
		func(s *torch.Scope) {
			s.HeadLogprobs(ones(s, 2, 3), ones(s, 5, 3), s.IDs([]int32{4, -2}), torch.Tensor{}, 8)
		}},
	{"head_logprobs", []string{"[2, 3]", "[5, 4]"},
		func(s *torch.Scope) {
			s.HeadLogprobs(ones(s, 2, 3), ones(s, 5, 4), s.IDs([]int32{4, 0}), torch.Tensor{}, 8)
		}},
	{"head_logprobs targets", []string{"[2, 3]", "[3]"},
		func(s *torch.Scope) {
			s.HeadLogprobs(ones(s, 2, 3), ones(s, 5, 3), s.IDs([]int32{4, 0, 1}), torch.Tensor{}, 8)
		}},
	{"head_logprobs chunk", []string{"chunk of 0"},
		func(s *torch.Scope) {
			s.HeadLogprobs(ones(s, 2, 3), ones(s, 5, 3), s.IDs([]int32{4, 0}), torch.Tensor{}, 0)
		}},
	{"head_logprobs scales", []string{"[3]", "[2]"}, func(s *torch.Scope) {
		s.HeadLogprobs(ones(s, 2, 3), ones(s, 5, 3), s.IDs([]int32{4, 0}), s.Float64([]float64{1, 1, 1}), 8)
	}},
	{"head_logprobs scale", []string{"above 0"}, func(s *torch.Scope) {
		s.HeadLogprobs(ones(s, 2, 3), ones(s, 5, 3), s.IDs([]int32{4, 0}), s.Float64([]float64{1, 0}), 8)
	}},
	{"sample rows", []string{"[2, 3]", "rows 1"}, func(s *torch.Scope) { s.Sample(ones(s, 2, 3), make([]torch.SampleRow, 1)) }},
	{"cat", []string{"cat", "3", "4"}, func(s *torch.Scope) { s.Cat(0, ones(s, 2, 3), ones(s, 2, 4)) }},
	{"narrow", []string{"narrow", "3", "5"}, func(s *torch.Scope) { s.Narrow(ones(s, 2, 5), 1, 3, 4) }},
	{"reshape", []string{"reshape", "[4, 2]", "6"}, func(s *torch.Scope) { s.Reshape(ones(s, 2, 3), 4, 2) }},
	{"copy", []string{"copy", "[2 3]", "[2 4]"}, func(s *torch.Scope) { s.Copy(ones(s, 2, 3), ones(s, 2, 4)) }},
	{"values for shape", []string{"3 values", "[2 2]"}, func(s *torch.Scope) { s.Float32([]float32{1, 2, 3}, 2, 2) }},
	{"bytes for shape", []string{"3 bytes", "[2]", "bfloat16"}, func(s *torch.Scope) { s.FromBytes([]byte{1, 2, 3}, torch.BFloat16, 2) }},
	{"negative shape", []string{"-1"}, func(s *torch.Scope) { s.Full(0, torch.Float32, torch.CPU, -1) }},
	{"no tensor", []string{"add", "input 1"}, func(s *torch.Scope) { s.Add(ones(s, 1), torch.Tensor{}) }},
	{"backward gradient", []string{"backward", "[2, 3]", "[2, 2]"}, func(s *torch.Scope) {
		s.WithGrad(func() {
			x := s.RequiresGrad(ones(s, 2, 3), true)
			s.Backward(s.Mul(x, x), ones(s, 2, 2))
		})
	}},
	{"backward of no graph", []string{"backward", "grad"}, func(s *torch.Scope) { s.Backward(ones(s, 1), torch.Tensor{}) }},
	{"no gradient", []string{"grad", "[2, 3]"}, func(s *torch.Scope) { s.Grad(ones(s, 2, 3)) }},
	{"gradient of integers", []string{"requires_grad", "floating point"}, func(s *torch.Scope) { s.RequiresGrad(s.Int64([]int64{1}), true) }},
	{"adamw lengths", []string{"1 params", "0 gradients"}, func(s *torch.Scope) {
		s.AdamW([]torch.Tensor{ones(s, 1)}, nil, nil, nil, torch.AdamWConfig{}, 1)
	}},
	{"no CUDA here", []string{"cuda"}, func(s *torch.Scope) { s.To(ones(s, 1), torch.Float32, 77) }},
	{"too much memory", []string{"out of memory", "MicroTokens"}, func(s *torch.Scope) { s.Empty(torch.Float32, torch.CPU, 1<<50) }},
	{"a C++ exception", []string{"boom at dawn"}, func(s *torch.Scope) { s.Throw("boom at dawn") }},
}

// Each bad call is an error that has all of the words, frees everything, and
// leaves the worker usable.
func TestBadCallsAreErrorsThatNameWhatIsWrong(t *testing.T) {
	w := worker(t, 1)
	before := torch.Live()
	for _, c := range badCalls {
		t.Run(c.name, func(t *testing.T) {
			refuses(t, w, c.call, c.words)
		})
	}
	if n := torch.Live() - before; n != 0 {
		t.Errorf("%d tensors live after the errors", n)
	}
	run(t, w, func(s *torch.Scope) {
		if got := s.Float32s(s.Add(ones(s, 2), ones(s, 2))); !slices.Equal(got, []float32{2, 2}) {
			t.Errorf("after the errors 1 + 1 = %v", got)
		}
	})
}

// refuses wants an error of one line that has all of the words.
func refuses(t *testing.T, w *torch.Worker, call func(*torch.Scope), words []string) {
	t.Helper()
	err := w.Do(func(s *torch.Scope) error { call(s); return nil })
	if err == nil {
		t.Fatal("no error")
	}
	for _, word := range words {
		if !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(word)) {
			t.Errorf("%q has no %q", err, word)
		}
	}
	if strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "Exception raised") {
		t.Errorf("more than one line: %q", err)
	}
}

// rss is the process's resident memory in bytes.
func rss(t *testing.T) int64 {
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(raw))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// inplace is what libtorch says of a tensor that was changed after its operation.
const inplace = "modified by an inplace operation"

// The graph and what it saved are C++ objects that Live does not count. 60 broken
// backwards that leak one 4 MB tensor each take 240 MB, every time; malloc's own
// growth after other tests comes once. So a leak is what shows in all of three rounds.
func TestAnErrorWithinBackwardLeaksNothingAndTheNextCallWorks(t *testing.T) {
	w := worker(t, 1)
	broken := func(s *torch.Scope) error {
		x := s.RequiresGrad(s.Full(.5, torch.Float32, torch.CPU, 1024, 1024), true)
		b := s.RequiresGrad(s.Full(.5, torch.Float32, torch.CPU, 1024, 1024), true)
		n := s.RequiresGrad(s.Full(1, torch.Float32, torch.CPU, 1024), true)
		var y torch.Tensor
		s.WithGrad(func() {
			y = s.Sum(s.RMSNorm(s.Mul(s.RMSNorm(x, n, torch.Norm{Eps: 1e-5}), b), n, torch.Norm{Eps: 1e-5}), torch.Float32)
		})
		s.Scale([]torch.Tensor{b}, 2) // Mul saved b: its backward, in the middle, finds it changed
		s.WithGrad(func() { s.Backward(y, torch.Tensor{}) })
		return nil
	}
	before := torch.Live()
	leaks := 0
	for range 3 {
		start := rss(t)
		for range 60 {
			err := w.Do(broken)
			if err == nil || !strings.Contains(err.Error(), inplace) {
				t.Fatalf("backward: %v", err)
			}
		}
		grown := rss(t) - start
		t.Logf("60 broken backwards: %+d MB", grown>>20)
		if grown < 100<<20 {
			break
		}
		leaks++
	}
	if n := torch.Live() - before; n != 0 || leaks == 3 {
		t.Errorf("%d tensors live, and memory grew in %d rounds of 3", n, leaks)
	}
	run(t, w, func(s *torch.Scope) {
		x := s.RequiresGrad(s.Float32([]float32{3}), true)
		s.WithGrad(func() { s.Backward(s.Mul(x, x), torch.Tensor{}) })
		if got := s.Float32s(s.Grad(x)); !slices.Equal(got, []float32{6}) {
			t.Errorf("d x² at 3 is %v", got)
		}
		s.ClearGrad(x)
		s.WithGrad(func() {
			y := s.Mul(x, x)
			s.Backward(s.Add(y, y), s.Float32([]float32{10}))
			s.Backward(s.Mul(x, x), torch.Tensor{}) // adds to what is there
		})
		if got := s.Float32s(s.Grad(x)); !slices.Equal(got, []float32{126}) {
			t.Errorf("10·2·6 + 6 is %v", got)
		}
	})
}

func TestTheFirstErrorStaysAndLaterCallsDoNothing(t *testing.T) {
	w := worker(t, 1)
	own := errors.New("the caller's own")
	err := w.Do(func(s *torch.Scope) error {
		x := s.Float32([]float32{1})
		s.Throw("first")
		n := torch.Live()
		s.Throw("second")
		s.Fail(own)
		if y := s.Add(x, x); y.Defined() {
			t.Error("an op ran after an error")
		}
		s.Float32([]float32{2})
		s.FromBytes([]byte{0}, torch.Bool, 1)
		s.Full(1, torch.Float32, torch.CPU, 2)
		s.Copy(x, x)
		if a, b := s.AddRMSNorm(x, x, x, torch.Norm{Eps: 1}); a.Defined() || b.Defined() {
			t.Error("an op with two results ran after an error")
		}
		if s.Float32s(x) != nil || s.Bytes(x) != nil || s.Shape(x) != nil || s.GlobalNorm([]torch.Tensor{x}) != 0 {
			t.Error("something was read after an error")
		}
		if ids, _ := s.Sample(x, make([]torch.SampleRow, 1)); ids != nil {
			t.Error("something was sampled after an error")
		}
		if torch.Live() != n {
			t.Error("a tensor was made after an error")
		}
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "first") {
		t.Errorf("%v, want the first error", err)
	}
	if err := w.Do(func(s *torch.Scope) error { s.Throw("the scope's"); return own }); !errors.Is(err, own) {
		t.Errorf("%v, want the returned error", err)
	}
}

func TestAPanicWithinDoIsAnErrorAndTheWorkerLives(t *testing.T) {
	w := worker(t, 1)
	before := torch.Live()
	err := w.Do(func(s *torch.Scope) error {
		s.Full(1, torch.Float32, torch.CPU, 8)
		s.WithGrad(func() { panic("whoops") })
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "whoops") {
		t.Errorf("%v", err)
	}
	if n := torch.Live() - before; n != 0 {
		t.Errorf("%d tensors live after a panic", n)
	}
	run(t, w, func(s *torch.Scope) {
		x := s.RequiresGrad(s.Full(1, torch.Float32, torch.CPU, 8), true)
		y := s.Mul(x, x)
		if s.IsRecorded(y) {
			t.Error("gradients are still recorded after the panic")
		}
	})
}
