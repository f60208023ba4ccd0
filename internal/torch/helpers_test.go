//go:build libtorch

package torch_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"sync"
	"testing"

	"agentcli/internal/torch"
)

// array is one array of testdata/ops.json (scripts/golden/torchops.py).
type array struct {
	Shape []int64
	Kind  string
	Data  []byte
}

func (a array) floats() []float64 {
	var out []float64
	for i := 0; i+4 <= len(a.Data); {
		if a.Kind == "f8" {
			out = append(out, math.Float64frombits(binary.LittleEndian.Uint64(a.Data[i:])))
			i += 8
		} else {
			out = append(out, float64(math.Float32frombits(binary.LittleEndian.Uint32(a.Data[i:]))))
			i += 4
		}
	}
	return out
}

func (a array) tensor(s *torch.Scope, d torch.DType) torch.Tensor {
	if a.Kind == "i8" {
		return s.FromBytes(a.Data, torch.Int64, a.Shape...)
	}
	return s.To(s.FromBytes(a.Data, torch.Float32, a.Shape...), d, torch.CPU)
}

type opCase struct {
	Name, Op string
	Attrs    struct {
		Eps         float64
		Dim, Window int64
		Nodes       [][3]int32
		Segs        [][4]int32
		Blocks      []int32
	}
	In                 map[string]array
	Acc, Nograd, Fixed []string
	Cot                map[string]array
	F64, BF16          struct{ Out, Grad map[string]array }
}

type golden struct {
	Torch string
	Cases []opCase
	AdamW struct {
		LR, Beta1, Beta2, Eps float64
		WeightDecay           float64 `json:"weight_decay"`
		Start                 []array
		Grads, F32, F64       [][]array
	}
	Clip []struct {
		Limit, Norm float64
		In, Out     []array
	}
	Sampling struct {
		Logits, Logprobs array
		Rows             []struct {
			Temperature float64
			TopP        float64 `json:"top_p"`
			MinP        float64 `json:"min_p"`
			TopK        int64   `json:"top_k"`
			Keep        []int32
			Probs       array
		}
	}
	Rounding struct {
		In   array
		Bits []uint16
	}
}

var loadGolden = sync.OnceValues(func() (*golden, error) {
	raw, err := os.ReadFile("testdata/ops.json")
	if err != nil {
		return nil, err
	}
	var g golden
	return &g, json.Unmarshal(raw, &g)
})

func data(t *testing.T) *golden {
	t.Helper()
	g, err := loadGolden()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func worker(t testing.TB, threads int) *torch.Worker {
	w := torch.NewWorker(threads)
	t.Cleanup(w.Close)
	return w
}

// run runs f on w and fails the test on an error. f must not call t.Fatal: it
// runs on the worker's goroutine.
func run(t testing.TB, w *torch.Worker, f func(s *torch.Scope)) {
	t.Helper()
	if err := w.Do(func(s *torch.Scope) error { f(s); return nil }); err != nil {
		t.Fatal(err)
	}
}

func numel(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

// clone copies x into memory of its own.
func clone(s *torch.Scope, x torch.Tensor) torch.Tensor { return s.Clone(x, s.DType(x), s.Device(x)) }

// eachKernels runs f once for every kernel table that the processor has, and without
// any.
func eachKernels(t *testing.T, f func(t *testing.T)) {
	for _, name := range []string{"avx512", "avx2", "base", "none"} {
		t.Run(name, func(t *testing.T) {
			if err := torch.UseKernels(name); err != nil {
				t.Skip(err)
			}
			defer torch.UseKernels("")
			f(t)
		})
	}
}

// near fails where got is further than tol × the largest of want (and of 1e-30).
func near(t testing.TB, what string, got, want []float64, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d values, want %d", what, len(got), len(want))
		return
	}
	top := 1e-30
	for _, w := range want {
		top = max(top, math.Abs(w))
	}
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= tol*top) {
			t.Errorf("%s[%d] = %v, want %v (bound %.1e of %.3g)", what, i, got[i], want[i], tol, top)
			return
		}
	}
}
