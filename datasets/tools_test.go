package datasets

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentcli/internal/malformed"
	"agentcli/traj"
)

func rowFile(t *testing.T, rows ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(rows, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestTypesOfTheLeaderboardBecomeThoseOfJSONSchema: at every depth, and not in the names of
// parameters.
func TestTypesOfTheLeaderboardBecomeThoseOfJSONSchema(t *testing.T) {
	task := traj.Task{Meta: []byte(`{"tools": [{"name": "math.area of", "description": "d", "parameters": {"type": "dict",
		"required": ["type"], "properties": {"type": {"type": "float", "default": null}, "gone": null,
		"at": {"type": "tuple", "items": {"type": "any"}},
		"deep": {"type": "array", "items": {"type": "dict", "properties": {"dict": {"type": ["bool", "null"]}}}}}}},
		{"type": "function", "function": {"name": "g"}}]}`)}
	tools, err := OwnTools(&task)
	if err != nil || len(tools) != 2 {
		t.Fatal(tools, err)
	}
	want := `{"properties":{"at":{"items":{"type":"string"},"type":"array"},` +
		`"deep":{"items":{"properties":{"dict":{"type":["boolean","null"]}},"type":"object"},"type":"array"},` +
		`"type":{"default":null,"type":"number"}},"required":["type"],"type":"object"}`
	if tools[0].Name != "math_area_of" || tools[0].Description != "d" || string(tools[0].Parameters) != want {
		t.Errorf("%s: %s\nwant %s", tools[0].Name, tools[0].Parameters, want)
	}
	if tools[1].Name != "g" || string(tools[1].Parameters) != `{"properties":{},"type":"object"}` {
		t.Errorf("%+v", tools[1])
	}
}

// TestAColumnOfToolsIsOfferedOrKept: what is no list of functions is meta, as any column.
func TestAColumnOfToolsIsOfferedOrKept(t *testing.T) {
	const row = `{"question": "?", "answer": "1", "tools": `
	for _, tc := range []struct {
		tools  string
		fields map[string]string
		n      int
		kind   malformed.Kind
	}{
		{tools: `[{"name": "f"}, {"type": "function", "function": {"name": "g"}}]`, n: 2},
		{tools: `"[{\"name\": \"f\"}]"`, n: 1},
		{tools: `{"name": "f"}`, n: 1},
		{tools: `[]`},
		{tools: `["calculator"]`},
		{tools: `"calculator"`},
		{tools: `[{"price": 3}]`},
		{tools: `null`},
		{tools: `[{"name": "f"}, {"name": "f"}]`, kind: malformed.Duplicate},
		{tools: `[{"name": "a.b"}, {"name": "a_b"}]`, kind: malformed.Duplicate},
		{tools: `[{"type": "function", "function": {}}]`, kind: malformed.Missing},
		{tools: `[{"name": "f", "parameters": "none"}]`, kind: malformed.Type},
		{tools: `["calculator"]`, fields: map[string]string{"tools": "tools"}, kind: malformed.Type},
		{tools: `null`, fields: map[string]string{"tools": "tools"}},
		{tools: `[], "other": {"can": [{"name": "f"}]}`, fields: map[string]string{"tools": "other.can"}, n: 1},
		{tools: `[]`, fields: map[string]string{"tools": "other"}, kind: malformed.Missing},
	} {
		path := rowFile(t, row+tc.tools+"}")
		d, err := Open(context.Background(), path, Options{Fields: tc.fields})
		if tc.kind != "" {
			if !errors.Is(err, tc.kind) || malformed.Facts(err).Row != 1 || !strings.Contains(err.Error(), "rows.jsonl") {
				t.Errorf("%s: %v, want %v", tc.tools, err, tc.kind)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.tools, err)
			continue
		}
		if len(d.OwnTools) != tc.n {
			t.Errorf("%s: %d tools, want %d", tc.tools, len(d.OwnTools), tc.n)
		}
		for task, err := range d.Tasks(context.Background()) {
			if err != nil {
				t.Fatal(err)
			}
			if tools, err := OwnTools(&task); err != nil || len(tools) != tc.n {
				t.Errorf("%s: the task has %d tools, %v", tc.tools, len(tools), err)
			}
		}
	}
}

// TestARowWithoutToolsHasNone: one row's tools are not another's, and a mixture has those of
// its parts.
func TestARowWithoutToolsHasNone(t *testing.T) {
	with := rowFile(t, `{"question": "a", "answer": "1"}`, `{"question": "b", "answer": "1", "tools": [{"name": "f"}]}`)
	without := filepath.Join(filepath.Dir(with), "other.jsonl")
	if err := os.WriteFile(without, []byte(`{"question": "c", "answer": "1"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := Open(context.Background(), without+":1,"+with+":1", Options{})
	if err != nil || len(d.OwnTools) != 1 {
		t.Fatal(d, err)
	}
	for task, err := range d.Tasks(context.Background()) {
		tools, toolsErr := OwnTools(&task)
		if err != nil || toolsErr != nil || (len(tools) == 1) != (task.Question == "b") {
			t.Errorf("%s: %v, %v, %v", task.Question, tools, err, toolsErr)
		}
	}
}
