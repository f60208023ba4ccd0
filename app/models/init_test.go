package models

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"agentcli/internal/malformed"
	"agentcli/model/weights"
)

const look = "../../examples/look/config.json"

func TestInitWritesAModelThatOpens(t *testing.T) {
	dir := t.TempDir()
	var files [][]byte
	for _, name := range []string{"a", "b"} {
		dst := filepath.Join(dir, name)
		if err := Init(look, 1, dst); err != nil {
			t.Fatal(err)
		}
		m, err := weights.Open(dst)
		if err != nil {
			t.Fatal(err)
		}
		m.Close()
		for _, beside := range []string{"config.json", "tokenizer.json", "tokenizer_config.json", "preprocessor_config.json"} {
			got, err := os.ReadFile(filepath.Join(dst, beside))
			want, _ := os.ReadFile(filepath.Join(filepath.Dir(look), beside))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s is not that of the configuration's folder: %v", beside, err)
			}
		}
		b, err := os.ReadFile(filepath.Join(dst, "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, b)
	}
	if !bytes.Equal(files[0], files[1]) {
		t.Error("one seed, two models")
	}
}

func TestInitOverwritesNothingAndLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("full/mine.txt", "x")
	if err := Init(look, 1, filepath.Join(dir, "full")); !errors.Is(err, ErrNotEmpty) {
		t.Error(err)
	}
	if err := Init(filepath.Join(dir, "none.json"), 1, filepath.Join(dir, "new")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for text, field := range map[string]string{`{"model_type": "unheard"}`: "model_type",
		`{"model_type": "llama", "vocab_size": 9, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1,
		  "max_position_embeddings": 9, "dtype": "int4"}`: "dtype"} {
		config := write("bad/shape.json", text)
		err := Init(config, 1, filepath.Join(dir, "new"))
		if got := malformed.Facts(err); got.Path != config || got.Field != field {
			t.Errorf("%v, want a fault of %s in %s", err, field, config)
		}
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 2 {
		t.Errorf("%v %v", names, err)
	}
}
