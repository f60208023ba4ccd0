package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// methodOf is x.name where that is a method or an attribute, not an element.
func methodOf(x any, name string) (any, bool) {
	switch v := x.(type) {
	case Str:
		if m := strMethods[name]; m != nil {
			return &function{name, func(r *run, a args) any { return m(r, v, a) }}, true
		}
	case *Dict:
		return dictMethod(v, name)
	case *List:
		return listMethod(v, name)
	case *namespace:
		return v.Get(name)
	case *loop:
		return v.attr(name)
	case *function:
		if name == "name" {
			return Text(v.name), true
		}
	}
	return nil, false
}

// mutators are the methods that the sandbox refuses.
const mutators = " append clear extend insert pop popitem remove reverse setdefault sort update "

func refused(name string) (any, bool) {
	if strings.Contains(mutators, " "+name+" ") {
		return undefined{"the method " + name + " changes a value, which a chat template must not"}, true
	}
	return nil, false
}

func dictMethod(d *Dict, name string) (any, bool) {
	view := func(item func(i int) any) *function {
		return &function{name, func(r *run, a args) any {
			noMoreThan(r, a, 0)
			r.charge(3 * bytesPerItem * d.Len())
			out := &List{kind: isView}
			for i := range d.keys {
				out.items = append(out.items, item(i))
			}
			return out
		}}
	}
	switch name {
	case "items":
		return view(func(i int) any { return tuple(d.keys[i], d.vals[i]) }), true
	case "keys":
		return view(func(i int) any { return d.keys[i] }), true
	case "values":
		return view(func(i int) any { return d.vals[i] }), true
	case "copy":
		return &function{name, func(r *run, _ args) any { r.charge(2 * bytesPerItem * d.Len()); return d.copy() }}, true
	case "get":
		return &function{name, func(r *run, a args) any {
			noMoreThan(r, a, 2)
			if len(a.pos) == 0 {
				r.fail("get needs a key")
			}
			if v, ok := d.get(a.pos[0]); ok {
				return v
			}
			if len(a.pos) > 1 {
				return a.pos[1]
			}
			return nil
		}}, true
	case "fromkeys":
		return undefined{"the method fromkeys is not supported"}, true
	case "append", "extend", "insert", "remove", "reverse", "sort": // of lists
		return nil, false
	}
	return refused(name)
}

func listMethod(l *List, name string) (any, bool) {
	if l.kind > isRange {
		return nil, false
	}
	switch name {
	case "count":
		return &function{name, func(r *run, a args) any {
			n := 0
			for _, v := range l.items {
				if equalValues(r, v, needArg(r, a, 0, "")) {
					n++
				}
			}
			return int64(n)
		}}, true
	case "index":
		return &function{name, func(r *run, a args) any {
			for i, v := range l.items {
				if equalValues(r, v, needArg(r, a, 0, "")) {
					return int64(i)
				}
			}
			r.fail("the value is not in the list")
			return nil
		}}, true
	case "copy":
		return &function{name, func(r *run, _ args) any {
			r.charge(bytesPerItem * len(l.items))
			return &List{items: append([]any(nil), l.items...), kind: l.kind}
		}}, true
	}
	if l.kind == isList && !strings.Contains(" popitem setdefault update ", " "+name+" ") {
		return refused(name)
	}
	return nil, false
}

// noMoreThan is an error where a call has more arguments, or any keywords.
func noMoreThan(r *run, a args, n int) {
	if len(a.pos) > n {
		r.fail("%d arguments where %d are the most", len(a.pos), n)
	}
	if a.kw != nil {
		r.fail("the method takes no keyword arguments")
	}
}

// needArg is an argument that must be there.
func needArg(r *run, a args, i int, name string) any {
	v, ok := a.arg(i, name)
	if !ok {
		r.fail("an argument is missing")
	}
	return v
}

// needTextArg is one that must be a string.
func needTextArg(r *run, a args, i int, name string) Str {
	v := needArg(r, a, i, name)
	s, ok := v.(Str)
	if !ok {
		r.fail("a string is needed, not a value of type %s", typeName(r.use(v)))
	}
	return s
}

