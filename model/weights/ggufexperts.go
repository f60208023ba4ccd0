package weights

import (
	"fmt"

	"agentcli/model/arch"
)

func sayExperts(c Config, say func(string, any)) error {
	e := c.First().Experts
	for i, l := range c.Layers {
		if l.Experts != e || l.MLP.Size > 0 || !e.Normalise {
			return fmt.Errorf("layer %d: llama.cpp has experts in every layer, whose weights sum to 1 (norm_topk_prob)", i)
		}
	}
	say("expert_count", uint32(e.Count))
	say("expert_used_count", uint32(e.Active))
	say("expert_feed_forward_length", uint32(e.Size))
	return nil
}

func readExpertKeys(g *ggufKeys, _ map[string]TensorInfo) {
	g.int("num_experts", "expert_count", true)
	g.int("num_experts_per_tok", "expert_used_count", true)
	g.int("moe_intermediate_size", "expert_feed_forward_length", true)
	g.values["norm_topk_prob"] = true
}

// sigmoidGate is llama.cpp's number of routers whose weights are sigmoids.
const sigmoidGate = 2

// sayDense says how many layers come before those with experts, and what those are; it refuses
// models whose layers with experts differ.
func sayDense(c Config, say func(string, any)) (arch.Experts, error) {
	first := 0
	for first < len(c.Layers) && c.Layers[first].Experts.Count == 0 {
		first++
	}
	if first == len(c.Layers) {
		return arch.Experts{}, fmt.Errorf("no layer has experts")
	}
	e, width := c.Layers[first].Experts, denseSize(c, first)
	for i, l := range c.Layers[first:] {
		if l.Experts != e {
			return e, fmt.Errorf("layer %d: llama.cpp has the same experts in every layer from %d on", first+i, first)
		}
	}
	say("feed_forward_length", uint32(width))
	say("leading_dense_block_count", uint32(first))
	say("expert_count", uint32(e.Count))
	say("expert_used_count", uint32(e.Active))
	say("expert_feed_forward_length", uint32(e.Size))
	say("expert_gating_func", uint32(sigmoidGate))
	return e, nil
}

// denseSize is the size of the MLPs before the layers with experts.
func denseSize(c Config, first int) int {
	if first > 0 {
		return c.Layers[0].MLP.Size
	}
	return c.Layers[0].Experts.Size
}

// readSigmoid reads experts that are chosen by sigmoids.
func readSigmoid(g *ggufKeys, count string) {
	g.int(count, "expert_count", true)
	g.int("num_experts_per_tok", "expert_used_count", true)
	g.int("moe_intermediate_size", "expert_feed_forward_length", true)
	if v, ok := g.file.Int(g.name + ".expert_gating_func"); ok && v != sigmoidGate {
		g.refuse(g.name+".expert_gating_func", "%d is not supported; %d, sigmoids, is", v, sigmoidGate)
	}
}
