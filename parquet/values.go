package parquet

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/apache/arrow/go/v17/parquet"
)

// The fields of a trajectory are taken from nodes by these functions. Each consumes
// one entry, and fails where the column is of another type.

func (n *node) text() (string, bool, error) {
	if n.kind != leafKind || n.leaf.prim.PhysicalType() != parquet.Types.ByteArray {
		return "", false, n.wrong("string")
	}
	if n.null() {
		return "", false, n.leaf.err
	}
	s := string(n.leaf.str[n.leaf.vi])
	n.leaf.next()
	return s, true, n.leaf.err
}

func (n *node) optText() (*string, error) {
	s, ok, err := n.text()
	if !ok {
		return nil, err
	}
	return &s, err
}

// json reads JSON text, or writes a nested column as JSON.
func (n *node) json() (string, error) {
	if n.kind == leafKind && n.leaf.prim.PhysicalType() == parquet.Types.ByteArray {
		s, _, err := n.text()
		return s, err
	}
	v, err := n.value()
	if v == nil || err != nil {
		return "", err
	}
	b, err := json.Marshal(v)
	return string(b), err
}

// texts reads a list of strings; a plain string is a list of one.
func (n *node) texts() ([]string, error) {
	if n.kind == leafKind {
		s, ok, err := n.text()
		if !ok {
			return nil, err
		}
		return []string{s}, err
	}
	if n.kind != listKind || n.children[0].kind != leafKind {
		return nil, n.wrong("a list of strings")
	}
	if n.null() {
		return nil, n.first.err
	}
	var out []string
	err := n.elements(func() error {
		s, _, err := n.children[0].text()
		out = append(out, s)
		return err
	})
	return out, err
}

func (n *node) blob() ([]byte, error) {
	s, ok, err := n.text()
	if !ok {
		return nil, err
	}
	return []byte(s), err
}

func (n *node) integer() (int64, error) {
	if n.kind != leafKind {
		return 0, n.wrong("a whole number")
	}
	if n.null() {
		return 0, n.leaf.err
	}
	switch v := n.leaf.take().(type) {
	case int64:
		return v, n.leaf.err
	case uint64:
		return int64(v), n.leaf.err
	case float64: // pandas turns a column of integers with a hole in it into floats
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int64(v), n.leaf.err
		}
	}
	return 0, n.wrong("a whole number")
}

func (n *node) optNumber() (*float64, error) {
	if n.kind != leafKind {
		return nil, n.wrong("a number")
	}
	if n.null() {
		return nil, n.leaf.err
	}
	var f float64
	switch v := n.leaf.take().(type) {
	case float64:
		f = v
	case int64:
		f = float64(v)
	case uint64:
		f = float64(v)
	case bool:
		if v {
			f = 1
		}
	default:
		return nil, n.wrong("a number")
	}
	return &f, n.leaf.err
}

func (n *node) optFlag() (*bool, error) {
	v, err := n.optNumber()
	if v == nil {
		return nil, err
	}
	b := *v != 0
	return &b, err
}

func (n *node) instant() (time.Time, error) {
	if n.kind != leafKind {
		return time.Time{}, n.wrong("a timestamp")
	}
	if n.null() {
		return time.Time{}, n.leaf.err
	}
	switch v := n.leaf.take().(type) {
	case time.Time:
		return v, n.leaf.err
	case string:
		t, err := time.Parse(time.RFC3339Nano, v)
		if err != nil {
			return t, fmt.Errorf("is not a time: %.40q", v)
		}
		return t.UTC(), n.leaf.err
	}
	return time.Time{}, n.wrong("a timestamp")
}

// structs reads a list of structs; field decodes one field into the element. A
// null element is the zero value. An absent or empty list is nil.
func structs[T any](n *node, field func(f *node, v *T) error) ([]T, error) {
	if n.kind != listKind {
		return nil, n.wrong("a list of structs")
	}
	if n.children[0].kind != structKind { // a writer that saw empty lists alone knows no type
		list, err := n.value()
		if err == nil && list != nil && len(list.([]any)) > 0 {
			err = n.wrong("a list of structs")
		}
		return nil, err
	}
	if n.null() {
		return nil, n.first.err
	}
	var out []T
	elem := n.children[0]
	err := n.elements(func() error {
		var v T
		if !elem.null() {
			for _, f := range elem.children {
				if err := field(f, &v); err != nil {
					return fmt.Errorf("%s: %w", f.name, err)
				}
			}
		}
		out = append(out, v)
		return n.first.err
	})
	return out, err
}
