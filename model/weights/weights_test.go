package weights

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"agentcli/internal/goldenfile"
	"agentcli/internal/malformed"
	"agentcli/model/arch"
	"agentcli/model/gguf"
	"agentcli/model/gguf/testmodel"
)

// manyBlocks are bytes of a linear congruential generator, as the golden script
// makes them, with finite scales.
func manyBlocks(name string, size int, scales []int) []byte {
	raw := make([]byte, 1024*size)
	x := uint32(1)
	for i := range raw {
		x = x*1664525 + 1013904223
		raw[i] = byte(x >> 24)
	}
	for i := 0; i < len(raw); i += size {
		for _, a := range scales {
			raw[i+a+1] &= 0xBB
		}
		if name == "IQ1_M" {
			raw[i+55] &= 0xBF
		}
	}
	return raw
}

// dequant.json: blocks of every type and what the gguf package makes of them.
func TestDequantiseGolden(t *testing.T) {
	var g map[string]struct {
		Raw, F32, Many string
		Scales         []int // where float16 scales are
	}
	goldenfile.Load(t, "dequant.json", &g)
	for kind, d := range decoders {
		name := kind.String()
		row, ok := g[name]
		if !ok {
			if kind != gguf.F32 {
				t.Errorf("%s has no golden values", name)
			}
			continue
		}
		raw, _ := base64.StdEncoding.DecodeString(row.Raw)
		want, _ := base64.StdEncoding.DecodeString(row.F32)
		got := dequantise(kind, raw)
		if len(got) != len(want) {
			t.Fatalf("%s: %d bytes, want %d", name, len(got), len(want))
		}
		for i := 0; i < len(got); i += 4 {
			if !bytes.Equal(got[i:i+4], want[i:i+4]) {
				t.Errorf("%s: value %d is %v, want %v", name, i/4, math.Float32frombits(le.Uint32(got[i:])), math.Float32frombits(le.Uint32(want[i:])))
				break
			}
		}
		if sum := sha256.Sum256(dequantise(kind, manyBlocks(name, d.bytes, row.Scales))); hex.EncodeToString(sum[:]) != row.Many {
			t.Errorf("%s: 1,024 blocks differ from the reference's", name)
		}
	}
	if len(g) != len(decoders)-1 {
		t.Errorf("%d golden types, %d known", len(g), len(decoders))
	}
}

func TestSmolLM2EqualsTransformers(t *testing.T) {
	m, err := Open(testmodel.Path(t))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var want map[string]string
	goldenfile.Load(t, "smollm2.json", &want)
	if len(want) != len(m.Names()) {
		t.Errorf("%d tensors, want %d", len(m.Names()), len(want))
	}
	start := time.Now()
	for _, name := range m.Names() {
		x, err := m.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(x.Data)
		if got := hex.EncodeToString(sum[:])[:16]; got != want[name] {
			t.Errorf("%s differs from transformers' (%s, want %s)", name, got, want[name])
		}
	}
	t.Logf("all tensors with their sums: %v", time.Since(start))
	c := m.Config()
	want1 := arch.Layer{Norms: arch.Norms{BeforeAttention: "input_layernorm", BeforeMLP: "post_attention_layernorm"},
		Attention: arch.Attention{Heads: 9, KVHeads: 3, HeadDim: 64}, MLP: arch.MLP{Size: 1536}}
	exp := Config{Decoder: arch.Decoder{Architecture: "llama", Class: "LlamaForCausalLM", VocabSize: 49152, HiddenSize: 576,
		MaxPositions: 8192, Eps: 1e-5, FinalNorm: "model.norm.weight", Tied: true, EmbedScale: 1, ResidualScale: 1, LogitScale: 1,
		Ropes: []arch.Rope{{Theta: 100000, Dim: 64}}, Layers: slices.Repeat([]arch.Layer{want1}, 30)},
		BOS: 1, EOS: []int32{2}, Pad: 2}
	exp.Raw = c.Raw
	if !reflect.DeepEqual(c, exp) {
		t.Errorf("config\n got %+v\nwant %+v", c, exp)
	}
	if m.Parameters() != 134515008 {
		t.Errorf("%d parameters", m.Parameters())
	}
	if !strings.Contains(m.ChatTemplate(), "<|im_start|>") {
		t.Error("no chat template")
	}
}

