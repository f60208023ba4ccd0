package arch

// SmolLM3 (Hugging Face 2025): every fourth layer does not rotate (Yang et al. 2025, "RoPE
// to NoRoPE and back again").
var smollm3 = family{name: "smollm3", class: "SmolLM3ForCausalLM", read: func(k *Keys, d *Decoder) {
	d.Tied = k.Bool("tie_word_embeddings", true)
	a, m := readHeads(d, k, 0), readMLP(k, "hidden_act")
	a.QKVBias = k.Bool("attention_bias", false)
	a.OBias = a.QKVBias
	m.Bias = k.Bool("mlp_bias", false)
	a.Rope = readRope(d, k, a.HeadDim, 2000000)
	stack(d, k, preNorms, a, m)

	every := k.SizeOr("no_rope_layer_interval", 1<<12, 4)
	rotated := k.Ints("no_rope_layers") // 1 where the layer rotates, whatever the name says
	if rotated != nil && len(rotated) != len(d.Layers) {
		k.mismatch("no_rope_layers", "%d entries for %d layers", len(rotated), len(d.Layers))
		return
	}
	still := make([]bool, len(d.Layers))
	for i := range d.Layers {
		if still[i] = (i+1)%every == 0; rotated != nil {
			still[i] = rotated[i] == 0
		}
		if still[i] {
			d.Layers[i].Attention.Rope = NoRope
		}
	}
	window := 0
	if k.Bool("use_sliding_window", false) && k.Has("sliding_window") {
		window = k.Size("sliding_window", 1<<30)
	}
	k.Has("sliding_window")
	layerTypes(d, k, window, func(i int) bool { return still[i] })
}}