// optionalArg is an argument as a whole number.
func optionalArg(r *run, a args, i int, name string, def int) int {
	v, ok := a.arg(i, name)
	if !ok || v == nil {
		return def
	}
	return boundOf(r, r.use(v))
}

func listOf(r *run, parts []Str) any {
	r.charge(2 * bytesPerItem * len(parts))
	out := NewList()
	for _, p := range parts {
		out.items = append(out.items, p)
	}
	return out
}

type strMethod func(r *run, s Str, a args) any

// strMethods are those of Python's str.
var strMethods map[string]strMethod

func init() {
	strMethods = map[string]strMethod{
		"strip":  func(r *run, s Str, a args) any { return s.trim(cutsetOf(r, a), true, true) },
		"lstrip": func(r *run, s Str, a args) any { return s.trim(cutsetOf(r, a), true, false) },
		"rstrip": func(r *run, s Str, a args) any { return s.trim(cutsetOf(r, a), false, true) },
		"split":  func(r *run, s Str, a args) any { return splitWith(r, s, a, Str.split) },
		"rsplit": func(r *run, s Str, a args) any { return splitWith(r, s, a, Str.rsplit) },
		"splitlines": func(r *run, s Str, a args) any {
			keep, _ := a.arg(0, "keepends")
			return listOf(r, s.lines(truth(keep)))
		},
		"partition":  func(r *run, s Str, a args) any { return partitionOf(r, s, a, false) },
		"rpartition": func(r *run, s Str, a args) any { return partitionOf(r, s, a, true) },
		"replace":    strReplace,
		"join": func(r *run, s Str, a args) any {
			return joinTexts(r, s, r.iterate(needArg(r, a, 0, "")), func(v any) Str {
				t, ok := v.(Str)
				if !ok {
					r.fail("join needs strings, not a value of type %s", typeName(v))
				}
				return t
			})
		},
		"startswith": func(r *run, s Str, a args) any { return hasAffix(r, s, a, strings.HasPrefix) },
		"endswith":   func(r *run, s Str, a args) any { return hasAffix(r, s, a, strings.HasSuffix) },
		"removeprefix": func(r *run, s Str, a args) any {
			if p := needTextArg(r, a, 0, "").s; strings.HasPrefix(s.s, p) {
				return s.slice(len(p), len(s.s))
			}
			return s
		},
		"removesuffix": func(r *run, s Str, a args) any {
			if p := needTextArg(r, a, 0, "").s; strings.HasSuffix(s.s, p) {
				return s.slice(0, len(s.s)-len(p))
			}
			return s
		},
		"find":   func(r *run, s Str, a args) any { return findIn(r, s, a, strings.Index, false) },
		"rfind":  func(r *run, s Str, a args) any { return findIn(r, s, a, strings.LastIndex, false) },
		"index":  func(r *run, s Str, a args) any { return findIn(r, s, a, strings.Index, true) },
		"rindex": func(r *run, s Str, a args) any { return findIn(r, s, a, strings.LastIndex, true) },
		"count": func(r *run, s Str, a args) any {
			r.step(len(s.s) / 16)
			return int64(strings.Count(partOf(r, s, a).s, needTextArg(r, a, 0, "").s))
		},
		"upper":      func(r *run, s Str, _ args) any { return r.built(s.like(strings.ToUpper(s.s))) },
		"lower":      func(r *run, s Str, _ args) any { return r.built(s.like(strings.ToLower(s.s))) },
		"casefold":   func(r *run, s Str, _ args) any { return r.built(s.like(strings.ToLower(s.s))) },
		"title":      func(r *run, s Str, _ args) any { return r.built(s.like(pyTitle(s.s))) },
		"capitalize": func(r *run, s Str, _ args) any { return r.built(s.like(capitalize(s.s))) },
		"swapcase": func(r *run, s Str, _ args) any {
			return r.built(s.like(strings.Map(func(c rune) rune {
				if unicode.IsUpper(c) {
					return unicode.ToLower(c)
				}
				return unicode.ToUpper(c)
			}, s.s)))
		},
		"center": func(r *run, s Str, a args) any { return padWith(r, s, a, 2) },
		"ljust":  func(r *run, s Str, a args) any { return padWith(r, s, a, 1) },
		"rjust":  func(r *run, s Str, a args) any { return padWith(r, s, a, 0) },
		"zfill": func(r *run, s Str, a args) any {
			n := optionalArg(r, a, 0, "", 0) - s.runes()
			at := 0
			if s.s != "" && (s.s[0] == '+' || s.s[0] == '-') {
				at = 1
			}
			var b builder
			b.add(s.slice(0, at))
			b.text(repeatText(r, n, "0"))
			b.add(s.slice(at, len(s.s)))
			return b.str()
		},
		"expandtabs": func(r *run, s Str, a args) any { return tabsToSpaces(r, s, optionalArg(r, a, 0, "tabsize", 8)) },
		"format":     func(r *run, s Str, a args) any { return braceFormat(r, s, a) },
		"isdigit":    is(unicode.IsDigit),
		"isdecimal":  is(unicode.IsDigit),
		"isnumeric":  is(unicode.IsNumber),
		"isalpha":    is(unicode.IsLetter),
		"isalnum":    is(func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }),
		"isspace":    is(isSpace),
		"isascii": func(_ *run, s Str, _ args) any {
			return strings.IndexFunc(s.s, func(c rune) bool { return c >= utf8.RuneSelf }) < 0
		},
		"isupper": func(_ *run, s Str, _ args) any { return s.s == strings.ToUpper(s.s) && s.s != strings.ToLower(s.s) },
		"islower": func(_ *run, s Str, _ args) any { return s.s == strings.ToLower(s.s) && s.s != strings.ToUpper(s.s) },
		"istitle": func(_ *run, s Str, _ args) any {
			return s.s == pyTitle(s.s) && strings.ToLower(s.s) != strings.ToUpper(s.s)
		},
		"isidentifier": func(_ *run, s Str, _ args) any {
			return s.s != "" && !unicode.IsDigit([]rune(s.s)[0]) && strings.IndexFunc(s.s, func(c rune) bool {
				return c != '_' && !unicode.IsLetter(c) && !unicode.IsDigit(c)
			}) < 0
		},
	}
}

