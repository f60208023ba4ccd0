package jinja

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// percentFormat is Python's s % v.
func percentFormat(r *run, s Str, v any) Str {
	pos := []any{v}
	if l, ok := v.(*List); ok && l.kind == isTuple {
		pos = l.items
	}
	named, _ := v.(*Dict)
	used := 0
	take := func() any {
		if used >= len(pos) {
			r.fail("not enough arguments for the format string")
		}
		used++
		return pos[used-1]
	}
	var b builder
	for at := 0; ; {
		i := strings.IndexByte(s.s[at:], '%')
		if i < 0 {
			b.add(s.slice(at, len(s.s)))
			break
		}
		b.add(s.slice(at, at+i))
		at += i + 1
		var key any
		keyed := false
		if at < len(s.s) && s.s[at] == '(' {
			end := strings.IndexByte(s.s[at:], ')')
			if end < 0 || named == nil {
				r.fail("the format string needs a dict of values")
			}
			val, ok := named.Get(s.s[at+1 : at+end])
			if !ok {
				r.fail("the format string names %.40q, which is not there", s.s[at+1:at+end])
			}
			key, keyed = val, true
			used = len(pos)
			at += end + 1
		}
		var spec formatSpec
		spec, at = readPercentSpec(r, s.s, at, take)
		if spec.verb == '%' {
			b.text("%")
			continue
		}
		if !keyed {
			key = take()
		}
		b.add(formatValue(r, key, spec))
	}
	if used < len(pos) && named == nil {
		r.fail("not all arguments were used by the format string")
	}
	return b.str()
}

// readFormatSpec is how one value is written.
type formatSpec struct {
	flags     string // of "-+ #0"
	fill      string
	align     byte // '<', '>', '^', '=' or 0
	width     int
	precision int // -1: none
	comma     byte
	verb      byte // 0: as str()
}

// readPercentSpec reads what follows a percent sign.
func readPercentSpec(r *run, s string, at int, take func() any) (spec formatSpec, end int) {
	spec.precision, spec.fill = -1, " "
	for at < len(s) && strings.IndexByte("-+ #0", s[at]) >= 0 {
		spec.flags += string(s[at])
		at++
	}
	number := func() int {
		if at < len(s) && s[at] == '*' {
			at++
			return boundOf(r, take())
		}
		k := digits(s, at, decimal)
		n, _ := strconv.Atoi(s[at:k])
		at = k
		return n
	}
	spec.width = number()
	if at < len(s) && s[at] == '.' {
		at++
		spec.precision = number()
	}
	if at >= len(s) {
		r.fail("the format string is incomplete")
	}
	spec.verb = s[at]
	spec.align = '>'
	if strings.Contains(spec.flags, "-") {
		spec.align = '<'
	} else if strings.Contains(spec.flags, "0") && strings.IndexByte("diouxXeEfFgG", spec.verb) >= 0 {
		spec.align, spec.fill = '=', "0"
	}
	return spec, at + 1
}

// maxPrecision bounds what a format string may ask for.
const maxPrecision = 10000

// formatValue writes one value.
func formatValue(r *run, v any, o formatSpec) Str {
	if o.width > maxPrecision || o.precision > maxPrecision || o.width < 0 {
		r.limit("a format of more than %d characters", maxPrecision)
	}
	var body Str
	sign := ""
	switch o.verb {
	case 's', 0:
		body = textOf(r, v)
		if o.precision >= 0 {
			body, _ = sliceOf(r, body, [3]any{nil, int64(o.precision)}).(Str)
		}
	case 'r', 'a':
		w := writer{r: r}
		w.repr(v)
		body = w.result()
	case 'd', 'i', 'u', 'x', 'X', 'o', 'b':
		body = Text(wholeDigits(r, v, o))
	case 'f', 'F', 'e', 'E', 'g', 'G', '%':
		body = Text(floatDigits(r, v, o))
	case 'c':
		if s, ok := v.(Str); ok {
			body = s
		} else {
			body = Text(string(rune(boundOf(r, v))))
		}
	default:
		r.fail("unsupported format character %q", o.verb)
	}
	if isNumber(v) && o.verb != 's' && o.verb != 'r' {
		if rest, ok := strings.CutPrefix(body.s, "-"); ok {
			sign, body = "-", Text(rest)
		} else if strings.Contains(o.flags, "+") {
			sign = "+"
		} else if strings.Contains(o.flags, " ") {
			sign = " "
		}
	}
	var b builder
	n := o.width - len(sign) - body.runes()
	left, mid, right := 0, 0, 0
	switch o.align {
	case '<':
		right = n
	case '^':
		left = max(n, 0) / 2
		right = n - left
	case '=':
		mid = n
	default:
		left = n
	}
	b.text(repeatText(r, left, o.fill))
	b.text(sign)
	b.text(repeatText(r, mid, o.fill))
	b.add(body)
	b.text(repeatText(r, right, o.fill))
	return b.str()
}

