package weights

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"agentcli/internal/malformed"
	"agentcli/model/arch"
)

// Names of tensors that more than one place speaks of.
const (
	embedTokens = arch.Embed
	lmHead      = arch.Head
	scoreHead   = arch.Score
)

// Config is a model's configuration: what it computes, and which tokens begin and end
// its texts.
type Config struct {
	arch.Decoder
	Score bool    // a critic or a reward model: score.weight [1, hidden size] stands in lm_head's place
	BOS   int32   // -1: none
	EOS   []int32 // every id that ends a reply
	Pad   int32   // -1: none

	// Multimodal is the model_type of a model that also sees or hears, whose language model
	// this is; "" for one of text alone.
	Multimodal string

	Raw        json.RawMessage // config.json; from a GGUF or a multimodal model, what it would be
	Generation json.RawMessage // generation_config.json as it was; nil if there is none
	// Images are the files of a model with an encoder that say how images are prepared, as they
	// were, by name.
	Images map[string][]byte

	// Barred are ids that are never drawn: the distribution is that of the others. No file says
	// so; whoever opens the model does.
	Barred []int32

	quantised *quantisation // nil: the tensors are stored as numbers
}

// Tensors lists what a model of this configuration consists of. The last, lm_head, is
// absent (or a copy of the embeddings) where Tied is set.
func (c Config) Tensors() []TensorInfo {
	var out []TensorInfo
	for _, t := range c.Decoder.Tensors() {
		if c.Score && t.Name == lmHead {
			t = arch.Tensor{Name: scoreHead, Shape: []int64{1, int64(c.HiddenSize)}}
		}
		out = append(out, TensorInfo{Name: t.Name, DType: F32, Shape: t.Shape})
	}
	return out
}

// StoredName is the name under which files have a tensor of a model with an encoder of
// images: what transformers 5 writes and what is published.
func (c Config) StoredName(name string) string {
	if c.Vision == nil || !c.Vision.Nested {
		return name
	}
	return nestedName(name)
}

// nestedName is the name of a tensor of a model with an encoder in the classes of transformers 5.
func nestedName(name string) string {
	if rest, ok := strings.CutPrefix(name, "model."); ok {
		return "model.language_model." + rest
	}
	if strings.HasPrefix(name, "visual.") {
		return "model." + name
	}
	return name
}

// hfConfig is what config.json says beside the model itself.
type hfConfig struct {
	ModelType     string          `json:"model_type"`
	Architectures []string        `json:"architectures"`
	Text          json.RawMessage `json:"text_config"`
	BOS           json.RawMessage `json:"bos_token_id"`
	EOS           json.RawMessage `json:"eos_token_id"`
	Pad           json.RawMessage `json:"pad_token_id"`
	Quantization  json.RawMessage `json:"quantization_config"`
	NumLabels     *int            `json:"num_labels"`
	Labels        map[string]any  `json:"id2label"`
}

// withText takes what only the language model's object says.
func (f hfConfig) withText() hfConfig {
	var text hfConfig
	if isNull(f.Text) || json.Unmarshal(f.Text, &text) != nil { // arch.Read says what is wrong
		return f
	}
	for to, from := range map[*json.RawMessage]json.RawMessage{&f.BOS: text.BOS, &f.EOS: text.EOS, &f.Pad: text.Pad} {
		if isNull(*to) {
			*to = from
		}
	}
	return f
}

const (
	causal     = "ForCausalLM"
	classifier = "ForSequenceClassification"
)

// ReadConfig reads config.json and generation_config.json of a folder.
func ReadConfig(dir string) (Config, error) {
	p := filepath.Join(dir, "config.json")
	b, err := os.ReadFile(p)
	if errors.Is(err, fs.ErrNotExist) {
		return Config{}, malformed.At(dir, "config.json", malformed.Missing, "there is none in this folder; is it a Hugging Face model?")
	}
	if err != nil {
		return Config{}, err
	}
	gp := filepath.Join(dir, "generation_config.json")
	g, err := os.ReadFile(gp)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Config{}, err
	}
	c, err := parseConfig(p, b, gp, g)
	if err == nil && c.Vision != nil {
		c.Images, err = readImageFiles(dir)
	}
	return c, err
}

// imageFiles are those that say how images are prepared.
var imageFiles = []string{"preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json"}

