package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// List is a Python list, or what a template uses as one.
type List struct {
	items []any
	kind  listKind
}

type listKind uint8

const (
	isList listKind = iota
	isTuple
	isRange
	isView     // dict.items() and its like: no index
	isIterator // of map, select and their like: read once, no length
)

var listNames = [...]string{"list", "tuple", "range", "dict view", "generator"}

// NewList makes a list.
func NewList(items ...any) *List { return &List{items: items} }

func tuple(items ...any) *List { return &List{items: items, kind: isTuple} }

// Dict is a Python dict: it keeps the order of its keys.
type Dict struct {
	keys []any
	vals []any
	at   map[string]int // by hashKey
}

// NewDict makes an empty one.
func NewDict() *Dict { return &Dict{at: map[string]int{}} }

// Set puts a value under a key, at the key's place if it has one.
func (d *Dict) Set(key string, v any) { d.put(Text(key), v) }

// Get is the value under a key.
func (d *Dict) Get(key string) (any, bool) { return d.get(Text(key)) }

// Len is the number of keys.
func (d *Dict) Len() int { return len(d.keys) }

func (d *Dict) put(key, v any) bool {
	h, ok := hashKey(key)
	if !ok {
		return false
	}
	if i, seen := d.at[h]; seen {
		d.vals[i] = v
		return true
	}
	d.at[h] = len(d.keys)
	d.keys, d.vals = append(d.keys, key), append(d.vals, v)
	return true
}

func (d *Dict) get(key any) (any, bool) {
	h, ok := hashKey(key)
	if !ok {
		return nil, false
	}
	i, ok := d.at[h]
	if !ok {
		return nil, false
	}
	return d.vals[i], true
}

func (d *Dict) copy() *Dict {
	out := NewDict()
	for i, k := range d.keys {
		out.put(k, d.vals[i])
	}
	return out
}

// maxKeyParts is how many values a key has, tuples within tuples counted.
const maxKeyParts = 1000

// hashKey is equal for keys that are equal in Python; false for what has no hash.
func hashKey(v any) (string, bool) {
	switch v := v.(type) { // the usual ones, without a builder
	case Str:
		return "s" + v.s, true
	case int64:
		return "i" + strconv.FormatInt(v, 10), true
	}
	var b strings.Builder
	parts := maxKeyParts
	if !writeKey(&b, v, &parts) {
		return "", false
	}
	return b.String(), true
}

func writeKey(b *strings.Builder, v any, parts *int) bool {
	if *parts--; *parts < 0 {
		return false
	}
	switch v := v.(type) {
	case nil:
		b.WriteByte('n')
	case Str:
		if *parts < maxKeyParts-1 { // within a tuple its end must be known
			fmt.Fprintf(b, "%d", len(v.s))
		}
		b.WriteString("s" + v.s)
	case bool, int64, *big.Int, float64:
		if f, ok := v.(float64); ok && (math.IsInf(f, 0) || math.IsNaN(f) || f != math.Trunc(f)) {
			b.WriteString("f" + strconv.FormatFloat(f, 'g', -1, 64))
			break
		}
		b.WriteString("i" + bigOf(v).String())
	case *List:
		if v.kind != isTuple {
			return false
		}
		b.WriteByte('(')
		for _, x := range v.items {
			if !writeKey(b, x, parts) {
				return false
			}
			b.WriteByte(',')
		}
		b.WriteByte(')')
	default:
		return false
	}
	return true
}

// undefined is Jinja's Undefined: empty where it is printed or looped over, an
// error where it is used.
type undefined struct{ hint string }

// namespace holds what {% set ns.x = … %} changes.
type namespace struct{ *Dict }

// function is anything that a template can call.
type function struct {
	name string
	call func(r *run, a args) any
}

// args are the arguments of a call.
type args struct {
	pos []any
	kw  *Dict // nil: none
}

// arg is the argument at a position or of a name.
func (a args) arg(i int, name string) (any, bool) {
	if i >= 0 && i < len(a.pos) {
		return a.pos[i], true
	}
	if a.kw != nil && name != "" {
		return a.kw.get(Text(name))
	}
	return nil, false
}

// truth is Python's bool().
func truth(v any) bool {
	switch v := v.(type) {
	case nil, undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case *big.Int:
		return v.Sign() != 0
	case float64:
		return v != 0
	case Str:
		return v.s != ""
	case *List:
		return v.kind == isIterator || len(v.items) > 0
	case *Dict:
		return v.Len() > 0
	}
	return true
}

// typeName is the name of a value's type in messages.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "none"
	case undefined:
		return "undefined"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case Str:
		return "str"
	case *List:
		return listNames[v.kind]
	case *Dict:
		return "dict"
	case *namespace:
		return "namespace"
	case *function:
		return "function"
	}
	return "object"
}

// bigOf is a whole number in big; v is a bool, int64, *big.Int or a whole float64.
func bigOf(v any) *big.Int {
	switch v := v.(type) {
	case bool:
		if v {
			return big.NewInt(1)
		}
		return new(big.Int)
	case int64:
		return big.NewInt(v)
	case *big.Int:
		return v
	case float64:
		n, _ := big.NewFloat(v).Int(nil)
		return n
	}
	return new(big.Int)
}

// whole is the smallest form of a whole number.
func whole(n *big.Int) any {
	if n.IsInt64() {
		return n.Int64()
	}
	return n
}

// isInt says that v is a whole number of Python; a bool is one.
func isInt(v any) bool {
	switch v.(type) {
	case bool, int64, *big.Int:
		return true
	}
	return false
}

// isNumber says that v is a number of Python.
func isNumber(v any) bool {
	_, f := v.(float64)
	return f || isInt(v)
}

// floatOf is a number as a float.
func floatOf(v any) float64 {
	switch v := v.(type) {
	case float64:
		return v
	case int64:
		return float64(v)
	}
	f, _ := new(big.Float).SetInt(bigOf(v)).Float64()
	return f
}

// Len is the number of elements.
func (l *List) Len() int { return len(l.items) }

// At is the element at a position.
func (l *List) At(i int) any { return l.items[i] }

// At is the key and the value at a position. A key that is no string is "".
func (d *Dict) At(i int) (string, any) {
	s, _ := d.keys[i].(Str)
	return s.s, d.vals[i]
}
