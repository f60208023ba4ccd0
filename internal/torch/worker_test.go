//go:build libtorch

package torch

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
)

func TestAClosedWorkerReturnsErrClosed(t *testing.T) {
	w := NewWorker(1)
	running, finish := make(chan struct{}), make(chan struct{})
	var first error
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		first = w.Do(func(s *Scope) error { close(running); <-finish; return nil })
	}()
	<-running
	wg.Add(1)
	go func() { defer wg.Done(); w.Close() }()
	close(finish)
	wg.Wait()
	if first != nil {
		t.Errorf("the job that ran during Close: %v", first)
	}
	if err := w.Do(func(*Scope) error { t.Error("ran"); return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("%v, want ErrClosed", err)
	}
	w.Close() // again
}

// train is a small step through every kind of op; it returns loss and a gradient.
func train(s *Scope, seed uint64) []float64 {
	rng := rand.New(rand.NewPCG(seed, 1))
	rnd := func(shape ...int64) Tensor {
		v := make([]float32, product(shape))
		for i := range v {
			v[i] = float32(rng.NormFloat64()) * .3
		}
		return s.RequiresGrad(s.Float32(v, shape...), true)
	}
	emb, norm, qkv, up := rnd(50, 16), rnd(16), rnd(48, 16), rnd(32, 16)
	var loss Tensor
	s.WithGrad(func() {
		c := s.Child()
		defer c.Close()
		ids := []int32{3, 1, 4, 1, 5, 9, 2, 6}
		x := c.Embedding(emb, c.IDs(ids))
		h := c.Linear(c.RMSNorm(x, norm, Norm{Eps: 1e-5}), qkv, Tensor{})
		part := func(i int64) Tensor { return c.Reshape(c.Narrow(h, 1, 16*i, 16), 8, 2, 8) }
		ang := c.Full(.3, Float32, CPU, 8, 4)
		a := c.TreeAttention(c.Rope(part(0), ang, ang, false), part(1), part(2), c.PlanTree([]TreeNode{{0, 4, -1}, {4, 2, 0}, {6, 2, 0}}), Look{})
		sum, out := c.AddRMSNorm(x, c.Reshape(a, 8, 16), norm, Norm{Eps: 1e-5})
		lp, _ := c.HeadLogprobs(c.Add(sum, c.SiluMul(c.Linear(out, up, Tensor{}))), emb, c.IDs(ids), Tensor{}, 3)
		loss = c.Keep(c.Sum(lp, Float32), s)
	})
	s.Backward(loss, Tensor{})
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
	before := Live()
	var want [2][]float64
	for i := range want {
		w := worker(t, 1)
		run(t, w, func(s *Scope) { want[i] = train(s, uint64(i)) })
	}
	for i := range want {
		w := worker(t, 1+i)
		for range 2 { // two callers of each worker
			wg.Add(1)
			go func() {
				defer wg.Done()
				for n := range 40 {
					var got []float64
					err := w.Do(func(s *Scope) error {
						got = train(s, uint64(i))
						if n%8 == 3 {
							s.Add(s.Full(1, Float32, CPU, 2), s.Full(1, Float32, CPU, 3))
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
	if n := Live() - before; n != 0 {
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
		_ = a.Do(func(s *Scope) error {
			s.WithGrad(func() { s.throw("a's"); close(in); <-out })
			return nil
		})
	}()
	<-in
	run(t, b, func(s *Scope) {
		x := s.RequiresGrad(s.Full(1, Float32, CPU, 2), true)
		if _, _, g := s.info(s.Mul(x, x)); g {
			t.Error("another worker's grad mode")
		}
	})
	close(out)
	wg.Wait()
}

func TestWhatDoctorShows(t *testing.T) {
	if v := Version(); v != strings.SplitN(data(t).Torch, "+", 2)[0] {
		t.Errorf("libtorch %s, the golden file is of %s", v, data(t).Torch)
	}
	if CPUCapability() == "" || !strings.Contains(LibraryPath(), "libtorch_cpu") {
		t.Errorf("%q %q", CPUCapability(), LibraryPath())
	}
	if n, why := CUDADevices(); n == 0 && why == "" {
		t.Error("no CUDA, and no reason")
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
