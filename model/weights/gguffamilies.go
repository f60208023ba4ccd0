package weights

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"agentcli/internal/malformed"
	"agentcli/model/arch"
	"agentcli/model/gguf"
)

// ggufFamily is how llama.cpp stores the models of one family. Names and keys are those of
// its Python package gguf 0.19, what is done to tensors that of convert_hf_to_gguf.py.
type ggufFamily struct {
	kind     string            // general.architecture
	model    string            // model_type as which a file is opened
	names    map[string]string // of tensors, where they differ from ggufNames
	permuted bool              // rows of q and k are in another order (unpermute)
	// write adds what the family's own keys say, and refuses what no key can say.
	write func(c Config, say func(key string, v any)) error
	// read is its reverse.
	read func(g *ggufKeys)
}

// ggufFamilies are the families whose files are read and written, by model_type. Others
// store tensors in ways that were not compared with anything.
var ggufFamilies = []ggufFamily{
	{kind: "llama", model: "llama", permuted: true},
	{kind: "qwen2", model: "qwen2"},
	{kind: "qwen3", model: "qwen3"},
	{kind: "qwen3moe", model: "qwen3_moe", names: map[string]string{"ffn_gate_inp": "mlp.gate"}, write: sayExperts, read: readExpertKeys},
	{kind: "gemma3", model: "gemma3_text", names: map[string]string{"post_attention_norm": "post_attention_layernorm",
		"ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}, write: sayGemma3, read: readGemma3Keys},
	{kind: "olmo2", model: "olmo2", names: map[string]string{"post_attention_norm": "post_attention_layernorm",
		"post_ffw_norm": "post_feedforward_layernorm", "ffn_norm": "", "attn_norm": ""}},
	{kind: "granite", model: "granite", permuted: true, write: sayGranite, read: readGraniteKeys},
	{kind: "smollm3", model: "smollm3", permuted: true, write: sayEveryFourth},
	{kind: "phi3", model: "phi3", names: map[string]string{"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}},
}

// ggufOf is how a model_type is stored.
func ggufOf(model string) (ggufFamily, bool) {
	if model == "mistral" { // llama.cpp's Llama is both
		model = "llama"
	}
	i := slices.IndexFunc(ggufFamilies, func(f ggufFamily) bool { return f.model == model })
	if i < 0 {
		return ggufFamily{}, false
	}
	return ggufFamilies[i], true
}

// ggufKinds lists their names in a file.
func ggufKinds() string {
	var out []string
	for _, f := range ggufFamilies {
		out = append(out, f.kind)
	}
	return strings.Join(out[:len(out)-1], ", ") + " and " + out[len(out)-1]
}

// hf is the Hugging Face name of a stem.
func (f ggufFamily) hf(stem string) (string, bool) {
	if name, ok := f.names[stem]; ok {
		return name, name != ""
	}
	name, ok := ggufNames[stem]
	return name, ok
}

// stem is the reverse of hf.
func (f ggufFamily) stem(hf string) (string, bool) {
	for s, name := range f.names {
		if name == hf {
			return s, true
		}
	}
	for s, name := range ggufNames {
		if _, other := f.names[s]; name == hf && !other {
			return s, true
		}
	}
	return "", false
}

// Experts of a layer are one tensor [experts, out, in] in a GGUF.
var ggufExperts = map[string]string{"ffn_gate_exps": "gate_proj", "ffn_up_exps": "up_proj", "ffn_down_exps": "down_proj"}

// expertNames are the tensors that one of a GGUF stacks; nil: it is none of experts.
func (f ggufFamily) expertNames(name string, count int64) []string {
	stem, suffix, _ := strings.Cut(name, ".ffn_")
	n, ok := strings.CutPrefix(stem, "blk.")
	proj, known := ggufExperts["ffn_"+strings.TrimSuffix(suffix, ".weight")]
	if _, err := strconv.Atoi(n); err != nil || !ok || !known || f.model != "qwen3_moe" {
		return nil
	}
	out := make([]string, count)
	for k := range out {
		out[k] = fmt.Sprintf("model.layers.%s.mlp.experts.%d.%s.weight", n, k, proj)
	}
	return out
}

// expertStack is the tensor of a GGUF that an expert's is part of; "": it is of no expert.
func expertStack(name string) string {
	var layer, expert int
	var rest string
	if n, _ := fmt.Sscanf(name, "model.layers.%d.mlp.experts.%d.%s", &layer, &expert, &rest); n != 3 {
		return ""
	}
	for stem, proj := range ggufExperts {
		if rest == proj+".weight" {
			return fmt.Sprintf("blk.%d.%s.weight", layer, stem)
		}
	}
	return ""
}

// offset is what is added to a tensor in a GGUF: norms have Gemma's one there.
func ggufOffset(c Config, name string) float32 {
	if strings.HasSuffix(name, "norm.weight") {
		return float32(c.NormOffset)
	}
	return 0
}

// plusEach adds a number to float32 values.
func plusEach(b []byte, by float32) []byte {
	if by == 0 {
		return b
	}
	out := make([]byte, len(b))
	for i := range len(b) / 4 {
		put(out, i, math.Float32frombits(le.Uint32(b[4*i:]))+by)
	}
	return out
}

// globalRope is the rotary embedding of the layers that see all that is before them.
func globalRope(c Config) arch.Rope {
	for _, l := range c.Layers {
		if l.Attention.Window == 0 && l.Attention.Rope != arch.NoRope {
			return c.Ropes[l.Attention.Rope]
		}
	}
	return c.Ropes[0]
}

// ggufRefusal is why a model cannot be written as a GGUF, whatever its family; "" is no reason.
func ggufRefusal(c Config, f ggufFamily) string {
	for i, l := range c.Layers {
		a := l.Attention
		switch {
		case a.Window > 0 && f.kind != "gemma3":
			return fmt.Sprintf("%s with a sliding window: llama.cpp has none for it", c.Architecture)
		case l.MLP.Bias:
			return "an MLP with biases"
		case a.Scale != 0 && f.kind != "gemma3" && f.kind != "granite":
			return "another scale of attention"
		case a.Rope == arch.NoRope && f.kind != "smollm3":
			return fmt.Sprintf("layer %d does not rotate", i)
		}
	}
	if r := globalRope(c); r.QueryBeta != 0 || r.Interleaved || r.Dim != c.First().Attention.HeadDim && f.kind != "phi3" {
		return "this rotary embedding"
	}
	return ""
}

func sayExperts(c Config, say func(string, any)) error {
	e := c.First().Experts
	for i, l := range c.Layers {
		if l.Experts != e || l.MLP.Size > 0 || !e.Normalise {
			return fmt.Errorf("layer %d: llama.cpp has experts in every layer, whose weights sum to 1 (norm_topk_prob)", i)
		}
	}
	say("expert_count", uint32(e.Count))
	say("expert_used_count", uint32(e.Active))
	say("expert_feed_forward_length", uint32(e.Size))
	return nil
}

func readExpertKeys(g *ggufKeys) {
	g.int("num_experts", "expert_count", true)
	g.int("num_experts_per_tok", "expert_used_count", true)
	g.int("moe_intermediate_size", "expert_feed_forward_length", true)
	g.values["norm_topk_prob"] = true
}

const gemmaPattern = 6 // llama.cpp's, without a key

func sayGemma3(c Config, say func(string, any)) error {
	period, window := len(c.Layers)+1, 0
	for i, l := range slices.Backward(c.Layers) {
		if l.Attention.Window == 0 {
			period = i + 1
		}
		window = max(window, l.Attention.Window)
	}
	for i, l := range c.Layers {
		a := l.Attention
		scale := 1 / math.Sqrt(float64(a.HeadDim))
		if len(c.Layers) == 62 { // 27B
			scale = 1 / math.Sqrt(float64(c.HiddenSize)/float64(a.Heads))
		}
		switch {
		case (a.Window > 0) != ((i+1)%period != 0):
			return fmt.Errorf("layer %d: every %d. layer must be one without a window, and no other", i, period)
		case math.Abs(a.Scale-scale) > 1e-9:
			return fmt.Errorf("layer %d: llama.cpp scales attention by %v, not by %v (query_pre_attn_scalar)", i, scale, a.Scale)
		case a.Window > 0:
			local := c.Ropes[a.Rope]
			if local.Scaling != nil {
				return fmt.Errorf("layer %d: its rope is scaled", i)
			}
			say("rope.freq_base_swa", float32(local.Theta))
		}
	}
	if window > 0 {
		say("attention.sliding_window", uint32(window))
	}
	if period != gemmaPattern {
		say("attention.sliding_window_pattern", uint32(period))
	}
	return nil
}

func readGemma3Keys(g *ggufKeys) {
	g.values["hidden_activation"] = "gelu_pytorch_tanh"
	delete(g.values, "hidden_act")
	g.values["sliding_window_pattern"] = gemmaPattern
	g.int("sliding_window_pattern", "attention.sliding_window_pattern", false)
	g.float("rope_local_base_freq", "rope.freq_base_swa")
	layers, _ := g.file.Int(g.name + ".block_count")
	heads, _ := g.file.Int(g.name + ".attention.head_count")
	hidden, _ := g.file.Int(g.name + ".embedding_length")
	size, ok := g.file.Int(g.name + ".attention.key_length")
	if !ok && heads > 0 {
		size = hidden / heads
	}
	g.values["query_pre_attn_scalar"] = max(size, 1)
	if layers == 62 && heads > 0 {
		g.values["query_pre_attn_scalar"] = float64(hidden) / float64(heads)
	}
}

func sayGranite(c Config, say func(string, any)) error {
	say("attention.scale", float32(c.First().Attention.Scale))
	say("embedding_scale", float32(c.EmbedScale))
	say("residual_scale", float32(c.ResidualScale))
	say("logit_scale", float32(1/c.LogitScale))
	return nil
}

func readGraniteKeys(g *ggufKeys) {
	g.float("attention_multiplier", "attention.scale")
	g.float("embedding_multiplier", "embedding_scale")
	g.float("residual_multiplier", "residual_scale")
	g.float("logits_scaling", "logit_scale")
}

func sayEveryFourth(c Config, _ func(string, any)) error {
	for i, l := range c.Layers {
		if (l.Attention.Rope == arch.NoRope) != ((i+1)%4 == 0) {
			return fmt.Errorf("layer %d: llama.cpp rotates all layers but every fourth", i)
		}
	}
	return nil
}

// stacked reads the tensors that one of a GGUF holds, by their Hugging Face names and in order.
func (g *ggufTensors) stacked(f ggufFamily, t gguf.Tensor, shape []int64) (names []string, each []int64, err error) {
	if len(shape) == 3 {
		if shape[0] < 1 || shape[0] > 1<<12 {
			return nil, nil, malformed.At(g.file.Path, "tensor "+printable(t.Name), malformed.Range, "%d experts are not between 1 and %d",
				shape[0], 1<<12)
		}
		if names = f.expertNames(t.Name, shape[0]); names != nil {
			return names, shape[1:], nil
		}
	}
	if name := f.hfName(t.Name); name != "" {
		return []string{name}, shape, nil
	}
	return nil, nil, malformed.At(g.file.Path, "tensor "+printable(t.Name), malformed.Unsupported, "not known in models of %s", f.kind)
}

// plainScaling reports whether a scaled rope follows from its factor and its original length,
// which is all that a GGUF says of it.
func plainScaling(c Config, r arch.Rope) bool {
	scaling := map[string]any{"rope_type": r.Scaling.Type, "factor": r.Scaling.Factor}
	if r.Scaling.Original > 0 {
		scaling["original_max_position_embeddings"] = r.Scaling.Original
	}
	raw, err := json.Marshal(map[string]any{"vocab_size": 1, "hidden_size": r.Dim, "head_dim": r.Dim, "num_attention_heads": 1,
		"num_hidden_layers": 1, "intermediate_size": 1, "max_position_embeddings": c.MaxPositions, "rope_theta": r.Theta,
		"rope_scaling": scaling})
	if err != nil {
		return false
	}
	k, err := arch.NewKeys("", raw)
	if err != nil {
		return false
	}
	d, err := arch.Read("llama", k)
	return err == nil && reflect.DeepEqual(d.Ropes[0].Scaling, r.Scaling)
}
