package env

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentcli/internal/child"
	"agentcli/traj"
)

// execProgram is a program with tools of every kind, good and bad. Its variable
// in the environment says which tools it offers.
func execProgram() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	var waiting []int64
	var ended []string
	for in.Scan() {
		var r struct {
			ID         int64  `json:"id"`
			Method     string `json:"method"`
			Protocol   int    `json:"protocol"`
			Trajectory string `json:"trajectory"`
			Name       string `json:"name"`
			Arguments  json.RawMessage
		}
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			panic(err)
		}
		switch r.Method {
		case "describe":
			var tools []string
			for _, name := range strings.Fields(os.Getenv(asTool)) {
				more := ""
				switch {
				case strings.HasPrefix(name, "pair"):
					more = `,"parallel":true`
				case name == "whose":
					more = `,"sessions":true`
				case name == "camera":
					more = `,"images":true,"sessions":true`
				case name == "echo":
					more = `,"deterministic":true,"parameters":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`
				case name == "badschema":
					more = `,"parameters":{"type":3}`
				}
				tools = append(tools, fmt.Sprintf(`{"name":%q,"description":"about %s"%s}`, name, name, more))
			}
			if r.Protocol != 1 {
				panic(r.Protocol)
			}
			if os.Getenv(asTool) == "refuses" {
				fmt.Printf("{\"id\":%d,\"error\":\"no licence\"}\n", r.ID)
				continue
			}
			fmt.Printf("{\"id\":%d,\"tools\":[%s]}\n", r.ID, strings.Join(tools, ","))
			continue
		case "end":
			ended = append(ended, r.Trajectory)
			continue
		case "cancel":
			continue
		}
		result := func(id int64, value string) { fmt.Printf("{\"id\":%d,\"result\":%s}\n", id, value) }
		switch r.Name {
		case "echo":
			result(r.ID, string(r.Arguments))
		case "text":
			result(r.ID, `"two\nlines"`)
		case "fails":
			fmt.Printf("{\"id\":%d,\"error\":\"no luck\"}\n", r.ID)
		case "neither":
			fmt.Printf("{\"id\":%d}\n", r.ID)
		case "panics":
			panic("out of cheese")
		case "hangs":
			time.Sleep(time.Hour)
		case "nan":
			result(r.ID, "NaN")
		case "garbage":
			fmt.Println(`{"id"`)
		case "utf8":
			result(r.ID, "\"a\xff\xfeb\"")
		case "huge":
			result(r.ID, `"`+strings.Repeat("é", 2<<20)+`"`)
		case "endless":
			for {
				fmt.Print(strings.Repeat("x", 1<<20))
			}
		case "pair":
			if waiting = append(waiting, r.ID); len(waiting) == 2 {
				result(waiting[1], `"second"`)
				result(waiting[0], `"first"`)
				waiting = nil
			}
		case "camera", "liar":
			fmt.Printf("{\"id\":%d,%s}\n", r.ID, os.Getenv("AGENTCLI_TEST_IMAGES"))
		case "whose":
			result(r.ID, fmt.Sprintf(`"%s, ended: %s"`, r.Trajectory, strings.Join(ended, " ")))
		}
	}
}

// execTools starts the test program with these tools.
func execTools(t *testing.T, names string, timeout time.Duration) *Exec {
	t.Helper()
	x, err := openExec(t, names, timeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() })
	return x
}

func openExec(t *testing.T, names string, timeout time.Duration) (*Exec, error) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return OpenExec(t.Context(), ExecConfig{Command: fmt.Sprintf("%s='%s' exec '%s'", asTool, names, exe), Timeout: timeout})
}

func TestExecAnswersAndFaultsAreData(t *testing.T) {
	x := execTools(t, "echo text fails neither panics nan garbage utf8 huge", time.Minute)
	for _, c := range []struct {
		name, args, want string
		errors           int
	}{
		{"echo", `{"n": 3}`, `{"n":3}`, 0},
		{"echo", `{"n": "x"}`, `error: wrong arguments: "n" must be an integer, not a string`, 1},
		{"text", `{}`, "two\nlines", 0},
		{"fails", `{}`, "error: no luck", 1},
		{"neither", `{}`, `error: neither failed: its answer has neither "result" nor "error"`, 1},
		{"panics", `{}`, "error: panics failed: the program has ended: it ended (exit status 2); its last words: ", 1},
		{"text", `{}`, "two\nlines", 0}, // it was started again
		{"nan", `{}`, `error: nan failed: garbage: the answer {"id":`, 1},
		{"garbage", `{}`, `error: garbage failed: garbage: the answer {"id" has no id of a request`, 1},
		{"utf8", `{}`, "a\uFFFD\uFFFDb", 0},
		{"huge", `{}`, strings.Repeat("é", 133) + "\n… [2096952 characters left out] …\n" + strings.Repeat("é", 67), 0},
	} {
		r := step(t, Config{Tools: x.Tools(), MaxObservation: 200}, calls(c.name, c.args))
		if m := r.Observation.Messages; len(m) != 1 || !strings.HasPrefix(m[0].Content, c.want) || r.ToolErrors != c.errors {
			t.Errorf("%s(%s) = %+v, want %q", c.name, c.args, r, c.want)
		}
	}
}

