package chat

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"agentcli/internal/goldenfile"
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

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:8])
}

func readGzipped(path string, into any) error {
	file, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	z, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		return err
	}
	return json.NewDecoder(z).Decode(into)
}

var readCorpus = sync.OnceValues(func() (*corpus, error) {
	c := &corpus{}
	if err := readGzipped("testdata/corpus.json.gz", c); err != nil {
		return nil, err
	}
	foreign, err := goldenfile.ForeignTemplates()
	if err != nil {
		return nil, err
	}
	texts := map[string]string{} // by hash: some templates have several names
	for _, text := range foreign {
		texts[sum(text)] = text
	}
	for _, t := range c.Templates {
		texts[sum(t.Template)] = t.Template
	}
	for _, t := range c.Templates {
		if t.Template == "" {
			t.Template = texts[t.SHA]
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
	compared, equal := 0, 0
	for _, name := range slices.Sorted(maps.Keys(c.Templates)) {
		t.Run(name, func(t *testing.T) {
			if c.Templates[name].Template == "" {
				goldenfile.MissingTemplate(t, name)
			}
			n := c.compare(t, name)
			compared, equal = compared+len(c.Conversations), equal+n
		})
	}
	t.Logf("%d of %d texts are equal", equal, compared)
}

// TestTheIDsOfEveryTemplateAreThoseOfTransformers compares the ids that follow from the texts, each
// template's with a tokenizer that has the tokens it spells. scripts/golden/templateids.py writes them.
func TestTheIDsOfEveryTemplateAreThoseOfTransformers(t *testing.T) {
	c, err := readCorpus()
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Tokenizer map[string]json.RawMessage `json:"tokenizer"`
		Templates map[string]struct {
			Tokens json.RawMessage `json:"tokens"`
			IDs    []string        `json:"ids"`
		} `json:"templates"`
	}
	if err := readGzipped("testdata/templateids.json.gz", &golden); err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, name := range slices.Sorted(maps.Keys(golden.Templates)) {
		t.Run(name, func(t *testing.T) {
			if c.Templates[name].Template == "" {
				goldenfile.MissingTemplate(t, name)
			}
			of := golden.Templates[name]
			golden.Tokenizer["added_tokens"] = of.Tokens
			tmpl, err := jinja.Parse(c.Templates[name].Template)
			if err != nil {
				t.Fatal(err)
			}
			e := &encoder{tok: TokenizerOf(t, golden.Tokenizer)}
			for i, want := range of.IDs {
				if want == "" {
					continue
				}
				out, err := c.input(t, i).render(tmpl)
				if err != nil {
					t.Fatal(err)
				}
				ids := e.encode(out.Text)
				if got := sum(strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ","), "[]"))[:8]; got != want {
					t.Errorf("conversation %d: ids are %v of %q", i, ids, out.Text.String())
				}
				compared++
			}
		})
	}
	if compared < 6000 {
		t.Errorf("%d conversations were compared", compared)
	}
}

// input is a conversation as a template is given it.
func (c *corpus) input(t *testing.T, i int) templateInput {
	t.Helper()
	conv := c.Conversations[i]
	in := templateInput{special: c.Special, now: goldenDay, vars: map[string]any{}}
	var err error
	if in.messages, err = jinja.FromJSON(conv.Messages); err != nil {
		t.Fatal(err)
	}
	if in.tools, err = jinja.FromJSON(conv.Tools); err != nil {
		t.Fatal(err)
	}
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
	return in
}

// compare renders the conversations with a template and counts the texts that are
// transformers'.
func (c *corpus) compare(t *testing.T, name string) (equal int) {
	row := c.Templates[name]
	tmpl, parseErr := jinja.Parse(row.Template)
	masks := 0
	for i := range c.Conversations {
		in := c.input(t, i)
		err := parseErr
		var out jinja.Output
		if err == nil {
			out, err = in.render(tmpl)
		}
		if errors.Is(err, jinja.ErrFault) {
			t.Errorf("conversation %d: %v", i, err)
		}
		got, want := "", row.Texts[i]
		if err == nil {
			got = sum(out.Text.String())
		}
		if row.Masks != nil && !in.continued {
			spans := ""
			if err == nil {
				spans = sum(spansInCharacters(out))
			}
			if spans != row.Masks[masks] {
				t.Errorf("conversation %d: generation blocks are %s", i, spansInCharacters(out))
			}
			masks++
		}
		switch {
		case got == want:
			equal++
		case err != nil:
			t.Errorf("conversation %d: %v; transformers renders it", i, err)
		case want == "":
			t.Errorf("conversation %d: transformers refuses it, here it is %.300q", i, out.Text.String())
		default:
			t.Errorf("conversation %d: differs: %.3000q", i, out.Text.String())
		}
	}
	return equal
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
