package chat

import "slices"

// Description is what a renderer does with a conversation.
type Description struct {
	Renderer string   // the family's name, or FamilyTemplate
	Stops    []string // the tokens that end a reply
	StopIDs  []int32
	Thinks   bool      // a reply begins inside its thinking, which the prompt opened
	Reasons  bool      // the thinking of a message is printed
	Think    [2]string // the tags around thinking
	Calls    string    // the format of tool calls
	// ToolsInText is, where the chat template ignores tools, the format in which Exact
	// writes them into the messages.
	ToolsInText string
	// ToolsShownBy is, where the renderer does not write tools at all, the name of a chat
	// format with the same tokens that does.
	ToolsShownBy string
}

// Describe describes a renderer of this package.
func Describe(r Renderer) Description {
	d := Description{}
	if r == nil {
		return d
	}
	d.Renderer, d.StopIDs = r.Family(), r.StopIDs()
	opens := ""
	switch r := r.(type) {
	case *renderer:
		d.Calls, d.Reasons, d.ToolsShownBy = r.parser, r.name == qwen3.name, r.toolsBy
		d.Stops = tokenTexts(r.tok, d.StopIDs)
	case *templated:
		d.Calls, d.Thinks, d.Reasons = r.traits.calls, r.traits.opens != "", r.traits.reasoning
		d.Stops = tokenTexts(r.tok, d.StopIDs)
		if !r.traits.tools || r.traits.calls == ParserNone {
			d.ToolsInText, d.Calls = hermesText.name, hermesText.name
		}
		opens = r.traits.opens
	}
	d.Think = thinkingTags(d.Calls, opens)
	return d
}

// thinkingTags are the tags around thinking: those of a format of calls, unless the prompt opens
// the thinking with another one's.
func thinkingTags(calls, opens string) [2]string {
	tags := [2]string{openThink, closeThink}
	for _, f := range formats {
		if f.think[0] != "" && (f.name == calls && opens == "" || f.think[0] == opens) {
			return f.think
		}
	}
	return tags
}

func tokenTexts(tok Tokenizer, ids []int32) []string {
	var out []string
	for _, id := range ids {
		out = append(out, tok.Decode([]int32{id}, false))
	}
	return slices.Clip(out)
}