func TestExecThatHangsOrFloodsIsStoppedAndTheNextCallWorks(t *testing.T) {
	x := execTools(t, "hangs endless text", 100*time.Millisecond)
	r := step(t, Config{Tools: x.Tools()}, calls("hangs", "{}"))
	if m := r.Observation.Messages[0].Content; m != "error: hangs took longer than 100ms and was stopped" {
		t.Error(m)
	}
	r = step(t, Config{Tools: x.Tools()}, calls("endless", "{}"))
	if m := r.Observation.Messages[0].Content; !strings.HasPrefix(m, "error: endless ") {
		t.Error(m)
	}
	for first := true; ; first = false { // the one that was stopped may be on its way out
		r := step(t, Config{Tools: x.Tools()}, calls("text", "{}"))
		if m := r.Observation.Messages[0].Content; m == "two\nlines" {
			break
		} else if !first && !strings.Contains(m, "the program has ended") && !strings.Contains(m, "was stopped") {
			t.Fatal(m)
		}
	}
}

func TestExecRunsCallsOfOneReplyAtOnceWhereItSaysSo(t *testing.T) {
	x := execTools(t, "pair", time.Minute)
	r := step(t, Config{Tools: x.Tools(), ToolTimeout: time.Minute}, calls("pair", "{}", "pair", "{}"))
	got := r.Observation.Messages[0].Content + r.Observation.Messages[1].Content
	if got != "firstsecond" && got != "secondfirst" {
		t.Error(got)
	}
}

// fakeQueued is a tool whose turn comes after an hour.
type fakeQueued struct{ fakeTool }

func (fakeQueued) Turn(context.Context) (func(), error) {
	time.Sleep(time.Hour)
	return func() {}, nil
}

func TestWaitingForATurnIsOutsideOfTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tool := fakeQueued{fakeTool{name: "q", do: func(ctx context.Context, _ string) (string, error) { return "done", ctx.Err() }}}
		if r := step(t, Config{Tools: []Tool{tool}, ToolTimeout: time.Second}, calls("q", "{}")); r.ToolErrors != 0 {
			t.Errorf("%+v", r)
		}
	})
}

