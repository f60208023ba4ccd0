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
		*i = bytes.Clone(b)
	default:
		return ErrInfo
	}
	return nil
}

// SetInfo keeps what is known of the newest step.
func (t *Trajectory) SetInfo(info Info) {
	if len(info) == 0 || len(t.Steps) == 0 {
		return
	}
	for len(t.Infos) < len(t.Steps) {
		t.Infos = append(t.Infos, nil)
	}
	t.Infos[len(t.Steps)-1] = info
}
