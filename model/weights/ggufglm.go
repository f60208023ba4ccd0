package weights

import (
	"fmt"

	"agentcli/model/arch"
)

var glm4moeNames = map[string]string{"post_attention_norm": "post_attention_layernorm", "ffn_norm": "", "ffn_gate_inp": "mlp.gate",
	"ffn_gate_shexp": "mlp.shared_experts.gate_proj", "ffn_up_shexp": "mlp.shared_experts.up_proj",
	"ffn_down_shexp": "mlp.shared_experts.down_proj"}

func readGLM4Keys(g *ggufKeys, _ map[string]TensorInfo) {
	g.values["head_dim"] = g.headSize()
	for _, n := range g.ints("rope.dimension_sections") {
		if n != 0 {
			g.refuse(g.name+".rope.dimension_sections", "rows of q and k are in another order then; take the model's safetensors")
		}
	}
}

func sayGLM4MoE(c Config, say func(string, any)) error {
	e, err := sayDense(c, say)
	if err != nil {
		return err
	}
	shared := c.Layers[len(c.Layers)-1].MLP
	if shared.Size == 0 || shared.Size%e.Size != 0 {
		return fmt.Errorf("a shared expert of %d, no multiple of an expert's %d", shared.Size, e.Size)
	}
	scale := e.Scale
	if scale == 0 {
		scale = 1
	}
	say("expert_shared_count", uint32(shared.Size/e.Size))
	say("expert_weights_scale", float32(scale))
	say("expert_weights_norm", e.Normalise)
	say("expert_group_count", uint32(max(e.Groups, 1)))
	say("expert_group_used_count", uint32(max(e.TopGroups, 1)))
	return nil
}

func readGLM4MoEKeys(g *ggufKeys, infos map[string]TensorInfo) {
	readGLM4Keys(g, infos)
	readSigmoid(g, "n_routed_experts")
	g.values["first_k_dense_replace"] = 0
	g.int("first_k_dense_replace", "leading_dense_block_count", false)
	g.int("n_shared_experts", "expert_shared_count", true)
	g.int("n_group", "expert_group_count", false)
	g.int("topk_group", "expert_group_used_count", false)
	g.float("routed_scaling_factor", "expert_weights_scale")
	g.values["norm_topk_prob"] = false
	if v, ok := g.file.Bool(g.name + ".expert_weights_norm"); ok {
		g.values["norm_topk_prob"] = v
	}
	g.values["use_qk_norm"] = firstOf(infos, arch.QNorm+".weight") != ""
}
