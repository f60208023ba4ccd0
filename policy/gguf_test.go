//go:build libtorch

package policy

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/internal/malformed"
	"agentcli/model/gguf"
	"agentcli/model/tokenizer"
	"agentcli/model/weights"
)

// A model that is written as a GGUF gives transformers' log-probs when the file is opened; what
// a GGUF cannot say is refused and nothing is written.
func TestAGGUFOfEveryFamilyIsTheSameModel(t *testing.T) {
	written := map[string]bool{}
	for _, g := range families(t) {
		t.Run(g.Title, func(t *testing.T) {
			dir := g.write(t)
			m, err := weights.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			tok, err := tokenizer.Open(m.TokenizerPath())
			if err != nil {
				t.Fatal(err)
			}
			kv, err := tokenizer.ToGGUF(tok, tok.VocabSize())
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "model.gguf")
			if err := weights.SaveGGUF(m, path, gguf.F32, kv); err != nil {
				if f := malformed.Facts(err); f.Kind != malformed.Unsupported || f.Path != dir {
					t.Error(err)
				}
				if files, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(files) > 0 {
					t.Errorf("refused (%v), but there is %v", err, files)
				}
				return
			}
			written[m.Config().Architecture] = true
			for _, w := range g.Logprobs {
				if w.DType == "float32" {
					p := open(t, path, Config{DType: w.DType, Threads: 1, CacheBytes: 1 << 20})
					sameLogprobs(t, path, p, w)
				}
			}
			damaged(t, path)
		})
	}
	for _, name := range []string{"llama", "mistral", "qwen3", "qwen3_moe", "phi3", "smollm3", "olmo2", "olmo3", "gemma3_text", "gemma4_text",
		"granite", "glm4", "glm4_moe", "gpt_oss", "ministral3", "lfm2", "seed_oss"} { // the others' sizes are not llama.cpp's
		if !written[name] {
			t.Errorf("no model of %s was written", name)
		}
	}
	if written["qwen2"] { // the one there has a window on some layers
		t.Error("a window on some layers was written")
	}
}

// damaged changes bytes of a file's header: opening it works, or is an error of one line that
// names the file.
func damaged(t *testing.T, path string) {
	t.Helper()
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		b := slices.Clone(good)
		for range 1 + rng.IntN(3) {
			b[rng.IntN(min(len(b), 16<<10))] = byte(rng.IntN(256))
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := weights.Open(path)
		if err != nil {
			if strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), path) {
				t.Error(err)
			}
			continue
		}
		for _, i := range m.Config().Tensors() {
			if _, err := m.Tensor(i.Name); err != nil && strings.Contains(err.Error(), "\n") {
				t.Error(err)
			}
		}
		m.Close()
	}
}
