package arch

// Qwen3.5 to 3.8 with experts, the language model: of each layer's experts a token asks a few
// by the softmax of their logits, and one that is weighed by a gate of its own.
var qwen35moe = family{name: "qwen3_5_moe_text", class: "Qwen3_5MoeForCausalLM", read: func(k *Keys, d *Decoder) {
	e := readExperts(k, "num_experts")
	e.Normalise = true
	m := MLP{Prefix: "mlp.shared_expert", Size: k.SizeOr("shared_expert_intermediate_size", 1<<20, 512), Gated: true}
	if act := k.String("hidden_act", "silu"); act != "silu" {
		k.refuse("hidden_act", "%q is not supported; silu is", act)
	}
	readQwen35(k, d, m)
	for i := range d.Layers {
		d.Layers[i].Experts = e
	}
	k.Has("intermediate_size") // of no layer
	ofRouterTraining(k)
}}