func BenchmarkDequantiseSmolLM2(b *testing.B) {
	m, err := Open(testmodel.Path(b))
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	for b.Loop() {
		for _, name := range m.Names() {
			if _, err := m.Tensor(name); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func TestRounding(t *testing.T) {
	for h := range 1 << 16 {
		f := fromHalf(uint16(h))
		if f != f {
			continue
		}
		if got := toHalf(f); got != uint16(h) {
			t.Fatalf("toHalf(fromHalf(%#x)) = %#x", h, got)
		}
		for _, near := range []float32{f * (1 + 1.0/4096), f * (1 + 1.0/2048), f * (1 - 1.0/3000)} {
			if got, want := roundToHalf(near), fromHalf(toHalf(near)); got != want {
				t.Fatalf("roundToHalf(%v) = %v, want %v", near, got, want)
			}
		}
	}
	for _, tt := range []struct {
		f    float32
		half uint16
		bf   uint16
	}{
		{1, 0x3c00, 0x3f80}, {65519, 0x7bff, 0x4780}, {65520, 0x7c00, 0x4780}, {float32(math.Inf(-1)), 0xfc00, 0xff80},
		{1 + 1.0/2048, 0x3c00, 0x3f80}, {1 + 3.0/2048, 0x3c02, 0x3f80}, {1 + 1.0/256, 0x3c04, 0x3f80}, {1 + 3.0/256, 0x3c0c, 0x3f82},
		{1.0 / (1 << 25), 0, 0x3300}, {1.5 / (1 << 24), 2, 0x33c0}, {float32(math.Copysign(0, -1)), 0x8000, 0x8000},
	} {
		if got := toHalf(tt.f); got != tt.half {
			t.Errorf("toHalf(%v) = %#x, want %#x", tt.f, got, tt.half)
		}
		if got := roundToHalf(tt.f); got != fromHalf(tt.half) {
			t.Errorf("roundToHalf(%v) = %v, want %v", tt.f, got, fromHalf(tt.half))
		}
		if got := toBF16(tt.f); got != tt.bf {
			t.Errorf("toBF16(%v) = %#x, want %#x", tt.f, got, tt.bf)
		}
	}
	if n := toHalf(float32(math.NaN())); fromHalf(n) == fromHalf(n) {
		t.Error("NaN was lost")
	}
}

func st(header string, body int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, body)...)
}

func TestHostileSafetensors(t *testing.T) {
	one := func(entry string) []byte { return st(`{"w":`+entry+`}`, 16) }
	tests := []struct {
		name, field string
		kind        malformed.Kind
		b           []byte
	}{
		{"empty", "header length", malformed.Truncated, nil},
		{"length", "header length", malformed.Truncated, binary.LittleEndian.AppendUint64(nil, 1<<60)},
		{"cut header", "header length", malformed.Truncated, st(`{"w":1}`, 0)[:12]},
		{"no json", "header", malformed.Syntax, st("hello", 3)},
		{"deep", "header", malformed.Syntax, st(strings.Repeat("[", 100000), 0)},
		{"dtype", "tensor w", malformed.Unsupported, one(`{"dtype":"Q9","shape":[4],"data_offsets":[0,16]}`)},
		{"reversed", "tensor w: data_offsets", malformed.Truncated, one(`{"dtype":"F32","shape":[4],"data_offsets":[16,0]}`)},
		{"past", "tensor w: data_offsets", malformed.Truncated, one(`{"dtype":"F32","shape":[8],"data_offsets":[0,32]}`)},
		{"negative", "tensor w: data_offsets", malformed.Truncated, one(`{"dtype":"F32","shape":[4],"data_offsets":[-8,8]}`)},
		{"shape", "tensor w: shape", malformed.Mismatch, one(`{"dtype":"F32","shape":[5],"data_offsets":[0,16]}`)},
		{"huge shape", "tensor w: shape", malformed.Range, one(`{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,16]}`)},
		{"negative shape", "tensor w: shape", malformed.Range, one(`{"dtype":"F32","shape":[-1,-4],"data_offsets":[0,16]}`)},
		{"no offsets", "tensor w: data_offsets", malformed.Type, one(`{"dtype":"F32","shape":[4]}`)},
		{"no object", "tensor w", malformed.Type, one(`7`)},
		{"overlap", "tensor b: data_offsets", malformed.Mismatch, st(
			`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}`, 16)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parseSafetensors("m.safetensors", tt.b)
			if err == nil {
				t.Fatal("no error")
			}
			want := malformed.Error{Path: "m.safetensors", Field: tt.field, Kind: tt.kind}
			if got := malformed.Facts(err); got != want || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q: %+v, want %+v", err, got, want)
			}
		})
	}
}

