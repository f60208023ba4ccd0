package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// folderFiles are what a folder's tokenizer consists of.
var folderFiles = []string{"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
	"added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja"}

// WriteHF writes tokenizer.json and tokenizer_config.json so that
// transformers' AutoTokenizer opens the folder with equal ids and, by
// chatTemplate, an equal apply_chat_template. A tokenizer that came from a
// folder is copied byte for byte instead; chatTemplate is written then only if
// the folder had another one or none: as chat_template.jinja, which readers take
// before that of tokenizer_config.json.
func (t *Tokenizer) WriteHF(dir string, chatTemplate string) error {
	if t.fromFolder != "" {
		if err := copyFolder(t.fromFolder, dir); err != nil || chatTemplate == t.template || chatTemplate == "" {
			return err
		}
		return os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(chatTemplate), 0o644)
	}
	b, err := tokenizerJSON(t)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), b, 0o644); err != nil {
		return err
	}
	if chatTemplate == "" {
		chatTemplate = t.template
	}
	conf := map[string]any{
		// Any class of a known family makes transformers 5 build its own
		// pre-tokenizer instead of the one in the file.
		"tokenizer_class":              "PreTrainedTokenizerFast",
		"clean_up_tokenization_spaces": false,
		"model_max_length":             1000000000000000019,
		"add_prefix_space":             false,
	}
	r := t.roles
	for key, id := range map[string]int32{"bos_token": r.bos, "eos_token": r.eos, "unk_token": r.unk, "pad_token": r.pad} {
		if id >= 0 {
			conf[key] = t.vocab.tokens[id]
		}
	}
	if chatTemplate != "" {
		conf["chat_template"] = chatTemplate
	}
	b, err = indent(conf)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), b, 0o644)
}

// copyFolder copies the files of a tokenizer from one folder to another.
func copyFolder(from, to string) error {
	for _, name := range folderFiles {
		b, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func indent(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return b.Bytes(), err
}

// tokenizerJSON is the text of tokenizer.json. The vocabulary is in the
// order of ids, as the tokenizers library writes it.
func tokenizerJSON(t *Tokenizer) ([]byte, error) {
	m, ok := t.model.(*bpe)
	if !t.rewrite || !ok {
		return nil, fmt.Errorf("%s: this tokenizer came from a file that is to be copied, not rewritten", t.path)
	}
	var b bytes.Buffer
	put := func(s string) { b.WriteString(s) }
	val := func(v any) error {
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			return err
		}
		b.Truncate(b.Len() - 1) // the encoder's newline
		return nil
	}
	var errs []error
	field := func(name string, v any) {
		put(`"` + name + `":`)
		errs = append(errs, val(v))
	}
	put(`{"version":"1.0","truncation":null,"padding":null,` + "\n")
	added := t.vocab.added
	if added == nil {
		added = []addedToken{}
	}
	field("added_tokens", added)
	put(",\n")
	field("normalizer", t.normalizerJSON)
	put(",\n")
	field("pre_tokenizer", t.preJSON)
	put(",\n")
	field("post_processor", t.post.json(t.vocab.tokens))
	put(",\n")
	field("decoder", t.decoderJSON)
	put(",\n" + `"model":{"type":"BPE","dropout":null,`)
	var unk any
	if m.unk >= 0 {
		unk = t.vocab.tokens[m.unk]
	}
	field("unk_token", unk)
	put(`,"continuing_subword_prefix":null,"end_of_word_suffix":null,`)
	field("fuse_unk", m.fuseUnk)
	put(",")
	field("byte_fallback", m.byteFallback)
	put(",")
	field("ignore_merges", m.ignoreMerges)
	put(`,"vocab":{`)
	sep := "\n"
	for id, s := range t.vocab.tokens {
		if n, ok := t.vocab.ids[s]; !ok || int(n) != id {
			continue
		}
		put(sep)
		errs = append(errs, val(s))
		put(fmt.Sprintf(":%d", id))
		sep = ",\n"
	}
	put("},\n" + `"merges":[`)
	sep = "\n"
	for _, m := range t.merges {
		put(sep)
		errs = append(errs, val(m))
		sep = ",\n"
	}
	put("]}}\n")
	return b.Bytes(), errors.Join(errs...)
}
