package models

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"agentcli/internal/malformed"
	"agentcli/model/weights"
)

// besides are the files of a model's folder beside its configuration and its weights.
var besides = []string{"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
	"merges.txt", "chat_template.jinja", "chat_template.json", "generation_config.json", "preprocessor_config.json", "processor_config.json",
	"video_preprocessor_config.json"}

// Init writes the folder dst of a model with random weights (weights.WriteRandom), of the
// number format that the configuration names, else float32. config is a config.json; the
// tokenizer's and the processor's files are copied from its folder, where they are there.
// Nothing half-written is ever found under dst, which must not exist or be empty.
func Init(config string, seed int64, dst string) error {
	if err := checkNew(dst); err != nil {
		return err
	}
	raw, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	return newFolder(dst, func(tmp string) error {
		if err := os.WriteFile(filepath.Join(tmp, "config.json"), raw, 0o644); err != nil {
			return err
		}
		for _, name := range besides {
			b, err := os.ReadFile(filepath.Join(filepath.Dir(config), name))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(tmp, name), b, 0o644)
			}
			if err != nil {
				return err
			}
		}
		err := writeRandom(tmp, raw, seed)
		if e := (*malformed.Error)(nil); errors.As(err, &e) && filepath.Base(e.Path) == "config.json" {
			e.Path = config
		}
		return err
	})
}

func writeRandom(folder string, config []byte, seed int64) error {
	c, err := weights.ReadConfig(folder)
	if err != nil {
		return err
	}
	var stored struct {
		DType string `json:"dtype"`
		Torch string `json:"torch_dtype"`
	}
	if err := json.Unmarshal(config, &stored); err != nil {
		return malformed.At("config.json", "dtype", malformed.Type, "want a name: %w", err)
	}
	name := cmp.Or(stored.DType, stored.Torch, "float32")
	d, ok := convertTypes[strings.ToLower(name)]
	if !ok {
		return malformed.At("config.json", "dtype", malformed.Unsupported, "%q; float32, bfloat16 and float16 are", name)
	}
	return weights.WriteRandom(filepath.Join(folder, "model.safetensors"), c, seed, d)
}
