package arch

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"agentcli/internal/malformed"
)

// Keys are the keys of a configuration. What is read is remembered: a key that nobody
// reads, and that is not known to leave the numbers alone, is an error (finish).
type Keys struct {
	path   string
	within string // the key of the object that this is, and a dot
	values map[string]json.RawMessage
	read   map[string]bool
	err    *error // the first one
	subs   []*Keys
}

// NewKeys takes the object of a config.json; path is for errors.
func NewKeys(path string, object []byte) (*Keys, error) {
	k := &Keys{path: path, read: map[string]bool{}, err: new(error)}
	if err := json.Unmarshal(object, &k.values); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return nil, malformed.At(path, wrong.Field, malformed.Type, "%w", err)
		}
		return nil, malformed.At(path, "", malformed.Syntax, "%w", err)
	}
	return k, nil
}

func (k *Keys) set(err error) {
	if *k.err == nil {
		*k.err = err
	}
}

func (k *Keys) fail(key, format string, a ...any) {
	k.set(malformed.At(k.path, k.within+key, malformed.Range, format, a...))
}
func (k *Keys) refuse(key, format string, a ...any) { k.set(k.unsupported(key, format, a...)) }
func (k *Keys) mismatch(key, format string, a ...any) {
	k.set(malformed.At(k.path, k.within+key, malformed.Mismatch, format, a...))
}
func (k *Keys) unsupported(key, format string, a ...any) error {
	return malformed.At(k.path, k.within+key, malformed.Unsupported, format, a...)
}

// Has reports whether a key has a value other than null, and counts it as read.
func (k *Keys) Has(key string) bool {
	k.read[key] = true
	v, ok := k.values[key]
	return ok && string(v) != "null"
}

// get reads a key into a value; false: it is not there.
func (k *Keys) get(key string, into any) bool {
	if !k.Has(key) {
		return false
	}
	if err := json.Unmarshal(k.values[key], into); err != nil {
		k.set(malformed.At(k.path, k.within+key, malformed.Type, "%w", err))
		return false
	}
	return true
}

// SizeOr reads a number from 1 to most; 1 after an error, so that it can be divided by.
func (k *Keys) SizeOr(key string, most, otherwise int) int {
	v := otherwise
	k.get(key, &v)
	if v < 1 || v > most {
		k.fail(key, "%d is not between 1 and %d", v, most)
		return 1
	}
	return v
}

// Size reads a number from 1 to most that must be there.
func (k *Keys) Size(key string, most int) int { return k.SizeOr(key, most, 0) }

// Whole reads a number from 0 on.
func (k *Keys) Whole(key string, otherwise int) int {
	v := otherwise
	k.get(key, &v)
	if v < 0 {
		k.fail(key, "%d is below 0", v)
	}
	return v
}

// Float reads a finite number.
func (k *Keys) Float(key string, otherwise float64) float64 {
	v := otherwise
	k.get(key, &v)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		k.fail(key, "%v is no number", v)
	}
	return v
}

// Positive reads a number above 0.
func (k *Keys) Positive(key string, otherwise float64) float64 {
	v := k.Float(key, otherwise)
	if !(v > 0) {
		k.fail(key, "%v is not a positive number", v)
	}
	return v
}

// Bool reads true or false.
func (k *Keys) Bool(key string, otherwise bool) bool {
	v := otherwise
	k.get(key, &v)
	return v
}

// String reads a text.
func (k *Keys) String(key, otherwise string) string {
	v := otherwise
	k.get(key, &v)
	return v
}

// Strings reads a list of texts, nil where there is none.
func (k *Keys) Strings(key string) (out []string) { k.get(key, &out); return out }

// Floats reads a list of numbers, nil where there is none.
func (k *Keys) Floats(key string) (out []float64) { k.get(key, &out); return out }

// Ints reads a list of whole numbers, nil where there is none.
func (k *Keys) Ints(key string) (out []int) { k.get(key, &out); return out }

// Sub reads an object, nil where there is none. Its keys must be read, too.
func (k *Keys) Sub(key string) *Keys {
	for _, s := range k.subs {
		if s.within == k.within+key+"." {
			return s
		}
	}
	s := &Keys{path: k.path, within: k.within + key + ".", read: map[string]bool{}, err: k.err}
	if !k.get(key, &s.values) {
		return nil
	}
	k.subs = append(k.subs, s)
	return s
}

// Absent refuses a key that asks for something that nobody here computes, unless it says
// that it does not want it: null, false, 0 or "".
func (k *Keys) Absent(keys ...string) {
	for _, key := range keys {
		if k.Has(key) && !empty(k.values[key]) {
			k.refuse(key, "%s is not supported", k.values[key])
		}
	}
}

func empty(v json.RawMessage) bool {
	return slices.Contains([]string{"null", "false", "0", "0.0", `""`, "[]", "{}"}, strings.TrimSpace(string(v)))
}

// harmless are keys that change nothing of what a trained model says.
var harmless = func() map[string]bool {
	m := map[string]bool{}
	for _, key := range strings.Fields(`
		_name_or_path _attn_implementation_autoset _attn_implementation architectures model_type transformers_version torch_dtype dtype
		auto_map bos_token_id eos_token_id pad_token_id unk_token_id sep_token_id mask_token_id bos_token eos_token pad_token
		attention_dropout hidden_dropout resid_pdrop embd_pdrop attn_pdrop classifier_dropout dropout layerdrop initializer_range
		initializer_factor use_cache cache_implementation pretraining_tp gradient_checkpointing output_attentions
		output_hidden_states return_dict return_dict_in_generate torchscript use_bfloat16 is_encoder_decoder is_decoder
		id2label label2id num_labels problem_type finetuning_task task_specific_params quantization_config
		max_length min_length do_sample temperature top_k top_p repetition_penalty num_beams length_penalty
		max_window_layers use_sliding_window unsloth_version unsloth_fixed use_flash_attn chunk_size_feed_forward
		tokenizer_class prefix`) {
		m[key] = true
	}
	return m
}()

// finish gives the first error; a key that was not read and may change the numbers is one.
func (k *Keys) finish() error {
	if *k.err != nil {
		return *k.err
	}
	var unread []string
	for key, v := range k.values {
		if !k.read[key] && !harmless[key] && !empty(v) {
			unread = append(unread, key)
		}
	}
	sort.Strings(unread)
	for _, key := range unread {
		return k.unsupported(key, "the key is not known, and may change what the model computes; take it out if it does not")
	}
	for _, s := range k.subs {
		if err := s.finish(); err != nil {
			return err
		}
	}
	return nil
}

// list is "a, b and c".
func list(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return fmt.Sprintf("%s and %s", strings.Join(names[:len(names)-1], ", "), names[len(names)-1])
}
