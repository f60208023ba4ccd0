package chat

import (
	"errors"
	"fmt"

	"agentcli/model/jinja"
	"agentcli/traj"
)

// Choose makes the renderer of a model: that of a family where it writes a probe of
// conversations exactly as the model's own template does, else the template's own. No
// family writes images: a template that does is the renderer.
// Without a template the architecture decides; ErrNoTemplate where it is of a base model.
func Choose(template, architecture string, tok Tokenizer) (Renderer, error) {
	if template == "" {
		switch architecture {
		case "qwen3":
			return For(qwen3.name, tok)
		case "qwen2":
			return For(qwen25.name, tok)
		}
		return nil, fmt.Errorf("%w: use an instruction-tuned one", ErrNoTemplate)
	}
	own, err := FromTemplate(template, tok)
	if err != nil {
		return nil, err
	}
	t := own.(*templated)
	if t.traits.images {
		return own, nil
	}
	t.limits = probeLimits
	for _, f := range families {
		if native, err := For(f.name, tok); err == nil && t.writtenBy(native) {
			return native, nil
		}
	}
	t.limits = jinja.Limits{}
	return own, nil
}

// ErrNoFormat is a name of a chat format that there is none of.
var ErrNoFormat = errors.New("no chat format of that name")

// probeRow is a conversation that a family and a template are compared in, and what
// of it a template may not know: then a family may write it in words of its own.
type probeRow struct {
	msgs             []traj.Message
	tools            []traj.ToolSpec
	options          Options
	calls, reasoning bool
}

// writtenBy reports whether a renderer writes each conversation of the probe as the
// template does. Where the template refuses one, or does not know a part of it, that
// one is passed over. All of them cannot be.
func (r *templated) writtenBy(native Renderer) bool {
	compared := 0
	for _, row := range probeRows() {
		if len(row.tools) > 0 && !r.traits.tools || row.calls && r.traits.calls == ParserNone || row.reasoning && !r.traits.reasoning {
			continue
		}
		want, err := r.text(row.msgs, row.tools, row.options)
		if err != nil {
			continue
		}
		got, _, err := native.Render(row.msgs, row.tools, row.options)
		if err != nil || got != want.String() {
			return false
		}
		compared++
	}
	return compared > 0
}

// probeRows are the conversations of the probe.
func probeRows() []probeRow {
	user := func(s string) traj.Message { return traj.Message{Role: traj.RoleUser, Content: s} }
	system := traj.Message{Role: traj.RoleSystem, Content: "Be brief."}
	says := func(s string, calls ...traj.ToolCall) traj.Message {
		return traj.Message{Role: traj.RoleAssistant, Content: s, ToolCalls: calls}
	}
	thinks := func(m traj.Message) traj.Message { m.Reasoning = "I think\nso."; return m }
	result := func(i int, s string) traj.Message {
		return traj.Message{Role: traj.RoleTool, Name: probeTools[0].Name, ToolCallID: probeCalls[i].ID, Content: s}
	}
	var rows []probeRow
	on, off := true, false
	for _, think := range []*bool{nil, &on, &off} {
		for _, ask := range []bool{true, false} {
			o := Options{AddGenerationPrompt: ask, EnableThinking: think}
			plain := [][]traj.Message{
				{user("q")}, {system, user("q")}, {user("q"), says("a")}, {system, user("q"), says("a"), user("r"), says("b")},
				{user(" q\n"), says("\n a \n\n"), user("\tr ")}, {{Role: traj.RoleSystem}, user(""), says("")},
				{user("日本語 é <b>&amp;</b> \"q\" 'q'"), says("x {{ 1 }} {% if %}")}, {user("q"), says("a"), system, user("r")},
			}
			for _, msgs := range plain {
				rows = append(rows, probeRow{msgs: msgs, options: o}, probeRow{msgs: msgs, tools: probeTools, options: o})
			}
			calling := [][]traj.Message{
				{user("q"), says("", probeCalls[0]), result(0, "x")},
				{user("q"), says("", probeCalls...), result(0, "x"), result(1, "{\"y\": 1}\n"), says("z"), user("r")},
				{system, user("q"), says("Let me see.", probeCalls[0]), result(0, "x"), says("", probeCalls[1]), result(1, "y")},
			}
			for _, msgs := range calling {
				rows = append(rows, probeRow{msgs: msgs, options: o, calls: true}, probeRow{msgs: msgs, tools: probeTools, options: o, calls: true})
			}
			rows = append(rows,
				probeRow{msgs: []traj.Message{user("q"), thinks(says("a"))}, options: o, reasoning: true},
				probeRow{msgs: []traj.Message{user("q"), thinks(says("a")), user("r"), says("b")}, options: o, reasoning: true},
				probeRow{msgs: []traj.Message{user("q"), says("<think>\nhm\n</think>\n\na"), user("r")}, options: o, reasoning: true},
				probeRow{msgs: []traj.Message{user("q"), thinks(says("", probeCalls[0])), result(0, "x"), thinks(says("a"))},
					tools: probeTools, options: o, calls: true, reasoning: true},
				probeRow{msgs: []traj.Message{user("q"), thinks(says("", probeCalls[0])), result(0, "x"), thinks(says("a")), user("r")},
					tools: probeTools, options: o, calls: true, reasoning: true})
		}
	}
	return rows
}
