package weights

import (
	"fmt"
	"math"
	"slices"

	"agentcli/internal/malformed"
	"agentcli/model/arch"
	"agentcli/model/gguf"
)

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

func readGemma3Keys(g *ggufKeys, _ map[string]TensorInfo) {
	g.values["hidden_activation"] = "gelu_pytorch_tanh"
	delete(g.values, "hidden_act")
	g.values["sliding_window_pattern"] = gemmaPattern
	g.int("sliding_window_pattern", "attention.sliding_window_pattern", false)
	g.float("rope_local_base_freq", "rope.freq_base_swa")
	layers, _ := g.file.Int(g.name + ".block_count")
	heads, _ := g.file.Int(g.name + ".attention.head_count")
	g.values["query_pre_attn_scalar"] = max(g.headSize(), 1)
	if layers == 62 && heads > 0 {
		hidden, _ := g.file.Int(g.name + ".embedding_length")
		g.values["query_pre_attn_scalar"] = float64(hidden) / float64(heads)
	}
}

var gemma4Names = map[string]string{
	"post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
	"post_ffw_norm": "post_feedforward_layernorm", "post_ffw_norm_1": "post_feedforward_layernorm_1",
	"pre_ffw_norm_2": "pre_feedforward_layernorm_2", "post_ffw_norm_2": "post_feedforward_layernorm_2",
	"ffn_gate_inp": arch.BesideRouter, "per_layer_token_embd": "model.embed_tokens_per_layer",
	"per_layer_model_proj": "model.per_layer_model_projection", "per_layer_proj_norm": "model.per_layer_projection_norm",
	"inp_gate": "per_layer_input_gate", "proj": "per_layer_projection", "post_norm": "post_per_layer_input_norm",
}

var gemma4Whole = map[string]string{
	"layer_output_scale.weight": arch.OutputScale, "ffn_gate_inp.scale": arch.BesideRouterNorm,
	"ffn_down_exps.scale": arch.BesideExpertScale, "ffn_gate_up_exps.weight": arch.BesideGateUp, "ffn_down_exps.weight": arch.BesideDown,
}

func sayGemma4(c Config, say func(string, any)) error {
	full, local := globalAttention(c), arch.Attention{}
	sliding, widths, heads := make([]bool, len(c.Layers)), make([]int32, len(c.Layers)), make([]int32, len(c.Layers))
	shared := 0
	for i, l := range c.Layers {
		a := l.Attention
		if sliding[i] = a.Window > 0; sliding[i] {
			local = a
		}
		if a.Shared {
			shared++
		}
		widths[i], heads[i] = int32(l.MLP.Size), int32(a.KVHeads)
		if a.QKVBias {
			return fmt.Errorf("layer %d: attention with biases", i)
		}
	}
	if local.Heads == 0 || full.Window > 0 {
		return fmt.Errorf("llama.cpp wants layers with a window and others without")
	}
	if r := c.Ropes[local.Rope]; r.Scaling != nil || r.Dim != local.HeadDim {
		return fmt.Errorf("the rope of layers with a window is scaled")
	}
	say("feed_forward_length", widths)
	say("attention.head_count_kv", heads)
	say("attention.key_length", uint32(full.HeadDim))
	say("attention.value_length", uint32(full.HeadDim))
	say("attention.key_length_swa", uint32(local.HeadDim))
	say("attention.value_length_swa", uint32(local.HeadDim))
	say("rope.dimension_count_swa", uint32(local.HeadDim))
	say("rope.freq_base_swa", float32(c.Ropes[local.Rope].Theta))
	say("attention.sliding_window", uint32(local.Window))
	say("attention.sliding_window_pattern", sliding)
	say("attention.shared_kv_layers", uint32(shared))
	say("embedding_length_per_layer_input", uint32(c.PerLayer.Size))
	say("final_logit_softcapping", float32(c.LogitCap)) // without the key llama.cpp caps at 30, with 0 not at all
	if e := c.First().Experts; e.Count > 0 {
		say("expert_count", uint32(e.Count))
		say("expert_used_count", uint32(e.Active))
		say("expert_feed_forward_length", uint32(e.Size))
	}
	return nil
}