func TestExecTakesOneCallAtATimeUnlessItSaysOtherwise(t *testing.T) {
	x := execTools(t, "text pair", time.Minute)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for i, want := range []error{context.Canceled, nil} {
		q := x.Tools()[i].(Queued)
		over, err := q.Turn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := q.Turn(gone); !errors.Is(err, want) && !(want == nil && err == nil) {
			t.Errorf("a second turn of %s: %v", x.Tools()[i].Spec().Name, err)
		}
		over()
		if _, err := q.Turn(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestExecIsToldOfTrajectories(t *testing.T) {
	x := execTools(t, "whose", time.Minute)
	call := func(id string) string {
		e, err := New(Config{Tools: x.Tools()})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		r, err := e.Step(traj.WithID(t.Context(), id), calls("whose", "{}"))
		if err != nil {
			t.Fatal(err)
		}
		return r.Observation.Messages[0].Content
	}
	if a, b := call("t#0"), call("t#1"); a != "t#0, ended: " || b != "t#1, ended: t#0" {
		t.Errorf("%q, %q", a, b)
	}
}

func TestExecGivesImages(t *testing.T) {
	small := pngFile(t, 40, 30)
	data := base64.StdEncoding.EncodeToString(small)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.png"), small, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	const mark = traj.ImageMark
	for _, c := range []struct {
		answer, want string // the beginning of a message with the number of images
		images       int
	}{
		{`"result":"a photo","images":[{"path":"a.png"}]`, "a photo\n" + mark, 1},
		{`"images":[{"path":"` + dir + `/a.png"},{"data":"` + data + `"}]`, mark + mark, 2},
		{`"result":"` + mark + `","images":[{"data":"data:image/png;base64,` + data + `"}]`, "\uFFFD\n" + mark, 1},
		{`"result":{"n":1},"images":[{"path":"a.png"}],"error":null`, "{\"n\":1}\n" + mark, 1},
		{`"result":"none","images":[]`, "none", 0},
		{`"result":"none","images":null`, "none", 0},
		{`"images":[]`, "error: camera failed: its answer has neither", 0},
		{`"error":"dark","images":[{"path":"a.png"}]`, "error: dark", 0},
		{`"images":[{}]`, "error: camera failed: image 0 of its answer", 0},
		{`"images":[null]`, "error: camera failed: image 0 of its answer", 0},
		{`"images":[{"path":"a.png","data":"AA=="}]`, "error: camera failed: image 0 of its answer", 0},
		{`"images":[{"path":"a.png"},{"data":"?"}]`, "error: camera failed: image 1 of its answer", 0},
		{`"images":[{"data":"data:image/png,x"}]`, "error: camera failed: image 0 of its answer", 0},
		{`"images":["a.png"]`, "error: camera failed: its answer cannot be read", 0},
		{`"images":[{"path":"b.png"}]`, "error: image 0 of the result cannot be shown", 0},
		{`"images":[{"data":"AAAA"}]`, "error: image 0 of the result cannot be shown", 0},
	} {
		t.Setenv("AGENTCLI_TEST_IMAGES", c.answer)
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		x, err := OpenExec(t.Context(), ExecConfig{Command: asTool + "='camera liar' exec '" + exe + "'", Pass: []string{"AGENTCLI_TEST_IMAGES"}})
		if err != nil {
			t.Fatal(err)
		}
		r := step(t, Config{Tools: x.Tools()}, calls("camera", "{}", "liar", "{}"))
		if m := r.Observation.Messages[0]; !strings.HasPrefix(m.Content, c.want) || len(m.Images) != c.images {
			t.Errorf("%s: %q with %d images, want %q with %d", c.answer, m.Content, len(m.Images), c.want, c.images)
		}
		if m := r.Observation.Messages[1]; len(m.Images) != 0 || c.images > 0 && !strings.HasPrefix(m.Content, "error: liar failed: ") {
			t.Errorf("a tool that announces no images gives some: %q", m.Content)
		}
		_ = x.Close()
	}
}

// refusal is what a program says that does not want to be used.
const refusal = "no licence"

func TestExecThatCannotBeUsedSaysWhy(t *testing.T) {
	for names, want := range map[string]error{"refuses": nil, "a/b": errToolName, "badschema": errToolSchema, " ": errNoTools} {
		x, err := openExec(t, names, 0)
		var unusable *UnusableError
		if !errors.As(err, &unusable) || !strings.Contains(unusable.What, "exec:") || want != nil && !errors.Is(err, want) ||
			want == nil && unusable.Err.Error() != refusal {
			t.Errorf("%q: %v", names, err)
			if err == nil {
				x.Close()
			}
		}
	}
	var ended *exec.ExitError
	if _, err := OpenExec(t.Context(), ExecConfig{Command: "echo hello; exit 3"}); !errors.As(err, &ended) || ended.ExitCode() != 3 {
		t.Error(err)
	}
}

func TestExecThatFailsAgainAndAgainEndsTheTrajectory(t *testing.T) {
	x := execTools(t, "panics", time.Minute)
	e, err := New(Config{Tools: x.Tools()})
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err = e.Step(t.Context(), calls("panics", "{}")); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrBroken) || !errors.Is(err, child.ErrBroken) {
		t.Error(err)
	}
}

// The example of docs/tools.md.
func TestExecExampleInPython(t *testing.T) {
	if len(interpreters()) == 0 {
		t.Skip("no python3 here")
	}
	x, err := OpenExec(t.Context(), ExecConfig{Command: interpreters()[0] + " ../examples/tool_python/words.py"})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	r := step(t, Config{Tools: x.Tools()}, calls("count_words", `{"text":"to be or not"}`, "count_words",
		`{"text":" "}`, "count_words", `{"words":1}`))
	for i, want := range []string{"4", "error: the text is empty", `error: wrong arguments: "text" is missing; unknown field "words"`} {
		if got := r.Observation.Messages[i].Content; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	b, err := os.ReadFile("../examples/tool_python/words.py")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../docs/tools.md")
	if err != nil || !strings.Contains(string(doc), string(b)) {
		t.Errorf("docs/tools.md does not show the example as it is: %v", err)
	}
}

func FuzzExecAnswers(f *testing.F) {
	for _, s := range []string{`{"id":1,"result":"a"}`, `{"result":null}`, `{"error":{"a":[1]}}`,
		`{"result":"￼","images":[{"data":"AAAA"},{"path":"a.png"}]}`, `{"images":[{"data":"data:image/png;base64,AA=="},null]}`,
		`{"tools":[{"name":"a","parameters":{"type":"object"}}]}`, `{"tools":null}`, `[]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		out, files, err := readAnswer("t", b)
		if err != nil && (err.Error() == "" && !errors.As(err, new(lasting)) || out != "" || files != nil) {
			t.Errorf("%q, %v", out, err)
		}
		if len(files) > 0 && strings.Count(out, traj.ImageMark) != len(files) {
			t.Errorf("%q has another number of places than %d images", out, len(files))
		}
		x := &Exec{}
		if x.greeted(b) == nil {
			for _, s := range x.offers {
				if !ToolName.MatchString(s.Name) || schemaOf(s.Parameters) == nil {
					t.Errorf("%+v was taken for a tool", s)
				}
			}
		}
	})
}

// BenchmarkExec is a call of a program that does nothing, checks and all.
func BenchmarkExec(b *testing.B) {
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	x, err := OpenExec(b.Context(), ExecConfig{Command: fmt.Sprintf("%s=text exec '%s'", asTool, exe)})
	if err != nil {
		b.Fatal(err)
	}
	defer x.Close()
	benchmarkTool(b, Config{Tools: x.Tools()}, "text")
}

func benchmarkTool(b *testing.B, c Config, name string) {
	e, err := New(c)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if r, err := e.Step(b.Context(), calls(name, "{}")); err != nil || r.ToolErrors != 0 {
			b.Fatal(r, err)
		}
	}
}
