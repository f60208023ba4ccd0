package weights

import (
	"fmt"

	"agentcli/model/arch"
)

var lfm2Names = map[string]string{
	"token_embd_norm": "model.embedding_norm", "output_norm": "", "attn_norm": "operator_norm", "ffn_norm": "ffn_norm",
	"attn_output": arch.OutProj, "attn_q_norm": arch.QLayerNorm, "attn_k_norm": arch.KLayerNorm,
	"shortconv.in_proj": arch.ConvIn, "shortconv.conv": arch.ConvWeight, "shortconv.out_proj": arch.ConvOut,
	"ffn_gate": arch.NumberedGate, "ffn_up": arch.NumberedUp, "ffn_down": arch.NumberedDown, "ffn_gate_inp": "feed_forward.gate",
}

func sayLFM2(c Config, say func(string, any)) error {
	heads, kernel := make([]int32, len(c.Layers)), 0
	for i, l := range c.Layers {
		heads[i] = int32(l.Attention.KVHeads)
		kernel = max(kernel, l.Conv.Kernel)
		if l.Conv.Bias {
			return fmt.Errorf("layer %d: a convolution with biases (conv_bias)", i)
		}
	}
	a := c.First().Attention
	switch {
	case kernel == 0 || a.Heads == 0:
		return fmt.Errorf("llama.cpp wants layers with convolutions and layers with attention")
	case a.Heads*a.HeadDim != c.HiddenSize:
		return fmt.Errorf("heads of %d: llama.cpp has the hidden size over the heads", a.HeadDim)
	}
	say("feed_forward_length", uint32(c.Layers[0].MLP.Size))
	say("attention.head_count_kv", heads)
	say("shortconv.l_cache", uint32(kernel))
	return nil
}

func readLFM2Keys(g *ggufKeys, _ map[string]TensorInfo) {
	delete(g.values, "hidden_act")
	delete(g.values, "attention_bias")
	g.values["norm_eps"] = g.values["rms_norm_eps"]
	delete(g.values, "rms_norm_eps")
	g.int("conv_L_cache", "shortconv.l_cache", true)
	g.values["block_auto_adjust_ff_dim"] = false
	heads := g.ints("attention.head_count_kv")
	if heads == nil {
		g.refuse(g.name+".attention.head_count_kv", "a list of every layer's is wanted, 0 for those with convolutions")
	}
	types := make([]string, len(heads))
	for i, n := range heads {
		if types[i] = "conv"; n > 0 {
			types[i], g.values["num_key_value_heads"] = "full_attention", n
		}
	}
	g.values["layer_types"] = types
	if _, ok := g.values["sliding_window"]; ok {
		g.refuse(g.name+".attention.sliding_window", "is not supported")
	}
}

func sayLFM2MoE(c Config, say func(string, any)) error {
	if err := sayLFM2(c, say); err != nil {
		return err
	}
	e, err := sayDense(c, say)
	if err == nil && (!e.Normalise || !e.Correction || e.Scale != 0 && e.Scale != 1) {
		err = fmt.Errorf("experts without expert_bias or norm_topk_prob, or with a routed_scaling_factor")
	}
	return err
}

func readLFM2MoEKeys(g *ggufKeys, infos map[string]TensorInfo) {
	readLFM2Keys(g, infos)
	delete(g.values, "block_auto_adjust_ff_dim")
	readSigmoid(g, "num_experts")
	g.values["num_dense_layers"] = 0
	g.int("num_dense_layers", "leading_dense_block_count", false)
	g.values["use_expert_bias"], g.values["norm_topk_prob"] = true, true
}
