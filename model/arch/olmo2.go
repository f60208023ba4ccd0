package arch

// OLMo 2 (OLMo team 2024): what a sub-layer gives is normed, not what it takes; queries
// and keys are normed whole.
var olmo2 = family{name: "olmo2", class: "Olmo2ForCausalLM", read: func(k *Keys, d *Decoder) {
	a, m := readOLMo(d, k)
	a.Rope = readRope(d, k, a.HeadDim, 10000)
	stack(d, k, olmoNorms, a, m)
}}

var olmoNorms = Norms{AfterAttention: "post_attention_layernorm", AfterMLP: "post_feedforward_layernorm"}

func readOLMo(d *Decoder, k *Keys) (Attention, MLP) {
	d.Tied = k.Bool("tie_word_embeddings", false)
	d.Eps = k.Float("rms_norm_eps", 1e-5)
	a, m := readHeads(d, k, 0), readMLP(k, "hidden_act")
	a.QKVBias = k.Bool("attention_bias", false)
	a.OBias, a.QKNorm = a.QKVBias, WholeVector
	return a, m
}
