package arch

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
)

// Gemma 4, the text model (Google DeepMind 2026): layers with a window and others with larger
// heads; values are normed; the last layers take the keys and values of an earlier layer; each
// layer has an embedding of its own for the token; experts stand beside the MLP.
var gemma4 = family{name: "gemma4_text", class: "Gemma4ForCausalLM", defaults: map[string]int{
	"vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 30, "num_attention_heads": 8,
	"num_key_value_heads": 4, "max_position_embeddings": 131072,
}, read: func(k *Keys, d *Decoder) {
	d.Tied = k.Bool("tie_word_embeddings", true)
	d.EmbedScale = math.Sqrt(float64(d.HiddenSize))
	if k.Has("final_logit_softcapping") {
		d.LogitCap = k.Positive("final_logit_softcapping", 0)
	}
	if s := k.String("use_bidirectional_attention", ""); s != "" && s != "vision" { // which is of images alone
		k.refuse("use_bidirectional_attention", "%q is not supported", s)
	}
	a, m := readHeads(d, k, 256), readMLP(k, "hidden_activation")
	a.QKVBias = k.Bool("attention_bias", false)
	a.OBias, a.QKNorm, a.ValueNorm, a.Scale = a.QKVBias, PerHead, true, 1
	stack(d, k, Norms{BeforeAttention: "input_layernorm", AfterAttention: "post_attention_layernorm",
		BeforeMLP: "pre_feedforward_layernorm", AfterMLP: "post_feedforward_layernorm"}, a, m)
	sliding := layerTypes(d, k, k.SizeOr("sliding_window", 1<<30, 512), func(i int) bool { return (i+1)%6 != 0 })
	if last := len(sliding) - 1; last >= 0 {
		sliding[last], d.Layers[last].Attention.Window = false, 0
	}
	alike := k.Bool("attention_k_eq_v", false)
	headsOfLayers(d, k, sliding, alike)
	readPerLayer(d, k, m.Act)
	var experts Experts
	if k.Bool("enable_moe_block", false) {
		experts = Experts{Count: k.Size("num_experts", 1<<12), Active: k.Size("top_k_experts", 1<<12),
			Size: k.Size("moe_intermediate_size", 1<<20), Act: m.Act, Router: Router{Normalise: true},
			Beside: &Beside{AfterMLP: "post_feedforward_layernorm_1", Before: "pre_feedforward_layernorm_2", After: "post_feedforward_layernorm_2"}}
		if experts.Active > experts.Count {
			k.mismatch("top_k_experts", "%d of num_experts, %d", experts.Active, experts.Count)
		}
	} else {
		for _, key := range []string{"num_experts", "top_k_experts", "moe_intermediate_size"} {
			k.Has(key)
		}
	}
	for i := range d.Layers {
		l := &d.Layers[i]
		l.Attention.KeysAreValues = alike && !sliding[i]
		l.OutputScale, l.Experts = true, experts
	}
	ropesOfGemma4(d, k, sliding)
	shareKeys(d, k, sliding, k.Bool("use_double_wide_mlp", false))
}}

// headsOfLayers gives the layers without a window heads of their own.
func headsOfLayers(d *Decoder, k *Keys, sliding []bool, alike bool) {
	size, kv := k.SizeOr("global_head_dim", 1<<14, 512), 0
	if k.Has("num_global_key_value_heads") {
		kv = k.Size("num_global_key_value_heads", 1<<12)
	}
	each := k.Sub("per_layer_config") // what transformers writes in the place of both
	for i := range d.Layers {
		a := &d.Layers[i].Attention
		switch {
		case each != nil:
			if at := each.Sub(strconv.Itoa(i)); at != nil {
				a.HeadDim = at.SizeOr("head_dim", 1<<14, a.HeadDim)
				a.KVHeads = at.SizeOr("num_key_value_heads", 1<<12, a.KVHeads)
			}
		case !sliding[i]:
			if a.HeadDim = size; alike && kv > 0 {
				a.KVHeads = kv
			}
		}
		if a.Heads%a.KVHeads != 0 {
			k.mismatch("num_global_key_value_heads", "%d of layer %d does not divide num_attention_heads, %d", a.KVHeads, i, a.Heads)
		}
		if a.HeadDim%2 != 0 {
			k.refuse("global_head_dim", "%d of layer %d is odd", a.HeadDim, i)
		}
	}
}

