package arch

// Qwen2 and 2.5 (Yang et al. 2024): biases on q, k and v.
var qwen2 = family{name: "qwen2", class: "Qwen2ForCausalLM", read: func(k *Keys, d *Decoder) {
	d.Tied = k.Bool("tie_word_embeddings", false)
	a, m := readHeads(d, k, 0), readMLP(k, "hidden_act")
	a.QKVBias = true
	a.Rope = readRope(d, k, a.HeadDim, 10000)
	stack(d, k, preNorms, a, m)
	qwenWindow(d, k)
}}

// qwenWindow gives the layers from max_window_layers on a window, or those that
// layer_types names.
func qwenWindow(d *Decoder, k *Keys) {
	window := 0
	if k.Has("sliding_window") && k.Bool("use_sliding_window", false) {
		window = k.Size("sliding_window", 1<<30)
	}
	first := 28 // transformers' default
	k.get("max_window_layers", &first)
	layerTypes(d, k, window, func(i int) bool { return i >= first })
}
