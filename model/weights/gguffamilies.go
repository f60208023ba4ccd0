package weights

import (
	"errors"
	"fmt"
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
	kind    string                // general.architecture
	model   string                // model_type as which a file is opened
	is      func(*gguf.File) bool // whether a file of that kind is of this family; nil: it is
	names   map[string]string     // of tensors, where they differ from ggufNames; "" is none
	whole   map[string]string     // names of which not only the stem differs, within a layer
	experts *arch.Experts         // how experts are named whose matrices are stacked in a file; nil: there are none
	clamped bool                  // experts are gpt-oss's (ggufclamped.go)

	window  bool // layers may have a sliding window
	scale   bool // attention may have a scale of its own
	partial bool // a part of each head may be rotated
	turned  bool // rope_freqs says which pairs of a head are rotated (ggufgemma.go)

	// change is how the numbers of a tensor differ in a file; nil: they do not.
	change func(c Config, name string) ggufChange
	// write adds what the family's own keys say, and refuses what no key can say.
	write func(c Config, say func(key string, v any)) error
	// read is its reverse. infos are the file's tensors by their Hugging Face names.
	read func(g *ggufKeys, infos map[string]TensorInfo)
}

// ggufFamilies are the families whose files are read and written, by model_type. Others
// are not stored by llama.cpp, or were not compared with it.
var ggufFamilies = []ggufFamily{
	{kind: "llama", model: "llama", change: pairedHeads},
	{kind: "qwen2", model: "qwen2"},
	{kind: "qwen3", model: "qwen3"},
	{kind: "qwen3moe", model: "qwen3_moe", names: map[string]string{"ffn_gate_inp": "mlp.gate"}, experts: &arch.Experts{},
		write: sayExperts, read: readExpertKeys},
	{kind: "gemma3", model: "gemma3_text", window: true, scale: true, names: map[string]string{
		"post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
		"post_ffw_norm": "post_feedforward_layernorm"}, change: normsPlusOne, write: sayGemma3, read: readGemma3Keys},
	{kind: "gemma4", model: "gemma4_text", window: true, scale: true, turned: true, names: gemma4Names, whole: gemma4Whole,
		write: sayGemma4, read: readGemma4Keys},
	{kind: "olmo2", model: "olmo3", is: hasWindow, window: true, names: olmoNames, write: sayOLMo3, read: readOLMo3Keys},
	{kind: "olmo2", model: "olmo2", names: olmoNames},
	{kind: "granite", model: "granite", scale: true, change: pairedHeads, write: sayGranite, read: readGraniteKeys},
	{kind: "smollm3", model: "smollm3", change: pairedHeads, write: sayEveryFourth},
	{kind: "seed_oss", model: "seed_oss", names: map[string]string{"post_attention_norm": "post_attention_layernorm", "ffn_norm": ""},
		write: saySeedOSS},
	{kind: "phi3", model: "phi3", partial: true, names: map[string]string{"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}},
	{kind: "mistral3", model: "ministral3", change: pairedHeads, write: sayMinistral3, read: readMinistral3Keys},
	{kind: "glm4", model: "glm4", partial: true, names: map[string]string{"post_attention_norm": "post_self_attn_layernorm",
		"ffn_up": "mlp.gate_up_proj", "ffn_gate": "", "post_ffw_norm": "post_mlp_layernorm"}, read: readGLM4Keys},
	{kind: "glm4moe", model: "glm4_moe", partial: true, names: glm4moeNames,
		whole: map[string]string{"exp_probs_b.bias": arch.RouterCorrection}, experts: &arch.Experts{},
		write: sayGLM4MoE, read: readGLM4MoEKeys},
	{kind: "gpt-oss", model: "gpt_oss", window: true, clamped: true, names: map[string]string{
		"post_attention_norm": "post_attention_layernorm", "ffn_norm": "", "ffn_gate_inp": arch.ClampedRouter},
		whole: map[string]string{"attn_sinks.weight": arch.Sinks}, write: sayGptOss, read: readGptOssKeys},
	{kind: "lfm2", model: "lfm2", names: lfm2Names, write: sayLFM2, read: readLFM2Keys},
	{kind: "lfm2moe", model: "lfm2_moe", names: lfm2Names, whole: map[string]string{"exp_probs_b.bias": arch.NumberedCorrection},
		experts: &arch.Experts{Numbered: true}, write: sayLFM2MoE, read: readLFM2MoEKeys},
	{kind: "qwen35", model: "qwen3_5_text", partial: true, names: qwen35Names, whole: qwen35Whole, change: qwen35Change,
		write: sayQwen35, read: readQwen35Keys},
	{kind: "qwen35moe", model: "qwen3_5_moe_text", partial: true, names: qwen35moeNames, whole: qwen35Whole,
		experts: &arch.Experts{}, change: qwen35Change, write: sayQwen35MoE, read: readQwen35MoEKeys},
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
		if !slices.Contains(out, f.kind) {
			out = append(out, f.kind)
		}
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
var ggufExperts = map[string]func(arch.MLP) string{
	"ffn_gate_exps": arch.MLP.Gate, "ffn_up_exps": arch.MLP.Up, "ffn_down_exps": arch.MLP.Down}

// layerOf splits the name of a layer's tensor in a GGUF; false: it is of none.
func layerOf(name string) (layer int, rest string, ok bool) {
	n, rest, ok := strings.Cut(strings.TrimPrefix(name, "blk."), ".")
	layer, err := strconv.Atoi(n)
	return layer, rest, ok && err == nil && strings.HasPrefix(name, "blk.")
}

// expertNames are the tensors that one of a GGUF stacks; nil: it is none of experts.
func (f ggufFamily) expertNames(name string, count int64) []string {
	layer, rest, ok := layerOf(name)
	matrix, known := ggufExperts[strings.TrimSuffix(rest, ".weight")]
	if !ok || !known || f.experts == nil {
		return nil
	}
	out := make([]string, count)
	for k := range out {
		out[k] = arch.LayerPrefix(layer) + matrix(f.experts.Expert(k)) + ".weight"
	}
	return out
}

// expertStack is the tensor of a GGUF that an expert's is part of; "": it is of no expert.
func (f ggufFamily) expertStack(name string) string {
	var layer, expert int
	if f.experts == nil {
		return ""
	}
	prefix, _, _ := strings.Cut(f.experts.Expert(0).Prefix, "0")
	if n, _ := fmt.Sscanf(name, "model.layers.%d."+prefix+"%d.", &layer, &expert); n != 2 {
		return ""
	}
	for stem, matrix := range ggufExperts {
		if name == arch.LayerPrefix(layer)+matrix(f.experts.Expert(expert))+".weight" {
			return fmt.Sprintf("blk.%d.%s.weight", layer, stem)
		}
	}
	return ""
}

// ggufRefusal is why a model cannot be written as a GGUF, whatever its family; "" is no reason.
func ggufRefusal(c Config, f ggufFamily) string {
	for i, l := range c.Layers {
		a := l.Attention
		switch {
		case l.MLP.Bias:
			return "an MLP with biases"
		case a.Heads == 0:
		case a.Window > 0 && !f.window:
			return fmt.Sprintf("%s with a sliding window: llama.cpp has none for it", c.Architecture)
		case a.Scale != 0 && !f.scale:
			return "another scale of attention"
		case a.Rope == arch.NoRope && f.kind != "smollm3":
			return fmt.Sprintf("layer %d does not rotate", i)
		}
	}
	r := globalRope(c)
	if r.QueryBeta != 0 && f.kind != "mistral3" || r.Interleaved != (f.kind == "glm4") ||
		r.Dim != globalAttention(c).HeadDim && !f.partial {
		return "this rotary embedding"
	}
	return ""
}

func sayGranite(c Config, say func(string, any)) error {
	say("attention.scale", float32(c.First().Attention.Scale))
	say("embedding_scale", float32(c.EmbedScale))
	say("residual_scale", float32(c.ResidualScale))
	say("logit_scale", float32(1/c.LogitScale))
	return nil
}

func readGraniteKeys(g *ggufKeys, _ map[string]TensorInfo) {
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

func saySeedOSS(c Config, _ func(string, any)) error {
	if c.First().Attention.OBias {
		return errors.New("a bias of attention's output: llama.cpp has none for it")
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
