package chat

import (
	"regexp"
	"strings"
)

// autoParsers says by a model's name how it writes its calls; the first that
// fits counts, so what a name is built on comes after who built on it.
var autoParsers = []struct {
	name   *regexp.Regexp // in the model's name in lower case, '_' and ' ' as '-'
	parser string
}{
	{regexp.MustCompile(`search-?r1`), "search"},
	{regexp.MustCompile(`hermes`), "hermes"},
	{regexp.MustCompile(`deepseek-?v(3\.[2-9]|4)`), "deepseek-v3.2"},
	{regexp.MustCompile(`deepseek-?v3|deepseek-(chat|reasoner)`), "deepseek-v3"},
	{regexp.MustCompile(`deepseek-?r1`), "deepseek-r1"},
	{regexp.MustCompile(`gpt-?oss`), "gpt-oss"},
	{regexp.MustCompile(`kimi-?(k2|linear|dev)|kimi$`), "kimi"},
	{regexp.MustCompile(`glm-?(4\.[5-9]|[5-9])`), "glm"},
	{regexp.MustCompile(`qwen-?3-?coder|qwen-?3\.[5-9]`), "qwen3-coder"},
	{regexp.MustCompile(`gemma-?4`), "gemma4"},
	{regexp.MustCompile(`lfm-?2`), "lfm2"},
	{regexp.MustCompile(`granite-?3|phi-?4-?mini`), "granite"},
	{regexp.MustCompile(`olmo-?3`), "olmo3"},
	{regexp.MustCompile(`minimax-?m1|hunyuan-?a13b|apriel`), "tool-calls"},
	{regexp.MustCompile(`minimax-?m2`), "minimax"},
	{regexp.MustCompile(`command-?(r7b|a)|c4ai-command`), "cohere"},
	{regexp.MustCompile(`seed-?oss`), "seed-oss"},
	{regexp.MustCompile(`nemotron-?3`), "qwen3-coder"},
	{regexp.MustCompile(`nemotron-nano-.*v2|nemotron-super-.*v1[.-]5`), "nemotron"},
	{regexp.MustCompile(`apertus`), "apertus"},
	{regexp.MustCompile(`qwen|qwq|smollm`), "hermes"},
	{regexp.MustCompile(`mistral|mixtral|ministral|magistral|devstral|pixtral|codestral`), "mistral"},
	{regexp.MustCompile(`llama-?4`), "llama3-python"},
	{regexp.MustCompile(`llama-?3`), "llama3-json"},
}

// AutoParser names the parser for a model by the model's name: hermes where
// nothing is known of it.
func AutoParser(model string) string {
	model = strings.NewReplacer("_", "-", " ", "-").Replace(strings.ToLower(model))
	for _, a := range autoParsers {
		if a.name.MatchString(model) {
			return a.parser
		}
	}
	return ParserHermes
}

// ParserHermes is the format of most models.
const ParserHermes = "hermes"
