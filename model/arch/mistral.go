package arch

// Mistral 7B and its successors up to Nemo and Small (Jiang et al. 2023): Llama with a
// window, which later ones do without.
var mistral = family{name: "mistral", class: "MistralForCausalLM", defaults: map[string]int{"sliding_window": 4096},
	read: func(k *Keys, d *Decoder) {
		d.Tied = k.Bool("tie_word_embeddings", false)
		a, m := readHeads(d, k, 0), readMLP(k, "hidden_act")
		a.Rope = readRope(d, k, a.HeadDim, 10000)
		if k.Has("sliding_window") {
			a.Window = k.Size("sliding_window", 1<<30)
		}
		k.Absent("attention_bias", "mlp_bias", "layer_types")
		stack(d, k, preNorms, a, m)
	}}