// readPerLayer reads the embeddings that each layer has of the tokens.
func readPerLayer(d *Decoder, k *Keys, act Activation) {
	p := PerLayer{Size: k.Whole("hidden_size_per_layer_input", 256), Act: act}
	p.VocabSize = k.SizeOr("vocab_size_per_layer_input", 1<<22, 262144)
	switch {
	case p.Size == 0:
		return
	case p.Size > 1<<16:
		k.fail("hidden_size_per_layer_input", "%d is more than %d", p.Size, 1<<16)
	case p.VocabSize < d.VocabSize:
		k.mismatch("vocab_size_per_layer_input", "%d is less than vocab_size, %d", p.VocabSize, d.VocabSize)
	}
	d.PerLayer = p
}

// ropesOfGemma4 reads a rotary embedding for each kind of layer; their tables have the size of
// the layer's heads.
func ropesOfGemma4(d *Decoder, k *Keys, sliding []bool) {
	p := k.Sub("rope_parameters")
	if p == nil {
		p = &Keys{path: k.path, within: "rope_parameters.", read: map[string]bool{}, err: k.err, values: map[string]json.RawMessage{
			"sliding_attention": json.RawMessage(`{"rope_theta":10000}`),
			"full_attention":    json.RawMessage(`{"rope_type":"proportional","partial_rotary_factor":0.25,"rope_theta":1000000}`)}}
	}
	of := map[bool]*Keys{true: p.Sub("sliding_attention"), false: p.Sub("full_attention")}
	name := map[bool]string{true: "sliding_attention", false: "full_attention"}
	for i := range d.Layers {
		r := of[sliding[i]]
		if r == nil {
			p.fail(name[sliding[i]], "layer %d needs it", i)
			return
		}
		if kind := r.String("rope_type", "default"); kind == "default" && r.Float("partial_rotary_factor", 1) != 1 {
			r.refuse("partial_rotary_factor", "is not supported with rope_type default; transformers does not read it")
		}
		a := &d.Layers[i].Attention
		a.Rope = ropeOf(d, k, r, a.HeadDim, 0, 1)
	}
	for _, r := range of { // of a kind that no layer is of
		if r != nil {
			for key := range r.values {
				r.read[key] = true
			}
		}
	}
}

// shareKeys has the last layers take the keys and values of the last layer of their kind before
// them.
func shareKeys(d *Decoder, k *Keys, sliding []bool, wide bool) {
	n := k.Whole("num_kv_shared_layers", 0)
	first := len(d.Layers) - n
	if n > 0 && first < 1 {
		k.mismatch("num_kv_shared_layers", "%d of %d layers", n, len(d.Layers))
		return
	}
	for i := first; i < len(d.Layers); i++ {
		l := &d.Layers[i]
		from := -1
		for j := range slices.Backward(sliding[:first]) {
			if sliding[j] == sliding[i] {
				from = j
				break
			}
		}
		if from < 0 {
			k.mismatch("num_kv_shared_layers", "%d: no layer before them is of the kind of layer %d", n, i)
			return
		}
		if a, b := l.Attention, d.Layers[from].Attention; a.HeadDim != b.HeadDim || a.KVHeads != b.KVHeads {
			k.mismatch("num_kv_shared_layers", "%d: layer %d has other heads than layer %d", n, i, from)
			return
		}
		l.Attention.Shared, l.Attention.From = true, from
		if wide {
			l.MLP.Size *= 2
		}
	}
}