func tiny() Config {
	c, err := parseConfig("config.json", []byte(`{"model_type":"llama","architectures":["LlamaForCausalLM"],"vocab_size":10,"hidden_size":8,
		"intermediate_size":12,"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":4,"max_position_embeddings":64,
		"rms_norm_eps":1e-5,"tie_word_embeddings":true,"bos_token_id":1,"eos_token_id":[2,3]}`), "", nil)
	if err != nil {
		panic(err)
	}
	return c
}

// writeTiny writes a small model; files > 1 shards it.
func writeTiny(t *testing.T, dir string, c Config, files int) {
	t.Helper()
	if err := c.WriteHF(dir, F32); err != nil {
		t.Fatal(err)
	}
	all := c.Tensors()
	all = all[:len(all)-1] // tied
	index := map[string]string{}
	for f := range files {
		name := "model.safetensors"
		if files > 1 {
			name = fmt.Sprintf("model-%05d-of-%05d.safetensors", f+1, files)
		}
		part := all[len(all)*f/files : len(all)*(f+1)/files]
		w, err := CreateSafetensors(filepath.Join(dir, name), part, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range slices.Backward(part) {
			data := make([]byte, count(i.Shape)*4)
			for k := range data {
				data[k] = byte(k + len(i.Name))
			}
			if err := w.Write(i.Name, data); err != nil {
				t.Fatal(err)
			}
			index[i.Name] = name
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if files > 1 {
		writeJSON(filepath.Join(dir, "model.safetensors.index.json"), map[string]any{"weight_map": index})
	}
}

func TestFolders(t *testing.T) {
	for _, files := range []int{1, 3} {
		dir := t.TempDir()
		writeTiny(t, dir, tiny(), files)
		m, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		x, err := m.Tensor("model.layers.1.mlp.down_proj.weight")
		if err != nil || !slices.Equal(x.Shape, []int64{8, 12}) || len(x.Data) != 8*12*4 || x.Data[1] != byte(1+len(x.Name)) {
			t.Errorf("%d files: %v %v", files, x.Shape, err)
		}
		if _, err := m.Tensor("nope"); err == nil {
			t.Error("an absent tensor was found")
		}
		c := m.Config()
		if !slices.Equal(c.EOS, []int32{2, 3}) || c.BOS != 1 || c.Pad != -1 || len(m.Names()) != 20 || len(m.Files()) != files {
			t.Errorf("config %+v, %d names", c, len(m.Names()))
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSymlinkedFolder(t *testing.T) {
	blobs, dir := t.TempDir(), t.TempDir()
	writeTiny(t, blobs, tiny(), 2)
	files, _ := os.ReadDir(blobs)
	for _, f := range files {
		if err := os.Symlink(filepath.Join(blobs, f.Name()), filepath.Join(dir, f.Name())); err != nil {
			t.Skip("no symbolic links here")
		}
	}
	m, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
}

func TestBadFolders(t *testing.T) {
	edit := func(key string, v any) func(string) {
		return func(dir string) {
			p := filepath.Join(dir, "config.json")
			b, _ := os.ReadFile(p)
			var m map[string]any
			json.Unmarshal(b, &m)
			m[key] = v
			writeJSON(p, m)
		}
	}
	const indexFile = "model.safetensors.index.json"
	index := func(name, file string) func(string) {
		return func(dir string) {
			writeJSON(filepath.Join(dir, indexFile), map[string]any{"weight_map": map[string]string{name: file}})
		}
	}
	tests := []struct {
		name, file, field string // file: "" is the folder
		kind              malformed.Kind
		do                func(dir string)
	}{
		{"no config", "", "config.json", malformed.Missing, func(d string) { os.Remove(filepath.Join(d, "config.json")) }},
		{"no weights", "", "", malformed.Missing, func(d string) { os.Remove(filepath.Join(d, "model.safetensors")) }},
		{"cut", "model.safetensors", "tensor model.layers.0.mlp.down_proj.weight: data_offsets", malformed.Truncated,
			func(d string) { os.Truncate(filepath.Join(d, "model.safetensors"), 4000) }},
		{"architecture", "config.json", "model_type", malformed.Unsupported, edit("model_type", "mamba")},
		{"layers", "", "tensor model.layers.2.input_layernorm.weight", malformed.Missing, edit("num_hidden_layers", 3)},
		{"absurd layers", "config.json", "num_hidden_layers", malformed.Range, edit("num_hidden_layers", 1000000000)},
		{"hidden", "", "tensor model.embed_tokens.weight", malformed.Mismatch, edit("hidden_size", 16)},
		{"heads", "config.json", "num_key_value_heads", malformed.Mismatch, edit("num_key_value_heads", 3)},
		{"type", "config.json", "hidden_size", malformed.Type, edit("hidden_size", "8")},
		{"untied", "", "tensor lm_head.weight", malformed.Missing, edit("tie_word_embeddings", false)},
		{"theta", "config.json", "rope_theta", malformed.Range, edit("rope_theta", 0)},
		{"scaling", "config.json", "rope_scaling.rope_type", malformed.Unsupported, edit("rope_scaling",
			map[string]any{"rope_type": "odd", "factor": 2})},
		{"quantised", "config.json", "quantization_config", malformed.Unsupported, edit("quantization_config", map[string]any{"bits": 4})},
		{"escaping shard", indexFile, "weight_map: model.norm.weight", malformed.Range, index("model.norm.weight", "../../etc/passwd")},
		{"missing shard", indexFile, "weight_map: x.safetensors", malformed.Missing, index("model.norm.weight", "x.safetensors")},
		{"shard without tensor", "model.safetensors", "tensor nope", malformed.Missing, index("nope", "model.safetensors")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			writeTiny(t, dir, tiny(), 1)
			tt.do(dir)
			m, err := Open(dir)
			if err == nil {
				m.Close()
				t.Fatal("no error")
			}
			want := malformed.Error{Path: filepath.Join(dir, tt.file), Field: tt.field, Kind: tt.kind}
			if got := malformed.Facts(err); got != want || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q: %+v, want %+v", err, got, want)
			}
		})
	}
	if _, err := Open(filepath.Join(t.TempDir(), "nowhere")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing path: %v", err)
	}
}

func TestConfigStyles(t *testing.T) {
	base := `"model_type":"%s","vocab_size":10,"hidden_size":8,"intermediate_size":12,"num_hidden_layers":2,"num_attention_heads":2,` +
		`"max_position_embeddings":64`
	tests := []struct {
		name, arch, extra, gen string
		check                  func(Config) bool
	}{
		{"old rope", "llama", `"rope_theta":500000.0,"rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,` +
			`"high_freq_factor":4.0,"original_max_position_embeddings":8192}`, "",
			func(c Config) bool {
				r := c.Ropes[0]
				return r.Theta == 5e5 && r.Scaling.Type == "llama3" && r.Scaling.Factor == 8 && r.Scaling.LowFreqFactor == 1 &&
					r.Scaling.HighFreqFactor == 4 && r.Scaling.Original == 8192
			}},
		{"new rope", "llama", `"rope_parameters":{"rope_theta":500000.0,"rope_type":"llama3","factor":8.0}`,
			"", func(c Config) bool { return c.Ropes[0].Theta == 5e5 && c.Ropes[0].Scaling.Factor == 8 }},
		{"new default", "llama", `"rope_parameters":{"rope_theta":100000,"rope_type":"default"}`, "",
			func(c Config) bool { return c.Ropes[0].Theta == 1e5 && c.Ropes[0].Scaling == nil }},
		{"oldest", "llama", `"rope_scaling":{"type":"linear","factor":2.0}`, "",
			func(c Config) bool { return c.Ropes[0].Scaling.Type == "linear" && c.Ropes[0].Theta == 1e4 }},
		{"defaults", "llama", `"rope_scaling":null`, "", func(c Config) bool {
			a := c.First().Attention
			return a.KVHeads == 2 && a.HeadDim == 4 && !c.Tied && c.BOS == -1 && c.EOS == nil && !a.QKVBias
		}},
		{"qwen2 bias, no window", "qwen2", `"sliding_window":4096,"use_sliding_window":false,"num_key_value_heads":1`,
			"", func(c Config) bool {
				a := c.First().Attention
				return a.QKVBias && a.Window == 0 && a.KVHeads == 1
			}},
		{"qwen2 window", "qwen2", `"sliding_window":16,"use_sliding_window":true,"max_window_layers":0`,
			"", func(c Config) bool { return c.First().Attention.Window == 16 }},
		{"qwen3 head_dim", "qwen3", `"head_dim":128`, "",
			func(c Config) bool { return c.First().Attention.HeadDim == 128 && !c.First().Attention.QKVBias }},
		{"generation wins", "llama", `"eos_token_id":1`, `{"eos_token_id":[2,3]}`,
			func(c Config) bool { return slices.Equal(c.EOS, []int32{2, 3}) }},
		{"generation silent", "llama", `"eos_token_id":[1,4]`, `{}`, func(c Config) bool { return slices.Equal(c.EOS, []int32{1, 4}) }},
	}
	for _, tt := range tests {
		b := "{" + fmt.Sprintf(base, tt.arch) + "," + tt.extra + "}"
		c, err := parseConfig("config.json", []byte(b), "generation_config.json", []byte(tt.gen))
		if err != nil || !tt.check(c) {
			t.Errorf("%s: %v %+v", tt.name, err, c)
		}
	}
}

func TestWriterErrors(t *testing.T) {
	dir := t.TempDir()
	p := filepath.Join(dir, "w.safetensors")
	infos := []TensorInfo{{"a", F32, []int64{2}}, {"b", BF16, nil}}
	w, err := CreateSafetensors(p, infos, map[string]string{"k": "v"})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"a": make([]byte, 7), "c": nil} {
		if w.Write(name, data) == nil {
			t.Errorf("Write(%s) gave no error", name)
		}
	}
	if err := w.Write("a", make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if w.Write("a", make([]byte, 8)) == nil {
		t.Error("a tensor was written twice")
	}
	if err := w.Close(); malformed.Facts(err) != (malformed.Error{Path: p, Field: "tensor b", Kind: malformed.Missing}) {
		t.Errorf("Close: %v", err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 0 {
		t.Errorf("left behind: %v", files)
	}
	if _, err := CreateSafetensors(p, []TensorInfo{{"a", "X", nil}}, nil); err == nil {
		t.Error("an unknown dtype was taken")
	}
	if _, err := CreateSafetensors(filepath.Join(dir, "no", "x"), infos, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing folder: %v", err)
	}
}

func TestHFNames(t *testing.T) {
	for in, want := range map[string]string{
		"token_embd.weight": "model.embed_tokens.weight", "output.weight": "lm_head.weight", "output_norm.weight": "model.norm.weight",
		"blk.12.attn_q.bias": "model.layers.12.self_attn.q_proj.bias", "blk.0.attn_k_norm.weight": "model.layers.0.self_attn.k_norm.weight",
		"blk.x.attn_q.weight": "", "blk.1": "", "v.patch.weight": "", "blk.0.ffn_gate_exps.weight": "",
	} {
		if got := ggufFamilies[0].hfName(in); got != want {
			t.Errorf("hfName(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzSafetensors(f *testing.F) {
	f.Add(st(`{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}`, 16))
	f.Add(st(`{"__metadata__":{"a":"b"}}`, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseSafetensors("f", b)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
			return
		}
		for _, n := range s.names {
			s.data(n)
		}
	})
}

func FuzzConfig(f *testing.F) {
	f.Add(
		[]byte(
			`{"model_type":"llama","vocab_size":10,"hidden_size":8,"intermediate_size":12,"num_hidden_layers":2,"num_attention_heads":2,` +
				`"max_position_embeddings":64,"rope_parameters":{"rope_theta":1}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parseConfig("c", b, "g", nil)
		if err == nil {
			c.Tensors()
		}
	})
}
