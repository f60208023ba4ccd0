package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentcli/app/console"
	"agentcli/app/models/modelstest"
	"agentcli/internal/text"
	"agentcli/llm/llmtest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
)

// What the program says of mistakes stands in one file, to be read and reworded as a
// whole: each command line with its exit code and its one line on stderr. Tests elsewhere
// look at exit codes and kinds of errors. Behind them stand the messages that the command
// `message` of the scripts has put there. `go test ./cmd/agentcli -run 'TestMessages|TestScripts' -update`
// writes it anew.
func TestMessages(t *testing.T) {
	const golden = "testdata/messages.txt"
	file, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	want, ofScripts, ok := strings.Cut(string(file), scriptsBegin)
	if !ok {
		t.Fatalf("%s has no line %q", golden, strings.TrimSpace(scriptsBegin))
	}
	tiny, err := filepath.Abs(tinyFolder)
	if err != nil {
		t.Fatal(err)
	}
	path, err := filepath.Abs(golden)
	if err != nil {
		t.Fatal(err)
	}
	server := llmtest.Start(mock)
	defer server.Close()
	t.Chdir(t.TempDir())
	t.Setenv("XDG_CACHE_HOME", filepath.Join(t.TempDir(), "cache"))
	t.Setenv("HOME", t.TempDir())
	t.Setenv("MOCK", server.BaseURL())
	t.Setenv("TINY", tiny)
	for _, name := range []string{"OPENAI_BASE_URL", "OPENAI_API_KEY"} {
		t.Setenv(name, "")
	}
	for name, content := range map[string]string{
		"q.jsonl":          `{"id": "a", "question": "What is 1 * 2?", "answer": "2"}`,
		"same.jsonl":       `{"id": "a", "question": "q", "answer": "2"}` + "\n" + `{"id": "a", "question": "r", "answer": "3"}`,
		"blank.jsonl":      `{"id": "a", "question": "q"}`,
		"semicolons.csv":   "question;answer\nq;2",
		"noquestion.jsonl": `{"question": "", "answer": "2"}`,
		"torn.jsonl":       `{"id": "a", "question"`,
		"passages.jsonl":   `{"id": "0", "contents": "x"}`,
		"empty.jsonl":      "",
		"listid.jsonl":     `{"id": [0], "contents": "x"}`,
		"bad.yaml":         "temprature: 1\n",
		"worse.yaml":       "max-turns: many\n",
		"text.parquet":     "no Parquet at all",
	} {
		if err := os.WriteFile(name, []byte(content+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var got strings.Builder
	for line := range strings.Lines(want) {
		line = strings.TrimSuffix(line, "\n")
		command, ok := strings.CutPrefix(line, "$ agentcli")
		if !ok {
			if strings.HasPrefix(line, "#") {
				fmt.Fprintf(&got, "\n%s\n", line)
			}
			continue
		}
		args := []string{"agentcli"}
		for _, word := range strings.Fields(command) {
			args = append(args, strings.ReplaceAll(os.ExpandEnv(word), "␣", " "))
		}
		var out, errs bytes.Buffer
		code := executeWith(t.Context(), args, console.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, modelstest.Backend{})
		said := strings.TrimSuffix(errs.String(), "\n")
		for value, name := range map[string]string{server.BaseURL(): "$MOCK", tiny: "$TINY"} {
			said = strings.ReplaceAll(said, value, name)
		}
		if code == exitDone || strings.Count(said, "\n") > 0 || out.Len() > 0 {
			t.Errorf("%s: exit code %d, %s on stdout, on stderr %s", command, code, text.Plural(out.Len(), "byte"), said)
		}
		fmt.Fprintf(&got, "%s\n  %d %s\n", line, code, strings.TrimPrefix(said, "agentcli: "))
	}
	said := strings.TrimPrefix(got.String(), "\n")
	if *update {
		if err := os.WriteFile(path, []byte(said+scriptsBegin+ofScripts), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("the messages are others; if they are better, run with -update: %s", diff)
	}
}

// scriptsBegin stands before the messages of the scripts.
const scriptsBegin = "\n# In scripts (testdata/script)\n"

// scriptMessages are the messages that scripts have asked for with `message`.
type scriptMessages struct {
	mu   sync.Mutex
	last map[string]string   // script → its last command with its exit code
	all  map[string][]string // script → the messages in their order
}

// ended notes a command that `exits` has run.
func (m *scriptMessages) ended(ts *testscript.TestScript, code string, args []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last[ts.Name()] = fmt.Sprintf("$ %s\n  %s ", m.plain(ts, strings.Join(args, " ")), code)
}

// keep takes a line of stderr: the last one of a command that failed, or the one that has
// the text of the argument. No other line may be the same.
func (m *scriptMessages) keep(ts *testscript.TestScript, neg bool, args []string) {
	lines := strings.Split(strings.TrimSpace(ts.ReadFile("stderr")), "\n")
	m.mu.Lock()
	defer m.mu.Unlock()
	at, command := len(lines)-1, m.last[ts.Name()]
	if len(args) > 0 {
		at = slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, args[0]) })
		command = "  - "
	}
	if neg || len(args) > 1 || at < 0 || slices.Contains(lines[at+1:], lines[at]) || command == "" {
		ts.Fatalf("message %q wants one line of agentcli on stderr: %q", args, lines)
	}
	said, ok := strings.CutPrefix(lines[at], "agentcli: ")
	if !ok {
		ts.Fatalf("%q is no line of agentcli", lines[at])
	}
	m.all[ts.Name()] = append(m.all[ts.Name()], command+m.plain(ts, said)+"\n")
}

// What differs from run to run.
var (
	portOf   = regexp.MustCompile(`127\.0\.0\.1:\d{4,}`)
	timeOf   = regexp.MustCompile(`\d{8}-\d{6}(\.\d+)?`)
	digitsOf = regexp.MustCompile(`\d+`)
	byteOf   = regexp.MustCompile(`at byte \d+|over \d+ bytes`)
)

// plain is a text without what differs from run to run.
func (m *scriptMessages) plain(ts *testscript.TestScript, s string) string {
	for _, name := range []string{"MOCK", "MOCK_IDS", "MCP", "MOCK_ADDR", "TINY", "WORK"} {
		if v := ts.Getenv(name); v != "" {
			s = strings.ReplaceAll(s, v, "$"+name)
		}
	}
	s = byteOf.ReplaceAllStringFunc(s, func(w string) string { return digitsOf.ReplaceAllString(w, "N") })
	return timeOf.ReplaceAllString(portOf.ReplaceAllString(s, "127.0.0.1:PORT"), "TIME")
}

// check compares them with the golden file when all scripts have ended. The part of a
// script that did not run stays as it is.
func (m *scriptMessages) check(t *testing.T) {
	const golden = "testdata/messages.txt"
	file, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	before, ofScripts, ok := strings.Cut(string(file), scriptsBegin)
	if !ok {
		t.Fatalf("%s has no line %q", golden, strings.TrimSpace(scriptsBegin))
	}
	parts := map[string]string{}
	for part := range strings.SplitSeq(ofScripts, "\n## ") {
		if name, said, ok := strings.Cut(strings.TrimPrefix(part, "## "), "\n"); ok {
			parts[name] = strings.TrimSuffix(said, "\n") + "\n"
		}
	}
	for name, all := range m.all {
		said := strings.Join(all, "")
		if diff := cmp.Diff(parts[name], said); diff != "" && !*update {
			t.Errorf("the messages of script %s are others; if they are better, run with -update: %s", name, diff)
		}
		parts[name] = said
	}
	if *update {
		var b strings.Builder
		b.WriteString(before + scriptsBegin)
		for i, name := range slices.Sorted(maps.Keys(parts)) {
			fmt.Fprintf(&b, "%s## %s\n%s", strings.Repeat("\n", min(i, 1)), name, parts[name])
		}
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Error(err)
		}
	}
}
