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
		layer, r, ok := layerOf(name)
		if !ok {
			return ""
		}
		if prefix, rest = arch.LayerPrefix(layer), r; f.whole[rest] != "" {
			return prefix + f.whole[rest]
		}
	}
	at := strings.LastIndexByte(rest, '.')
	if at < 0 {
		return ""
	}
	stem, suffix := rest[:at], rest[at:]
	hf, ok := f.hf(stem)
	if !ok || suffix != ".weight" && suffix != ".bias" {
		return ""
	}
	return prefix + hf + suffix
}

// ggufTensors are the tensors of a GGUF under their Hugging Face names.
type ggufTensors struct {
	file   *gguf.File
	names  map[string]ggufPart // by Hugging Face name
	config Config
}

// ggufPart is one of n equal parts of a tensor, one behind the other.
type ggufPart struct {
	name    string
	k, n    int
	clamped *clampedPart // of gpt-oss's experts; nil: of others
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
		if err := g.add(m, family, t); err != nil {
			m.Close()
			return nil, err
		}
	}
	if m.config, err = ggufConfig(f, family, m.infos); err != nil {
		m.Close()
		return nil, err
	}
	g.config = m.config
	return m, nil
}

// add takes a tensor of the file under its Hugging Face names.
func (g *ggufTensors) add(m *Model, family ggufFamily, t gguf.Tensor) error {
	if t.Name == ropeFreqs || t.Name == ropeLong || t.Name == ropeShort || furtherLayer(g.file, family, t.Name) {
		return nil
	}
	if !canDequantise(t.Type) {
		return malformed.At(g.file.Path, "tensor "+printable(t.Name), malformed.Unsupported,
			"type %s is not supported; convert the file to Q8_0, Q4_0, Q4_1, Q4_K, Q6_K, F16 or F32", t.Type)
	}
	shape := make([]int64, len(t.Dims))
	for i, d := range t.Dims {
		shape[len(shape)-1-i] = int64(d)
	}
	take := func(name string, each []int64, part ggufPart) {
		m.infos[name] = TensorInfo{name, F32, each}
		g.names[name] = part
		m.names = append(m.names, name)
	}
	if family.clamped {
		if done, err := g.addClamped(t, shape, take); done || err != nil {
			return err
		}
	}
	names, each, err := g.stacked(family, t, shape)
	if err != nil {
		return err
	}
	for k, name := range names {
		take(name, hfShape(name, each), ggufPart{name: t.Name, k: k, n: len(names)})
	}
	return nil
}

// hfShape is the shape of a tensor whose dimensions of size 1 a file leaves out.
func hfShape(name string, shape []int64) []int64 {
	switch {
	case len(shape) == 2 && isConv(name):
		return []int64{shape[0], 1, shape[1]}
	case len(shape) == 1 && strings.HasSuffix(name, arch.SharedGate+".weight"):
		return []int64{1, shape[0]}
	}
	return shape
}

// isConv reports whether a tensor is a convolution's.
func isConv(name string) bool {
	return strings.HasSuffix(name, arch.DeltaConv+".weight") || strings.HasSuffix(name, arch.ConvWeight+".weight")
}

// furtherLayer reports whether a tensor is of a layer that predicts further tokens.
func furtherLayer(f *gguf.File, family ggufFamily, name string) bool {
	further, _ := f.Int(family.kind + nextLayers)
	layers, _ := f.Int(family.kind + ".block_count")
	layer, _, ok := layerOf(name)
	return ok && further > 0 && int64(layer) >= layers-further
}

// nextLayers is the key of how many of the layers predict further tokens.
const nextLayers = ".nextn_predict_layers"

// ggufFamilyOf is the family of a file.
func ggufFamilyOf(f *gguf.File) (ggufFamily, error) {
	kind, _ := f.Str("general.architecture")
	i := slices.IndexFunc(ggufFamilies, func(x ggufFamily) bool { return x.kind == kind && (x.is == nil || x.is(f)) })
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
	if further, ok := f.Int(name + nextLayers); ok {
		layers, _ := f.Int(name + ".block_count")
		g.values["num_hidden_layers"] = min(layers-further, math.MaxInt32)
	}
	g.int("num_attention_heads", "attention.head_count", true)
	g.int("num_key_value_heads", "attention.head_count_kv", false)
	g.int("intermediate_size", "feed_forward_length", f.Ints(name+".feed_forward_length") == nil)
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
	if name != "qwen2" {
		_, bias := infos[firstOf(infos, arch.QProj+".bias")]
		g.values["attention_bias"] = bias
	}
	if w, ok := f.Int(name + ".attention.sliding_window"); ok && w > 0 && name != "llama" {
		g.values["use_sliding_window"], g.values["sliding_window"], g.values["max_window_layers"] = true, w, 0
	}
	g.readScaling()
	if family.read != nil {
		family.read(&g, infos)
	}
	if family.partial {
		g.readPartial()
	}
	if g.err != nil {
		return Config{}, g.err
	}
	c, err := g.config()
	if err != nil {
		return c, err
	}
	a := globalAttention(c)
	if d, ok := f.Int(name + ".rope.dimension_count"); ok && !family.partial && d != int64(a.HeadDim) {
		return c, malformed.At(f.Path, name+".rope.dimension_count", malformed.Unsupported,
			"%d differs from the head's %d; partial rotation is not supported in a GGUF of %s", d, a.HeadDim, name)
	}
	if family.turned {
		return c, checkTurned(f, a.HeadDim)
	}
	if scaling, err := ropeFactors(f, c); err != nil || scaling == nil {
		return c, err
	} else {
		g.values["rope_scaling"] = scaling
	}
	return g.config()
}

