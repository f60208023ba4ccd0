package arch

// gpt-oss (OpenAI 2025): attention with sinks, every second layer in a window, experts with a
// clamped SwiGLU, of which each token asks a few by the softmax of their logits.
var gptoss = family{name: "gpt_oss", class: "GptOssForCausalLM", read: func(k *Keys, d *Decoder) {
	d.Tied = k.Bool("tie_word_embeddings", false)
	d.Eps = k.Float("rms_norm_eps", 1e-5)
	a, dense := readHeads(d, k, 64), readMLP(k, "hidden_act")
	a.QKVBias = k.Bool("attention_bias", true)
	a.OBias, a.Sinks = a.QKVBias, true
	a.Rope = readRope(d, k, a.HeadDim, 150000)
	count := "num_local_experts"
	if k.Has("num_experts") && !k.Has(count) {
		count = "num_experts"
	}
	e := Experts{Count: k.Size(count, 1<<12), Active: k.Size("num_experts_per_tok", 1<<12), Size: dense.Size,
		Clamped: &Clamp{Alpha: k.Positive("swiglu_alpha", 1.702), Limit: k.Positive("swiglu_limit", 7)}, Router: Router{Normalise: true}}
	if e.Active > e.Count {
		k.mismatch("num_experts_per_tok", "%d of %s, %d", e.Active, count, e.Count)
	}
	window := k.SizeOr("sliding_window", 1<<30, 128)
	stack(d, k, preNorms, a, MLP{Act: dense.Act})
	for i := range d.Layers {
		d.Layers[i].Experts = e
	}
	layerTypes(d, k, window, func(layer int) bool { return layer%2 == 0 })
	k.Has("experts_per_token")      // num_experts_per_tok once more
	k.Has("initial_context_length") // original_max_position_embeddings once more
	ofRouterTraining(k)
}}
