package jinja

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode"
)

// textOf is Python's str().
func textOf(r *run, v any) Str {
	switch v := v.(type) {
	case Str:
		return v
	case undefined:
		return Str{}
	case int64:
		return Text(strconv.FormatInt(v, 10))
	}
	w := writer{r: r}
	w.repr(v)
	return w.result()
}

// writer builds the text of a value. The text came from data where a string in it did.
type writer struct {
	r    *run
	b    strings.Builder
	data bool
}

func (w *writer) result() Str {
	if w.data {
		return Data(w.b.String())
	}
	return Text(w.b.String())
}

func (w *writer) write(s string) {
	w.r.charge(len(s))
	w.b.WriteString(s)
}

// repr is Python's repr().
func (w *writer) repr(v any) {
	w.r.step(1)
	switch v := v.(type) {
	case nil:
		w.write("None")
	case undefined:
		w.write("Undefined")
	case bool:
		w.write(map[bool]string{true: "True", false: "False"}[v])
	case int64, *big.Int:
		w.write(bigOf(v).String())
	case float64:
		w.write(reprFloat(v))
	case Str:
		w.data = w.data || len(v.data) > 0
		w.write(reprString(v.s))
	case *List:
		w.list(v)
	case *Dict:
		defer w.r.deeper()()
		w.write("{")
		for i, k := range v.keys {
			if i > 0 {
				w.write(", ")
			}
			w.repr(k)
			w.write(": ")
			w.repr(v.vals[i])
		}
		w.write("}")
	case *namespace:
		w.write("<Namespace ")
		w.repr(v.Dict)
		w.write(">")
	case *function:
		w.write("<Macro " + reprString(v.name) + ">")
	case *loop:
		w.write(fmt.Sprintf("<LoopContext %d/%d>", v.at+1, len(v.items)))
	}
}

func (w *writer) list(v *List) {
	defer w.r.deeper()()
	open, shut := "[", "]"
	switch v.kind {
	case isTuple:
		open, shut = "(", ")"
		if len(v.items) == 1 {
			shut = ",)"
		}
	case isRange:
		w.write(rangeText(v.items))
		return
	case isView:
		open, shut = "dict_items([", "])"
	case isIterator:
		w.write("<generator object>")
		return
	}
	w.write(open)
	for i, x := range v.items {
		if i > 0 {
			w.write(", ")
		}
		w.repr(x)
	}
	w.write(shut)
}

// rangeText is a range as Python prints it.
func rangeText(items []any) string {
	if len(items) == 0 {
		return "range(0, 0)"
	}
	first, last := items[0].(int64), items[len(items)-1].(int64)
	if len(items) > 1 {
		if step := items[1].(int64) - first; step != 1 {
			return fmt.Sprintf("range(%d, %d, %d)", first, last+step, step)
		}
	}
	return fmt.Sprintf("range(%d, %d)", first, last+1)
}

// reprFloat is Python's: the shortest digits, an exponent below 1e-4 and from 1e16 on.
func reprFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	out := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(out, ".") {
		out += ".0"
	}
	return out
}

// reprString is Python's: single quotes, unless only they are in it.
func reprString(s string) string {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	var b strings.Builder
	b.WriteByte(quote)
	for _, c := range s {
		switch {
		case c == rune(quote) || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case c == ' ' || unicode.IsPrint(c):
			b.WriteRune(c)
		case c < 0x100:
			fmt.Fprintf(&b, `\x%02x`, c)
		case c < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			fmt.Fprintf(&b, `\U%08x`, c)
		}
	}
	b.WriteByte(quote)
	return b.String()
}

// jsonStyle is how json.dumps writes.
type jsonStyle struct {
	ascii      bool
	indent     *string // nil: on one line
	item, pair string  // separators
	sorted     bool
}

// json is Python's json.dumps.
func (w *writer) json(v any, o jsonStyle, depth int) {
	w.r.step(1)
	switch v := v.(type) {
	case nil:
		w.write("null")
	case bool:
		w.write(strconv.FormatBool(v))
	case int64, *big.Int:
		w.write(bigOf(v).String())
	case float64:
		w.write(JSONFloat(v))
	case Str:
		w.data = w.data || len(v.data) > 0
		w.write(JSONString(v.s, o.ascii))
	case *List:
		if v.kind > isTuple {
			w.r.fail("a value of type %s cannot be written as JSON", typeName(v))
		}
		w.nested("[", "]", len(v.items), o, depth, func(i int) { w.json(v.items[i], o, depth+1) })
	case *Dict:
		order := make([]int, len(v.keys))
		for i := range order {
			order[i] = i
		}
		if o.sorted {
			sort.SliceStable(order, func(i, j int) bool { return orderOf(w.r, v.keys[order[i]], v.keys[order[j]], "<") < 0 })
		}
		w.nested("{", "}", len(order), o, depth, func(i int) {
			w.key(v.keys[order[i]], o)
			w.write(o.pair)
			w.json(v.vals[order[i]], o, depth+1)
		})
	default:
		w.r.fail("a value of type %s cannot be written as JSON", typeName(v))
	}
}

