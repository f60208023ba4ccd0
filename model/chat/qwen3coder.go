package chat

import (
	"fmt"
	"regexp"
	"strings"
)

// qwen3Coder: <tool_call><function=name><parameter=key>value</parameter>…
// </function></tool_call>, as Qwen3-Coder and Qwen3.5 write it. Values are bare
// text: the tool's schema says of what type. The model sometimes leaves the
// outer tag out.
var (
	qwen3CoderTags = coderTags{openCall, closeCall, regexp.MustCompile(`<tool_call>|<function=`), true}
	qwen3Coder     = format{name: "qwen3-coder", find: qwen3CoderTags.find, read: qwen3CoderTags.read,
		begins: []string{openCall, "<function="}}
)

// seedOSS: the same between <seed:tool_call> and </seed:tool_call>, as Seed-OSS writes it.
// Values are as Python prints them; thinking stands in <seed:think>.
var (
	seedTags = coderTags{"<seed:tool_call>", "</seed:tool_call>", regexp.MustCompile(`<seed:tool_call>`), false}
	seedOSS  = format{name: "seed-oss", special: true, find: seedTags.find, read: seedTags.read, begins: []string{seedTags.open},
		think: [2]string{"<seed:think>", "</seed:think>"}}
)

// coderTags are the tags around a call, and what begins one.
type coderTags struct {
	open, shut string
	begin      *regexp.Regexp
	lines      bool // a value stands in lines of its own
}

func (t coderTags) find(_ *reading, text string, at int) int { return findRegexp(t.begin, text, at) }

func findRegexp(re *regexp.Regexp, text string, at int) int {
	if loc := re.FindStringIndex(text[at:]); loc != nil {
		return at + loc[0]
	}
	return -1
}

func (t coderTags) read(r *reading, text string, at int) int {
	form := t.open + "\n<function=name>\n<parameter=key>\nvalue\n</parameter>\n</function>\n" + t.shut
	inner := skipBlanks(text, skipAny(text, at, t.open))
	if t.open == openCall && strings.HasPrefix(text[inner:], "{") {
		return readHermes(r, text, at)
	}
	fail := func(format string, a ...any) int {
		end := extent(text, inner, t.open, t.shut)
		r.bad(text[at:end], fmt.Sprintf(format, a...))
		return end
	}
	name, p, ok := tagValue(text, inner, "<function=")
	switch {
	case inner == len(text):
		return fail("it was cut off after %s", t.open)
	case !strings.HasPrefix(text[inner:], "<function="):
		return fail("<function=name> does not follow %s; write %s", t.open, form)
	case !ok:
		return fail("it was cut off within %q", head(text[inner:], 40))
	case name == "":
		return fail("the function has no name; write %s", form)
	}
	var args params
	for {
		p = skipBlanks(text, p)
		rest := text[p:]
		if strings.HasPrefix(rest, "</function>") || strings.HasPrefix(rest, t.shut) {
			break
		}
		key, value, ok := tagValue(text, p, "<parameter=")
		switch {
		case rest == "":
			return fail("it was cut off: </function> is missing")
		case !strings.HasPrefix(rest, "<parameter="):
			return fail("there is text outside of the parameters, from %q on; write %s", head(rest, 20), form)
		case !ok:
			return fail("it was cut off within %q", head(rest, 40))
		}
		end := closing(text, value, "</parameter>", "<parameter=", "</function>", t.shut)
		if end < 0 {
			return fail("it was cut off: </parameter> of %q is missing", key)
		}
		v := text[value:end]
		if t.lines {
			v = strings.TrimSuffix(strings.TrimPrefix(v, "\n"), "\n")
		}
		args.add(key, r.tools.typed(name, key, v))
		p = end + len("</parameter>")
	}
	p = skipAny(text, p, "</function>")
	if end := skipBlanks(text, p); strings.HasPrefix(text[end:], t.shut) {
		p = end + len(t.shut)
	}
	r.call(name, args.object())
	return p
}

// tagValue reads <tag=value>, of which open is the part before the value.
func tagValue(text string, at int, open string) (value string, end int, ok bool) {
	if !strings.HasPrefix(text[at:], open) {
		return "", at, false
	}
	value, _, ok = strings.Cut(text[at+len(open):], ">")
	return strings.TrimSpace(value), min(at+len(open)+len(value)+1, len(text)), ok
}

// closing is where the tag that closes a bare value stands: the first one that
// is followed by one of these, or by the end of the text; values may spell the
// tag. Else it is the first one, or -1.
func closing(text string, at int, tag string, next ...string) int {
	first := index(text, tag, at)
	for i, tries := first, 0; i >= 0 && tries < 100; i, tries = index(text, tag, i+len(tag)), tries+1 {
		rest := strings.TrimLeft(text[i+len(tag):], blanks)
		if rest == "" || skipAny(rest, 0, next...) > 0 {
			return i
		}
	}
	return first
}
