package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"

	"agentcli/model/arch"
	"agentcli/model/weights"
)

// writeModel writes a random model of 2 small layers with the tokenizer and the
// vocabulary of another.
func writeModel(dir, like string) error {
	if like == "" {
		return errors.New("-model needs -like, the folder of a model")
	}
	l, err := weights.ReadConfig(like)
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{"model_type": "llama", "architectures": []string{arch.Class("llama")},
		"vocab_size": l.VocabSize, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
		"num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
		"bos_token_id": l.BOS, "eos_token_id": l.EOS, "pad_token_id": l.Pad})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600); err != nil {
		return err
	}
	c, err := weights.ReadConfig(dir)
	if err != nil {
		return err
	}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"} {
		data, err := os.ReadFile(filepath.Join(like, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
		if err != nil {
			return err
		}
	}
	infos := c.Tensors()
	infos = infos[:len(infos)-1] // the head is the embedding
	w, err := weights.CreateSafetensors(filepath.Join(dir, "model.safetensors"), infos, nil)
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(3, 4))
	for _, i := range infos {
		n := int64(1)
		for _, d := range i.Shape {
			n *= d
		}
		data := make([]byte, 4*n)
		for k := range n {
			binary.LittleEndian.PutUint32(data[4*k:], math.Float32bits(float32(r.NormFloat64()*.02)))
		}
		if err := w.Write(i.Name, data); err != nil {
			return err
		}
	}
	return w.Close()
}
