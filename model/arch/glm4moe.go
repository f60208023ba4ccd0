package arch

// GLM-4.5, 4.6 and 4.7 (GLM team 2025): half of each head is rotated, experts are chosen in
// groups by sigmoids with a correction, one MLP is shared, the first layers have no experts.
// The layers that predict further tokens are not read.
var glm4moe = family{name: "glm4_moe", class: "Glm4MoeForCausalLM", read: func(k *Keys, d *Decoder) {
	d.Tied = k.Bool("tie_word_embeddings", false)
	d.Eps = k.Float("rms_norm_eps", 1e-5)
	a, dense := readHeads(d, k, 0), readMLP(k, "hidden_act")
	a.QKVBias = k.Bool("attention_bias", false)
	if k.Bool("use_qk_norm", false) {
		a.QKNorm = PerHead
	}
	a.Rope = halfRope(d, k, a.HeadDim)
	e := readExperts(k, "n_routed_experts")
	e.Router = Router{Sigmoid: true, Correction: true, Normalise: k.Bool("norm_topk_prob", true),
		Scale:  k.Positive("routed_scaling_factor", 1),
		Groups: k.SizeOr("n_group", e.Count, 1), TopGroups: k.SizeOr("topk_group", e.Count, 1)}
	if e.Groups > 0 && (e.Count%e.Groups != 0 || e.Count/e.Groups < 2 || e.TopGroups > e.Groups || e.Active > e.Count/e.Groups*e.TopGroups) {
		k.mismatch("n_group", "%d groups, of which topk_group %d are asked, of %d experts, of which %d are", e.Groups, e.TopGroups,
			e.Count, e.Active)
	}
	shared := MLP{Prefix: "mlp.shared_experts", Size: e.Size * k.SizeOr("n_shared_experts", 1<<12, 1), Act: dense.Act}
	first := k.Whole("first_k_dense_replace", 1)
	stack(d, k, preNorms, a, dense)
	for i := range d.Layers {
		if i >= first {
			d.Layers[i].MLP, d.Layers[i].Experts = shared, e
		}
	}
	k.Has("num_nextn_predict_layers")
	k.Has("num_mtp_layers")
	ofRouterTraining(k)
}}
