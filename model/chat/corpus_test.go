package chat

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"agentcli/model/jinja"
)

// corpus is what scripts/golden/templates.py writes.
type corpus struct {
	Special       map[string]string `json:"special"`
	Conversations []struct {
		Messages json.RawMessage            `json:"messages"`
		Tools    json.RawMessage            `json:"tools"`
		Kwargs   map[string]json.RawMessage `json:"kwargs"`
	} `json:"conversations"`
	Templates map[string]*struct {
		Template string   `json:"template"`
		SHA      string   `json:"sha"`
		Texts    []string `json:"texts"`
		Masks    []string `json:"masks"`
	} `json:"templates"`
}

// foreignTemplates is where templates.py leaves the templates that are not ours to commit.
const foreignTemplates = ".cache/agentcli/downloads/templates.json"

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:8])
}

var readCorpus = sync.OnceValues(func() (*corpus, error) {
	file, err := os.ReadFile("testdata/corpus.json.gz")
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	c := &corpus{}
	if err := json.NewDecoder(z).Decode(c); err != nil {
		return nil, err
	}
	home, _ := os.UserHomeDir()
	texts := map[string]string{}
	if file, err := os.ReadFile(filepath.Join(home, foreignTemplates)); err == nil {
		if err := json.Unmarshal(file, &texts); err != nil {
			return nil, err
		}
	}
	for name, t := range c.Templates {
		if t.Template == "" && sum(texts[name]) == t.SHA {
			t.Template = texts[name]
		}
	}
	return c, nil
})

func goldenDay() time.Time { return time.Date(2026, 3, 7, 14, 5, 9, 0, time.UTC) }

// TestEveryTemplateOfTheCorpusRendersAsTransformersDoes compares the text of each
// template and conversation, and that there is an error where transformers has one.
func TestEveryTemplateOfTheCorpusRendersAsTransformersDoes(t *testing.T) {
	c, err := readCorpus()
	if err != nil {
		t.Fatal(err)
	}
	compared, equal, missing := 0, 0, 0
	for name, row := range c.Templates {
		if row.Template == "" {
			missing++
			continue
		}
		tmpl, parseErr := jinja.Parse(row.Template)
		masks := 0
		for i, conv := range c.Conversations {
			in := templateInput{special: c.Special, now: goldenDay}
			if in.messages, err = jinja.FromJSON(conv.Messages); err != nil {
				t.Fatal(err)
			}
			if in.tools, err = jinja.FromJSON(conv.Tools); err != nil {
				t.Fatal(err)
			}
			in.vars = map[string]any{}
			for k, v := range conv.Kwargs {
				switch k {
				case "add_generation_prompt":
					in.generation = string(v) == "true"
				case "continue_final_message":
					in.continued = string(v) == "true"
				default:
					in.vars[k] = string(v) == "true"
				}
			}
			var out jinja.Output
			if err = parseErr; err == nil {
				out, err = in.render(tmpl)
			}
			if errors.Is(err, jinja.ErrFault) {
				t.Errorf("%s, conversation %d: %v", name, i, err)
			}
			got, want := "", row.Texts[i]
			if err == nil {
				got = sum(out.Text.String())
			}
			compared++
			if row.Masks != nil && !in.continued {
				spans := ""
				if err == nil {
					spans = sum(spansInCharacters(out))
				}
				if spans != row.Masks[masks] {
					t.Errorf("%s, conversation %d: generation blocks are %s", name, i, spansInCharacters(out))
				}
				masks++
			}
			if got == want {
				equal++
				continue
			}
			switch {
			case err != nil:
				t.Errorf("%s, conversation %d: %v; transformers renders it", name, i, err)
			case want == "":
				t.Errorf("%s, conversation %d: transformers refuses it, here it is %.300q", name, i, out.Text.String())
			default:
				t.Errorf("%s, conversation %d: differs: %.3000q", name, i, out.Text.String())
			}
		}
	}
	t.Logf("%d of %d texts are equal; %d templates are not here (scripts/golden/templates.py fetches them)", equal, compared, missing)
}

// spansInCharacters writes the spans of generation blocks as Python's json.dumps does.
func spansInCharacters(out jinja.Output) string {
	text, b := out.Text.String(), []byte("[")
	for i, g := range out.Generation {
		if i > 0 {
			b = append(b, ", "...)
		}
		from := utf8.RuneCountInString(text[:g[0]])
		b = fmt.Appendf(b, "[%d, %d]", from, from+utf8.RuneCountInString(text[g[0]:g[1]]))
	}
	return string(append(b, ']'))
}
