package chat

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// Llama 3.x writes a call as bare JSON, {"name": …, "parameters": {…}}, at the
// beginning of its reply or of a line; several are separated by semicolons.
// After <|python_tag|> come the same JSON, a call of a built-in tool,
// brave_search.call(query="…"), or Python code for the interpreter. Llama 3.2's
// list of calls, [f(a=1), g()], and Llama 3.1's <function=f>{…}</function> are
// read as well. The two names differ in what bare Python calls without a tag
// are: llama3-python reads f(a=1) too, where the whole reply is one.
var (
	llama3JSON = format{name: "llama3-json", find: findLlama3, read: readLlama3,
		begins: llama3Begins, starts: startsLlama3}
	llama3Python = format{name: "llama3-python", find: findLlama3Python, read: readLlama3,
		begins: llama3Begins, starts: startsLlama3Python}
)

const pythonTag = "<|python_tag|>"

var llama3Begins = []string{pythonTag, "<function="}

var (
	llama3Start = regexp.MustCompile(
		`<\|python_tag\|>|<function=[\w.\-]+>|(?m:^)[ \t]*\{\s*"(?:name|type|parameters|function)"|\A\s*\[\s*[A-Za-z_][\w.]*\(`)
	llama3Call = regexp.MustCompile(`\A\s*[A-Za-z_][\w.]*\(`)
	llama3End  = regexp.MustCompile(`<\|eom_id\|>|<\|eot_id\|>|<\|python_tag\|>`)
)

func findLlama3(r *reading, text string, at int) int {
	for ; at < len(text) && r.tries < maxCalls; r.tries++ {
		loc := llama3Start.FindStringIndex(text[at:])
		if loc == nil {
			return -1
		}
		start := skipBlanks(text, at+loc[0])
		switch {
		case text[start] == '{' && !llama3Object(text, start):
		case text[start] == '[' && (strings.TrimSpace(r.out.String()) != "" || !isLlama3List(r.tools, text, start)):
		default:
			return start
		}
		at = start + 1
	}
	return -1
}

// llama3Object reports whether the JSON at a position is meant as a call.
func llama3Object(text string, at int) bool {
	raw, _, reason := firstJSON(text, at)
	if reason == "" {
		var f map[string]json.RawMessage
		if json.Unmarshal(raw, &f) != nil {
			return false
		}
		_, named := f["name"]
		_, parameters := f["parameters"]
		_, args := f["arguments"]
		return named && (parameters || args)
	}
	rest := text[at:]
	return strings.Contains(rest, `"name"`) &&
		(strings.Contains(rest, `"parameters"`) || strings.Contains(rest, `"arguments"`) || strings.HasPrefix(reason, "it was cut off"))
}

// isLlama3List reports whether a list of Python calls is one: its first function
// is a tool, or it reads well.
func isLlama3List(tools toolSet, text string, at int) bool {
	p := &pyReader{s: text, at: at + 1}
	p.skip()
	if _, ok := tools[pyName.FindString(text[p.at:])]; ok {
		return true
	}
	_, _, err := p.call()
	return err == nil && len(tools) == 0
}

func findLlama3Python(r *reading, text string, at int) int {
	if start := findLlama3(r, text, at); start >= 0 {
		return start
	}
	if strings.TrimSpace(r.out.String()) != "" || !llama3Call.MatchString(text[at:]) {
		return -1
	}
	p := &pyReader{s: text, at: at}
	if name, _, err := p.call(); err != nil || !r.tools.known(name) || skipBlanks(text, p.at) < len(text) {
		return -1
	}
	return skipBlanks(text, at)
}

func readLlama3(r *reading, text string, at int) int {
	p := skipBlanks(text, skipAny(text, at, pythonTag))
	tagged := p > at && strings.HasPrefix(text[at:], pythonTag)
	rest := text[p:]
	switch {
	case strings.HasPrefix(rest, "{"):
		return readLlama3Objects(r, text, at, p)
	case strings.HasPrefix(rest, "<function="):
		return readLlama3Function(r, text, at, p)
	case strings.HasPrefix(rest, "["):
		return readLlama3Calls(r, text, at, p)
	}
	end := len(text)
	if loc := llama3End.FindStringIndex(rest); loc != nil {
		end = p + loc[0]
	}
	py := &pyReader{s: text[:end], at: p}
	name, args, err := py.call()
	whole := skipBlanks(py.s, py.at) == end
	tool, builtin := strings.CutSuffix(name, ".call")
	switch {
	case err == nil && whole && builtin:
		r.call(tool, args)
	case err == nil && whole && (!tagged || r.tools[name].types != nil):
		r.call(name, args)
	case err != nil && builtinName.MatchString(rest):
		r.bad(text[at:end], err.Error())
	case strings.TrimSpace(text[p:end]) == "":
		r.bad(text[at:end], "nothing follows <|python_tag|>")
	default: // code for the interpreter
		tool = r.tools.oneOf("code_interpreter", "ipython", "python")
		key, _ := r.tools.only(tool, "code")
		if key == "" {
			key = "code"
		}
		var a params
		a.add(key, pyString(strings.TrimRight(text[p:end], blanks)))
		r.call(tool, a.object())
	}
	return skipAny(text, end, "<|eom_id|>", "<|eot_id|>")
}

var builtinName = regexp.MustCompile(`^[A-Za-z_]\w*\.call\(`)

// readLlama3Objects reads JSON calls with semicolons between.
func readLlama3Objects(r *reading, text string, at, p int) int {
	for {
		raw, end, reason := firstJSON(text, p)
		var name, args string
		if reason == "" {
			call, why := readBody(raw)
			name, args, reason = call.Name, call.Arguments, why
		} else {
			end = len(text)
		}
		r.result(name, args, text[at:end], reason)
		next := skipBlanks(text, end)
		if !strings.HasPrefix(text[next:], ";") {
			return end
		}
		at = skipBlanks(text, next+1)
		if p = at; !strings.HasPrefix(text[p:], "{") {
			return next + 1
		}
	}
}

// readLlama3Function reads <function=name>{…}</function>.
func readLlama3Function(r *reading, text string, at, p int) int {
	name, p, _ := tagValue(text, p, "<function=")
	args, end, reason := firstArguments(text, p)
	if reason != "" {
		end = extent(text, p, "<function=", "</function>")
	} else if next := skipBlanks(text, end); strings.HasPrefix(text[next:], "</function>") {
		end = next + len("</function>")
	}
	r.result(name, args, text[at:end], reason)
	return end
}

// readLlama3Calls reads [f(a=1), g()].
func readLlama3Calls(r *reading, text string, at, p int) int {
	py := &pyReader{s: text, at: p + 1}
	type one struct{ name, args string }
	var calls []one
	for !py.take("]") {
		name, args, err := py.call()
		if err == nil && !py.take(",") {
			if py.skip(); !strings.HasPrefix(text[py.at:], "]") {
				err = py.wrong(", or ]")
			}
		}
		if err != nil {
			r.bad(text[at:], fmt.Sprintf("the list of calls is not valid: %v", err))
			return len(text)
		}
		calls = append(calls, one{name, args})
	}
	for _, c := range calls {
		r.call(c.name, c.args)
	}
	return py.at
}
