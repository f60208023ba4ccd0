package chat

import (
	"fmt"
	"regexp"
	"strings"
)

// invokeCalls is a section of <invoke name="f"> elements, each with <parameter name="key">
// elements.
type invokeCalls struct {
	open, shut                   *regexp.Regexp // of the section
	invoke, param                *regexp.Regexp // the opening tags: a name, and what else is in the tag
	endInvoke, endParam, section string
	openInvoke, openParam        string
	form                         string
}

// minimax: <minimax:tool_call> and <invoke> elements, as MiniMax M2 writes them. Strings
// are bare, all else is JSON: the tool's schema tells them apart.
var (
	minimaxCalls = newInvokeCalls("minimax:tool_call", "minimax:tool_call", "", `<parameter name="key">value</parameter>`)
	minimax      = format{name: "minimax", special: true, find: minimaxCalls.find, read: minimaxCalls.read,
		begins: []string{"<minimax:tool_call>"}}
)

// deepseekDSML: <｜DSML｜function_calls> and <｜DSML｜invoke> elements, as DeepSeek V3.2 writes
// them; V4 names the section tool_calls. An attribute says whether a value is a string.
var (
	dsmlCalls = newInvokeCalls("｜DSML｜function_calls", "｜DSML｜(?:function_calls|tool_calls)", "｜DSML｜",
		`<｜DSML｜parameter name="key" string="true">value</｜DSML｜parameter>`)
	deepseekDSML = format{name: "deepseek-v3.2", special: true, find: dsmlCalls.find, read: dsmlCalls.read,
		begins: []string{"<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"}}
)

func newInvokeCalls(section, pattern, mark, param string) *invokeCalls {
	tag := func(name string) *regexp.Regexp {
		return regexp.MustCompile(`^<` + mark + name + `\s+name\s*=\s*["']?([^"'<>]{1,200})["']?([^<>]{0,100})>`)
	}
	return &invokeCalls{
		open: regexp.MustCompile("<" + pattern + ">"), shut: regexp.MustCompile("</" + pattern + ">"),
		invoke: tag("invoke"), param: tag("parameter"), section: "<" + section + ">",
		openInvoke: "<" + mark + "invoke", openParam: "<" + mark + "parameter",
		endInvoke: "</" + mark + "invoke>", endParam: "</" + mark + "parameter>",
		form: "<" + section + ">\n<" + mark + "invoke name=\"f\">\n" + param + "\n</" + mark + "invoke>\n</" + section + ">",
	}
}

func (c *invokeCalls) find(_ *reading, text string, at int) int { return findRegexp(c.open, text, at) }

// read reads all calls of the section that begins at a position.
func (c *invokeCalls) read(r *reading, text string, at int) int {
	p := at + here(c.open, text, at)
	for calls := 0; len(r.msg.ToolCalls)+len(r.errs) < maxCalls; calls++ {
		next := skipBlanks(text, p)
		switch n := here(c.shut, text, next); {
		case n > 0 && calls > 0:
			return next + n
		case strings.HasPrefix(text[next:], c.openInvoke):
			p = c.one(r, text, next)
			continue
		case calls > 0 && next == len(text):
			return next
		case calls > 0:
			return p
		}
		end := next + here(c.shut, text, next)
		r.bad(text[at:end], fmt.Sprintf("%s does not follow %s; write %s", c.openInvoke, c.section, c.form))
		return end
	}
	return p
}

// one reads the call whose tag stands at a position.
func (c *invokeCalls) one(r *reading, text string, at int) int {
	fail := func(format string, a ...any) int {
		end := extent(text, at+len(c.openInvoke), c.openInvoke, c.endInvoke)
		if shut := findRegexp(c.shut, text[:end], at); shut >= 0 {
			end = shut // the call has no end of its own, the section has
		}
		r.bad(text[at:end], fmt.Sprintf(format, a...))
		return end
	}
	m := c.invoke.FindStringSubmatch(text[at:])
	switch {
	case m == nil && !strings.Contains(text[at:], ">"):
		return fail("it was cut off within %q", head(text[at:], 40))
	case m == nil:
		return fail("the function has no name; write %s", c.form)
	}
	name, p := trimmed(m[1]), at+len(m[0])
	if strings.HasSuffix(m[2], "/") {
		r.call(name, "{}")
		return p
	}
	if body := skipBlanks(text, p); strings.HasPrefix(text[body:], "{") {
		args, end, reason := firstArguments(text, body)
		if end = skipBlanks(text, end); reason == "" && !strings.HasPrefix(text[end:], c.endInvoke) && end < len(text) {
			reason = fmt.Sprintf("there is text after the JSON object, from %q on", head(text[end:], 20))
		}
		if reason != "" {
			return fail("%s", reason)
		}
		r.call(name, args)
		return skipAny(text, end, c.endInvoke)
	}
	args, end, reason := c.arguments(r, name, text, p)
	if reason != "" {
		return fail("%s", reason)
	}
	r.call(name, args)
	return end
}

// arguments reads the parameters of a call, up to its closing tag.
func (c *invokeCalls) arguments(r *reading, name, text string, p int) (object string, end int, reason string) {
	var args params
	for {
		p = skipBlanks(text, p)
		rest := text[p:]
		if strings.HasPrefix(rest, c.endInvoke) {
			return args.object(), p + len(c.endInvoke), ""
		}
		m := c.param.FindStringSubmatch(rest)
		switch {
		case rest == "" || here(c.shut, text, p) > 0:
			return "", 0, "it was cut off: " + c.endInvoke + " is missing"
		case !strings.HasPrefix(rest, c.openParam):
			return "", 0, fmt.Sprintf("there is text outside of the parameters, from %q on; write %s", head(rest, 20), c.form)
		case m == nil && strings.Contains(rest, ">"):
			return "", 0, "a parameter has no name; write " + c.form
		case m == nil:
			return "", 0, fmt.Sprintf("it was cut off within %q", head(rest, 40))
		}
		key := trimmed(m[1])
		p += len(m[0])
		end := closing(text, p, c.endParam, c.openParam, c.endInvoke)
		if end < 0 {
			return "", 0, fmt.Sprintf("it was cut off: %s of %q is missing", c.endParam, key)
		}
		args.add(key, c.value(r, name, key, m[2], text[p:end]))
		p = end + len(c.endParam)
	}
}

// value is a parameter as JSON. An attribute string="true" counts more than the schema.
func (c *invokeCalls) value(r *reading, tool, key, attributes, text string) string {
	if strings.Contains(attributes, `string="true"`) {
		return pyString(text)
	}
	return r.tools.typed(tool, key, text)
}
