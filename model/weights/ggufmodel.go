package weights

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"agentcli/internal/malformed"
	"agentcli/model/arch"
	"agentcli/model/gguf"
)

var ggufNames = map[string]string{
	"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
	"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
	"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
	"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
	"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}

// hfName translates a GGUF tensor name; "" if it has no counterpart.
func (f ggufFamily) hfName(name string) string {
	prefix, rest := "", name
	if strings.HasPrefix(name, "blk.") {
		n, r, ok := strings.Cut(name[4:], ".")
		if _, err := strconv.Atoi(n); err != nil || !ok {
			return ""
		}
		prefix, rest = "model.layers."+n+".", r
	}
	stem, suffix, _ := strings.Cut(rest, ".")
	hf, ok := f.hf(stem)
	if !ok || suffix != "weight" && suffix != "bias" {
		return ""
	}
	return prefix + hf + "." + suffix
}

const ropeFreqs = "rope_freqs.weight"

// ggufTensors are the tensors of a GGUF under their Hugging Face names.
type ggufTensors struct {
	file   *gguf.File
	names  map[string]ggufPart // by Hugging Face name
	config Config
}

// ggufPart is one of n equal parts of a tensor, one behind the other.
type ggufPart struct {
	name string
	k, n int
}

func openGGUF(path string) (*Model, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	g := &ggufTensors{file: f, names: map[string]ggufPart{}}
	m := &Model{path: path, format: FormatGGUF, infos: map[string]TensorInfo{}, files: []string{path}, source: g}
	m.template, _ = f.Str("tokenizer.chat_template")
	family, err := ggufFamilyOf(f)
	if err != nil {
		m.Close()
		return nil, err
	}
	for _, t := range f.Tensors {
		if t.Name == ropeFreqs {
			continue
		}
		shape := make([]int64, len(t.Dims))
		for i, d := range t.Dims {
			shape[len(shape)-1-i] = int64(d)
		}
		names, shape, err := g.stacked(family, t, shape)
		if err != nil {
			m.Close()
			return nil, err
		}
		if !canDequantise(t.Type) {
			m.Close()
			return nil, malformed.At(path, "tensor "+printable(t.Name), malformed.Unsupported,
				"type %s is not supported; convert the file to Q8_0, Q4_0, Q4_1, Q4_K, Q6_K, F16 or F32", t.Type)
		}
		for k, name := range names {
			m.infos[name] = TensorInfo{name, F32, shape}
			g.names[name] = ggufPart{t.Name, k, len(names)}
			m.names = append(m.names, name)
		}
	}
	if m.config, err = ggufConfig(f, family, m.infos); err != nil {
		m.Close()
		return nil, err
	}
	g.config = m.config
	return m, nil
}

// ggufFamilyOf is the family of a file.
func ggufFamilyOf(f *gguf.File) (ggufFamily, error) {
	kind, _ := f.Str("general.architecture")
	i := slices.IndexFunc(ggufFamilies, func(x ggufFamily) bool { return x.kind == kind })
	if i < 0 {
		return ggufFamily{}, malformed.At(f.Path, "general.architecture", malformed.Unsupported,
			"%q is not supported in a GGUF; %s are; take the model's safetensors", kind, ggufKinds())
	}
	return ggufFamilies[i], nil
}

// ggufConfig makes the config.json that a GGUF would have, from its metadata and its
// tensors, and reads it.
func ggufConfig(f *gguf.File, family ggufFamily, infos map[string]TensorInfo) (Config, error) {
	name := family.kind
	g := ggufKeys{file: f, name: name, model: family.model, values: map[string]any{"model_type": family.model,
		"architectures": []string{arch.Class(family.model)},
		"hidden_act":    "silu", "attention_dropout": pyFloat(0), "initializer_range": .02, "use_cache": true}}
	g.values["rms_norm_eps"], g.values["rope_theta"] = 1e-5, pyFloat(10000)
	g.int("hidden_size", "embedding_length", true)
	g.int("num_hidden_layers", "block_count", true)
	g.int("num_attention_heads", "attention.head_count", true)
	g.int("num_key_value_heads", "attention.head_count_kv", false)
	g.int("intermediate_size", "feed_forward_length", true)
	g.int("max_position_embeddings", "context_length", true)
	g.int("head_dim", "attention.key_length", false)
	g.float("rms_norm_eps", "attention.layer_norm_rms_epsilon")
	g.float("rope_theta", "rope.freq_base")
	// The embedding says how many tokens there are; the metadata may count
	// those without padding.
	if e, ok := infos[embedTokens]; ok && len(e.Shape) == 2 {
		g.values["vocab_size"] = min(e.Shape[0], math.MaxInt32)
	}
	_, head := infos[lmHead]
	g.values["tie_word_embeddings"] = !head
	if _, bias := infos["model.layers.0.self_attn.q_proj.bias"]; name != "qwen2" {
		g.values["attention_bias"] = bias
	}
	if w, ok := f.Int(name + ".attention.sliding_window"); ok && w > 0 && name != "llama" {
		g.values["use_sliding_window"], g.values["sliding_window"], g.values["max_window_layers"] = true, w, 0
	}
	if family.read != nil {
		family.read(&g)
	}
	if g.missing != "" {
		return Config{}, malformed.At(f.Path, g.missing, malformed.Missing, "the key is missing or no integer")
	}
	if s, _ := f.Str(name + ".rope.scaling.type"); s != "" && s != "none" {
		factor, _ := f.Float(name + ".rope.scaling.factor")
		scaling := map[string]any{"rope_type": s, "factor": tidy(factor)}
		if n, ok := f.Int(name + ".rope.scaling.original_context_length"); ok {
			scaling["original_max_position_embeddings"] = n
		}
		g.values["rope_scaling"] = scaling
	}
	c, err := g.config()
	if err != nil {
		return c, err
	}
	a := c.First().Attention
	if d, ok := f.Int(name + ".rope.dimension_count"); ok && name == "phi3" && d > 0 && d < int64(a.HeadDim) {
		g.values["partial_rotary_factor"] = float64(d) / float64(a.HeadDim)
		if c, err = g.config(); err != nil {
			return c, err
		}
	} else if ok && d != int64(a.HeadDim) {
		return c, malformed.At(f.Path, name+".rope.dimension_count", malformed.Unsupported,
			"%d differs from the head's %d; partial rotation is not supported in a GGUF", d, a.HeadDim)
	}
	if scaling, err := ropeFactors(f, c); err != nil || scaling == nil {
		return c, err
	} else {
		g.values["rope_scaling"] = scaling
	}
	return g.config()
}

// ggufKeys are the keys of a config.json, as they are found.
type ggufKeys struct {
	file    *gguf.File
	name    string // general.architecture
	model   string // model_type
	values  map[string]any
	missing string // the first key that must be there
}

func (g *ggufKeys) int(key, from string, must bool) {
	v, ok := g.file.Int(g.name + "." + from)
	switch {
	case ok:
		g.values[key] = min(v, math.MaxInt32) // arch names what is too large
	case must && g.missing == "":
		g.missing = g.name + "." + from
	}
}

func (g *ggufKeys) float(key, from string) {
	if v, ok := g.file.Float(g.name + "." + from); ok {
		g.values[key] = pyFloat(tidy(v))
	}
}

// config reads what was found as a config.json is read.
func (g *ggufKeys) config() (Config, error) {
	raw, err := json.Marshal(g.values)
	if err != nil {
		return Config{}, malformed.At(g.file.Path, "", malformed.Range, "%w", err)
	}
	k, err := arch.NewKeys(g.file.Path, raw)
	if err != nil {
		return Config{}, err
	}
	d, err := arch.Read(g.model, k)
	if err != nil {
		return Config{}, err
	}
	c := Config{Decoder: d, BOS: -1, Pad: -1}
	for key, dst := range map[string]*int32{"bos": &c.BOS, "padding": &c.Pad} {
		if id, ok := g.file.Int("tokenizer.ggml." + key + "_token_id"); ok && id >= 0 && id < int64(c.VocabSize) {
			*dst = int32(id)
		}
	}
	for _, key := range []string{"eos", "eot", "eom"} {
		id, ok := g.file.Int("tokenizer.ggml." + key + "_token_id")
		if ok && id >= 0 && id < int64(c.VocabSize) && !has(c.EOS, int32(id)) {
			c.EOS = append(c.EOS, int32(id))
		}
	}
	tokenFields(g.values, c)
	c.Raw, err = json.Marshal(g.values)
	return c, err
}

func has(ids []int32, id int32) bool {
	for _, x := range ids {
		if x == id {
			return true
		}
	}
	return false
}

// tidy undoes the rounding of a decimal number that was stored as float32.
func tidy(v float64) float64 {
	x, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', -1, 32), 64)
	if err != nil || float32(x) != float32(v) {
		return v
	}
	return x
}

// ropeFactors reads the divisors of the frequencies by which llama.cpp stores
// Llama 3's scaling, and finds the scaling that makes them; nil: there is none.
func ropeFactors(f *gguf.File, c Config) (map[string]any, error) {
	t, ok := f.Lookup(ropeFreqs)
	if !ok {
		return nil, nil
	}
	dim, theta := c.First().Attention.HeadDim, globalRope(c).Theta
	if t.Type != gguf.F32 || t.Size != uint64(4*dim/2) {
		return nil, malformed.At(f.Path, "tensor "+ropeFreqs, malformed.Type, "%s of %d bytes, not float32 for half a head of %d",
			t.Type, t.Size, dim)
	}
	got := make([]float64, dim/2)
	factor := 1.0
	for i := range got {
		got[i] = float64(math.Float32frombits(le.Uint32(f.Data(t)[4*i:])))
		factor = max(factor, got[i])
	}
	if factor == 1 {
		return nil, nil
	}
	s := arch.Scaling{Type: "llama3", Factor: tidy(factor), LowFreqFactor: 1, HighFreqFactor: 4, Original: 8192}
	plain := arch.Rope{Theta: theta, Dim: dim}.InverseFrequencies(1)
	scaled := arch.Rope{Theta: theta, Dim: dim, Scaling: &s}.InverseFrequencies(1)
	for i := range got {
		want := plain[i] / scaled[i]
		if math.Abs(got[i]-want) > 1e-3*want {
			return nil, malformed.At(f.Path, "tensor "+ropeFreqs, malformed.Unsupported,
				"value %d is %v; Llama 3's scaling by %v would be %v", i, got[i], s.Factor, want)
		}
	}
	return map[string]any{"rope_type": "llama3", "factor": pyFloat(s.Factor), "low_freq_factor": pyFloat(1), "high_freq_factor": pyFloat(4),
		"original_max_position_embeddings": 8192}, nil
}

// tensor is float32, computed anew at each call unless it is stored so.
func (g *ggufTensors) tensor(i TensorInfo) (Tensor, error) {
	out := Tensor{Name: i.Name, DType: i.DType, Shape: i.Shape}
	part := g.names[i.Name]
	t, ok := g.file.Lookup(part.name)
	if !ok {
		return out, fmt.Errorf("%s: no tensor %s", g.file.Path, i.Name)
	}
	raw := g.file.Data(t)
	size := len(raw) / max(part.n, 1)
	raw = raw[part.k*size:][:size]
	heads := g.config.permutedHeads(i.Name)
	switch {
	case heads > 0:
		out.Data = unpermute(dequantise(t.Type, raw), int(i.Shape[0]), heads)
	case t.Type == gguf.F32:
		out.Data = raw
	default:
		out.Data = dequantise(t.Type, raw)
	}
	out.Data = plusEach(out.Data, -ggufOffset(g.config, i.Name))
	return out, nil
}

func (g *ggufTensors) storedAs() map[string]int {
	n := map[string]int{}
	for _, part := range g.names {
		if part.k > 0 {
			continue
		}
		t, _ := g.file.Lookup(part.name)
		n[t.Type.String()]++
	}
	return n
}

func (g *ggufTensors) close() error { return g.file.Close() }

// unpermute undoes llama.cpp's order of rows: within a head it stores the two
// halves that Hugging Face rotates against each other pairwise side by side.
func unpermute[T any](b []T, rows, heads int) []T {
	w := len(b) / rows // of a row
	half := rows / heads / 2
	out := make([]T, len(b))
	for h := range heads {
		for j := range 2 {
			for i := range half {
				dst := h*2*half + j*half + i
				src := h*2*half + i*2 + j
				copy(out[dst*w:(dst+1)*w], b[src*w:(src+1)*w])
			}
		}
	}
	return out
}
