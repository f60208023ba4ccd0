package chat

import (
	"fmt"
	"strings"
)

// glm: <tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value>…
// </tool_call>, as GLM-4.5 and later write it, with line breaks between or not.
// Strings are bare, all else is JSON: the tool's schema tells them apart.
var glm = format{name: "glm", find: findHermes, read: readGLM, begins: []string{openCall}}

func readGLM(r *reading, text string, at int) int {
	const form = "<tool_call>name\n<arg_key>key</arg_key>\n<arg_value>value</arg_value>\n</tool_call>"
	inner := skipBlanks(text, at+len(openCall))
	if strings.HasPrefix(text[inner:], "{") {
		return readHermes(r, text, at)
	}
	fail := func(format string, a ...any) int {
		end := extent(text, inner, openCall, closeCall)
		r.bad(text[at:end], fmt.Sprintf(format, a...))
		return end
	}
	p := inner + strings.IndexAny(text[inner:]+"\n", "\n<")
	name := strings.TrimSpace(text[inner:p])
	if name == "" {
		return fail("the function has no name; write %s", form)
	}
	var args params
	for {
		p = skipBlanks(text, p)
		rest := text[p:]
		if strings.HasPrefix(rest, closeCall) {
			r.call(name, args.object())
			return p + len(closeCall)
		}
		key, after, ok := strings.Cut(strings.TrimPrefix(rest, "<arg_key>"), "</arg_key>")
		switch {
		case rest == "":
			return fail("it was cut off: </tool_call> is missing")
		case !strings.HasPrefix(rest, "<arg_key>"):
			return fail("there is text outside of <arg_key> and <arg_value>, from %q on; write %s", head(rest, 20), form)
		case !ok:
			return fail("it was cut off: </arg_key> is missing")
		}
		key = strings.TrimSpace(key)
		p = skipBlanks(text, len(text)-len(after))
		if !strings.HasPrefix(text[p:], "<arg_value>") {
			return fail("<arg_value> of %q is missing; write %s", key, form)
		}
		p += len("<arg_value>")
		end := closing(text, p, "</arg_value>", "<arg_key>", closeCall)
		if end < 0 {
			return fail("it was cut off: </arg_value> of %q is missing", key)
		}
		args.add(key, r.tools.typed(name, key, text[p:end]))
		p = end + len("</arg_value>")
	}
}
