package chat

import (
	"regexp"
	"strings"
)

// DeepSeek's calls stand between markers of their own. R1 and the first V3
// write a type, the name, and the arguments in a fence of code; V3.1 the name and
// the bare arguments. Both are read by either name: the model decides. Distilled
// models spell the markers with plain bars, spaces or underscores too.
var (
	deepseekR1 = format{name: "deepseek-r1", find: deepseek.find, read: deepseek.read, special: true}
	deepseekV3 = format{name: "deepseek-v3", find: deepseek.find, read: deepseek.read, special: true}
)

func deepseekMarker(words string) *regexp.Regexp {
	return regexp.MustCompile(`<[｜|]` + strings.ReplaceAll(words, " ", `[▁_ ]`) + `[｜|]>`)
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
