package weights

import (
	"bytes"
	"encoding/base64"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"agentcli/internal/goldenfile"
	"agentcli/model/gguf"
)

// quantise.json: what the gguf package makes of values of many sizes.
func TestQ8_0IsTheGGUFPackages(t *testing.T) {
	var g struct {
		F32 string `json:"f32"`
		Q8  string `json:"q8_0"`
	}
	goldenfile.Load(t, "quantise.json", &g)
	x, _ := base64.StdEncoding.DecodeString(g.F32)
	want, _ := base64.StdEncoding.DecodeString(g.Q8)
	got, err := quantise(gguf.Q8_0, x)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v; first blocks\n%x\n%x", err, got[:34], want[:34])
	}
}

// Q4_K keeps normal values within 8 % of their size on average, and blocks of one
// value, of zeros and of one sign within a step.
func TestQ4_KError(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	fill := func(f func(i int) float64) []byte {
		b := make([]byte, 4*256*16)
		for i := range 256 * 16 {
			put(b, i, float32(f(i)))
		}
		return b
	}
	for name, c := range map[string]struct {
		x     []byte
		limit float64
	}{
		"normal":   {fill(func(int) float64 { return rng.NormFloat64() }), .08},
		"small":    {fill(func(int) float64 { return 1e-4 * rng.NormFloat64() }), .08},
		"zeros":    {fill(func(int) float64 { return 0 }), 0},
		"constant": {fill(func(int) float64 { return 0.75 }), .01},
		"negative": {fill(func(i int) float64 { return -1 - float64(i%7) }), .05},
		"outlier":  {fill(func(i int) float64 { return map[bool]float64{true: 100, false: 1}[i%256 == 3] }), .06},
	} {
		enc, err := quantise(gguf.Q4_K, c.x)
		if err != nil {
			t.Fatal(err)
		}
		back := dequantise(gguf.Q4_K, enc)
		var off, size float64
		for i := 0; i < len(c.x); i += 4 {
			a, b := float64(math.Float32frombits(le.Uint32(c.x[i:]))), float64(math.Float32frombits(le.Uint32(back[i:])))
			off, size = off+(a-b)*(a-b), size+a*a
		}
		if e := math.Sqrt(off / max(size, 1e-30)); !(e <= c.limit) {
			t.Errorf("%s: relative error %.4f, at most %.4f is expected", name, e, c.limit)
		}
	}
}

// What is written as a GGUF opens as the same model: names, order of rows, the
// scaling of rope.
func TestSaveGGUF(t *testing.T) {
	for _, arch := range []string{"llama", "qwen2", "qwen3"} {
		m, err := Open(filepath.Join("testdata", arch+".gguf"))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		for kind, limit := range map[gguf.TensorType]float64{gguf.F32: 0, gguf.F16: 1e-3, gguf.BF16: 8e-3, gguf.Q8_0: 2e-2, gguf.Q4_K: 2e-2} {
			path := filepath.Join(t.TempDir(), "m.gguf")
			tok := []gguf.KeyValue{{Key: "tokenizer.ggml.tokens", V: []string{"a", "b"}}, {Key: "tokenizer.ggml.eos_token_id", V: uint32(1)}}
			if err := SaveGGUF(m, path, kind, tok); err != nil {
				t.Fatal(err)
			}
			back, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			a, b := m.Config(), back.Config()
			a.EOS = []int32{1}
			if !reflect.DeepEqual(a.Decoder, b.Decoder) || !slices.Equal(a.EOS, b.EOS) {
				t.Errorf("%s %s: %+v became %+v", arch, kind, a, b)
			}
			for _, i := range m.Config().Tensors() {
				if !m.Has(i.Name) {
					continue
				}
				x, err := m.Tensor(i.Name)
				if err != nil {
					t.Fatal(err)
				}
				y, err := back.Tensor(i.Name)
				if err != nil {
					t.Fatal(err)
				}
				for k := 0; k < len(x.Data); k += 4 {
					u, v := float64(math.Float32frombits(le.Uint32(x.Data[k:]))), float64(math.Float32frombits(le.Uint32(y.Data[k:])))
					if math.Abs(u-v) > limit*max(1, math.Abs(u)) {
						t.Fatalf("%s %s: %s: value %d is %v, was %v", arch, kind, i.Name, k/4, v, u)
					}
				}
			}
			back.Close()
		}
		if err := SaveGGUF(m, filepath.Join(t.TempDir(), "m.gguf"), gguf.Q6_K, nil); err == nil {
			t.Error("Q6_K is written")
		}
	}
}

// Needs follows from the configuration: SmolLM2's numbers are known.
func TestNeeds(t *testing.T) {
	m, err := Open(filepath.Join("testdata", "qwen2.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	n := NeedsOf(m)
	st, err := os.Stat(filepath.Join("testdata", "qwen2.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	// 2 layers × (keys and values) × 1 head × 8 numbers, a window of 128.
	if n.TokenBytes[BF16] != 2*2*8*2 || n.TokenBytes[F32] != 2*2*8*4 || n.WindowBytes[BF16] != 128*n.TokenBytes[BF16] ||
		n.WeightBytes[BF16] != 2*m.Parameters() || n.WeightBytes[F32] != 4*m.Parameters() || n.FileBytes != st.Size() {
		t.Errorf("%+v", n)
	}
}