func wholeDigits(r *run, v any, o formatSpec) string {
	if f, ok := v.(float64); ok && strings.IndexByte("diu", o.verb) >= 0 {
		n, _ := big.NewFloat(f).Int(nil)
		v = whole(n)
	}
	if !isInt(v) {
		r.fail("a number is needed for %%%c, not a value of type %s", o.verb, typeName(v))
	}
	base, prefix := 10, ""
	switch o.verb {
	case 'x', 'X':
		base, prefix = 16, "0x"
	case 'o':
		base, prefix = 8, "0o"
	case 'b':
		base, prefix = 2, "0b"
	}
	text := bigOf(v).Text(base)
	if o.comma != 0 {
		text = grouped(text, o.comma)
	}
	if strings.Contains(o.flags, "#") {
		text = prefix + text
	}
	if o.verb == 'X' {
		text = strings.ToUpper(text)
	}
	return text
}

func floatDigits(r *run, v any, o formatSpec) string {
	if !isNumber(v) {
		r.fail("a number is needed for %%%c, not a value of type %s", o.verb, typeName(v))
	}
	p := o.precision
	if p < 0 {
		p = 6
	}
	f, verb := floatOf(v), o.verb
	if verb == '%' {
		return strconv.FormatFloat(f*100, 'f', p, 64) + "%"
	}
	if verb == 'g' || verb == 'G' {
		return fmt.Sprintf("%."+strconv.Itoa(max(p, 1))+string(verb), f)
	}
	text := strconv.FormatFloat(f, verb|0x20, p, 64)
	if verb == 'E' {
		text = strings.ToUpper(text)
	}
	if o.comma != 0 {
		head, tail, dot := strings.Cut(text, ".")
		if text = grouped(head, o.comma); dot {
			text += "." + tail
		}
	}
	return text
}

// grouped puts a separator between thousands.
func grouped(s string, sep byte) string {
	begin := 0
	if strings.HasPrefix(s, "-") {
		begin = 1
	}
	for i := len(s) - 3; i > begin; i -= 3 {
		s = s[:i] + string(sep) + s[i:]
	}
	return s
}

// braceFormat is Python's str.format: fields of names, numbers, attributes and
// elements, with a conversion and a specification.
func braceFormat(r *run, s Str, a args) Str {
	var b builder
	auto := 0
	for at := 0; at < len(s.s); {
		i := strings.IndexAny(s.s[at:], "{}")
		if i < 0 {
			b.add(s.slice(at, len(s.s)))
			break
		}
		b.add(s.slice(at, at+i))
		at += i
		if at+1 < len(s.s) && s.s[at+1] == s.s[at] {
			b.add(s.slice(at, at+1))
			at += 2
			continue
		}
		end := strings.IndexByte(s.s[at:], '}')
		if s.s[at] == '}' || end < 0 {
			r.fail("a single brace in the format string")
		}
		field, spec, _ := strings.Cut(s.s[at+1:at+end], ":")
		if strings.Contains(spec, "{") {
			r.fail("a field within a field's format is not supported")
		}
		field, conversion, converts := strings.Cut(field, "!")
		v := formatField(r, field, a, &auto)
		if converts {
			w := writer{r: r}
			if w.repr(v); conversion == "s" {
				v = textOf(r, v)
			} else {
				v = w.result()
			}
		}
		b.add(formatValue(r, v, readFormatSpec(r, v, spec)))
		at += end + 1
	}
	return r.built(b.str())
}

