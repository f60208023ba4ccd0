package rollout

import (
	"os"
	"path/filepath"
	"testing"

	"agentcli/traj"
)

// TestAGrammarIsReadOrRefused: each form of the setting, and what no reply could meet.
func TestAGrammarIsReadOrRefused(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good.json", `{"type":"object","properties":{"answer":{"type":"integer"}},"required":["answer"]}`)
	for spec, kind := range map[string]string{
		"json": traj.GrammarJSON, "tools": traj.GrammarTools, "schema:" + good: traj.GrammarSchema,
		"regex:[0-9]+:x": traj.GrammarRegex, "choice:yes|no|it depends": traj.GrammarChoice,
	} {
		if g, err := ParseGrammar(spec); err != nil || g.Kind != kind {
			t.Errorf("%s: %+v, %v", spec, g, err)
		}
	}
	for _, spec := range []string{
		"", "xml", "json:x", "tools:all", "schema:" + filepath.Join(dir, "absent.json"), "schema:" + file("broken.json", `{"type":`),
		"schema:" + file("keyword.json", `{"not":{}}`), "schema:" + file("nothing.json", `{"type":"integer","minimum":3,"maximum":2}`),
		"regex:", "regex:(", `regex:\bx`, "choice:", "choice:a||b",
	} {
		if g, err := ParseGrammar(spec); err == nil {
			t.Errorf("%q is taken: %+v", spec, g)
		}
	}
}