// is asks each character; an empty string has none that answers.
func is(f func(rune) bool) strMethod {
	return func(r *run, s Str, _ args) any {
		r.step(len(s.s) / 16)
		return s.s != "" && strings.IndexFunc(s.s, func(c rune) bool { return !f(c) }) < 0
	}
}

// cutsetOf is the argument of strip: nil for blanks.
func cutsetOf(r *run, a args) *string {
	noMoreThan(r, a, 1)
	if v, ok := a.arg(0, ""); !ok || v == nil {
		return nil
	}
	s := needTextArg(r, a, 0, "").s
	return &s
}

func splitWith(r *run, s Str, a args, by func(Str, string, int) []Str) any {
	r.charge(len(s.s))
	n := optionalArg(r, a, 1, "maxsplit", -1)
	sep, ok := a.arg(0, "sep")
	if !ok || sep == nil {
		if n < 0 {
			return listOf(r, s.fields(-1))
		}
		return listOf(r, s.fields(n))
	}
	t := needTextArg(r, a, 0, "sep")
	if t.s == "" {
		r.fail("empty separator")
	}
	r.charge(2 * bytesPerItem * strings.Count(s.s, t.s))
	return listOf(r, by(s, t.s, n))
}

func partitionOf(r *run, s Str, a args, last bool) any {
	sep := needTextArg(r, a, 0, "")
	if sep.s == "" {
		r.fail("empty separator")
	}
	r.charge(len(s.s))
	i := strings.Index(s.s, sep.s)
	if last {
		i = strings.LastIndex(s.s, sep.s)
	}
	switch {
	case i >= 0:
		return tuple(s.slice(0, i), s.slice(i, i+len(sep.s)), s.slice(i+len(sep.s), len(s.s)))
	case last:
		return tuple(Str{}, Str{}, s)
	}
	return tuple(s, Str{}, Str{})
}

func strReplace(r *run, s Str, a args) any {
	old, with := needTextArg(r, a, 0, ""), needTextArg(r, a, 1, "")
	n := optionalArg(r, a, 2, "count", -1)
	if s.safe {
		with = escape(with)
	}
	out := replacedText(r, s, old.s, with, n)
	out.safe = s.safe
	return out
}