func readImageFiles(dir string) (map[string][]byte, error) {
	all := map[string][]byte{}
	for _, name := range imageFiles {
		b, err := os.ReadFile(filepath.Join(dir, name))
		switch {
		case err == nil:
			all[name] = b
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return all, nil
}

func parseConfig(p string, b []byte, gp string, g []byte) (Config, error) {
	fail := func(field, format string, a ...any) (Config, error) {
		return Config{}, malformed.At(p, field, malformed.Unsupported, format, a...)
	}
	var f hfConfig
	if err := json.Unmarshal(b, &f); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return Config{}, malformed.At(p, wrong.Field, malformed.Type, "%w", err)
		}
		return Config{}, malformed.At(p, "", malformed.Syntax, "%w", err)
	}
	if arch.TakesImages(f.ModelType) {
		f = f.withText()
	} else if !isNull(f.Text) {
		text, err := textConfig(p, b, f.Text)
		if err != nil {
			return Config{}, err
		}
		c, err := parseConfig(p, text, gp, g)
		c.Multimodal = f.ModelType
		return c, err
	}
	name := f.ModelType
	if name == "" && len(f.Architectures) > 0 {
		name = strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(f.Architectures[0], causal), classifier))
	}
	quantised, why := readQuantisation(f.Quantization)
	if why != "" {
		return fail("quantization_config", "%s", why)
	}
	k, err := arch.NewKeys(p, b)
	if err != nil {
		return Config{}, err
	}
	d, err := arch.Read(name, k)
	if err != nil {
		return Config{}, err
	}
	c := Config{Decoder: d, BOS: -1, Pad: -1, Raw: b, quantised: quantised}
	if len(f.Architectures) > 0 && strings.HasSuffix(f.Architectures[0], classifier) {
		labels := 2 // transformers' default
		switch {
		case f.NumLabels != nil:
			labels = *f.NumLabels
		case f.Labels != nil:
			labels = len(f.Labels)
		}
		if labels != 1 {
			return fail("num_labels", "%d; a critic or a reward model has 1", labels)
		}
		c.Score = true
	}
	if ids := tokenIDs(f.BOS); len(ids) > 0 {
		c.BOS = ids[0]
	}
	if ids := tokenIDs(f.Pad); len(ids) > 0 {
		c.Pad = ids[0]
	}
	c.EOS = tokenIDs(f.EOS)
	if len(g) > 0 {
		var gen struct {
			EOS json.RawMessage `json:"eos_token_id"`
		}
		if err := json.Unmarshal(g, &gen); err != nil {
			return Config{}, malformed.At(gp, "", malformed.Syntax, "%w", err)
		}
		if ids := tokenIDs(gen.EOS); len(ids) > 0 {
			c.EOS = ids
		}
		c.Generation = g
	}
	return c, nil
}

// textConfig makes the config.json of a multimodal model's language model: its object
// within the whole, with what only the whole says.
func textConfig(path string, whole, text []byte) ([]byte, error) {
	var outer, inner map[string]json.RawMessage
	if err := json.Unmarshal(text, &inner); err != nil {
		return nil, malformed.At(path, "text_config", malformed.Type, "%w", err)
	}
	if err := json.Unmarshal(whole, &outer); err != nil {
		return nil, malformed.At(path, "", malformed.Syntax, "%w", err)
	}
	delete(inner, "text_config") // one level is enough for any model
	for _, key := range []string{"bos_token_id", "eos_token_id", "pad_token_id", "tie_word_embeddings", "quantization_config", "dtype",
		"torch_dtype"} {
		if v, ok := outer[key]; ok && isNull(inner[key]) {
			inner[key] = v
		}
	}
	var name string
	if json.Unmarshal(inner["model_type"], &name) != nil || name == "" {
		return nil, malformed.At(path, "text_config.model_type", malformed.Missing, "it says which language model the %s is",
			printable(string(outer["model_type"])))
	}
	inner["architectures"], _ = json.Marshal([]string{arch.Class(name)})
	return json.Marshal(inner)
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// tokenIDs reads an id or a list of ids.
func tokenIDs(raw json.RawMessage) []int32 {
	var one int32
	if isNull(raw) {
		return nil
	}
	if json.Unmarshal(raw, &one) == nil {
		return []int32{one}
	}
	var many []int32
	if json.Unmarshal(raw, &many) != nil {
		return nil
	}
	return many
}

// TorchName is how transformers calls the dtype.
func (d DType) TorchName() string {
	switch d {
	case F32:
		return "float32"
	case F16:
		return "float16"
	case BF16:
		return "bfloat16"
	case F64:
		return "float64"
	}
	return strings.ToLower(string(d))
}

// WriteHF writes config.json, generation_config.json and what says how images are prepared, for
// weights of the given type. What a config.json said beyond this package's knowledge is kept.
func (c Config) WriteHF(dir string, dtype DType) error {
	m := map[string]any{}
	var raw map[string]json.RawMessage // numbers stay as they were written
	if err := json.Unmarshal(c.Raw, &raw); err != nil {
		return fmt.Errorf("%s: config.json: %w", dir, err)
	}
	for k, v := range raw {
		m[k] = v
	}
	delete(m, "quantization_config") // tensors are written as numbers
	if c.Score {
		m["architectures"] = []string{strings.TrimSuffix(c.Class, causal) + classifier}
		m["num_labels"], m["id2label"], m["label2id"] = 1, map[string]string{"0": "LABEL_0"}, map[string]int{"LABEL_0": 0}
		if m["pad_token_id"] = nil; c.Pad >= 0 {
			m["pad_token_id"] = c.Pad // which decides where transformers reads the score
		}
	}
	for name, b := range c.Images {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return err
		}
	}
	// Both names: transformers 5 and vLLM read the first, older ones the second.
	m["dtype"], m["torch_dtype"] = dtype.TorchName(), dtype.TorchName()
	if err := writeJSON(filepath.Join(dir, "config.json"), m); err != nil {
		return err
	}
	if len(c.Generation) > 0 {
		return os.WriteFile(filepath.Join(dir, "generation_config.json"), c.Generation, 0o644)
	}
	g := map[string]any{}
	tokenFields(g, c)
	return writeJSON(filepath.Join(dir, "generation_config.json"), g)
}

// pyFloat keeps the point in a whole number: transformers tells 1e5 from an
// integer.
func pyFloat(v float64) json.RawMessage {
	s := strconv.FormatFloat(v, 'g', -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return json.RawMessage(s)
}

func tokenFields(m map[string]any, c Config) {
	if c.BOS >= 0 {
		m["bos_token_id"] = c.BOS
	}
	if c.Pad >= 0 {
		m["pad_token_id"] = c.Pad
	}
	switch len(c.EOS) {
	case 0:
	case 1:
		m["eos_token_id"] = c.EOS[0]
	default:
		m["eos_token_id"] = c.EOS
	}
}

func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}
