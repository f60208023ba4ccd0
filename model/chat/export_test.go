package chat

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"agentcli/model/tokenizer"
)

// CorpusTemplates are the templates of the corpus that are here, by name.
func CorpusTemplates() (map[string]string, error) {
	c, err := readCorpus()
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name, t := range c.Templates {
		if t.Template != "" {
			out[name] = t.Template
		}
	}
	return out, nil
}

func TraitsOf(r Renderer) string { return fmt.Sprintf("%+v", r.(*templated).traits) }

// Undecided is how many bytes of a reply a stream holds that it may read again.
func Undecided(s *Stream) int { return len(s.buf) + len(s.marker) }

// TokenizerOf opens the tokenizer of a tokenizer.json.
func TokenizerOf(t *testing.T, file any) *tokenizer.Tokenizer {
	t.Helper()
	raw, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}
