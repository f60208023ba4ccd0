package weights

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"agentcli/internal/malformed"
	"agentcli/model/arch/archtest"
	"agentcli/model/gguf"
)

// converted is a model as llama.cpp's converter wrote it (scripts/golden/ggufconverted.py).
type converted struct {
	Config json.RawMessage
	Sums   map[string]string // of float32 values that are not drawn
}

func unzipped(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata/converted", name))
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if b, err = io.ReadAll(z); err != nil {
		t.Fatal(err)
	}
	return b
}

func convertedModels(t *testing.T) (out map[string]converted) {
	t.Helper()
	if err := json.Unmarshal(unzipped(t, "models.json.gz"), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// file writes the converter's file.
func (converted) file(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".gguf")
	if err := os.WriteFile(path, unzipped(t, name+".gguf.gz"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// drawn are a tensor's values on both sides: those of archtest in 64ths.
func drawn(i TensorInfo) []byte {
	b := archtest.Draw(i.Name, i.Shape)
	return eachValue(b, func(x float64) float64 { return math.RoundToEven(x*64) / 64 })
}

// folder writes the model's folder.
func (c converted) folder(t *testing.T) *Model {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), c.Config, 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := ReadConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	infos := slices.DeleteFunc(config.Tensors(), func(i TensorInfo) bool { return config.Tied && i.Name == lmHead })
	w, err := CreateSafetensors(filepath.Join(dir, "model.safetensors"), infos, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range infos {
		if err := w.Write(i.Name, drawn(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	m, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// near reports whether float32 values are equal, or within a millionth where a function was
// applied and undone.
func near(name string, a, b []byte) bool {
	limit := 0.0
	if strings.HasSuffix(name, "A_log") || strings.HasSuffix(name, "ssm_a") {
		limit = 1e-6
	}
	for i := 0; i < len(a) && len(a) == len(b); i += 4 {
		x, y := math.Float32frombits(le.Uint32(a[i:])), math.Float32frombits(le.Uint32(b[i:]))
		if !(math.Abs(float64(x-y)) <= limit) {
			return false
		}
	}
	return len(a) == len(b)
}

// A file of llama.cpp's converter opens as the model that it was made from: the same
// configuration, the same values.
func TestConvertedFilesAreTheirModels(t *testing.T) {
	for name, c := range convertedModels(t) {
		t.Run(name, func(t *testing.T) {
			m, err := Open(c.file(t, name))
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			want, err := parseConfig("config.json", c.Config, "", nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := m.Config().Decoder; !reflect.DeepEqual(got, want.Decoder) {
				t.Errorf("configuration\n%s, want\n%s", asJSON(t, got), asJSON(t, want.Decoder))
			}
			for _, i := range want.Tensors() {
				x, err := m.Tensor(i.Name)
				switch {
				case i.Name == lmHead && want.Tied:
				case err != nil:
					t.Error(err)
				case c.Sums[i.Name] != "":
					if h := sha256.Sum256(x.Data); hex.EncodeToString(h[:])[:16] != c.Sums[i.Name] {
						t.Errorf("%s differs from what transformers unpacks", i.Name)
					}
				case !near(i.Name, x.Data, drawn(i)):
					t.Errorf("%s differs", i.Name)
				}
			}
		})
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// notSaid are keys of the converter's files that SaveGGUF leaves out: llama.cpp takes the same
// without them, or does not read them.
var notSaid = []string{"attention.sliding_window 0", "yarn_beta_fast 32", "yarn_beta_slow 1", "yarn_attn_factor 1.2",
	"full_attention_interval 4", "nextn_predict_layers 1"}

// What is written from the folder has every tensor and key of the converter's file.
func TestSaveGGUFIsTheConverters(t *testing.T) {
	for name, c := range convertedModels(t) {
		if len(c.Sums) > 0 { // the types of the file are the converter's alone
			continue
		}
		t.Run(name, func(t *testing.T) {
			m := c.folder(t)
			defer m.Close()
			path := filepath.Join(t.TempDir(), "m.gguf")
			if err := SaveGGUF(m, path, gguf.F32, nil); err != nil {
				t.Fatal(err)
			}
			got, err := gguf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer got.Close()
			want, err := gguf.Open(c.file(t, name))
			if err != nil {
				t.Fatal(err)
			}
			defer want.Close()
			sameTensors(t, got, want)
			sameKeys(t, got, want)
		})
	}
}

func sameTensors(t *testing.T, got, want *gguf.File) {
	t.Helper()
	family, err := ggufFamilyOf(want)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range want.Tensors {
		if furtherLayer(want, family, w.Name) {
			continue
		}
		g, ok := got.Lookup(w.Name)
		if !ok || !slices.Equal(g.Dims, w.Dims) || g.Type != w.Type {
			t.Errorf("%s: %v %v, want %v %v", w.Name, g.Type, g.Dims, w.Type, w.Dims)
		} else if !near(w.Name, got.Data(g), want.Data(w)) {
			t.Errorf("%s differs", w.Name)
		}
	}
}

func sameKeys(t *testing.T, got, want *gguf.File) {
	t.Helper()
	kind, _ := want.Str("general.architecture")
	further, _ := want.Int(kind + nextLayers)
	for _, key := range want.Keys() {
		rest, ok := strings.CutPrefix(key, kind+".")
		w, _ := want.Get(key)
		if !ok || slices.ContainsFunc(notSaid, func(k string) bool { return strings.HasSuffix(fmt.Sprint(rest, " ", w.V), k) }) {
			continue
		}
		g, _ := got.Get(key)
		if n, layers := g.V.(uint32); layers && rest == "block_count" {
			g.V = n + uint32(further)
		}
		if !slices.Equal(entries(g.V), entries(w.V)) {
			t.Errorf("%s: %v, want %v", key, g.V, w.V)
		}
	}
}

// entries are those of a value, equal neighbours once: a list of equal ones is as good as one.
func entries(v any) []string {
	return slices.Compact(strings.Fields(strings.Trim(fmt.Sprint(v), "[]")))
}

// A key or a tensor that lies is named.
func TestConvertedFilesNameWhatIsWrong(t *testing.T) {
	models := convertedModels(t)
	for _, tt := range []struct {
		name, from, to, field string
		kind                  malformed.Kind
	}{
		{"gpt_oss", "gpt-oss.expert_count", "gpt-oss.expert_xount", "gpt-oss.expert_count", malformed.Missing},
		{"gpt_oss", "blk.1.ffn_up_exps.weight", "blk.9.ffn_up_exps.weight", "tensor blk.1.ffn_gate_exps.weight", malformed.Mismatch},
		{"qwen3_5", "qwen35.ssm.state_size", "qwen35.ssm.state_xize", "qwen35.ssm.state_size", malformed.Missing},
		{"lfm2", "lfm2.shortconv.l_cache", "lfm2.shortconv.x_cache", "lfm2.shortconv.l_cache", malformed.Missing},
		{"lfm2", "lfm2.attention.head_count_kv", "lfm2.attention.head_count_xx", "lfm2.attention.head_count_kv", malformed.Unsupported},
		{"gemma4", "sliding_window_pattern", "sliding_window_xattern", "gemma4.attention.sliding_window_pattern", malformed.Unsupported},
		{"glm4_moe", "glm4moe.expert_shared_count", "glm4moe.expert_shared_xount", "glm4moe.expert_shared_count", malformed.Missing},
		{"phi3_longrope", "rope_factors_short.weight", "rope_factors_xhort.weight", "tensor rope_factors_xhort.weight", malformed.Unsupported},
		{"phi3_longrope", "scaling.original_context_length", "scaling.original_context_xength",
			"phi3.rope.scaling.original_context_length", malformed.Unsupported},
	} {
		path := models[tt.name].file(t, tt.name)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(b), tt.from, tt.to, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); malformed.Facts(err) != (malformed.Error{Path: path, Field: tt.field, Kind: tt.kind}) {
			t.Errorf("%s without %s: %v", tt.name, tt.from, err)
		}
	}
}
