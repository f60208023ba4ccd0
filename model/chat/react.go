package chat

import (
	"fmt"
	"regexp"
	"strings"

	"agentcli/traj"
)

// react: lines of Thought, Action and Action Input, as ReAct prompts ask for
// them, or Action: name[input]. An input that is no JSON object is the text for
// the tool's only required parameter. What follows a line of Observation the
// model made up: it is cut off. Final Answer ends it: the content is what
// follows, and what came before is reasoning.
var react = format{name: "react", find: findReact, read: readReact, starts: startsReact,
	prompted: &prompted{intro: reactIntro, call: reactCall, result: func(s string) string { return "Observation: " + s }}}

var (
	reactAction = regexp.MustCompile(`(?m)^[ \t]*\**Action\**:\**[ \t]*(.*)$`)
	reactInput  = regexp.MustCompile(`\A\s*\**Action Input\**:\**[ \t]*`)
	reactNext   = regexp.MustCompile(`(?m)^[ \t]*\**(?:Observation|Thought|Action|Final Answer)\**:`)
	reactFinal  = regexp.MustCompile(`(?m)^[ \t]*\**Final Answer\**:\**[ \t]*`)
	reactMadeUp = regexp.MustCompile(`\A\s*\**Observation\**:`)
	reactBoth   = regexp.MustCompile(`^([\w.\-]+)\[([\s\S]*)\]$`)
)

// findReact finds the next action. The final answer, where it comes first, ends the reply: it
// is found where no call came before, and no action is behind it.
func findReact(r *reading, text string, at int) int {
	action := findRegexp(reactAction, text, at)
	end := action
	if end < 0 {
		end = len(text)
	}
	// Only what is before the action is searched: a reply of many is read once.
	final := findRegexp(reactFinal, text[:end], at)
	switch {
	case final < 0:
		return action
	case len(r.msg.ToolCalls)+len(r.errs) > 0:
		return -1
	}
	return final
}

func readReact(r *reading, text string, at int) int {
	if loc := reactFinal.FindStringIndex(text[at:]); loc != nil && loc[0] == 0 {
		if before, ok := reactThought(r.out.String()); ok {
			r.thought(before)
		}
		r.out.Reset()
		r.out.WriteString(strings.TrimSpace(text[at+loc[1]:]))
		return len(text)
	}
	loc := reactAction.FindStringSubmatchIndex(text[at:])
	if loc == nil || loc[0] != 0 {
		return at
	}
	name := strings.Trim(strings.TrimSpace(text[at+loc[2]:at+loc[3]]), "`*\"'")
	p := at + loc[1]
	end := p
	if in := reactInput.FindString(text[p:]); in != "" {
		p += len(in)
		end = readReactInput(r, text, at, p, name)
	} else {
		readReactBare(r, text[at:p], name)
	}
	if reactMadeUp.MatchString(text[end:]) {
		return len(text)
	}
	return end
}

// readReactInput reads the input that begins at p; its end is before the next line
// with a name of its own.
func readReactInput(r *reading, text string, at, p int, name string) int {
	end := len(text)
	if loc := reactNext.FindStringIndex(text[p:]); loc != nil {
		end = p + loc[0]
	}
	input := strings.TrimSpace(text[p:end])
	if fence, ok := strings.CutPrefix(input, "```"); ok {
		_, inner, _ := strings.Cut(fence, "\n")
		input = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(inner), "```"))
	}
	if name == "" {
		r.bad(text[at:end], "no name follows Action:; write the name of a tool")
		return end
	}
	if strings.HasPrefix(input, "{") {
		// The object may itself have lines that look like the next part.
		whole := skipBlanks(text, p)
		if strings.HasPrefix(text[whole:], "{") {
			if raw, stop, reason := firstJSON(text, whole); reason == "" && stop > end {
				r.call(name, string(raw))
				return stop
			}
		}
		args, stop, reason := firstArguments(input, 0)
		if stop = skipBlanks(input, stop); reason == "" && stop < len(input) {
			reason = fmt.Sprintf("there is text after the JSON object, from %q on; Action Input is one JSON object", head(input[stop:], 20))
		}
		r.result(name, args, text[at:end], reason)
		return end
	}
	readReactText(r, text[at:end], name, input)
	return end
}

// readReactText takes a bare text for the tool's only parameter.
func readReactText(r *reading, raw, name, input string) {
	key, ok := r.tools.only(name, "input")
	if !ok {
		r.bad(raw, fmt.Sprintf("Action Input is not a JSON object, and %s takes several parameters; "+
			"write {\"name of a parameter\": its value, ...}", name))
		return
	}
	if len(input) > 1 && input[0] == '"' && input[len(input)-1] == '"' {
		input = input[1 : len(input)-1]
	}
	var a params
	a.add(key, r.tools.typed(name, key, input))
	r.call(name, a.object())
}

// readReactBare reads an Action without an input of its own: name[input], or a tool
// that needs none.
func readReactBare(r *reading, raw, name string) {
	if m := reactBoth.FindStringSubmatch(name); m != nil {
		if _, ok := r.tools[m[1]]; !ok && strings.EqualFold(m[1], "finish") {
			r.out.WriteString("Final Answer: " + m[2])
			return
		}
		readReactText(r, raw, m[1], m[2])
		return
	}
	if t, ok := r.tools[name]; ok && len(t.required) == 0 {
		r.call(name, "{}")
		return
	}
	r.bad(raw, "Action Input is missing; write a line Action Input: with a JSON object of the arguments")
}

// reactThought is what came before a final answer; false: nothing did.
func reactThought(before string) (string, bool) {
	before = strings.TrimSpace(before)
	return strings.TrimPrefix(before, "Thought: "), before != ""
}

// reactPrompt is how ReAct prompts ask for the form, as LangChain words it.
const reactPrompt = `Answer the question as best you can. You have access to the following tools:

%s

Use the following format:

Thought: you should always think about what to do
Action: the action to take, one of %s
Action Input: the input to the action, a JSON object
Observation: the result of the action
... (this Thought/Action/Action Input/Observation can repeat N times)
Thought: I now know the final answer
Final Answer: the final answer to the question`

func reactIntro(tools []traj.ToolSpec) string {
	var list, names []string
	for _, t := range tools {
		params := string(t.Parameters)
		if params == "" {
			params = "{}"
		}
		list = append(list, t.Name+": "+t.Description+" The input's JSON schema: "+pythonOr([]byte(params)))
		names = append(names, t.Name)
	}
	return fmt.Sprintf(reactPrompt, strings.Join(list, "\n"), strings.Join(names, ", "))
}

func reactCall(c traj.ToolCall) string {
	return "Action: " + c.Name + "\nAction Input: " + pythonOr([]byte(c.Arguments))
}
