package toolcall

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"agentcli/internal/malformed"
)

// The golden file is what the leaderboard's ast_checker gave (scripts/golden/toolcalls_bfcl.py).
func TestVerdictsAreTheLeaderboards(t *testing.T) {
	b, err := os.ReadFile("testdata/bfcl.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Functions json.RawMessage
		Calls     []map[string]json.RawMessage
		Gold      json.RawMessage
		Valid     bool
	}
	if err := json.Unmarshal(b, &cases); err != nil {
		t.Fatal(err)
	}
	right, wrong := 0, 0
	for _, c := range cases {
		functions, err := ReadFunctions(json.RawMessage(`{"function": ` + string(c.Functions) + `}`))
		if err != nil {
			t.Fatal(err)
		}
		gold, err := ReadGold([]string{string(c.Gold)})
		if err != nil {
			t.Fatal(err)
		}
		var calls []Call
		for _, call := range c.Calls {
			for name, arguments := range call {
				calls = append(calls, ReadCall(name, string(arguments)))
			}
		}
		if got := Match(calls, gold[0], functions); got != c.Valid {
			t.Errorf("calls %s of %s, gold %s: %v, theirs %v", c.Calls, c.Functions, c.Gold, got, c.Valid)
		}
		if c.Valid {
			right++
		} else {
			wrong++
		}
	}
	if right < 200 || wrong < 200 {
		t.Errorf("%d right and %d wrong calls", right, wrong)
	}
}

func TestCallsWithoutDescriptions(t *testing.T) {
	for _, c := range []struct {
		calls, gold string
		want        bool
	}{
		{`[]`, `[]`, true}, {`[{"f": {}}]`, `[]`, false}, {`[]`, `[{"f": {}}]`, false}, {`[{"f": {"a": 5}}]`, `[{"f": {"a": [5.0]}}]`, true},
		{`[{"f": {"a": "New York"}}]`, `[{"f": {"a": ["new york"], "b": [1, ""]}}]`, true},
		{`[{"f": {"a": 1, "z": 2}}]`, `[{"f": {"a": [1]}}]`, false},
		{`[{"a": {}}, {"b": {"x": 1}}]`, `[{"b": {"x": [1]}}, {"a": {}}]`, true}, {`[{"m_f": {"a": true}}]`, `[{"m.f": {"a": [true]}}]`, true},
		{`[{"f": {"a": ["X", 1]}}]`, `[{"f": {"a": [["x", 1]]}}]`, true}, {`[{"f": {"a": null}}]`, `[{"f": {"a": [1]}}]`, false},
		{`[{"f": {"a": {"k": "V"}}}]`, `[{"f": {"a": [{"k": ["v"]}]}}]`, true}, {`[{"f": {"a": true}}]`, `[{"f": {"a": [1]}}]`, false},
	} {
		gold, err := ReadGold([]string{c.gold})
		if err != nil {
			t.Fatal(err)
		}
		var list []map[string]json.RawMessage
		if err := json.Unmarshal([]byte(c.calls), &list); err != nil {
			t.Fatal(err)
		}
		var calls []Call
		for _, call := range list {
			for name, arguments := range call {
				calls = append(calls, ReadCall(name, string(arguments)))
			}
		}
		if got := Match(calls, gold[0], nil); got != c.want {
			t.Errorf("%s, %s: %v", c.calls, c.gold, got)
		}
	}
	gold, _ := ReadGold([]string{`[{"f": {}}]`})
	for _, arguments := range []string{`{`, `[]`, `5`, `{} {}`} {
		if Match([]Call{ReadCall("f", arguments)}, gold[0], nil) {
			t.Errorf("the arguments %s are an object", arguments)
		}
	}
	if !Match([]Call{ReadCall("f", "")}, gold[0], nil) {
		t.Error("a call without arguments has none")
	}
}

func TestGoldsAreReadAndFaultsNamed(t *testing.T) {
	if gold, err := ReadGold([]string{`{"f": {"a": [1]}}`, `{"g": {}}`}); err != nil || len(gold) != 1 || len(gold[0]) != 2 {
		t.Errorf("%v, %v", gold, err)
	}
	if gold, err := ReadGold([]string{`[]`, `[{"g": {}}]`}); err != nil || len(gold) != 2 {
		t.Errorf("%v, %v", gold, err)
	}
	for text, field := range map[string]string{`f(x=1)`: "answer", `[{"f": {}, "g": {}}]`: "answer", `[{"f": 5}]`: "answer.f",
		`[{"f": {"a": 1}}]`: "answer.f.a",
		`[5]`:               "answer", `{} {}`: "answer"} {
		if _, err := ReadGold([]string{text}); malformed.Facts(err).Field != field || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", text, err)
		}
	}
	for meta, n := range map[string]int{`{}`: 0, ``: 0, `{"tools": ["calculator"]}`: 0,
		`{"tools": [{"type": "function", "function": {"name": "f"}}]}`: 1,
		`{"function": "[{\"name\": \"f\"}, {\"name\": \"g\"}]"}`:       2, `{"functions": {"name": "f"}}`: 1} {
		if got, err := ReadFunctions(json.RawMessage(meta)); err != nil || len(got) != n {
			t.Errorf("%s: %v, %v", meta, got, err)
		}
	}
	if _, err := ReadFunctions(json.RawMessage(`{"function": 5}`)); malformed.Facts(err).Field != "meta.function" {
		t.Error(err)
	}
}

func FuzzMatch(f *testing.F) {
	f.Add(`{"a": [1, "x", {"k": null}]}`, `[{"f": {"a": [[1, "X", {"k": [null]}], ""]}}]`,
		`[{"name": "f", "parameters": {"properties": {"a": {"type": "array", "items": {"type": "dict"}}}}}]`)
	f.Add(`{"a": 5}`, `[{"f": {"a": ["", 5.0]}}]`, `[{"name": "f", "parameters": {"properties": {"a": {"type": "float"}}}}]`)
	f.Fuzz(func(t *testing.T, arguments, gold, functions string) {
		list, _ := ReadFunctions(json.RawMessage(`{"function": ` + functions + `}`))
		golds, err := ReadGold([]string{gold})
		if err != nil {
			return
		}
		for _, g := range golds {
			Match([]Call{ReadCall("f", arguments)}, g, list)
			Match([]Call{ReadCall("f", arguments)}, g, nil)
		}
	})
}

// The place of a call in the gold answer is no row of a file.
func TestAFaultOfACallIsOfNoRow(t *testing.T) {
	_, err := ReadGold([]string{`[{"f": {}}, {"g": 1}]`})
	if f := malformed.Facts(err); f.Row != 0 || !strings.HasPrefix(f.Field, "answer") {
		t.Errorf("%+v, %v", f, err)
	}
}