// replacedText is replace, charged before it is built.
func replacedText(r *run, s Str, old string, with Str, n int) Str {
	count := strings.Count(s.s, old)
	if n >= 0 {
		count = min(count, n)
	}
	r.charge(len(s.s) + count*(len(with.s)+bytesPerItem))
	return s.replace(old, with, n)
}

// joinTexts puts sep between the texts of items.
func joinTexts(r *run, sep Str, items []any, text func(any) Str) Str {
	var b builder
	for i, v := range items {
		t := text(v)
		r.charge(len(t.s) + len(sep.s))
		if i > 0 {
			b.add(sep)
		}
		b.add(t)
	}
	return b.str()
}

// partOf is the string between the arguments start and end of find and its like.
func partOf(r *run, s Str, a args) Str {
	if len(a.pos) < 2 {
		return s
	}
	parts := [3]any{a.pos[1]}
	if len(a.pos) > 2 {
		parts[1] = a.pos[2]
	}
	out, _ := sliceOf(r, s, parts).(Str)
	return out
}

func hasAffix(r *run, s Str, a args, has func(s, affix string) bool) any {
	s = partOf(r, s, a)
	if l, ok := needArg(r, a, 0, "").(*List); ok && l.kind == isTuple {
		for _, v := range l.items {
			if t, ok := v.(Str); ok && has(s.s, t.s) {
				return true
			}
		}
		return false
	}
	return has(s.s, needTextArg(r, a, 0, "").s)
}

func findIn(r *run, s Str, a args, by func(s, sub string) int, must bool) any {
	r.step(len(s.s) / 16)
	from := 0
	if len(a.pos) > 1 {
		from, _ = sliceBounds(r, [3]any{a.pos[1]}, s.runes(), 1)
	}
	part := partOf(r, s, a).s
	i := by(part, needTextArg(r, a, 0, "").s)
	if i < 0 && must {
		r.fail("substring not found")
	}
	if i >= 0 {
		i = from + utf8.RuneCountInString(part[:i])
	}
	return int64(i)
}

// repeatText are n times a character; none where n is negative.
func repeatText(r *run, n int, c string) string {
	if n <= 0 {
		return ""
	}
	r.charge(n)
	r.charge(n * len(c))
	return strings.Repeat(c, n)
}

// padWith fills up to a width; left is how much of it is on the right: all (1), none (0)
// or half (2).
func padWith(r *run, s Str, a args, side int) any {
	fill := " "
	if len(a.pos) > 1 {
		fill = needTextArg(r, a, 1, "").s
	}
	return paddedText(r, s, optionalArg(r, a, 0, "", 0), side, fill)
}

func paddedText(r *run, s Str, width, side int, fill string) Str {
	n := width - s.runes()
	left := max(n, 0)
	switch side {
	case 1:
		left = 0
	case 2: // CPython's str.center
		left = max(n/2+n&width&1, 0)
		if n <= 0 {
			left = 0
		}
	}
	var b builder
	b.text(repeatText(r, left, fill))
	b.add(s)
	b.text(repeatText(r, n-left, fill))
	return b.str()
}

func tabsToSpaces(r *run, s Str, size int) Str {
	var b builder
	column, at := 0, 0
	for i, c := range s.s {
		switch c {
		case '\t':
			b.add(s.slice(at, i))
			if size > 0 {
				b.text(repeatText(r, size-column%size, " "))
				column += size - column%size
			}
			at = i + 1
		case '\n', '\r':
			column = 0
		default:
			column++
		}
	}
	b.add(s.slice(at, len(s.s)))
	return b.str()
}

// capitalize is Python's: the first character in upper case, the others in lower.
func capitalize(s string) string {
	c, w := utf8.DecodeRuneInString(s)
	if w == 0 {
		return s
	}
	return string(unicode.ToTitle(c)) + strings.ToLower(s[w:])
}

// pyTitle is Python's str.title: a letter is small behind a letter.
func pyTitle(s string) string {
	behind := false
	return strings.Map(func(c rune) rune {
		defer func() { behind = unicode.IsLetter(c) }()
		if behind {
			return unicode.ToLower(c)
		}
		return unicode.ToTitle(c)
	}, s)
}
