package chat

import (
	"strings"

	"agentcli/traj"
)

// lfm2: a list of calls as Python writes them, [f(a=1), g(b="x")], between
// <|tool_call_start|> and <|tool_call_end|>, as the LFM2 models write it.
var lfm2 = taggedCalls("lfm2", "<|tool_call_start|>", "<|tool_call_end|>", true)

// olmo3: calls as Python writes them, one in a line, between <function_calls> and
// </function_calls>, as OLMo 3 writes them.
var olmo3 = taggedCalls("olmo3", "<function_calls>", "</function_calls>", false)

// taggedCalls is a format of Python's calls between two tags: a list, or calls with
// commas or blanks between.
func taggedCalls(name, open, shut string, special bool) format {
	return format{name: name, special: special, begins: []string{open}, written: &written{open: open, body: pyCalls, shut: shut},
		find: func(_ *reading, text string, at int) int { return index(text, open, at) },
		read: func(r *reading, text string, at int) int {
			calls, end, err := readTagged(text, at+len(open), shut)
			if err != nil {
				end = extent(text, at+len(open), open, shut)
				r.bad(text[at:end], err.Error()+"; write f(name=value) between "+open+" and "+shut)
				return end
			}
			for _, c := range calls {
				r.call(c.Name, c.Arguments)
			}
			return end
		}}
}

// readTagged reads calls up to the closing tag, or the end of the reply.
func readTagged(text string, at int, shut string) (calls []traj.ToolCall, end int, err error) {
	p := &pyReader{s: text, at: at}
	list := p.take("[")
	for {
		name, args, err := p.call()
		if err != nil {
			return nil, 0, err
		}
		calls = append(calls, traj.ToolCall{Name: name, Arguments: args})
		if len(calls) > maxCalls {
			return nil, 0, p.wrong(shut)
		}
		p.take(",")
		if list && p.take("]") {
			list = false
		}
		p.skip()
		if !list && (p.at == len(text) || p.take(shut)) {
			return calls, p.at, nil
		}
		if strings.HasPrefix(text[p.at:], shut) {
			return nil, 0, p.wrong("]")
		}
	}
}
