package traj

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
)

// Experts are those that a mixture-of-experts model chose for the tokens of a sequence, when it
// read them: IDs is [tokens, Layers, Active], row by row. There may be fewer tokens than in the
// sequence: one that was drawn last has not been read.
type Experts struct {
	Layers int       `json:"layers"` // that have experts, the first one first
	Active int       `json:"active"` // experts of a token in a layer
	IDs    ExpertIDs `json:"ids"`
}

// ExpertIDs are numbers of experts within their layer, or NoExpert. As JSON and as bytes they
// are little-endian, two bytes each; JSON has them in base64.
type ExpertIDs []uint16

// NoExpert stands where the choice is not known.
const NoExpert = 0xffff

// row is how many ids a token has.
func (e *Experts) row() int { return e.Layers * e.Active }

// Tokens is how many tokens have experts; 0 of nil.
func (e *Experts) Tokens() int {
	if e == nil || e.row() == 0 {
		return 0
	}
	return len(e.IDs) / e.row()
}

// At are the experts of a token in a layer.
func (e *Experts) At(token, layer int) []uint16 {
	at := (token*e.Layers + layer) * e.Active
	return e.IDs[at : at+e.Active]
}

// Validate refuses sizes that do not fit each other, or more tokens than there are.
func (e *Experts) Validate(tokens int) error {
	switch {
	case e.Layers < 1 || e.Active < 1 || e.Layers > 1<<16 || e.Active > 1<<16:
		return fmt.Errorf("experts of %d layers, %d a token; want at least one of each", e.Layers, e.Active)
	case len(e.IDs)%e.row() != 0 || e.Tokens() > tokens:
		return fmt.Errorf("%d ids of experts for %d tokens of %d layers with %d each", len(e.IDs), tokens, e.Layers, e.Active)
	}
	return nil
}

// Head are the experts of the first n tokens, or of all that there are. It shares their ids.
func (e *Experts) Head(n int) *Experts {
	if e == nil {
		return nil
	}
	n = min(n, e.Tokens()) * e.row()
	return &Experts{e.Layers, e.Active, e.IDs[:n:n]}
}

// Then are these experts and, behind them, those that later has of further tokens: what was
// chosen when a token was drawn stays. Those of another model are an error, and are left out.
func (e *Experts) Then(later *Experts) (*Experts, error) {
	switch {
	case later == nil:
		return e, nil
	case e == nil:
		return later, nil
	case e.Layers != later.Layers || e.Active != later.Active:
		return e, fmt.Errorf("the model chose %d experts in each of %d layers, and before %d in %d", later.Active, later.Layers,
			e.Active, e.Layers)
	case len(later.IDs) > len(e.IDs):
		return &Experts{e.Layers, e.Active, append(e.IDs[:len(e.IDs):len(e.IDs)], later.IDs[len(e.IDs):]...)}, nil
	}
	return e, nil
}

// Bytes are the ids as a file has them.
func (ids ExpertIDs) Bytes() []byte {
	b := make([]byte, 0, 2*len(ids))
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint16(b, id)
	}
	return b
}

// ExpertIDsOf is the reverse of Bytes.
func ExpertIDsOf(b []byte) (ExpertIDs, error) {
	if len(b)%2 != 0 {
		return nil, fmt.Errorf("%d bytes of experts; each is two bytes", len(b))
	}
	ids := make(ExpertIDs, len(b)/2)
	for i := range ids {
		ids[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	return ids, nil
}

// MarshalJSON implements json.Marshaler.
func (ids ExpertIDs) MarshalJSON() ([]byte, error) {
	return json.Marshal(base64.StdEncoding.EncodeToString(ids.Bytes()))
}

// UnmarshalJSON implements json.Unmarshaler.
func (ids *ExpertIDs) UnmarshalJSON(text []byte) error {
	var b []byte
	if err := json.Unmarshal(text, &b); err != nil {
		return err
	}
	out, err := ExpertIDsOf(b)
	*ids = out
	return err
}
