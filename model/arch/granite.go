package arch

// Granite 3 and 4 dense (IBM 2024): Llama with four multipliers.
var granite = family{name: "granite", class: "GraniteForCausalLM", read: func(k *Keys, d *Decoder) {
	d.Tied = k.Bool("tie_word_embeddings", false)
	a, m := readHeads(d, k, 0), readMLP(k, "hidden_act")
	a.QKVBias = k.Bool("attention_bias", false)
	a.OBias = a.QKVBias
	m.Bias = k.Bool("mlp_bias", false)
	a.Scale = k.Positive("attention_multiplier", 1)
	d.EmbedScale, d.ResidualScale = k.Positive("embedding_multiplier", 1), k.Positive("residual_multiplier", 1)
	d.LogitScale = 1 / k.Positive("logits_scaling", 1)
	a.Rope = readRope(d, k, a.HeadDim, 10000)
	stack(d, k, preNorms, a, m)
}}
