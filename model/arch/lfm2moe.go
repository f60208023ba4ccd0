package arch

// LFM2 with experts: LFM2-8B-A1B (Liquid AI 2025). The first layers have none; experts are
// chosen by sigmoids with a correction.
var lfm2moe = family{name: "lfm2_moe", class: "Lfm2MoeForCausalLM", read: func(k *Keys, d *Decoder) {
	dense := MLP{Prefix: "feed_forward", Numbered: true, Size: k.SizeOr("intermediate_size", 1<<20, 7168)}
	e := readExperts(k, "num_experts")
	e.Numbered = true
	e.Router = Router{Sigmoid: true, Correction: k.Bool("use_expert_bias", true), Normalise: k.Bool("norm_topk_prob", true),
		Epsilon: 1e-6, Scale: k.Positive("routed_scaling_factor", 1)}
	readLFM2(k, d, dense)
	for i := max(k.Whole("num_dense_layers", 2), 0); i < len(d.Layers); i++ {
		d.Layers[i].MLP, d.Layers[i].Experts = MLP{}, e
	}
	ofRouterTraining(k)
}}
