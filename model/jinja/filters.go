package jinja

import (
	"math"
	"math/big"
	"net/url"
	"strconv"
	"strings"
	"unicode"
)

type filter func(r *run, v any, a args) any

// filters are those of Jinja's environment with transformers' tojson. Those that
// write HTML or draw at random are left out: urlize, xmlattr, random, pprint,
// wordwrap, filesizeformat.
var filters map[string]filter

func init() {
	textual := func(name string) filter {
		return func(r *run, v any, a args) any { return strMethods[name](r, textOf(r, v), a) }
	}
	filters = map[string]filter{
		"default": defaultFilter, "d": defaultFilter,
		"length": length, "count": length,
		"string": func(r *run, v any, _ args) any { return textOf(r, v) },
		"safe":   func(r *run, v any, _ args) any { s := textOf(r, v); s.safe = true; return s },
		"escape": escapeFilter, "e": escapeFilter,
		"forceescape": func(r *run, v any, _ args) any { s := textOf(r, v); s.safe = false; return r.built(escape(s)) },
		"upper":       textual("upper"), "lower": textual("lower"), "capitalize": textual("capitalize"),
		"title": func(r *run, v any, _ args) any { s := textOf(r, v); return r.built(s.like(wordTitle(s.s))) },
		"trim": func(r *run, v any, a args) any {
			chars, ok := a.arg(0, "chars")
			if !ok || chars == nil {
				return textOf(r, v).trim(nil, true, true)
			}
			set := textOf(r, chars).s
			return textOf(r, v).trim(&set, true, true)
		},
		"replace": replaceFilter,
		"indent":  indent,
		"center": func(r *run, v any, a args) any {
			return paddedText(r, textOf(r, v), optionalArg(r, a, 0, "width", 80), 2, " ")
		},
		"truncate":  truncate,
		"wordcount": wordCount,
		"striptags": stripTags,
		"urlencode": urlEncode,
		"format": func(r *run, v any, a args) any {
			if a.kw != nil {
				return r.built(percentFormat(r, textOf(r, v), a.kw))
			}
			return r.built(percentFormat(r, textOf(r, v), tuple(a.pos...)))
		},
		"int": intFilter, "float": floatFilter, "abs": absFilter, "round": roundFilter,
		"tojson": toJSON,
		"attr": func(r *run, v any, a args) any {
			r.use(v)
			name := textOf(r, needArg(r, a, 0, "name")).s
			if m, ok := methodOf(v, name); ok {
				return m
			}
			return undefined{"a value of type " + typeName(v) + " has no attribute " + name}
		},
		"first": first, "last": last, "list": listFilter, "items": itemsFilter, "join": joinFilter,
		"reverse": reverse, "sort": sortFilter, "dictsort": dictSort, "unique": unique, "sum": sum,
		"min": extreme("<"), "max": extreme(">"), "groupby": groupBy, "batch": batch, "slice": sliceFilter,
		"map": mapFilter, "select": selectFilter(true, false), "reject": selectFilter(false, false),
		"selectattr": selectFilter(true, true), "rejectattr": selectFilter(false, true),
	}
}

func defaultFilter(_ *run, v any, a args) any {
	_, missing := v.(undefined)
	if boolean, _ := a.arg(1, "boolean"); missing || truth(boolean) && !truth(v) {
		if d, ok := a.arg(0, "default_value"); ok {
			return d
		}
		return Str{}
	}
	return v
}

func length(r *run, v any, _ args) any {
	switch v := v.(type) {
	case undefined:
		return int64(0)
	case Str:
		r.step(len(v.s) / 64)
		return int64(v.runes())
	case *List:
		if v.kind != isIterator {
			return int64(len(v.items))
		}
	case *Dict:
		return int64(v.Len())
	case *loop:
		return int64(len(v.items))
	}
	r.fail("a value of type %s has no length", typeName(v))
	return nil
}

func escapeFilter(r *run, v any, _ args) any { return r.built(escape(textOf(r, v))) }

