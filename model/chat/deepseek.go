package chat

import (
	"encoding/json"
	"regexp"
	"strings"
)

// DeepSeek's calls stand between markers of their own. R1 and the first V3
// write a type, the name, and the arguments in a fence of code; V3.1 the name and
// the bare arguments. Both are read by either name: the model decides. Distilled
// models spell the markers with plain bars, spaces or underscores too.
var (
	deepseekR1 = format{name: "deepseek-r1", find: deepseek.find, read: deepseek.read, begins: deepseekBegins(), special: true, mark: "```"}
	deepseekV3 = format{name: "deepseek-v3", find: deepseek.find, read: deepseek.read, begins: deepseekBegins(), special: true,
		intro: deepseekIntro}
)

func deepseekMarker(words string) *regexp.Regexp {
	return regexp.MustCompile(`<[｜|]` + strings.ReplaceAll(words, " ", `[▁_ ]`) + `[｜|]>`)
}

// deepseekBegins are the texts that deepseek's pattern first has.
func deepseekBegins() (out []string) {
	bars, gaps := []string{"｜", "|"}, []string{"▁", "_", " "}
	for _, calls := range []string{"calls", "call"} {
		for i := range 36 {
			out = append(out, "<"+bars[i%2]+"tool"+gaps[i/4%3]+calls+gaps[i/12]+"begin"+bars[i/2%2]+">")
		}
	}
	return out
}

var deepseek = section{
	open: deepseekMarker("tool calls begin"), shut: deepseekMarker("tool calls end"), first: deepseekMarker("tool calls? begin"),
	begin: deepseekMarker("tool call begin"), between: deepseekMarker("tool sep"), done: deepseekMarker("tool call end"),
	header: func(before, text string, at int) (string, int) {
		if p := skipBlanks(text, at); p == len(text) || text[p] == '{' || text[p] == '"' {
			return trimmed(before), p // V3.1
		}
		end := at + strings.IndexAny(text[at:]+"\n", "\n`{<")
		return trimmed(text[at:end]), fenced(text, end)
	},
	form: "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>name<｜tool▁sep｜>{...}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
}

// deepseekIntro shows tools in the form that DeepSeek V3.1 was trained with: its template prints
// calls and leaves the tools to the system prompt. The instructions behind the tools are those of
// vLLM's template for the model.
func deepseekIntro(tools []json.RawMessage) (string, error) {
	var b strings.Builder
	b.WriteString("## Tools\nYou have access to the following tools:\n")
	for _, t := range tools {
		var tool struct {
			Function struct {
				Name, Description string
				Parameters        json.RawMessage
			}
		}
		if err := json.Unmarshal(t, &tool); err != nil {
			return "", err
		}
		f := tool.Function
		b.WriteString("\n### " + f.Name + "\nDescription: " + f.Description + "\n\nParameters: " + pythonOr(f.Parameters) + "\n")
	}
	b.WriteString("\nIMPORTANT: ALWAYS adhere to this exact format for tool use:\n" +
		"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tool_call_name<｜tool▁sep｜>tool_call_arguments<｜tool▁call▁end｜>" +
		"{additional_tool_calls}<｜tool▁calls▁end｜>\n\nWhere:\n" +
		"- `tool_call_name` must be an exact match to one of the available tools\n" +
		"- `tool_call_arguments` must be valid JSON that strictly follows the tool's Parameters Schema\n" +
		"- For multiple tool calls, chain them directly without separators or spaces")
	return b.String(), nil
}
