package arch

// Ministral 3 (Mistral AI 2025), the language model: YaRN, and queries that grow in long
// texts.
var ministral3 = family{name: "ministral3", class: "Ministral3ForCausalLM", read: func(k *Keys, d *Decoder) {
	d.Tied = k.Bool("tie_word_embeddings", false)
	d.Eps = k.Float("rms_norm_eps", 1e-5)
	a, m := readHeads(d, k, 128), readMLP(k, "hidden_act")
	if !k.Has("rope_parameters") && !k.Has("rope_scaling") {
		k.refuse("rope_parameters", "a model without them is not supported")
	}
	a.Rope = readRope(d, k, a.HeadDim, 1000000)
	if k.Has("sliding_window") {
		a.Window = k.Size("sliding_window", 1<<30)
	}
	k.Absent("attention_bias", "mlp_bias", "layer_types")
	stack(d, k, preNorms, a, m)
}}
