package arch

// Qwen3.5 to 3.8, the language model (Qwen team 2026): the gated delta rule in three layers of
// four, attention with gates in the others, norms that multiply by one plus their weight.
var qwen35 = family{name: "qwen3_5_text", class: "Qwen3_5ForCausalLM", read: func(k *Keys, d *Decoder) {
	readQwen35(k, d, readMLP(k, "hidden_act"))
}}

// readQwen35 reads what both families have.
func readQwen35(k *Keys, d *Decoder, m MLP) {
	d.Tied, d.NormOffset = k.Bool("tie_word_embeddings", false), 1
	a := readHeads(d, k, 256)
	a.QKVBias = k.Bool("attention_bias", false)
	a.OBias, a.QKNorm, a.Gated = a.QKVBias, PerHead, true
	a.Rope = textRope(d, k, a.HeadDim)
	delta := DeltaNet{Kernel: readKernel(k, "linear_conv_kernel_dim", 4),
		KeyHeads: k.SizeOr("linear_num_key_heads", 1<<12, 16), ValueHeads: k.SizeOr("linear_num_value_heads", 1<<12, 32),
		KeyDim: k.SizeOr("linear_key_head_dim", 1<<12, 128), ValueDim: k.SizeOr("linear_value_head_dim", 1<<12, 128)}
	if delta.ValueHeads%delta.KeyHeads != 0 {
		k.mismatch("linear_num_key_heads", "%d does not divide linear_num_value_heads, %d", delta.KeyHeads, delta.ValueHeads)
	}
	stack(d, k, preNorms, a, m)
	every := k.SizeOr("full_attention_interval", 1<<12, 4)
	readMixers(d, k, "linear_attention", func(layer int) bool { return (layer+1)%every == 0 }, func(l *Layer) { l.Delta = delta })
	k.Has("mlp_only_layers")  // none
	k.Has("attn_output_gate") // always
	k.Has("mamba_ssm_dtype")  // the states are float32
	for _, key := range []string{"mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"} {
		k.Has(key) // of layers that predict further tokens, which are not read
	}
}

// textRope reads the rotary embedding of a model that also sees: its positions have three
// parts, which are one in a text.
func textRope(d *Decoder, k *Keys, dim int) int {
	theta := k.Positive("rope_theta", 10000)
	p := k.Sub("rope_parameters")
	if p == nil {
		p = k.Sub("rope_scaling")
	}
	if p == nil {
		p = &Keys{path: k.path, read: map[string]bool{}, err: k.err}
	}
	p.Has("mrope_section")
	p.Has("mrope_interleaved")
	return ropeOf(d, k, p, dim, theta, k.Float("partial_rotary_factor", .25))
}