func (w *writer) nested(open, shut string, n int, o jsonStyle, depth int, item func(i int)) {
	defer w.r.deeper()()
	w.write(open)
	line := func(depth int) {
		if o.indent != nil {
			w.write("\n")
			for range depth {
				w.write(*o.indent)
			}
		}
	}
	for i := range n {
		if i > 0 {
			w.write(o.item)
		}
		line(depth + 1)
		item(i)
	}
	if n > 0 {
		line(depth)
	}
	w.write(shut)
}

// key writes a key: numbers and names become strings.
func (w *writer) key(k any, o jsonStyle) {
	switch k := k.(type) {
	case Str:
		w.json(k, o, 0)
	case nil, bool, int64, *big.Int, float64:
		inner := writer{r: w.r}
		inner.json(k, o, 0)
		w.write(`"` + inner.b.String() + `"`)
	default:
		w.r.fail("a key of type %s cannot be written as JSON", typeName(k))
	}
}

// JSONFloat is what Python's json writes for a float.
func JSONFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	case math.IsNaN(f):
		return "NaN"
	}
	return reprFloat(f)
}

// JSONString is what Python's json writes for a string; ascii is ensure_ascii.
func JSONString(s string, ascii bool) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range s {
		switch c {
		case '"', '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case '\t':
			b.WriteString(`\t`)
		case '\b':
			b.WriteString(`\b`)
		case '\f':
			b.WriteString(`\f`)
		default:
			switch {
			case c < ' ' || ascii && c > '~' && c < 0x10000:
				fmt.Fprintf(&b, `\u%04x`, c)
			case ascii && c >= 0x10000:
				fmt.Fprintf(&b, `\u%04x\u%04x`, 0xD800+(c-0x10000)>>10, 0xDC00+(c-0x10000)&0x3FF)
			default:
				b.WriteRune(c)
			}
		}
	}
	b.WriteByte('"')
	return b.String()
}

// maxJSONDepth is about where Python gives up too.
const maxJSONDepth = 1000

// FromJSON reads a JSON value; its strings are marked as data. A repeated key has
// its first place and its last value, as in Python.
func FromJSON(text []byte) (any, error) {
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	v, err := fromJSON(d, 0)
	if errors.Is(err, io.EOF) {
		return nil, io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("there is more than one JSON value")
	}
	return v, nil
}

func fromJSON(d *json.Decoder, depth int) (any, error) {
	if depth > maxJSONDepth {
		return nil, fmt.Errorf("%w: JSON of more than %d levels", ErrLimit, maxJSONDepth)
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Delim:
		if t == '[' {
			out := NewList()
			for d.More() {
				v, err := fromJSON(d, depth+1)
				if err != nil {
					return nil, err
				}
				out.items = append(out.items, v)
			}
			_, err := d.Token()
			return out, err
		}
		out := NewDict()
		for d.More() {
			k, err := d.Token()
			if err != nil {
				return nil, err
			}
			key, ok := k.(string)
			if !ok {
				return nil, fmt.Errorf("%v is not a key", k)
			}
			v, err := fromJSON(d, depth+1)
			if err != nil {
				return nil, err
			}
			out.put(Data(key), v)
		}
		_, err := d.Token()
		return out, err
	case string:
		return Data(t), nil
	case json.Number:
		return fromNumber(string(t)), nil
	case bool:
		return t, nil
	}
	return nil, nil
}

func fromNumber(s string) any {
	if !strings.ContainsAny(s, ".eE") && len(s) <= 4300 {
		if n, ok := new(big.Int).SetString(s, 10); ok {
			return whole(n)
		}
	}
	f, _ := strconv.ParseFloat(s, 64)
	return f
}

// sortItems sorts in place, stably, by keys.
func sortItems(r *run, items []any, key func(any) any, reverse bool) {
	keys := make([]any, len(items))
	order := make([]int, len(items))
	for i, v := range items {
		keys[i], order[i] = key(v), i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		c := orderOf(r, keys[i], keys[j], "<")
		if c == unordered {
			return 0
		}
		if reverse {
			return -c
		}
		return c
	})
	out := make([]any, len(items))
	for i, k := range order {
		out[i] = items[k]
	}
	copy(items, out)
}
