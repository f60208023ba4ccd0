package arch

// Phi-3, Phi-3.5, Phi-4 and Phi-4-mini (Abdin et al. 2024): q, k and v are one matrix on
// disk, gate and up another; a part of each head is rotated (Phi-4-mini), with LongRoPE.
var phi3 = family{name: "phi3", class: "Phi3ForCausalLM", defaults: map[string]int{"original_max_position_embeddings": 4096},
	read: func(k *Keys, d *Decoder) {
		d.Tied = k.Bool("tie_word_embeddings", false)
		d.Eps = k.Float("rms_norm_eps", 1e-5)
		a, m := readHeads(d, k, 0), readMLP(k, "hidden_act")
		a.Fused, m.Fused = true, true
		a.Rope = readRope(d, k, a.HeadDim, 10000)
		if k.Has("sliding_window") {
			a.Window = k.Size("sliding_window", 1<<30)
		}
		k.Absent("attention_bias", "layer_types")
		stack(d, k, preNorms, a, m)
	}}
