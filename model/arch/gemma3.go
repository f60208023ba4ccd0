package arch

import "math"

// Gemma 3, the text model (Gemma team 2025): four norms a layer, which multiply by one plus
// their weight, embeddings times √hidden, GELU, and a window on five layers of six, with a
// base of its own.
var gemma3 = family{name: "gemma3_text", class: "Gemma3ForCausalLM", defaults: map[string]int{
	"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
	"num_key_value_heads": 4, "max_position_embeddings": 131072,
}, read: func(k *Keys, d *Decoder) {
	d.Tied = k.Bool("tie_word_embeddings", true)
	d.NormOffset, d.EmbedScale = 1, math.Sqrt(float64(d.HiddenSize))
	a, m := readHeads(d, k, 256), readMLP(k, "hidden_activation")
	a.QKVBias = k.Bool("attention_bias", false)
	a.OBias, a.QKNorm = a.QKVBias, PerHead
	a.Scale = 1 / math.Sqrt(k.Positive("query_pre_attn_scalar", 256))
	k.Absent("attn_logit_softcapping", "final_logit_softcapping", "use_bidirectional_attention")
	k.Has("hidden_act") // older files have both
	stack(d, k, Norms{BeforeAttention: "input_layernorm", AfterAttention: "post_attention_layernorm",
		BeforeMLP: "pre_feedforward_layernorm", AfterMLP: "post_feedforward_layernorm"}, a, m)
	every := k.SizeOr("sliding_window_pattern", 1<<12, k.SizeOr("_sliding_window_pattern", 1<<12, 6))
	sliding := layerTypes(d, k, k.SizeOr("sliding_window", 1<<30, 4096), func(i int) bool { return (i+1)%every != 0 })
	ropeByType(d, k, a.HeadDim, sliding, 1000000, "rope_local_base_freq", 10000)
}}
