package arch

// Qwen3 (Yang et al. 2025): queries and keys are normed head by head.
var qwen3 = family{name: "qwen3", class: "Qwen3ForCausalLM", read: func(k *Keys, d *Decoder) {
	d.Tied = k.Bool("tie_word_embeddings", false)
	a, m := readHeads(d, k, 128), readMLP(k, "hidden_act")
	a.QKVBias = k.Bool("attention_bias", false)
	a.OBias, a.QKNorm = a.QKVBias, PerHead
	a.Rope = readRope(d, k, a.HeadDim, 10000)
	stack(d, k, preNorms, a, m)
	qwenWindow(d, k)
}}
