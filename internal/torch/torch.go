//go:build libtorch

// Package torch is a thin layer over libtorch: tensors that live in scopes,
// Go errors, one locked OS thread for each worker. It is the only importer of
// gotch (its raw bindings, libtch) and of C++, and knows nothing of models or
// trajectories. It exists in builds with the tag libtorch only.
//
// Everything runs inside Worker.Do: libtorch keeps grad mode, the last error
// and the CUDA stream for each OS thread. Tensors are made by a Scope and freed
// when it closes, except those that were handed on with Keep. No finalizer ever
// frees a tensor.
//
// A Scope is sticky like a bufio.Writer: after the first error its operations
// do nothing and return the zero Tensor, so that a forward pass reads as
// formulas and checks Err once at its end.
package torch

/*
#cgo CXXFLAGS: -std=c++17 -O3 -fopenmp
#cgo LDFLAGS: -ltorch_cpu -lc10 -lstdc++ -ldl -l:libgomp.so.1
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"agentcli/internal/safego"
	"agentcli/internal/setting"
)

// DType is the type of a tensor's elements; the numbers are c10::ScalarType's.
type DType int

// The element types that are used here.
const (
	Int32    DType = 3
	Int64    DType = 4
	Float16  DType = 5
	Float32  DType = 6
	Float64  DType = 7
	Bool     DType = 11
	BFloat16 DType = 15
)

// String gives torch's name of the type.
func (d DType) String() string {
	switch d {
	case Int32:
		return "int32"
	case Int64:
		return "int64"
	case Float16:
		return "float16"
	case Float32:
		return "float32"
	case Float64:
		return "float64"
	case Bool:
		return "bool"
	case BFloat16:
		return "bfloat16"
	}
	return fmt.Sprintf("dtype(%d)", int(d))
}

// Size is the number of bytes of one element.
func (d DType) Size() int {
	switch d {
	case Bool:
		return 1
	case Float16, BFloat16:
		return 2
	case Int32, Float32:
		return 4
	}
	return 8
}

// Device is where a tensor lives: CPU, or the index of a CUDA device.
type Device int

// CPU is the processor's own memory. TestDevice is that of internal/torch/testdevice,
// which the tests register.
const (
	CPU        Device = -1
	TestDevice Device = -2
)

// String gives torch's name of the device.
func (d Device) String() string {
	switch d {
	case CPU:
		return "cpu"
	case TestDevice:
		return "testdevice"
	}
	return fmt.Sprintf("cuda:%d", int(d))
}

// ErrClosed is returned by a worker after Close.
var ErrClosed = errors.New("torch: the worker is closed")

// Tensor is a handle. The zero Tensor is "none". It is valid until the scope
// that owns it closes.
type Tensor struct{ p C.agt_tensor }

// Defined reports whether there is a tensor behind the handle.
func (t Tensor) Defined() bool { return t.p != nil }

// init asks libtorch's CPU allocator for huge pages: a training step allocates
// and frees tensors of 100 MB all the time, and filling them 4 kB page by page
// took a fifth of it. Read by libtorch at its first allocation.
func init() {
	if os.Getenv("THP_MEM_ALLOC_ENABLE") == "" {
		_ = os.Setenv("THP_MEM_ALLOC_ENABLE", "1")
	}
	C.agt_keep_memory()
}

// Arena gives the bytes of large tensors on the CPU: those in use, and those that
// are kept for them.
func Arena() (used, held int64) {
	var u, h C.int64_t
	C.agt_arena_stats(&u, &h)
	return int64(u), int64(h)
}

var live atomic.Int64

// Live is the number of tensor handles that are not freed yet.
func Live() int64 { return live.Load() }

// Worker owns one OS thread, on which all calls of it run.
type Worker struct {
	jobs   chan func()
	mu     sync.Mutex
	closed bool
	done   chan struct{}
}

// NewWorker starts a worker with the given number of intra-op threads
// (0: as many as there are processors).
func NewWorker(threads int) *Worker {
	if threads <= 0 {
		threads = runtime.NumCPU()
	}
	w := &Worker{jobs: make(chan func()), done: make(chan struct{})}
	go func() {
		defer safego.Catch(nil)
		runtime.LockOSThread() // never unlocked: the thread's libtorch state dies with it
		defer close(w.done)
		C.agt_set_threads(C.int(threads))
		C.agt_grad_mode(0)
		for f := range w.jobs {
			func() { defer safego.Catch(nil); f() }()
		}
	}()
	return w
}

// Threads is how many threads compute what w is given.
func (w *Worker) Threads() (n int) {
	w.Do(func(*Scope) error { n = int(C.agt_threads()); return nil }) //nolint:errcheck // it cannot fail; of a closed worker it is 0
	return n
}

// Do runs f on the worker's thread with a fresh scope, waits for it, and frees
// what the scope still holds. It returns f's error, else the scope's. A panic of
// f is returned as an error. Gradients are off unless f turns them on.
func (w *Worker) Do(f func(s *Scope) error) (err error) {
	finished := make(chan struct{})
	job := func() {
		defer close(finished)
		s := &Scope{}
		defer s.Close()
		defer C.agt_grad_mode(0)
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("torch: panic: %v", r)
			}
		}()
		if err = f(s); err == nil {
			err = s.Err()
		}
	}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return ErrClosed
	}
	// The lock is not held while the job runs, only until the thread takes it.
	w.jobs <- job
	w.mu.Unlock()
	<-finished
	return err
}

// Close ends the thread after the job that runs.
func (w *Worker) Close() {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.jobs)
	}
	w.mu.Unlock()
	<-w.done
}

// Scope owns tensors and the first error among its operations.
type Scope struct {
	parent *Scope
	owned  []C.agt_tensor
	err    error
}

// Child opens a scope within s. Closing it frees what was made in it; its error
// becomes the parent's.
func (s *Scope) Child() *Scope { return &Scope{parent: s, err: s.err} }

// NewScope opens a scope for tensors that outlive one Do: parameters, caches.
// Close it on the same worker.
func NewScope() *Scope { return &Scope{} }

// Err is the first error of the scope's operations.
func (s *Scope) Err() error { return s.err }

// Fail makes err the scope's error if there is none yet.
func (s *Scope) Fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// Close frees the scope's tensors. It may be called more than once.
func (s *Scope) Close() {
	for _, p := range s.owned {
		C.agt_free(p)
	}
	live.Add(-int64(len(s.owned)))
	s.owned = nil
	if s.parent != nil && s.parent.err == nil {
		s.parent.err = s.err
	}
}

// Keep hands t from s to another scope, which frees it from then on.
func (s *Scope) Keep(t Tensor, to *Scope) Tensor {
	for i := len(s.owned) - 1; i >= 0; i-- {
		if s.owned[i] == t.p {
			s.owned = append(s.owned[:i], s.owned[i+1:]...)
			to.owned = append(to.owned, t.p)
			return t
		}
	}
	return t
}

// Free frees one tensor of s now.
func (s *Scope) Free(t Tensor) {
	for i := len(s.owned) - 1; i >= 0; i-- {
		if s.owned[i] == t.p {
			s.owned = append(s.owned[:i], s.owned[i+1:]...)
			C.agt_free(t.p)
			live.Add(-1)
			return
		}
	}
}

func (s *Scope) own(p C.agt_tensor) Tensor {
	if p == nil {
		return Tensor{}
	}
	live.Add(1)
	s.owned = append(s.owned, p)
	return Tensor{p}
}

// check turns a shim status into the scope's error.
func (s *Scope) check(op string, status C.int, msg *C.char) bool {
	if status == 0 {
		return true
	}
	text := "unknown error"
	if msg != nil {
		text = C.GoString(msg)
		C.free(unsafe.Pointer(msg))
	}
	s.Fail(opError(op, text))
	return false
}

// ErrOutOfMemory is the error of an operation whose device has too little memory left.
var ErrOutOfMemory = errors.New("out of memory")

// opError names the operation and, where memory ran out, the remedy.
func opError(op, text string) error {
	low := strings.ToLower(text)
	if strings.Contains(low, "out of memory") || strings.Contains(low, "can't allocate memory") || strings.Contains(low, "_alloc_failed") {
		return setting.Errorf("torch: %s: %w (%s); lower %s in training, %s, %s or %s in sampling, or take a smaller %s",
			op, ErrOutOfMemory, text, setting.Name("MicroTokens"), setting.Name("Parallel"), setting.Name("KVCache"),
			setting.Name("MaxContext"), setting.Name("DType"))
	}
	return fmt.Errorf("torch: %s: %s", op, text)
}

// ok reports whether the scope has no error and every input is defined.
func (s *Scope) ok(op string, ts ...Tensor) bool {
	if s.err != nil {
		return false
	}
	for i, t := range ts {
		if t.p == nil {
			s.err = fmt.Errorf("torch: %s: input %d is not a tensor", op, i)
			return false
		}
	}
	return true
}

// Throw is for the tests, which cannot use cgo: a C++ exception.
func (s *Scope) Throw(text string) {
	p := C.CString(text)
	defer C.free(unsafe.Pointer(p))
	var msg *C.char
	s.check("throw", C.agt_throw(p, &msg), msg)
}

// UseKernels chooses our CPU kernels: those of an instruction set (base, avx2,
// avx512), the processor's best (""), or none: libtorch's own operations compute
// then, as they do on CUDA. It holds for the process.
func UseKernels(name string) error {
	p := C.CString(name)
	defer C.free(unsafe.Pointer(p))
	var s Scope
	var msg *C.char
	s.check("use_kernels", C.agt_use_kernels(p, &msg), msg)
	return s.err
}

// DefaultDevice is where models are that name no device. Only tests change it.
var DefaultDevice = CPU

// HasTestDevice reports whether internal/torch/testdevice is loaded.
func HasTestDevice() bool { return C.agt_has_test_device() != 0 }

// Native reports whether our CPU kernels compute on dev.
func Native(dev Device) bool { return dev == CPU && Kernels() != "none" }

// WithGrad runs f recording what backward needs; without it nothing is recorded.
func (s *Scope) WithGrad(f func()) {
	was := C.agt_grad_mode(1)
	defer C.agt_grad_mode(was)
	f()
}

// Deterministic has CUDA take algorithms that give the same bits every time, and
// fail where there is none; it returns what was set before. To be called before
// anything runs on CUDA: cuBLAS reads its part from the environment, once.
func Deterministic(on bool) (was bool) {
	if on && os.Getenv(cublasWorkspace) == "" {
		_ = os.Setenv(cublasWorkspace, ":4096:8") // it cannot fail: the name is valid
	}
	v := C.int(0)
	if on {
		v = 1
	}
	return C.agt_deterministic(v) != 0
}

// As torch.use_deterministic_algorithms documents it.
const cublasWorkspace = "CUBLAS_WORKSPACE_CONFIG"

// Version is libtorch's version, as it was built against.
func Version() string { return C.GoString(C.agt_version()) }

// CPUCapability is the instruction set that libtorch uses, e.g. AVX512.
func CPUCapability() string { return C.GoString(C.agt_cpu_capability()) }

// LibraryPath is the file of libtorch_cpu that was loaded.
func LibraryPath() string { return C.GoString(C.agt_lib_path()) }

// FreeMemory is how many bytes of a device's memory nobody uses.
func FreeMemory(dev Device) (int64, error) {
	if dev == CPU {
		raw, err := os.ReadFile("/proc/meminfo")
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(string(raw)) {
			var kb int64
			if _, err := fmt.Sscanf(line, "MemAvailable: %d kB", &kb); err == nil {
				return kb << 10, nil
			}
		}
		return 0, errors.New("/proc/meminfo does not say how much memory is available")
	}
	var free C.int64_t
	var s Scope
	var msg *C.char
	s.check("free_memory", C.agt_free_memory(C.int(dev), &free, &msg), msg)
	return int64(free), s.err
}

// PeakMemory is the most memory of a device that this process has used so far, in bytes:
// allocated by tensors, reserved with what libtorch keeps for later. It is 0 of the CPU.
func PeakMemory(dev Device) (allocated, reserved int64, err error) {
	if dev == CPU {
		return 0, 0, nil
	}
	var a, r C.int64_t
	var s Scope
	var msg *C.char
	s.check("peak_memory", C.agt_peak_memory(C.int(dev), &a, &r, &msg), msg)
	return int64(a), int64(r), s.err
}

// Kernels names the instruction set of our own CPU kernels.
func Kernels() string { return C.GoString(C.agt_kernels()) }
