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
var qwen3Coder = format{name: "qwen3-coder", find: findQwen3Coder, read: readQwen3Coder}

var qwen3CoderCall = regexp.MustCompile(`<tool_call>|<function=`)

func findQwen3Coder(_ *reading, text string, at int) int { return findRegexp(qwen3CoderCall, text, at) }

func findRegexp(re *regexp.Regexp, text string, at int) int {
	if loc := re.FindStringIndex(text[at:]); loc != nil {
		return at + loc[0]
	}
	return -1
}

func readQwen3Coder(r *reading, text string, at int) int {
	const form = "<tool_call>\n<function=name>\n<parameter=key>\nvalue\n</parameter>\n</function>\n</tool_call>"
	inner := skipBlanks(text, skipAny(text, at, openCall))
	if strings.HasPrefix(text[inner:], "{") {
		return readHermes(r, text, at)
	}
	fail := func(format string, a ...any) int {
		end := extent(text, inner, openCall, closeCall)
		r.bad(text[at:end], fmt.Sprintf(format, a...))
		return end
	}
	name, p, ok := tagValue(text, inner, "<function=")
	switch {
	case inner == len(text):
		return fail("it was cut off after <tool_call>")
	case !strings.HasPrefix(text[inner:], "<function="):
		return fail("<function=name> does not follow <tool_call>; write %s", form)
	case !ok:
		return fail("it was cut off within %q", head(text[inner:], 40))
	case name == "":
		return fail("the function has no name; write %s", form)
	}
	var args params
	for {
		p = skipBlanks(text, p)
		rest := text[p:]
		if strings.HasPrefix(rest, "</function>") || strings.HasPrefix(rest, closeCall) {
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
		end := closing(text, value, "</parameter>", "<parameter=", "</function>", closeCall)
		if end < 0 {
			return fail("it was cut off: </parameter> of %q is missing", key)
		}
		v := text[value:end]
		v = strings.TrimSuffix(strings.TrimPrefix(v, "\n"), "\n")
		args.add(key, r.tools.typed(name, key, v))
		p = end + len("</parameter>")
	}
	p = skipAny(text, p, "</function>")
	if end := skipBlanks(text, p); strings.HasPrefix(text[end:], closeCall) {
		p = end + len(closeCall)
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
	return strings.TrimSpace(value), at + len(open) + len(value) + 1, ok
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
