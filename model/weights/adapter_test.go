package weights

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const adapters = "../../policy/testdata/lora-"

func floats(t *testing.T, x Tensor) []float64 {
	t.Helper()
	x, err := x.As(F32)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float64, len(x.Data)/4)
	for i := range out {
		out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(x.Data[4*i:])))
	}
	return out
}

func TestAnAdaptersTensorsAreItsBasesPlusTheProducts(t *testing.T) {
	for _, tt := range []struct {
		arch    string
		scale   float64
		targets []string
	}{
		{"llama", 2, []string{"q", "k", "v", "o", "gate", "up", "down"}}, {"qwen2", 3 / math.Sqrt2, []string{"q", "v"}},
		{"qwen3", 4, []string{"o", "up", "down"}},
	} {
		m, err := Open(adapters + tt.arch)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		base, err := Open("../../policy/testdata/tiny-" + tt.arch)
		if err != nil {
			t.Fatal(err)
		}
		defer base.Close()
		c, ok := m.Adapter()
		if !ok || math.Abs(c.Scale()-tt.scale) > 1e-12 || !slices.Equal(c.Targets, tt.targets) || filepath.Base(m.BasePath()) != "tiny-"+tt.arch {
			t.Errorf("%s: %+v over %s", tt.arch, c, m.BasePath())
		}
		if m.Parameters() != base.Parameters() || len(m.Names()) != len(base.Names()) ||
			m.ChatTemplate() != base.ChatTemplate() || m.TokenizerPath() != m.BasePath() {
			t.Errorf("%s: %d parameters in %d tensors, the base %d in %d", tt.arch, m.Parameters(), len(m.Names()),
				base.Parameters(), len(base.Names()))
		}
		for _, name := range base.Names() {
			w, err := base.Tensor(name)
			if err != nil {
				t.Fatal(err)
			}
			whole, err := m.Tensor(name)
			if err != nil {
				t.Fatal(err)
			}
			want, got := floats(t, w), floats(t, whole)
			an, bn := LoRANames(name)
			if a, ok := m.Low(an); ok {
				b, _ := m.Low(bn)
				av, bv := floats(t, a), floats(t, b)
				rank, in := int(a.Shape[0]), int(a.Shape[1])
				for o := range int(b.Shape[0]) {
					for i := range in {
						for r := range rank {
							want[o*in+i] += tt.scale * bv[o*rank+r] * av[r*in+i]
						}
					}
				}
			}
			for i := range want {
				if math.Abs(got[i]-want[i]) > 1e-6 {
					t.Fatalf("%s: %s[%d] is %v, want %v", tt.arch, name, i, got[i], want[i])
				}
			}
			if u, err := m.Base().Tensor(name); err != nil || !slices.Equal(u.Data, w.Data) {
				t.Errorf("%s: %s unmerged is not the base's; %v", tt.arch, name, err)
			}
		}
	}
}

func TestAFolderOfAModelIsNoAdapter(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{adapterConfigFile, "model-00001-of-00002.safetensors"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if IsAdapter(dir) || !IsAdapter(adapters+"llama") || IsAdapter("../../policy/testdata/tiny-llama") {
		t.Error("a model was taken for an adapter, or the other way round")
	}
}

func TestABaseIsFoundByItsNameOnTheHub(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{adapterConfigFile, adapterFile} {
		b, err := os.ReadFile(filepath.Join(adapters+"llama", name))
		if err != nil {
			t.Fatal(err)
		}
		b = []byte(strings.Replace(string(b), "../tiny-llama", "some/llama", 1))
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	defer func(was func(string) (string, bool)) { FindBase = was }(FindBase)
	FindBase = nil
	var noBase *NoBaseError
	if _, err := Open(dir); !errors.As(err, &noBase) || *noBase != (NoBaseError{Adapter: dir, Base: "some/llama"}) {
		t.Errorf("error %v", err)
	}
	FindBase = func(name string) (string, bool) { return "../../policy/testdata/tiny-llama", name == "some/llama" }
	m, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
}

// What the writer says is what the reader hears.
func TestAnAdapterConfigIsReadBack(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []AdapterConfig{
		{Base: "/x", Rank: 8, Alpha: 16, Dropout: .05, Targets: []string{"q", "down"}},
		{Base: "o/n", Rank: 3, Alpha: 2.5, RSLoRA: true, Score: true},
	} {
		if err := c.WritePEFT(dir, Config{}); err != nil {
			t.Fatal(err)
		}
		got, err := readAdapterConfig(filepath.Join(dir, adapterConfigFile))
		c.Targets = nil // these are read from the tensors
		if err != nil || got.Base != c.Base || got.Scale() != c.Scale() || got.Rank != c.Rank ||
			got.Dropout != c.Dropout || got.Score != c.Score {
			t.Errorf("wrote %+v, read %+v; %v", c, got, err)
		}
	}
}

func FuzzAdapterConfig(f *testing.F) {
	for _, arch := range []string{"llama", "qwen2", "qwen3"} {
		b, err := os.ReadFile(filepath.Join(adapters+arch, adapterConfigFile))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"peft_type":"LORA","r":1,"lora_alpha":1e999,"base_model_name_or_path":"x"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), adapterConfigFile)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := readAdapterConfig(path)
		if err == nil && (c.Rank < 1 || c.Base == "" || math.IsNaN(c.Scale()) || !(c.Dropout >= 0 && c.Dropout < 1)) {
			t.Errorf("taken: %+v", c)
		}
	})
}
