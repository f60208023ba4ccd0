package models

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"agentcli/model/gguf"
	"agentcli/model/tokenizer"
	"agentcli/model/weights"
)

// ErrNotEmpty says that the folder that Convert is to write holds something.
var ErrNotEmpty = errors.New("the folder is not empty")

// ConvertUsageError says that a setting of Convert, DType or Merge, does not fit.
type ConvertUsageError struct{ Setting, Why string }

func (e *ConvertUsageError) Error() string { return e.Why }

func usage(setting, format string, a ...any) error {
	return &ConvertUsageError{setting, fmt.Sprintf(format, a...)}
}

var convertTypes = map[string]weights.DType{"f32": weights.F32, "float32": weights.F32, "bf16": weights.BF16,
	"bfloat16": weights.BF16, "f16": weights.F16, "float16": weights.F16}

// widest is the type that holds every tensor's values exactly.
func widest(m *weights.Model) weights.DType {
	var d weights.DType
	for _, name := range m.Names() {
		i, _ := m.Info(name)
		if i.DType != d && d != "" {
			return weights.F32
		}
		d = i.DType
	}
	if d != weights.BF16 && d != weights.F16 {
		return weights.F32
	}
	return d
}

// widestGGUF is the type of a GGUF that holds every tensor's values exactly.
func widestGGUF(m *weights.Model) gguf.TensorType {
	switch widest(m) {
	case weights.BF16:
		return gguf.BF16
	case weights.F16:
		return gguf.F16
	}
	return gguf.F32
}

// Convert writes the model src as dst: a GGUF where dst ends in .gguf, else a Hugging
// Face folder. dtype is a type's name, empty for the one that loses nothing; merge
// says that src is an adapter, which is merged into its base. Nothing half-written
// is ever found under dst.
func Convert(src, dst, dtype string, merge bool) error {
	toGGUF := strings.EqualFold(filepath.Ext(dst), ".gguf")
	if err := checkDType(dtype, toGGUF); err != nil {
		return err
	}
	switch adapter := weights.IsAdapter(src); {
	case adapter && !merge:
		return usage("Merge", "%s is a LoRA adapter; set this to write its base model with the adapter merged in", src)
	case merge && !adapter:
		return usage("Merge", "%s is no LoRA adapter; leave this out", src)
	}
	if _, err := os.Stat(dst); err == nil && toGGUF {
		return fmt.Errorf("%s: exists; name a new file", dst)
	}
	if err := checkNew(dst); err != nil {
		return err
	}
	m, err := weights.Open(src)
	if err != nil {
		return err
	}
	defer m.Close()
	tok, err := tokenizer.Open(m.TokenizerPath())
	if err != nil {
		return err
	}
	if toGGUF {
		if err := os.MkdirAll(filepath.Dir(filepath.Clean(dst)), 0o755); err != nil {
			return err
		}
		return convertToGGUF(m, tok, dst, dtype)
	}
	return convertToFolder(m, tok, dst, dtype)
}

func checkDType(dtype string, toGGUF bool) error {
	if _, ok := convertTypes[strings.ToLower(dtype)]; ok || dtype == "" {
		return nil
	}
	if _, ok := weights.GGUFTypes()[strings.ToLower(dtype)]; ok {
		if toGGUF {
			return nil
		}
		return usage("DType", "%s is a type of GGUF files; name a DST that ends in .gguf", dtype)
	}
	return usage("DType", "%q is not known; f32, bf16 and f16 are, and q8_0 and q4_k in a .gguf", dtype)
}

func convertToGGUF(m *weights.Model, tok *tokenizer.Tokenizer, dst, dtype string) error {
	types := weights.GGUFTypes()
	for name, d := range convertTypes { // float32 and the like
		types[name] = types[strings.ToLower(string(d))]
	}
	t, ok := types[strings.ToLower(dtype)]
	if !ok {
		t = widestGGUF(m)
	}
	kv, err := tokenizer.ToGGUF(tok, m.Config().VocabSize)
	if err != nil {
		return err
	}
	if template := m.ChatTemplate(); template != "" {
		kv = append(kv, gguf.KeyValue{Key: "tokenizer.chat_template", V: template})
	}
	// Of several ids that end a reply, those that the tokenizer does not name.
	ends := m.Config().EOS
	eos := tok.EOS()
	if eos < 0 && len(ends) > 0 {
		eos = ends[0]
		kv = append(kv, gguf.KeyValue{Key: "tokenizer.ggml.eos_token_id", V: uint32(eos)})
	}
	if i := slices.IndexFunc(ends, func(id int32) bool { return id != eos }); i >= 0 {
		kv = append(kv, gguf.KeyValue{Key: "tokenizer.ggml.eot_token_id", V: uint32(ends[i])})
	}
	return weights.SaveGGUF(m, dst, t, kv)
}

func convertToFolder(m *weights.Model, tok *tokenizer.Tokenizer, dst, dtype string) error {
	d, ok := convertTypes[strings.ToLower(dtype)]
	if !ok {
		d = widest(m)
	}
	return newFolder(dst, func(tmp string) error {
		if err := m.Save(filepath.Join(tmp, "model.safetensors"), d); err != nil {
			return err
		}
		if err := m.Config().WriteHF(tmp, d); err != nil {
			return err
		}
		return tok.WriteHF(tmp, m.ChatTemplate())
	})
}

// checkNew refuses a folder that holds something.
func checkNew(dst string) error {
	entries, err := os.ReadDir(dst)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("%s: exists and cannot be read as a folder; name a new one: %w", dst, err)
	case len(entries) > 0:
		return fmt.Errorf("%s: %w; name a new one", dst, ErrNotEmpty)
	}
	return nil
}

// newFolder has a new folder filled beside dst, and gives it its name at the end.
func newFolder(dst string, fill func(tmp string) error) error {
	parent := filepath.Dir(filepath.Clean(dst))
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(parent, "."+filepath.Base(dst)+".*")
	if err != nil {
		return fmt.Errorf("%s: %w", dst, err)
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if err := fill(tmp); err != nil {
		return err
	}
	os.Remove(dst) // an empty folder; Rename says so if anything else is there
	if err := os.Rename(tmp, dst); err != nil {
		return fmt.Errorf("%s: %w", dst, err)
	}
	return nil
}