// formatField finds the value of a replacement field.
func formatField(r *run, field string, a args, auto *int) any {
	n := strings.IndexAny(field, ".[")
	if n < 0 {
		n = len(field)
	}
	name, rest := field[:n], field[n:]
	var v any
	ok := false
	if name == "" {
		v, ok = a.arg(*auto, "")
		*auto++
	} else if i, err := strconv.Atoi(name); err == nil && i >= 0 {
		v, ok = a.arg(i, "")
	} else if a.kw != nil {
		v, ok = a.kw.Get(name)
	}
	if !ok {
		r.fail("the format string's field %.40q is not there", name)
	}
	for rest != "" {
		if rest[0] == '.' {
			n = strings.IndexAny(rest[1:], ".[") + 1
			if n == 0 {
				n = len(rest)
			}
			v, rest = r.attr(v, rest[1:n]), rest[n:]
			continue
		}
		n = strings.IndexByte(rest, ']')
		if rest[0] != '[' || n < 0 {
			r.fail("the format string's field %.40q cannot be read", field)
		}
		var at any = Text(rest[1:n])
		if i, err := strconv.ParseInt(rest[1:n], 10, 64); err == nil {
			at = i
		}
		v, rest = r.item(v, at), rest[n+1:]
	}
	return v
}

// readFormatSpec reads [[fill]align][sign][#][0][width][,][.precision][type].
func readFormatSpec(r *run, v any, s string) formatSpec {
	o := formatSpec{precision: -1, fill: " "}
	if c := []rune(s); len(c) > 1 && strings.ContainsRune("<>=^", c[1]) {
		o.fill, o.align = string(c[0]), byte(c[1])
		s = string(c[2:])
	} else if s != "" && strings.IndexByte("<>=^", s[0]) >= 0 {
		o.align, s = s[0], s[1:]
	}
	for s != "" && strings.IndexByte("+- #0", s[0]) >= 0 {
		if s[0] == '0' && o.align == 0 {
			o.align, o.fill = '=', "0"
		}
		o.flags, s = o.flags+s[:1], s[1:]
	}
	k := digits(s, 0, decimal)
	o.width, _ = strconv.Atoi(s[:k])
	s = s[k:]
	if s != "" && (s[0] == ',' || s[0] == '_') {
		o.comma, s = s[0], s[1:]
	}
	if s != "" && s[0] == '.' {
		k = digits(s, 1, decimal)
		o.precision, _ = strconv.Atoi(s[1:k])
		s = s[k:]
	}
	if s != "" {
		o.verb, s = s[0], s[1:]
	}
	if s != "" {
		r.fail("the format string's specification cannot be read")
	}
	if o.align == 0 && !isNumber(v) {
		o.align = '<'
	}
	if _, float := v.(float64); o.verb == 0 && isNumber(v) && (float && o.precision >= 0 || !float && o.comma != 0) {
		o.verb = map[bool]byte{true: 'g', false: 'd'}[float]
	}
	return o
}

// strftime is Python's, in the C locale.
func strftime(t time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 >= len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		plain := false
		if format[i] == '-' && i+1 < len(format) {
			plain = true
			i++
		}
		text, ok := dateField(t, format[i])
		if !ok {
			text = format[i-1 : i+1]
		}
		if plain && len(text) > 1 {
			text = strings.TrimLeft(text[:len(text)-1], "0") + text[len(text)-1:]
		}
		b.WriteString(text)
	}
	return b.String()
}

var dateLayouts = map[byte]string{'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'h': "Jan", 'd': "02", 'm': "01", 'y': "06",
	'Y': "2006", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'z': "", 'Z': "", 'F': "2006-01-02", 'T': "15:04:05",
	'D': "01/02/06", 'R': "15:04", 'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05", 'e': "_2", 'n': "\n", 't': "\t",
	'j': "002"}

func dateField(t time.Time, c byte) (string, bool) {
	switch c {
	case '%':
		return "%", true
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000), true
	case 'w':
		return strconv.Itoa(int(t.Weekday())), true
	case 'u':
		return strconv.Itoa((int(t.Weekday())+6)%7 + 1), true
	case 's':
		return strconv.FormatInt(t.Unix(), 10), true
	}
	layout, ok := dateLayouts[c]
	return t.Format(layout), ok
}
