package arch

// Qwen2-VL (Wang et al. 2024): the text model of Qwen2, rotated by three positions, and an
// encoder with LayerNorm whose blocks all see the whole image.
var qwen2vl = family{name: "qwen2_vl", class: "Qwen2VLForConditionalGeneration", vision: true, read: func(k *Keys, d *Decoder) {
	t := qwen2Text(k, d)
	readVision(d, k, func(p *Keys, v *Vision) {
		v.HiddenSize, v.Out = p.Size("embed_dim", 1<<16), p.Size("hidden_size", 1<<18)
		v.MLPSize = int(p.Positive("mlp_ratio", 4) * float64(v.HiddenSize))
		v.LayerNorm, v.Act = true, visionAct(p, "quick_gelu")
		v.names = visionNames{up: "fc1", down: "fc2", mergeNorm: "ln_q", merge1: "mlp.0", merge2: "mlp.2"}
	})
	qwenWindow(d, t)
}}

// Qwen2.5-VL (Bai et al. 2025): most blocks of the encoder see a window only.
var qwen25vl = family{name: "qwen2_5_vl", class: "Qwen2_5_VLForConditionalGeneration", vision: true, read: func(k *Keys, d *Decoder) {
	t := qwen2Text(k, d)
	readVision(d, k, func(p *Keys, v *Vision) {
		v.HiddenSize, v.Out = p.Size("hidden_size", 1<<16), p.SizeOr("out_hidden_size", 1<<18, 3584)
		v.MLPSize, v.Gated = p.SizeOr("intermediate_size", 1<<20, 3420), true
		if act := visionAct(p, "silu"); act != VisionSiLU {
			p.refuse("hidden_act", "silu alone is supported in this family")
		}
		v.Act = VisionSiLU
		window := p.SizeOr("window_size", 1<<20, 112)
		if v.Window = window / v.Merge / v.Patch; v.Window == 0 {
			p.mismatch("window_size", "%d pixels are less than one feature of %d", window, v.Merge*v.Patch)
		}
		if v.Full = []int{7, 15, 23, 31}; p.Has("fullatt_block_indexes") {
			v.Full = p.Ints("fullatt_block_indexes")
		}
		v.names = visionNames{gate: "gate_proj", up: "up_proj", down: "down_proj", mergeNorm: "ln_q", merge1: "mlp.0", merge2: "mlp.2"}
	})
	qwenWindow(d, t)
}}

// qwen2Text reads the text model of Qwen2-VL and Qwen2.5-VL.
func qwen2Text(k *Keys, d *Decoder) *Keys {
	t := readText(k)
	d.Tied = k.Bool("tie_word_embeddings", t.Bool("tie_word_embeddings", false))
	d.Eps = t.Float("rms_norm_eps", 1e-5)
	a, m := readHeads(d, t, 0), readMLP(t, "hidden_act")
	a.QKVBias = true
	a.Rope = readMRoPE(d, t, a.HeadDim, 1000000)
	stack(d, t, preNorms, a, m)
	return t
}
