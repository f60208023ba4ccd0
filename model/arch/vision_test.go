package arch

import (
	"encoding/json"
	"errors"
	"maps"
	"testing"

	"agentcli/internal/malformed"
)

// seeing is a small Qwen2.5-VL's configuration.
const seeing = `{"model_type":"qwen2_5_vl","image_token_id":91,"tie_word_embeddings":false,
"text_config":{"model_type":"qwen2_5_vl_text","vocab_size":96,"hidden_size":32,"intermediate_size":48,"num_hidden_layers":4,
"num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":512,
"rope_parameters":{"rope_type":"default","rope_theta":10000.0,"mrope_section":[1,1,2]}},
"vision_config":{"depth":4,"num_heads":2,"hidden_size":32,"intermediate_size":40,"patch_size":4,"window_size":16,
"fullatt_block_indexes":[1,3],"out_hidden_size":32}}`

func TestAnEncoderThatDoesNotHoldTogetherIsRefused(t *testing.T) {
	var good map[string]json.RawMessage
	if err := json.Unmarshal([]byte(seeing), &good); err != nil {
		t.Fatal(err)
	}
	if d, err := read(good); err != nil || d.Vision == nil || len(d.Vision.Tensors()) == 0 {
		t.Fatal(d.Vision, err)
	}
	for what, change := range map[string]struct{ object, key, value string }{
		"sections that do not sum up":   {"text_config", "rope_parameters", `{"mrope_section":[1,1,1]}`},
		"two sections":                  {"text_config", "rope_parameters", `{"mrope_section":[2,2]}`},
		"a negative section":            {"text_config", "rope_parameters", `{"mrope_section":[-1,3,2]}`},
		"no sections":                   {"text_config", "rope_parameters", `{}`},
		"interleaved sections":          {"text_config", "rope_parameters", `{"mrope_section":[1,1,2],"mrope_interleaved":true}`},
		"no encoder":                    {"", "vision_config", "null"},
		"features of another size":      {"vision_config", "out_hidden_size", "48"},
		"heads that do not divide":      {"vision_config", "num_heads", "3"},
		"one channel":                   {"vision_config", "in_channels", "1"},
		"a window below a feature":      {"vision_config", "window_size", "7"},
		"an unknown activation":         {"vision_config", "hidden_act", `"relu"`},
		"an image's id not in the text": {"", "image_token_id", "96"},
		"a key that nobody reads":       {"vision_config", "other", "3"},
		"no layers":                     {"vision_config", "depth", "0"},
	} {
		bad := maps.Clone(good)
		if change.object == "" {
			bad[change.key] = json.RawMessage(change.value)
		} else {
			var inner map[string]json.RawMessage
			if err := json.Unmarshal(good[change.object], &inner); err != nil {
				t.Fatal(err)
			}
			inner[change.key] = json.RawMessage(change.value)
			raw, err := json.Marshal(inner)
			if err != nil {
				t.Fatal(err)
			}
			bad[change.object] = raw
		}
		var fault *malformed.Error
		if _, err := read(bad); !errors.As(err, &fault) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