func replaceFilter(r *run, v any, a args) any {
	old, with := textOf(r, needArg(r, a, 0, "old")), textOf(r, needArg(r, a, 1, "new"))
	s := textOf(r, v)
	s.safe = false
	return replacedText(r, s, old.s, with, optionalArg(r, a, 2, "count", -1))
}

// wordTitle is Jinja's title: words begin behind blanks, hyphens and brackets.
func wordTitle(s string) string {
	begin := true
	return strings.Map(func(c rune) rune {
		is := begin
		begin = isSpace(c) || strings.ContainsRune("-({[<", c)
		if is {
			return unicode.ToUpper(c)
		}
		return unicode.ToLower(c)
	}, s)
}

// indent puts blanks before each line but the first and the empty ones.
func indent(r *run, v any, a args) any {
	s := textOf(r, v)
	var by Str
	if w, ok := a.arg(0, "width"); ok {
		if by, ok = w.(Str); !ok {
			by = Text(repeatText(r, boundOf(r, r.use(w)), " "))
		}
	} else {
		by = Text("    ")
	}
	firstToo, _ := a.arg(1, "first")
	blank, _ := a.arg(2, "blank")
	var whole builder
	whole.add(s)
	whole.text("\n")
	lines := whole.str().lines(false)
	r.charge(len(s.s) + len(lines)*(len(by.s)+bytesPerItem))
	var b builder
	if truth(firstToo) {
		b.add(by)
	}
	for i, line := range lines {
		if i > 0 {
			b.text("\n")
			if line.s != "" || truth(blank) {
				b.add(by)
			}
		}
		b.add(line)
	}
	out := b.str()
	out.safe = s.safe
	return out
}

func truncate(r *run, v any, a args) any {
	s := textOf(r, v)
	length, leeway := optionalArg(r, a, 0, "length", 255), optionalArg(r, a, 3, "leeway", 5)
	kill, _ := a.arg(1, "killwords")
	end := Text("...")
	if e, ok := a.arg(2, "end"); ok {
		end = textOf(r, e)
	}
	if length < end.runes() || leeway < 0 {
		r.fail("truncate: the length is below that of the end, or the leeway is negative")
	}
	if s.runes() <= length+leeway {
		return s
	}
	cut, _ := sliceOf(r, s, [3]any{nil, int64(length - end.runes())}).(Str)
	if !truth(kill) {
		if i := strings.LastIndexByte(cut.s, ' '); i >= 0 {
			cut = cut.slice(0, i)
		}
	}
	var b builder
	b.add(cut)
	b.add(end)
	return r.built(b.str())
}

func wordCount(r *run, v any, _ args) any {
	s := textOf(r, v).s
	r.step(len(s) / 16)
	return int64(len(strings.FieldsFunc(s, func(c rune) bool { return c != '_' && !unicode.IsLetter(c) && !unicode.IsNumber(c) })))
}

// stripTags removes comments and tags, and joins the words with single blanks.
func stripTags(r *run, v any, _ args) any {
	s := textOf(r, v)
	r.charge(len(s.s))
	var b strings.Builder
	for rest := s.s; ; {
		i := strings.IndexByte(rest, '<')
		end, skip := -1, 1
		if i >= 0 && strings.HasPrefix(rest[i:], "<!--") {
			end, skip = strings.Index(rest[i:], "-->"), 3
		} else if i >= 0 {
			end = strings.IndexByte(rest[i:], '>')
		}
		if end < 0 {
			b.WriteString(rest)
			break
		}
		b.WriteString(rest[:i])
		rest = rest[i+end+skip:]
	}
	return s.like(strings.Join(strings.Fields(b.String()), " "))
}

func urlEncode(r *run, v any, _ args) any {
	quote := func(s Str, slash bool) Str {
		text := strings.ReplaceAll(url.QueryEscape(s.s), "+", "%20")
		if slash {
			text = strings.ReplaceAll(text, "%2F", "/")
		} else {
			text = strings.ReplaceAll(text, "%20", "+")
		}
		return r.built(s.like(text))
	}
	d, ok := v.(*Dict)
	if !ok {
		return quote(textOf(r, v), true)
	}
	var pairs []any
	for i, k := range d.keys {
		var b builder
		b.add(quote(textOf(r, k), false))
		b.text("=")
		b.add(quote(textOf(r, d.vals[i]), false))
		pairs = append(pairs, b.str())
	}
	return joinTexts(r, Text("&"), pairs, func(v any) Str { return textOf(r, v) })
}

