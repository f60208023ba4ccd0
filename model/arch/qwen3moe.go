package arch

import "slices"

// Qwen3 with experts: Qwen3-30B-A3B and -235B-A22B, 2507 and Coder (Yang et al. 2025).
var qwen3moe = family{name: "qwen3_moe", class: "Qwen3MoeForCausalLM", read: func(k *Keys, d *Decoder) {
	d.Tied = k.Bool("tie_word_embeddings", false)
	a, dense := readHeads(d, k, 0), readMLP(k, "hidden_act")
	a.QKVBias = k.Bool("attention_bias", false)
	a.OBias, a.QKNorm = a.QKVBias, PerHead
	a.Rope = readRope(d, k, a.HeadDim, 10000)
	if k.Has("sliding_window") && k.Bool("use_sliding_window", false) {
		a.Window = k.Size("sliding_window", 1<<30)
	}
	e := readExperts(k, "num_experts")
	e.Normalise = k.Bool("norm_topk_prob", false)
	stack(d, k, preNorms, a, dense)
	every, only := k.SizeOr("decoder_sparse_step", 1<<12, 1), k.Ints("mlp_only_layers")
	for i := range d.Layers {
		if !slices.Contains(only, i) && (i+1)%every == 0 {
			d.Layers[i].MLP, d.Layers[i].Experts = MLP{Act: dense.Act}, e
		}
	}
	ofRouterTraining(k)
}}

// readExperts reads how many experts there are, by a key of that name, how many a token asks,
// and their size.
func readExperts(k *Keys, count string) Experts {
	if local := k.Has("num_local_experts"); !k.Has(count) && local { // transformers 5 writes that
		count = "num_local_experts"
	}
	e := Experts{Count: k.Size(count, 1<<12), Active: k.Size("num_experts_per_tok", 1<<12), Size: k.Size("moe_intermediate_size", 1<<20)}
	if e.Active > e.Count {
		k.mismatch("num_experts_per_tok", "%d of %s, %d", e.Active, count, e.Count)
	}
	return e
}

// ofRouterTraining are keys of a loss that balances experts in pretraining.
func ofRouterTraining(k *Keys) {
	for _, key := range []string{"output_router_logits", "router_aux_loss_coef", "router_jitter_noise"} {
		k.Has(key)
	}
}
