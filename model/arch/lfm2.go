package arch

import "slices"

// LFM2 (Liquid AI 2025): short convolutions, and attention in some layers.
var lfm2 = family{name: "lfm2", class: "Lfm2ForCausalLM", read: func(k *Keys, d *Decoder) {
	m := MLP{Prefix: "feed_forward", Numbered: true, Size: k.SizeOr("block_ff_dim", 1<<20, k.SizeOr("intermediate_size", 1<<20, 12288))}
	if k.Bool("block_auto_adjust_ff_dim", true) { // two thirds of it, times a factor, rounded up
		m.Size = 2 * m.Size / 3
		if string(k.values["block_ffn_dim_multiplier"]) != "null" {
			m.Size = int(min(k.Positive("block_ffn_dim_multiplier", 1)*float64(m.Size), 1<<30))
			of := k.SizeOr("block_multiple_of", 1<<20, 256)
			m.Size = (m.Size + of - 1) / of * of
		}
	}
	if m.Size < 1 || m.Size > 1<<20 {
		k.fail("block_ffn_dim_multiplier", "the MLPs have a size of %d", m.Size)
		m.Size = 1
	}
	k.Has("block_ffn_dim_multiplier")
	k.Has("block_multiple_of")
	readLFM2(k, d, m)
}}

// readLFM2 reads what both families have.
func readLFM2(k *Keys, d *Decoder, m MLP) {
	d.Tied = k.Bool("tie_embedding", k.Bool("tie_word_embeddings", true))
	d.Eps, d.FinalNorm = k.Float("norm_eps", 1e-5), "model.embedding_norm.weight"
	a := readHeads(d, k, 0)
	a.LFM2, a.QKNorm = true, PerHead
	a.Rope = readRope(d, k, a.HeadDim, 1000000)
	stack(d, k, Norms{BeforeAttention: "operator_norm", BeforeMLP: "ffn_norm"}, a, m)
	conv := ShortConv{Kernel: readKernel(k, "conv_L_cache", 3), Bias: k.Bool("conv_bias", false)}
	attending := k.Ints("full_attn_idxs")
	readMixers(d, k, "conv", func(layer int) bool { return attending == nil || slices.Contains(attending, layer) },
		func(l *Layer) { l.Conv = conv })
	for _, key := range []string{"conv_dim", "conv_dim_out", "conv_use_xavier_init", "block_dim", "block_mlp_init_scale",
		"block_out_init_scale", "block_norm_eps", "block_use_swiglu", "block_use_xavier_init", "use_pos_enc", "num_heads", "theta"} {
		k.Has(key) // of older files; the class reads none of them
	}
}
