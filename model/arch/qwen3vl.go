package arch

import "math"

const qwen3vlName = "qwen3_vl"

// Qwen3-VL (Bai et al. 2025): the text model of Qwen3, rotated by three positions in turn; the
// encoder has a table of positions, and gives features of some of its blocks to the first
// layers of the text.
var qwen3vl = family{name: qwen3vlName, class: "Qwen3VLForConditionalGeneration", vision: true, read: func(k *Keys, d *Decoder) {
	t := readText(k)
	d.Tied = k.Bool("tie_word_embeddings", t.Bool("tie_word_embeddings", false))
	a, m := readHeads(d, t, 128), readMLP(t, "hidden_act")
	a.QKVBias = t.Bool("attention_bias", false)
	a.OBias, a.QKNorm = a.QKVBias, PerHead
	a.Rope = readMRoPE(d, t, a.HeadDim, 500000)
	stack(d, t, preNorms, a, m)
	readVision(d, k, func(p *Keys, v *Vision) {
		v.HiddenSize, v.Out = p.Size("hidden_size", 1<<16), p.SizeOr("out_hidden_size", 1<<18, 3584)
		v.MLPSize = p.SizeOr("intermediate_size", 1<<20, 4304)
		v.Patch = p.SizeOr("patch_size", 1<<10, 16)
		v.LayerNorm, v.PatchBias, v.Nested, v.Act = true, true, true, visionAct(p, "gelu_pytorch_tanh")
		table := p.SizeOr("num_position_embeddings", 1<<20, 2304)
		if v.PositionSide = int(math.Sqrt(float64(table))); v.PositionSide*v.PositionSide != table {
			p.mismatch("num_position_embeddings", "%d is no square", table)
		}
		if v.DeepStack = []int{8, 16, 24}; p.Has("deepstack_visual_indexes") {
			v.DeepStack = p.Ints("deepstack_visual_indexes")
		}
		if len(v.DeepStack) >= len(d.Layers) {
			p.mismatch("deepstack_visual_indexes", "%d blocks for a text model of %d layers; there must be fewer", len(v.DeepStack), len(d.Layers))
		}
		for i, b := range v.DeepStack {
			if b < 0 || b >= v.Depth || i > 0 && b <= v.DeepStack[i-1] {
				p.fail("deepstack_visual_indexes", "%v are not blocks of %d, in order", v.DeepStack, v.Depth)
			}
		}
		v.names = visionNames{up: "linear_fc1", down: "linear_fc2", mergeNorm: "norm", merge1: "linear_fc1", merge2: "linear_fc2"}
	})
}}
