package models_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentcli/app/models"
	"agentcli/app/models/modelstest"
	"agentcli/internal/exit"
	"agentcli/internal/setting/settingtest"
	"agentcli/model/chat"
	"agentcli/model/jinja"
	"agentcli/traj"
)

const (
	tinyModel = "../../policy/testdata/tiny-llama"
	// ignores is a template without tools, knows one with them.
	ignores = "{% for m in messages %}<|im_start|>{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}" +
		"{% if add_generation_prompt %}<|im_start|>assistant: {% endif %}"
	knows = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}" +
		"{% for m in messages %}<|im_start|>{{ m.role }}: {{ m.content }}" +
		"{% for c in m.tool_calls or [] %}<tool_call>{\"name\": \"{{ c.function.name }}\", \"arguments\": " +
		"{{ c.function.arguments | tojson }}}</tool_call>" +
		"{% endfor %}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant: {% endif %}"
)

func templateFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "t.jinja")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestATemplateThatIgnoresToolsIsToldOfAndRecorded(t *testing.T) {
	tools := []traj.ToolSpec{{Name: "f"}}
	for _, tt := range []struct {
		template       string
		tools          []traj.ToolSpec
		format, inText string
		notices        int
	}{
		{"", tools, "chatml", "", 1},
		{"", nil, "chatml", "", 0},
		{"smollm2", tools, "smollm2", "", 1},
		{"qwen2.5", tools, "qwen2.5", "", 0},
		{templateFile(t, ignores), tools, chat.FamilyTemplate, "hermes-text", 1},
		{templateFile(t, ignores), nil, chat.FamilyTemplate, "", 0},
		{templateFile(t, knows), tools, chat.FamilyTemplate, "", 0},
		{"qwen3", tools, "qwen3", "", 0},
	} {
		notices := 0
		_, source, closer, err := models.Open(t.Context(), models.Options{Backend: modelstest.Backend{}, Model: tinyModel, Tools: tt.tools,
			ChatTemplate: tt.template}, func(string) { notices++ })
		if err != nil {
			t.Fatal(err)
		}
		if source.ChatFormat != tt.format || source.ToolsInText != tt.inText || notices != tt.notices {
			t.Errorf("%s: %q, tools in %q, %d notices", tt.template, source.ChatFormat, source.ToolsInText, notices)
		}
		_ = closer.Close()
	}
}

func TestABadChatTemplateIsRefusedByName(t *testing.T) {
	for name, tt := range map[string]struct {
		template string
		want     error
	}{
		"no such name":  {"vicuna", chat.ErrNoFormat},
		"a folder":      {t.TempDir(), nil},
		"an empty file": {templateFile(t, ""), nil},
		"no template":   {templateFile(t, "{% if %}"), jinja.ErrSyntax},
		"it raises":     {templateFile(t, "{{ raise_exception('no') }}"), jinja.ErrRaised},
		"it loops": {templateFile(t, strings.Repeat("{% for x in range(99999) %}", 3)+
			strings.Repeat("{% endfor %}", 3)), jinja.ErrLimit},
		"it recurses":               {templateFile(t, "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), jinja.ErrLimit},
		"tokens that are not there": {"llama3", nil},
	} {
		_, _, _, err := models.Open(t.Context(), models.Options{Backend: modelstest.Backend{}, Model: tinyModel,
			ChatTemplate: tt.template}, func(string) {})
		if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !settingtest.Names(err, "ChatTemplate") ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	var usage exit.UsageError
	_, _, _, err := models.Open(t.Context(), models.Options{BaseURL: models.Addresses{"http://127.0.0.1:9/v1"},
		ChatTemplate: "qwen3"}, func(string) {})
	if !errors.As(err, &usage) {
		t.Error(err)
	}
}
