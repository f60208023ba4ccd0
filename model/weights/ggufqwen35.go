package weights

import (
	"fmt"
	"maps"
	"strings"

	"agentcli/model/arch"
)

var qwen35Names = map[string]string{
	"post_attention_norm": "post_attention_layernorm", "ffn_norm": "",
	"attn_qkv": arch.DeltaInQKV, "attn_gate": arch.DeltaInZ, "ssm_alpha": arch.DeltaInA, "ssm_beta": arch.DeltaInB,
	"ssm_conv1d": arch.DeltaConv, "ssm_norm": arch.DeltaNorm, "ssm_out": arch.DeltaOut,
}

var qwen35Whole = map[string]string{"ssm_a": arch.DeltaALog, "ssm_dt.bias": arch.DeltaDtBias}

var qwen35moeNames = func() map[string]string {
	m := maps.Clone(qwen35Names)
	maps.Copy(m, map[string]string{"ffn_gate_inp": "mlp.gate", "ffn_gate_inp_shexp": arch.SharedGate,
		"ffn_gate_shexp": "mlp.shared_expert.gate_proj", "ffn_up_shexp": "mlp.shared_expert.up_proj",
		"ffn_down_shexp": "mlp.shared_expert.down_proj"})
	return m
}()

// qwen35Change puts value heads in the order in which llama.cpp repeats the key heads: the first
// of every key head, then the second of every one, … Ours are those of the first key head, then
// those of the second, …
func qwen35Change(c Config, name string) ggufChange {
	var d arch.DeltaNet
	for _, l := range c.Layers {
		if l.Delta.Kernel > 0 {
			d = l.Delta
		}
	}
	is := func(stem string) bool { return strings.HasSuffix(strings.TrimSuffix(name, ".weight"), "."+stem) }
	keys := 2 * d.KeyHeads * d.KeyDim
	switch {
	case is(arch.DeltaInQKV), is(arch.DeltaConv):
		return ggufChange{rows: valueOrder(d, keys, d.ValueDim)}
	case is(arch.DeltaInZ):
		return ggufChange{rows: valueOrder(d, 0, d.ValueDim)}
	case is(arch.DeltaInA), is(arch.DeltaInB), is(arch.DeltaDtBias):
		return ggufChange{rows: valueOrder(d, 0, 1)}
	case is(arch.DeltaALog):
		return ggufChange{rows: valueOrder(d, 0, 1), negExp: true}
	case is(arch.DeltaOut):
		return ggufChange{columns: valueOrder(d, 0, d.ValueDim)}
	case is(arch.DeltaNorm):
		return ggufChange{}
	}
	return normsPlusOne(c, name)
}

// valueOrder is the order of rows of which size are a value head's, behind others; nil: it is ours.
func valueOrder(d arch.DeltaNet, before, size int) []int {
	if d.KeyHeads == d.ValueHeads || d.KeyHeads == 0 {
		return nil
	}
	var out []int
	for i := range before {
		out = append(out, i)
	}
	each := d.ValueHeads / d.KeyHeads
	for v := range each {
		for k := range d.KeyHeads {
			for i := range size {
				out = append(out, before+(k*each+v)*size+i)
			}
		}
	}
	return out
}

func sayQwen35(c Config, say func(string, any)) error {
	recurrent, d := make([]bool, len(c.Layers)), arch.DeltaNet{}
	for i, l := range c.Layers {
		if recurrent[i] = l.Delta.Kernel > 0; recurrent[i] {
			d = l.Delta
		}
		if l.Attention.QKVBias {
			return fmt.Errorf("layer %d: attention with biases", i)
		}
	}
	switch {
	case d.Kernel == 0 || c.First().Attention.Heads == 0:
		return fmt.Errorf("llama.cpp wants layers with linear attention and others")
	case d.KeyDim != d.ValueDim:
		return fmt.Errorf("llama.cpp has keys as large as values (linear_key_head_dim %d, linear_value_head_dim %d)", d.KeyDim, d.ValueDim)
	}
	say("ssm.conv_kernel", uint32(d.Kernel))
	say("ssm.state_size", uint32(d.KeyDim))
	say("ssm.group_count", uint32(d.KeyHeads))
	say("ssm.time_step_rank", uint32(d.ValueHeads))
	say("ssm.inner_size", uint32(d.ValueHeads*d.ValueDim))
	say("attention.recurrent_layers", recurrent)
	pairs := int32(globalRope(c).Dim / 2) // a text's three positions are one: any sections give the same
	say("rope.dimension_sections", []int32{(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0})
	return nil
}

func readQwen35Keys(g *ggufKeys, _ map[string]TensorInfo) {
	g.values["head_dim"] = g.headSize()
	g.int("linear_conv_kernel_dim", "ssm.conv_kernel", true)
	g.int("linear_num_key_heads", "ssm.group_count", true)
	g.int("linear_num_value_heads", "ssm.time_step_rank", true)
	g.int("linear_key_head_dim", "ssm.state_size", true)
	g.int("linear_value_head_dim", "ssm.state_size", true)
	every := int64(4)
	if v, ok := g.file.Int(g.name + ".full_attention_interval"); ok && v > 0 {
		every = v
	}
	recurrent := g.ints("attention.recurrent_layers")
	types := make([]string, g.layers())
	for i := range types {
		linear := (int64(i)+1)%every != 0
		if i < len(recurrent) {
			linear = recurrent[i] == 1
		}
		if types[i] = "full_attention"; linear {
			types[i] = "linear_attention"
		}
	}
	g.values["layer_types"] = types
	rope := map[string]any{"rope_type": "default", "rope_theta": g.values["rope_theta"]}
	if s, ok := g.values["rope_scaling"].(map[string]any); ok {
		rope = s
		rope["rope_theta"] = g.values["rope_theta"]
	}
	delete(g.values, "rope_theta")
	delete(g.values, "rope_scaling")
	if s := g.ints("rope.dimension_sections"); len(s) >= 3 {
		rope["mrope_section"], rope["mrope_interleaved"] = s[:3], true
	}
	g.values["rope_parameters"] = rope
}

func sayQwen35MoE(c Config, say func(string, any)) error {
	l := c.First()
	say("expert_count", uint32(l.Experts.Count))
	say("expert_used_count", uint32(l.Experts.Active))
	say("expert_feed_forward_length", uint32(l.Experts.Size))
	say("expert_shared_feed_forward_length", uint32(l.MLP.Size))
	return sayQwen35(c, say)
}

func readQwen35MoEKeys(g *ggufKeys, infos map[string]TensorInfo) {
	delete(g.values, "intermediate_size")
	g.int("num_experts", "expert_count", true)
	g.int("num_experts_per_tok", "expert_used_count", true)
	g.int("moe_intermediate_size", "expert_feed_forward_length", true)
	g.int("shared_expert_intermediate_size", "expert_shared_feed_forward_length", true)
	readQwen35Keys(g, infos)
}
