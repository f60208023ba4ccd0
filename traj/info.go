package traj

import (
	"bytes"
	"encoding/json"
	"errors"
)

// Info is a JSON object with what a scheduler knows of a step; nil: nothing. As JSON, nil
// is null.
type Info json.RawMessage

// ErrInfo is the error of JSON that is neither an object nor null.
var ErrInfo = errors.New("is no JSON object")

// MarshalJSON gives the object, or null.
func (i Info) MarshalJSON() ([]byte, error) {
	if len(i) == 0 {
		return []byte("null"), nil
	}
	return i, nil
}

// UnmarshalJSON takes an object or null.
func (i *Info) UnmarshalJSON(b []byte) error {
	b = bytes.TrimSpace(b)
	switch {
	case string(b) == "null":
		*i = nil
	case len(b) > 0 && b[0] == '{' && json.Valid(b):
		*i = Info(b).compact()
	default:
		return ErrInfo
	}
	return nil
}

// compact gives an object in the form that is the same before and after a journal: without
// spaces between its parts, and with <, >, &, U+2028 and U+2029 as themselves, which
// encoding/json writes as escapes.
func (i Info) compact() Info {
	var b bytes.Buffer
	if json.Compact(&b, i) != nil {
		return bytes.Clone(i) // who reads it says what is wrong with it
	}
	in, out := b.Bytes(), make(Info, 0, b.Len())
	for k := 0; k < len(in); k++ {
		if in[k] != '\\' || k+1 == len(in) {
			out = append(out, in[k])
			continue
		}
		if k+6 <= len(in) {
			if plain, ok := escapes[string(bytes.ToLower(in[k:k+6]))]; ok {
				out = append(out, plain...)
				k += 5
				continue
			}
		}
		out = append(out, in[k], in[k+1])
		k++
	}
	return out
}

var escapes = map[string]string{`\u003c`: "<", `\u003e`: ">", `\u0026`: "&", `\u2028`: "\u2028", `\u2029`: "\u2029"}

// SetInfo keeps what is known of the newest step.
func (t *Trajectory) SetInfo(info Info) {
	if len(info) == 0 || len(t.Steps) == 0 {
		return
	}
	for len(t.Infos) < len(t.Steps) {
		t.Infos = append(t.Infos, nil)
	}
	t.Infos[len(t.Steps)-1] = info.compact()
}
