package arch

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"agentcli/internal/malformed"
	"agentcli/model/arch/archtest"
)

// titled is a model's configuration, key by key.
type titled struct {
	Title  string
	Config map[string]json.RawMessage
}

func configs(t testing.TB) (out []titled) {
	t.Helper()
	for _, m := range archtest.Models(t) {
		c := titled{Title: m.Title}
		if err := json.Unmarshal(m.Config, &c.Config); err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}

func read(config map[string]json.RawMessage) (Decoder, error) {
	raw, err := json.Marshal(config)
	if err != nil {
		return Decoder{}, err
	}
	k, err := NewKeys("config.json", raw)
	if err != nil {
		return Decoder{}, err
	}
	var name string
	_ = json.Unmarshal(config["model_type"], &name)
	return Read(name, k)
}

// Each key of each family's configuration, taken away or replaced: a model that holds
// together or an error of one line that names the file, nothing else.
func TestADamagedConfigIsAnErrorOrAModel(t *testing.T) {
	values := []string{"null", "-1", "0", "1", "3", "1e300", "1099511627776", "0.5", `"x"`, "[]", "[1]", `["full_attention"]`, "{}",
		`{"rope_type":"yarn","factor":0}`, `{"rope_type":"longrope"}`, `{"rope_type":"odd"}`, "true", "NaN1"}
	n, errs := 0, 0
	for _, c := range configs(t) {
		if _, err := read(c.Config); err != nil {
			t.Errorf("%s: %v", c.Title, err)
		}
		for key := range c.Config {
			for _, v := range values {
				damaged := maps.Clone(c.Config)
				if damaged[key] = json.RawMessage(v); v == "NaN1" {
					delete(damaged, key)
				}
				n++
				d, err := read(damaged)
				var bad *malformed.Error
				switch {
				case err == nil && len(d.Layers) <= 1<<12:
					for _, x := range d.Tensors() {
						if slices.ContainsFunc(x.Shape, func(n int64) bool { return n < 1 }) {
							t.Fatalf("%s with %s %s: tensor %s is %v", c.Title, key, v, x.Name, x.Shape)
						}
					}
				case err == nil:
					t.Errorf("%s with %s %s: %d layers", c.Title, key, v, len(d.Layers))
				case !errors.As(err, &bad) || bad.Path != "config.json" || strings.Contains(err.Error(), "\n"):
					t.Errorf("%s with %s %s: %v", c.Title, key, v, err)
				default:
					errs++
				}
			}
		}
	}
	if n < 1000 || errs < n/4 {
		t.Errorf("%d damaged configurations, %d of them errors", n, errs)
	}
}

// What changes the numbers and is not read must not pass unseen.
func TestAKeyThatNobodyReadsIsAnError(t *testing.T) {
	for _, c := range configs(t) {
		for _, x := range []struct{ key, value string }{
			{"attn_logit_softcapping", "50.0"}, {"final_logit_softcapping", "30.0"}, {"some_multiplier", "2"}, {"qk_layernorm", "true"},
		} {
			if strings.HasPrefix(c.Title, "gemma4") && x.key == "final_logit_softcapping" {
				continue // it is computed
			}
			damaged := maps.Clone(c.Config)
			damaged[x.key] = json.RawMessage(x.value)
			_, err := read(damaged)
			if f := malformed.Facts(err); f.Field != x.key || f.Kind != malformed.Unsupported {
				t.Errorf("%s with %s: %v", c.Title, x.key, err)
			}
			damaged[x.key] = json.RawMessage("null")
			if _, err := read(damaged); err != nil {
				t.Errorf("%s with %s null: %v", c.Title, x.key, err)
			}
		}
	}
	for name, rope := range map[string]string{"llama": `{"rope_type":"default","rope_theta":10000.0,"rope_ntk_alpha":2.0}`,
		"qwen3": `{"rope_type":"linear","factor":2.0,"mrope_section":[1,2,3]}`} {
		i := slices.IndexFunc(configs(t), func(c titled) bool { return c.Title == name })
		damaged := maps.Clone(configs(t)[i].Config)
		damaged["rope_parameters"] = json.RawMessage(rope)
		if _, err := read(damaged); malformed.Facts(err).Kind != malformed.Unsupported {
			t.Errorf("%s with %s: %v", name, rope, err)
		}
	}
}

// What a class computes where a key is missing is its default, or nothing here guesses it.
func TestAMissingKeyIsTheDefaultOfItsClass(t *testing.T) {
	of := func(title string) map[string]json.RawMessage {
		for _, c := range configs(t) {
			if c.Title == title {
				return c.Config
			}
		}
		t.Fatal(title)
		return nil
	}
	mistral := of("mistral")
	if d, err := read(mistral); err != nil || d.First().Attention.Window != 0 {
		t.Errorf("sliding_window null: %+v, %v", d.First().Attention, err)
	}
	delete(mistral, "sliding_window")
	if d, err := read(mistral); err != nil || d.First().Attention.Window != 4096 {
		t.Errorf("no sliding_window: %+v, %v; the class has 4096", d.First().Attention, err)
	}
	ministral := of("ministral3")
	delete(ministral, "rope_parameters")
	if _, err := read(ministral); malformed.Facts(err).Field != "rope_parameters" {
		t.Errorf("no rope_parameters: %v; the class has YaRN", err)
	}
	phi := of("phi3 longrope")
	var rope map[string]json.RawMessage
	if err := json.Unmarshal(phi["rope_parameters"], &rope); err != nil {
		t.Fatal(err)
	}
	delete(rope, "original_max_position_embeddings")
	delete(phi, "original_max_position_embeddings")
	phi["rope_parameters"], _ = json.Marshal(rope)
	if d, err := read(phi); err != nil || d.Ropes[0].Scaling.Original != 4096 {
		t.Errorf("no original_max_position_embeddings: %+v, %v; the class has 4096", d.Ropes, err)
	}
}

// Experts are computed with SiLU alone.
func TestExpertsWithAnotherActivationAreRefused(t *testing.T) {
	for _, c := range configs(t) {
		if d, err := read(c.Config); err != nil || d.Layers[len(d.Layers)-1].Experts.Count == 0 {
			continue
		}
		c.Config["hidden_act"] = json.RawMessage(`"gelu_pytorch_tanh"`)
		if _, err := read(c.Config); malformed.Facts(err).Field != "hidden_act" {
			t.Errorf("%s: %v", c.Title, err)
		}
	}
}

// As many parts as no model has would be a list that fills the memory.
func TestAnAbsurdNumberOfPartsIsRefused(t *testing.T) {
	for _, c := range configs(t) {
		if c.Title != "qwen3_moe" {
			continue
		}
		c.Config["num_hidden_layers"], c.Config["num_local_experts"], c.Config["num_experts"] = json.RawMessage("4000"),
			json.RawMessage("4000"), json.RawMessage("4000")
		if _, err := read(c.Config); malformed.Facts(err).Kind != malformed.Range {
			t.Error(err)
		}
	}
}

// What Gemma 4's keys can say and nothing here computes, or what contradicts itself, is an error
// that names the key.
func TestGemma4NamesTheKeyThatItCannotFollow(t *testing.T) {
	for _, x := range []struct{ key, value, field string }{
		{"use_bidirectional_attention", `"all"`, "use_bidirectional_attention"},
		{"num_kv_shared_layers", "6", "num_kv_shared_layers"},
		{"num_kv_shared_layers", "5", "num_kv_shared_layers"}, // no full layer before them
		{"final_logit_softcapping", "-1", "final_logit_softcapping"},
		{"hidden_size_per_layer_input", "-8", "hidden_size_per_layer_input"},
		{"per_layer_config", `{"2":{"head_dim":16,"sliding_window":4}}`, "per_layer_config.2.sliding_window"},
		{"per_layer_config", `{"2":{"head_dim":15}}`, "global_head_dim"},
		{"rope_parameters", `{"sliding_attention":{"rope_theta":10000.0}}`, "rope_parameters.full_attention"},
		{"rope_parameters", `{"sliding_attention":{"rope_theta":10000.0,"partial_rotary_factor":0.5},"full_attention":{"rope_theta":10000.0}}`,
			"rope_parameters.sliding_attention.partial_rotary_factor"},
		{"enable_moe_block", "true", "num_experts"},
		{"hidden_activation", `"gelu"`, "hidden_activation"},
	} {
		for _, c := range configs(t) {
			if c.Title != "gemma4" {
				continue
			}
			c.Config[x.key] = json.RawMessage(x.value)
			if _, err := read(c.Config); malformed.Facts(err).Field != x.field {
				t.Errorf("%s %s: %v; want an error of %s", x.key, x.value, err, x.field)
			}
		}
	}
	for _, c := range configs(t) {
		if strings.Contains(c.Title, "inputs of layers") {
			c.Config["vocab_size_per_layer_input"] = json.RawMessage("95")
			if _, err := read(c.Config); malformed.Facts(err).Field != "vocab_size_per_layer_input" {
				t.Error(err)
			}
		}
	}
}
