package datasets

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/internal/malformed"
)

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Who wants to know of every bad row gets them all, and the other rows are tasks.
func TestBadRowsAreGivenAndTheOthersAreTasks(t *testing.T) {
	offline(t)
	for name, x := range map[string]struct {
		content string
		bad     []int // numbers of rows
		ids     []string
	}{
		"lines.jsonl": {`{"id": "a", "question": "x", "answer": "1"}
{"id": "b", "question"
{"id": "c", "quiz": "x"}
[1]
{"id": "a", "question": "x", "answer": "1"}
{"question": "x", "answer": "1"}
`, []int{2, 3, 4, 5}, []string{"a", "5"}},
		"array.json": {`[{"id": "a", "question": "x"}, 7, {"id": "b", "question": "x"}]`, []int{2}, []string{"a", "b"}},
		"table.csv":  {"id,question\na,x\nb,x,y\nc,x\nd,\"x\"y\ne,x\n", []int{2, 4}, []string{"a", "c", "e"}},
		"all.jsonl":  {"{}\n{}\n", []int{1, 2}, nil},
		"env.jsonl": {`{"id": "a", "question": "x", "env": "nosuch"}
{"id": "b", "question": "x", "env": "tool"}
`, []int{1}, []string{"b"}},
	} {
		path := writeFile(t, name, x.content)
		var bad []int
		d, err := Open(t.Context(), path, Options{Envs: []string{"tool"}, BadRow: func(err error) {
			if f := malformed.Facts(err); f.Path == path {
				bad = append(bad, f.Row)
			}
		}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var ids []string
		for task, err := range d.Tasks(t.Context()) {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			ids = append(ids, strings.TrimPrefix(task.ID, d.Name+"/"))
		}
		if !slices.Equal(bad, x.bad) || !slices.Equal(ids, x.ids) {
			t.Errorf("%s: bad rows %v, want %v; ids %v, want %v", name, bad, x.bad, ids, x.ids)
		}
	}
}

// A column that the prompt wants is missing in one row.
func TestABadRowMayBeOneWithoutAColumnOfThePrompt(t *testing.T) {
	offline(t)
	dir := t.TempDir()
	for name, content := range map[string]string{
		"e.yaml":  "name: e\nsplits: {test: {files: [r.jsonl]}}\nprompt: '{question} {context}'\n",
		"r.jsonl": `{"question": "x", "context": "c"}` + "\n" + `{"question": "y"}` + "\n" + `{"question": "z", "context": "c"}` + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bad := 0
	d, err := Open(t.Context(), filepath.Join(dir, "e.yaml"), Options{BadRow: func(error) { bad++ }})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range d.Tasks(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 2 || bad != 1 {
		t.Errorf("%d tasks and %d bad rows, want 2 and 1", n, bad)
	}
}

// A file that is not there is no bad row.
func TestAMissingFileIsAnErrorWhoeverWantsBadRows(t *testing.T) {
	offline(t)
	if _, err := Open(t.Context(), "none.jsonl", Options{BadRow: func(error) {}}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	noRow := func(error) { t.Error("the end of the context is no row") }
	d, err := Open(ctx, writeFile(t, "q.jsonl", `{"question": "x"}`), Options{BadRow: noRow})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for _, err := range d.Tasks(ctx) {
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// Files of different names are different datasets, in every script; a name in ASCII stays as
// it was.
func TestFilesOfDifferentNamesAreDifferentDatasets(t *testing.T) {
	for path, want := range map[string]string{
		"a/b.jsonl": "b", "my file (2).jsonl.gz": "my-file-2-", "a--b.csv": "a--b", "x!?y.json": "x-y", ".jsonl": "file",
		"\u6570\u5b66.jsonl": "\u6570\u5b66", "pru\u0308fung.csv": "pru\u0308fung",
	} {
		if got := FileName(path); got != want {
			t.Errorf("%q is called %q, want %q", path, got, want)
		}
	}
	seen := map[string]string{}
	for _, path := range []string{"\u6570\u5b66.jsonl", "\u7269\u7406.jsonl", "\U0001f600.jsonl", "\U0001f680.jsonl", "-.jsonl"} {
		name := FileName(path)
		if other, ok := seen[name]; ok {
			t.Errorf("%q and %q are both called %q", other, path, name)
		}
		seen[name] = path
	}
}

// What a new user gets wrong is named by what is wrong.
func TestAFaultIsNamedByItsField(t *testing.T) {
	offline(t)
	open := func(name string) error { _, err := Open(t.Context(), name, Options{}); return err }
	if f := malformed.Facts(open(writeFile(t, "q.jsonl", `{"question": " ", "answer": "1"}`))); f.Row != 1 || f.Field != "question" ||
		f.Kind != malformed.Missing {
		t.Errorf("an empty question: %+v", f)
	}
	for _, content := range []string{"question;answer\nx;1\n", "question\tanswer\nx\t1\n"} {
		if f := malformed.Facts(open(writeFile(t, "q.csv", content))); f.Row != 0 || f.Kind != malformed.Syntax {
			t.Errorf("%q: %+v", content, f)
		}
	}
	file := writeFile(t, "q.jsonl", `{"question": "x", "answer": "1"}`)
	for _, name := range []string{file + ":x", file + ":", file + ":x,arith", "arith:,math:1", "math:1,", ",math:1", "math:0"} {
		var wrong *OptionError
		if err := open(name); !errors.As(err, &wrong) || wrong.Option != "Dataset" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := open("nosuch:x"); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}
