package main

import (
	"os"
	"strings"
	"testing"

	"agentcli/llm/llmtest"
)

// TestAProgramThatIsNotThereIsRefusedAtTheStart: before anything is played, as a flag that is
// wrong, whichever flag names it.
func TestAProgramThatIsNotThereIsRefusedAtTheStart(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	model := llmtest.New(t, func(*llmtest.Request) llmtest.Reply { return llmtest.Text("7") })
	for name, text := range map[string]string{
		"q.jsonl":       `{"question":"x","answer":"7"}` + "\n",
		"replies.jsonl": `{"id":"1","response":"7","answer":"7"}` + "\n",
		"mcp.json":      `{"mcpServers": {"notes": {"command": "nonesuch", "args": ["x"]}}}`} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const missing = `"nonesuch"`
	for _, c := range []struct {
		args           []string
		begin, missing string
	}{
		{[]string{"--scheduler", "exec:nonesuch --x"}, "--scheduler exec:nonesuch --x: ", missing},
		{[]string{"--scheduler", "exec:python3 nonesuch.py"}, "--scheduler exec:python3 nonesuch.py: ", `"nonesuch.py"`},
		{[]string{"--scheduler", "gym_scheduler", "--gym-env", "exec:nonesuch"}, "--gym-env exec:nonesuch: ", missing},
		{[]string{"--tool", "exec:nonesuch"}, "--tool exec:nonesuch: ", missing},
		{[]string{"--mcp", "nonesuch"}, "--mcp nonesuch: ", missing},
		{[]string{"--mcp-config", "mcp.json"}, "--mcp-config mcp.json: notes: ", missing},
		{[]string{"--reward", "exec:nonesuch"}, "reward exec:nonesuch: ", missing},
	} {
		args := append([]string{"rollout", "--base-url", model.BaseURL(), "--model", "m", "-d", "q.jsonl", "--reward", "exact",
			"-n", "1", "-o", "f"}, c.args...)
		_, log, code := run(t, args...)
		if code != exitUsage || !strings.HasPrefix(log, "agentcli: "+c.begin) || !strings.Contains(log, c.missing) ||
			strings.Count(log, "\n") != 1 {
			t.Errorf("%s: exit %d: %s", strings.Join(c.args, " "), code, log)
		}
	}
	if _, log, code := run(t, "score", "--reward", "exec:nonesuch", "replies.jsonl"); code != exitUsage || !strings.Contains(log, missing) {
		t.Errorf("score: exit %d: %s", code, log)
	}
	if n := len(model.Requests()); n != 0 {
		t.Errorf("the model was asked %d times", n)
	}
}
