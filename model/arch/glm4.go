package arch

// GLM-4-0414 (GLM team 2024): norms before and after each sub-layer, neighbouring pairs of
// half of each head are rotated, gate and up are one matrix on disk.
var glm4 = family{name: "glm4", class: "Glm4ForCausalLM", read: func(k *Keys, d *Decoder) {
	d.Tied = k.Bool("tie_word_embeddings", false)
	d.Eps = k.Float("rms_norm_eps", 1.5625e-7)
	a, m := readHeads(d, k, 128), readMLP(k, "hidden_act")
	a.QKVBias, m.Fused = k.Bool("attention_bias", true), true
	a.Rope = halfRope(d, k, a.HeadDim)
	d.Ropes[a.Rope].Interleaved = true
	stack(d, k, Norms{BeforeAttention: "input_layernorm", AfterAttention: "post_self_attn_layernorm",
		BeforeMLP: "post_attention_layernorm", AfterMLP: "post_mlp_layernorm"}, a, m)
}}

// halfRope is a rotary embedding of half a head where no key says another share.
func halfRope(d *Decoder, k *Keys, dim int) int {
	k.Absent("rope_scaling")
	p := k.Sub("rope_parameters")
	if p == nil {
		p = &Keys{path: k.path, read: map[string]bool{}, err: k.err}
	}
	return ropeOf(d, k, p, dim, k.Positive("rope_theta", 10000), k.Float("partial_rotary_factor", .5))
}