func intFilter(r *run, v any, a args) any {
	def, ok := a.arg(0, "default")
	if !ok {
		def = int64(0)
	}
	switch v := v.(type) {
	case bool, int64, *big.Int:
		return whole(bigOf(v))
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return def
		}
		return whole(bigOf(math.Trunc(v)))
	case Str:
		text := strings.ReplaceAll(v.trim(nil, true, true).s, "_", "")
		if len(text) > 4300 {
			return def
		}
		if n, ok := new(big.Int).SetString(text, optionalArg(r, a, 1, "base", 10)); ok {
			return whole(n)
		}
		if f, err := strconv.ParseFloat(text, 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
			return whole(bigOf(math.Trunc(f)))
		}
	}
	return def
}

func floatFilter(_ *run, v any, a args) any {
	if isNumber(v) {
		return floatOf(v)
	}
	if s, ok := v.(Str); ok {
		if f, err := strconv.ParseFloat(strings.ReplaceAll(s.trim(nil, true, true).s, "_", ""), 64); err == nil {
			return f
		}
	}
	if def, ok := a.arg(0, "default"); ok {
		return def
	}
	return 0.0
}

func absFilter(r *run, v any, _ args) any {
	r.use(v)
	if f, ok := v.(float64); ok {
		return math.Abs(f)
	}
	if !isInt(v) {
		r.fail("bad operand type for abs: %s", typeName(v))
	}
	return whole(new(big.Int).Abs(bigOf(v)))
}

func roundFilter(r *run, v any, a args) any {
	r.use(v)
	if !isNumber(v) {
		r.fail("a value of type %s cannot be rounded", typeName(v))
	}
	digits := optionalArg(r, a, 0, "precision", 0)
	method := "common"
	if m, ok := a.arg(1, "method"); ok {
		method = textOf(r, m).s
	}
	f := floatOf(v)
	scale := math.Pow(10, float64(digits))
	switch method {
	case "ceil":
		return math.Ceil(f*scale) / scale
	case "floor":
		return math.Floor(f*scale) / scale
	case "common":
		if isInt(v) {
			return roundWhole(bigOf(v), digits)
		}
		if digits >= 0 && digits < 300 { // correctly rounded, half to even, as Python's round
			out, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', digits, 64), 64)
			return out
		}
		return math.RoundToEven(f*scale) / scale
	}
	r.fail("round knows the methods common, ceil and floor, not %q", method)
	return nil
}

// roundWhole rounds to a power of ten, half to even.
func roundWhole(n *big.Int, digits int) any {
	if digits >= 0 || digits < -maxPrecision {
		return whole(n)
	}
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-digits)), nil)
	q, m := new(big.Int).DivMod(n, unit, new(big.Int))
	if c := m.Lsh(m, 1).Cmp(unit); c > 0 || c == 0 && q.Bit(0) == 1 {
		q.Add(q, big.NewInt(1))
	}
	return whole(q.Mul(q, unit))
}

func toJSON(r *run, v any, a args) any {
	o := jsonStyle{item: ", ", pair: ": "}
	flag := func(i int, name string) bool { x, _ := a.arg(i, name); return truth(x) }
	o.ascii, o.sorted = flag(0, "ensure_ascii"), flag(3, "sort_keys")
	if by, ok := a.arg(1, "indent"); ok && by != nil {
		s, ok := by.(Str)
		text := s.s
		if !ok {
			text = repeatText(r, boundOf(r, r.use(by)), " ")
		}
		o.indent, o.item = &text, ","
	}
	if sep, ok := a.arg(2, "separators"); ok && sep != nil {
		parts := r.iterate(sep)
		if len(parts) != 2 {
			r.fail("tojson takes two separators")
		}
		o.item, o.pair = textOf(r, parts[0]).s, textOf(r, parts[1]).s
	}
	w := writer{r: r}
	w.json(v, o, 0)
	return w.result()
}
