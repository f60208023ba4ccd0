package arch

// Llama 2 and 3 (Touvron et al. 2023; Grattafiori et al. 2024), and what uses their class.
var llama = family{name: "llama", class: "LlamaForCausalLM", read: func(k *Keys, d *Decoder) {
	d.Tied = k.Bool("tie_word_embeddings", false)
	a, m := readHeads(d, k, 0), readMLP(k, "hidden_act")
	a.QKVBias = k.Bool("attention_bias", false)
	a.OBias = a.QKVBias
	m.Bias = k.Bool("mlp_bias", false)
	a.Rope = readRope(d, k, a.HeadDim, 10000)
	k.Has("sliding_window") // of older files; the class has none
	stack(d, k, preNorms, a, m)
}}
