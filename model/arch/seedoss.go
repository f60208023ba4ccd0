package arch

// Seed-OSS (ByteDance 2025): Llama with biases on q, k and v; that of o is a key of its own.
var seedOSS = family{name: "seed_oss", class: "SeedOssForCausalLM", read: func(k *Keys, d *Decoder) {
	d.Tied = k.Bool("tie_word_embeddings", false)
	a, m := readHeads(d, k, 128), readMLP(k, "hidden_act")
	a.QKVBias, a.OBias = k.Bool("attention_bias", true), k.Bool("attention_out_bias", false)
	m.Bias = k.Bool("mlp_bias", false)
	a.Rope = readRope(d, k, a.HeadDim, 10000)
	k.Has("residual_dropout") // of transformers' training
	stack(d, k, preNorms, a, m)
}}
