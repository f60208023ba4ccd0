package modelstest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"agentcli/app/models"
)

// Experts writes a small mixture of experts with random weights, two of eight experts a token in
// each layer, and gives its folder. dense is the folder of a Qwen3 that has the sizes and the tokenizer.
func Experts(t *testing.T, dense string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"} {
		data, err := os.ReadFile(filepath.Join(dense, name))
		if err == nil && name == "config.json" {
			data, err = withExperts(data)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	model := filepath.Join(t.TempDir(), "model")
	if err := models.Init(filepath.Join(dir, "config.json"), 1, model); err != nil {
		t.Fatal(err)
	}
	return model
}

func withExperts(dense []byte) ([]byte, error) {
	var config map[string]any
	if err := json.Unmarshal(dense, &config); err != nil {
		return nil, err
	}
	config["model_type"], config["architectures"] = "qwen3_moe", []string{"Qwen3MoeForCausalLM"}
	config["num_experts"], config["num_experts_per_tok"], config["moe_intermediate_size"] = 8, 2, 16
	config["norm_topk_prob"], config["decoder_sparse_step"], config["mlp_only_layers"] = true, 1, []int{}
	delete(config, "layer_types")
	config["initializer_range"], config["max_position_embeddings"] = .4, 2048
	return json.Marshal(config)
}