// firstOf is the tensor of that name of the first layer that has one; "": none has.
func firstOf(infos map[string]TensorInfo, name string) string {
	for known := range infos {
		if _, rest, _ := strings.Cut(strings.TrimPrefix(known, "model.layers."), "."); rest == name {
			return known
		}
	}
	return ""
}

// readPartial reads which share of a head is rotated.
func (g *ggufKeys) readPartial() {
	size := g.headSize()
	d, ok := g.file.Int(g.name + ".rope.dimension_count")
	if !ok {
		d = size
	}
	if size > 0 && (d != size || g.name != "phi3") {
		g.values["partial_rotary_factor"] = pyFloat(float64(d) / float64(size))
	}
}

// headSize is the size of a head: its key's, or the hidden size over the heads; 0: no key says it.
func (g *ggufKeys) headSize() int64 {
	heads, _ := g.file.Int(g.name + ".attention.head_count")
	hidden, _ := g.file.Int(g.name + ".embedding_length")
	size, ok := g.file.Int(g.name + ".attention.key_length")
	if !ok && heads > 0 {
		size = hidden / heads
	}
	return size
}

// ggufKeys are the keys of a config.json, as they are found.
type ggufKeys struct {
	file   *gguf.File
	name   string // general.architecture
	model  string // model_type
	values map[string]any
	err    error // the first
}

// refuse is an error of a key, or of a tensor.
func (g *ggufKeys) refuse(key, format string, a ...any) {
	if g.err == nil {
		g.err = malformed.At(g.file.Path, key, malformed.Unsupported, format, a...)
	}
}

// ints are the numbers of a list, nil where the key is none.
func (g *ggufKeys) ints(from string) []int64 { return g.file.Ints(g.name + "." + from) }

func (g *ggufKeys) int(key, from string, must bool) {
	v, ok := g.file.Int(g.name + "." + from)
	switch {
	case ok:
		g.values[key] = min(v, math.MaxInt32) // arch names what is too large
	case must && g.err == nil:
		g.err = malformed.At(g.file.Path, g.name+"."+from, malformed.Missing, "the key is missing or no integer")
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

// tensor is float32, computed anew at each call unless it is stored so.
func (g *ggufTensors) tensor(i TensorInfo) (Tensor, error) {
	out := Tensor{Name: i.Name, DType: i.DType, Shape: i.Shape}
	part := g.names[i.Name]
	t, ok := g.file.Lookup(part.name)
	if !ok {
		return out, fmt.Errorf("%s: no tensor %s", g.file.Path, i.Name)
	}
	raw := g.bytesOf(i.Name)
	if part.clamped != nil {
		return g.clampedTensor(i, part, t)
	}
	if out.Data = raw; t.Type != gguf.F32 {
		out.Data = dequantise(t.Type, raw)
	}
	out.Data = changeOf(g.config, i.Name).undo(out.Data)
	return out, nil
}

// tensorFor is Model.TensorFor.
func (g *ggufTensors) tensorFor(i TensorInfo, d DType) (Tensor, error) {
	part := g.names[i.Name]
	t, ok := g.file.Lookup(part.name)
	change := changeOf(g.config, i.Name)
	if !ok || part.clamped != nil || change.needsFloat32() {
		return g.tensor(i)
	}
	out := Tensor{Name: i.Name, DType: d, Shape: i.Shape, Data: g.bytesOf(i.Name)}
	switch {
	case t.Type == gguf.F16:
		out.DType = F16
	case t.Type == gguf.BF16:
		out.DType = BF16
	case t.Type == gguf.F32 || d != BF16:
		return g.tensor(i)
	default:
		out.Data = dequantiseBF16(t.Type, out.Data)
	}
	out.Data = change.undo(out.Data)
	return out, nil
}

func (g *ggufTensors) mapped(name string) [][]byte {
	of := [][]byte{g.bytesOf(name)}
	if part := g.names[name]; part.clamped != nil && part.clamped.up != "" {
		up, _ := g.file.Lookup(part.clamped.up) // addClamped found it
		of = append(of, g.file.Data(up))
	}
	return of
}

// bytesOf are those of a tensor, or of a part of one; of clamped experts those of the gates.
func (g *ggufTensors) bytesOf(name string) []byte {
	part := g.names[name]
	t, ok := g.file.Lookup(part.name)
	if !ok {
		return nil
	}
	raw := g.file.Data(t)
	size := len(raw) / max(part.n, 1)
	return raw[part.k*size:][:size]
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
