//go:build libtorch

package torch_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"agentcli/internal/torch"
)

func TestAClosedWorkerReturnsErrClosed(t *testing.T) {
	w := torch.NewWorker(1)
	running, finish := make(chan struct{}), make(chan struct{})
	var first error
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		first = w.Do(func(s *torch.Scope) error { close(running); <-finish; return nil })
	}()
	<-running
	wg.Add(1)
	go func() { defer wg.Done(); w.Close() }()
	close(finish)
	wg.Wait()
	if first != nil {
		t.Errorf("the job that ran during Close: %v", first)
	}
	if err := w.Do(func(*torch.Scope) error { t.Error("ran"); return nil }); !errors.Is(err, torch.ErrClosed) {
		t.Errorf("%v, want ErrClosed", err)
	}
	w.Close() // again
}

// train is a small step through every kind of op; it returns loss and a gradient.
func train(s *torch.Scope, seed uint64) []float64 {
	rng := rand.New(rand.NewPCG(seed, 1))
	rnd := func(shape ...int64) torch.Tensor {
		v := make([]float32, numel(shape))
		for i := range v {
			v[i] = float32(rng.NormFloat64()) * .3
		}
		return s.RequiresGrad(s.Float32(v, shape...), true)
	}
	emb, norm, qkv, up := rnd(50, 16), rnd(16), rnd(48, 16), rnd(32, 16)
	var loss torch.Tensor
	s.WithGrad(func() {
		c := s.Child()
		defer c.Close()
		ids := []int32{3, 1, 4, 1, 5, 9, 2, 6}
		x := c.Embedding(emb, c.IDs(ids))
		h := c.Linear(c.RMSNorm(x, norm, torch.Norm{Eps: 1e-5}), qkv, torch.Tensor{})
		part := func(i int64) torch.Tensor { return c.Reshape(c.Narrow(h, 1, 16*i, 16), 8, 2, 8) }
		ang := c.Full(.3, torch.Float32, torch.CPU, 8, 4)
		a := c.TreeAttention(c.Rope(part(0), ang, ang, false), part(1), part(2),
			c.PlanTree([]torch.TreeNode{{0, 4, -1}, {4, 2, 0}, {6, 2, 0}}), torch.Look{})
		sum, out := c.AddRMSNorm(x, c.Reshape(a, 8, 16), norm, torch.Norm{Eps: 1e-5})
		lp, _ := c.HeadLogprobs(c.Add(sum, c.SiluMul(c.Linear(out, up, torch.Tensor{}))), emb, c.IDs(ids), torch.Tensor{}, 3)
		loss = c.Keep(c.Sum(lp, torch.Float32), s)
	})
	s.Backward(loss, torch.Tensor{})
	return append(s.Float64s(loss), append(s.Float64s(s.Grad(emb)), s.Float64s(s.Grad(up))...)...)
}

// Two workers at once, while Go's collector runs all the time: finalizers or
// pointers that Go may move would show as wrong numbers, crashes or live tensors.
func TestTwoWorkersUnderGCStressGiveTheSameNumbersAndLeaveNothing(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	stop := make(chan struct{})
	var gc, wg sync.WaitGroup
	for range 2 {
		gc.Add(1)
		go func() {
			defer gc.Done()
			for {
				select {
				case <-stop:
					return
				default:
					runtime.GC()
				}
			}
		}()
	}
	before := torch.Live()
	var want [2][]float64
	for i := range want {
		w := worker(t, 1)
		run(t, w, func(s *torch.Scope) { want[i] = train(s, uint64(i)) })
	}
	for i := range want {
		w := worker(t, 1+i)
		for range 2 { // two callers of each worker
			wg.Add(1)
			go func() {
				defer wg.Done()
				for n := range 40 {
					var got []float64
					err := w.Do(func(s *torch.Scope) error {
						got = train(s, uint64(i))
						if n%8 == 3 {
							s.Add(s.Full(1, torch.Float32, torch.CPU, 2), s.Full(1, torch.Float32, torch.CPU, 3))
						}
						return nil
					})
					if (err != nil) != (n%8 == 3) {
						t.Errorf("worker %d: %v", i, err)
						return
					}
					near(t, fmt.Sprintf("worker %d", i), got, want[i], 1e-6)
				}
			}()
		}
	}
	wg.Wait()
	close(stop)
	gc.Wait()
	if n := torch.Live() - before; n != 0 {
		t.Errorf("%d tensors live after all scopes closed", n)
	}
}

// Each worker has its own last error and grad mode.
func TestWorkersDoNotSeeEachOthersState(t *testing.T) {
	a, b := worker(t, 1), worker(t, 1)
	in, out := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		_ = a.Do(func(s *torch.Scope) error {
			s.WithGrad(func() { s.Throw("a's"); close(in); <-out })
			return nil
		})
	}()
	<-in
	run(t, b, func(s *torch.Scope) {
		x := s.RequiresGrad(s.Full(1, torch.Float32, torch.CPU, 2), true)
		if s.IsRecorded(s.Mul(x, x)) {
			t.Error("another worker's grad mode")
		}
	})
	close(out)
	wg.Wait()
}

func TestWhatDoctorShows(t *testing.T) {
	if v := torch.Version(); v != strings.SplitN(data(t).Torch, "+", 2)[0] {
		t.Errorf("libtorch %s, the golden file is of %s", v, data(t).Torch)
	}
	if torch.CPUCapability() == "" || !strings.Contains(torch.LibraryPath(), "libtorch_cpu") {
		t.Errorf("%q %q", torch.CPUCapability(), torch.LibraryPath())
	}
	if n, why := torch.CUDADevices(); n == 0 && why == "" {
		t.Error("no CUDA, and no reason")
	} else if n == 0 && torch.CUDAFix() == "" && torch.CUDAPath() == "" {
		t.Errorf("no CUDA, and nothing to do about it: %s", why)
	}
}

// Results of a worker would else depend on which other one began before its first
// operation: sums are cut into as many parts as there are threads.
func TestAWorkerKeepsItsNumberOfThreadsWhateverOtherWorkersTake(t *testing.T) {
	one, three := worker(t, 1), worker(t, 3)
	for range 2 {
		if a, b := three.Threads(), one.Threads(); a != 3 || b != 1 {
			t.Errorf("%d and %d threads, want 3 and 1", a, b)
		}
	}
}