func readGemma4Keys(g *ggufKeys, infos map[string]TensorInfo) {
	g.values["hidden_activation"] = "gelu_pytorch_tanh"
	delete(g.values, "hidden_act")
	delete(g.values, "use_sliding_window")
	delete(g.values, "max_window_layers")
	sliding := g.slidingLayers(nil)
	full := slices.Index(g.kinds(), "full_attention")
	g.int("global_head_dim", "attention.key_length", true)
	g.int("head_dim", "attention.key_length_swa", true)
	g.int("num_kv_shared_layers", "attention.shared_kv_layers", false)
	g.int("hidden_size_per_layer_input", "embedding_length_per_layer_input", true)
	if v, ok := g.file.Float(g.name + ".final_logit_softcapping"); ok && v != 0 {
		g.float("final_logit_softcapping", "final_logit_softcapping")
	}
	for i, n := range g.ints("attention.head_count_kv") {
		if i < len(sliding) && sliding[i] {
			g.values["num_key_value_heads"] = n
		} else {
			g.values["num_global_key_value_heads"] = n
		}
	}
	if full >= 0 {
		_, own := infos[arch.LayerPrefix(full)+arch.VProj+".weight"]
		g.values["attention_k_eq_v"] = !own
	}
	if w := g.ints("feed_forward_length"); len(w) > 0 {
		g.values["intermediate_size"], g.values["use_double_wide_mlp"] = w[0], w[len(w)-1] != w[0]
	}
	if e, ok := infos[arch.PerLayerEmbed]; ok && len(e.Shape) == 2 {
		g.values["vocab_size_per_layer_input"] = min(e.Shape[0], math.MaxInt32)
	}
	if n, ok := g.file.Int(g.name + ".expert_count"); ok && n > 0 {
		g.values["enable_moe_block"] = true
		g.int("num_experts", "expert_count", true)
		g.int("top_k_experts", "expert_used_count", true)
		g.int("moe_intermediate_size", "expert_feed_forward_length", true)
	}
	theta := g.values["rope_theta"]
	delete(g.values, "rope_theta")
	local := pyFloat(10000)
	if v, ok := g.file.Float(g.name + ".rope.freq_base_swa"); ok {
		local = pyFloat(tidy(v))
	}
	g.values["rope_parameters"] = map[string]any{
		"full_attention": map[string]any{"rope_type": "proportional", "rope_theta": theta,
			"partial_rotary_factor": pyFloat(turnedShare(g.file))},
		"sliding_attention": map[string]any{"rope_type": "default", "rope_theta": local},
	}
}

// notTurned divides the frequencies of pairs that llama.cpp is not to turn.
const notTurned = 1e30

// turnedShare is the share of a head's pairs whose frequencies rope_freqs does not divide.
func turnedShare(f *gguf.File) float64 {
	t, ok := f.Lookup(ropeFreqs)
	values := f32s(f, t)
	if !ok || len(values) == 0 {
		return 1
	}
	turned := len(values) - len(slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return v == 1 }))
	return float64(turned) / float64(len(values))
}

// checkTurned refuses frequencies that are anything else than turned or not turned.
func checkTurned(f *gguf.File, dim int) error {
	t, ok := f.Lookup(ropeFreqs)
	if !ok {
		return nil
	}
	values := f32s(f, t)
	if len(values) != dim/2 {
		return malformed.At(f.Path, "tensor "+ropeFreqs, malformed.Type, "%s of %d bytes, not float32 for half a head of %d", t.Type, t.Size, dim)
	}
	for i, v := range values {
		if v != 1 && v < notTurned/2 || v == 1 && i > 0 && values[i-1] != 1 {
			return malformed.At(f.Path, "tensor "+ropeFreqs, malformed.Unsupported, "value %d is %v; those of Gemma 4 are 1, then %v",
				i, v, notTurned)
		}
	}
	return nil
}
