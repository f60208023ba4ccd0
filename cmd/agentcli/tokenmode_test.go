package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"agentcli/app/console"
	"agentcli/app/rundir"
	"agentcli/hub/hubtest"
	"agentcli/llm/llmtest"
	"agentcli/model/tokenizer"
	"agentcli/parquet"
	"agentcli/traj"

	"github.com/google/go-cmp/cmp"
)

// oracle is a server's model, the same at every address: it asks the calculator,
// thinks aloud as the seed has it, and answers. Its tokens are not those that its
// tokenizer would make of its text.
type oracle struct {
	t   testing.TB
	tok *tokenizer.Tokenizer
	end int32

	mu   sync.Mutex
	drew map[string][][]int32 // by question and seed of the first reply
}

func newOracle(t testing.TB, folder string) *oracle {
	t.Helper()
	tok, err := tokenizer.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	end, ok := tok.ID("<|im_end|>")
	if !ok {
		t.Fatal("no end of turn")
	}
	return &oracle{t: t, tok: tok, end: end, drew: map[string][][]int32{}}
}

func (o *oracle) script(r *llmtest.Request) llmtest.Reply {
	text := o.tok.Decode(r.Prompt, false)
	if r.Path == llmtest.Chat {
		for _, m := range r.Messages {
			text += "\n" + m.Role + ": " + m.Text()
		}
	}
	seed := r.Int("seed") + r.Int("sampling_seed")
	q := question.FindStringSubmatch(text)
	if q == nil { // a probe: the likeliest of two tokens
		return llmtest.Reply{Content: "x", IDs: []int32{65}, PromptIDs: promptOr(r, 1), Logprobs: []float64{-0.25}, Finish: "length"}
	}
	a, _ := strconv.Atoi(q[1])
	b, _ := strconv.Atoi(q[2])
	said := fmt.Sprintf("I say %d, é世界. ", seed%7)
	if strings.Contains(text, "I say") {
		said += strconv.Itoa(a * b)
	} else {
		said += fmt.Sprintf("<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": \"%d*%d\"}}\n</tool_call>", a, b)
	}
	var ids []int32
	var lps []float64
	for _, c := range said {
		ids = append(ids, o.tok.EncodeOrdinary(string(c))...)
	}
	ids = append(ids, o.end)
	for i := range ids {
		lps = append(lps, -float64((int64(i)*31+seed)%97)/64)
	}
	o.mu.Lock()
	o.drew[q[0]] = append(o.drew[q[0]], ids)
	o.mu.Unlock()
	return llmtest.Reply{Content: said, IDs: ids, PromptIDs: promptOr(r, len(r.Messages)), Logprobs: lps,
		Stop: o.end, PromptTokens: 5, OutputTokens: len(ids)}
}

// promptOr is what a server says that the prompt was; of a chat made up.
func promptOr(r *llmtest.Request, n int) []int32 {
	if r.Path != llmtest.Chat {
		return nil
	}
	if r.Has("tools") {
		n++
	}
	return slices.Repeat([]int32{7}, n)
}

func run(t *testing.T, args ...string) (out, log string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	code = executeWith(t.Context(), append([]string{"agentcli"}, args...),
		console.Streams{In: strings.NewReader(""), Out: &o, Err: &e}, testBackend)
	return o.String(), e.String(), code
}

func rowsOf(t *testing.T, path string) (rows []*traj.Trajectory, meta map[string]any) {
	t.Helper()
	r, err := parquet.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for row, err := range r.Rows(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	if err := json.Unmarshal(r.Metadata().Run, &meta); err != nil {
		t.Fatal(err)
	}
	return rows, meta
}

const tinyQwen3 = "../../policy/testdata/tiny-qwen3"

var everyAddress = llmtest.Options{Completions: true, SGLang: true, Window: 4096}

func TestCompletionsModeKeepsEveryTokenOfEachServer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		o      llmtest.Options
		folder string
		more   []string
		path   string
	}{
		"vllm":                 {llmtest.Options{Completions: true, Window: 4096}, tinyFolder, nil, llmtest.Completions},
		"vllm streamed":        {llmtest.Options{Completions: true, Window: 4096}, tinyQwen3, []string{"--stream"}, llmtest.Completions},
		"sglang":               {llmtest.Options{SGLang: true, Window: 4096}, tinyQwen3, nil, llmtest.Generate},
		"sglang streamed":      {llmtest.Options{SGLang: true, Window: 4096}, tinyFolder, []string{"--stream"}, llmtest.Generate},
		"sglang, named parser": {llmtest.Options{SGLang: true, Window: 4096}, tinyQwen3, []string{"--parser", "hermes"}, llmtest.Generate},
	} {
		t.Run(name, func(t *testing.T) {
			model := newOracle(t, tc.folder)
			s := llmtest.NewWith(t, tc.o, model.script)
			out := filepath.Join(t.TempDir(), "run")
			_, log, code := run(
				t, append([]string{"rollout", "--base-url", s.BaseURL(), "--model", "mock", "-d", writeProducts(t, 5),
					"--reward", "exact", "--tools", "calculator",
					"-n", "2", "--output", out, "--token-mode", "completions", "--tokenizer", tc.folder}, tc.more...)...)
			if code != exitDone {
				t.Fatalf("%d %s", code, log)
			}
			rows, meta := rowsOf(t, filepath.Join(out, rundir.TrajectoriesFile))
			if len(rows) != 10 {
				t.Fatalf("%d rows", len(rows))
			}
			for _, row := range rows {
				if len(row.Sequences) != 1 || len(row.Steps) != 2 || row.Termination != traj.Answered {
					t.Fatalf("%s: %d sequences, %d steps, %s %s", row.ID, len(row.Sequences), len(row.Steps), row.Termination, row.Error)
				}
				q := question.FindString(row.Messages[0].Content + row.Messages[len(row.Messages)-4].Content)
				for _, st := range row.Steps {
					ids := row.Sequences[0].TokenIDs[st.Start:st.End]
					if !slices.ContainsFunc(model.drew[q], func(d []int32) bool { return slices.Equal(d, ids) }) {
						t.Errorf("%s: the model did not draw %v", row.ID, ids)
					}
				}
			}
			for _, r := range s.Requests() {
				if r.Path != tc.path {
					t.Errorf("asked at %s", r.Path)
				}
			}
			info := meta["model"].(map[string]any)
			if info["token_mode"] != "completions" || info["tokenizer_hash"] != model.tok.Hash() ||
				meta["logprobs"] != "server: model, temperature 1, full vocabulary" {
				t.Errorf("%v, %v", info, meta["logprobs"])
			}
		})
	}
}

// The last rows of a model's output matrix are often of ids that its tokenizer does not have. One
// that is drawn is in the next prompt, as in the sequence that is trained on: DeepEyes leaves it
// out of the prompt alone, so its model is trained on another text than it was asked with.
func TestAnIDBeyondTheTokenizerIsInThePromptAndInTheSequence(t *testing.T) {
	for name, o := range map[string]llmtest.Options{"vllm": {Completions: true, Window: 4096}, "sglang": {SGLang: true, Window: 4096}} {
		model := newOracle(t, tinyFolder)
		beyond := int32(model.tok.VocabSize() + 100)
		s := llmtest.NewWith(t, o, func(r *llmtest.Request) llmtest.Reply {
			reply := model.script(r)
			if strings.Contains(reply.Content, "<tool_call>") {
				reply.IDs, reply.Logprobs = slices.Insert(reply.IDs, 3, beyond), slices.Insert(reply.Logprobs, 3, -.5)
				reply.OutputTokens++
			}
			return reply
		})
		out := filepath.Join(t.TempDir(), "run")
		if _, log, code := run(t, "rollout", "--base-url", s.BaseURL(), "--model", "mock", "-d", writeProducts(t, 3), "--reward", "exact",
			"--tools", "calculator", "-n", "1", "--output", out, "--token-mode", "completions", "--tokenizer", tinyFolder); code != exitDone {
			t.Fatalf("%s: %s", name, log)
		}
		rows, _ := rowsOf(t, filepath.Join(out, rundir.TrajectoriesFile))
		for _, row := range rows {
			if len(row.Sequences) != 1 || len(row.Steps) != 2 || row.Termination != traj.Answered {
				t.Fatalf("%s, %s: %d sequences, %d steps, %s %s", name, row.ID, len(row.Sequences), len(row.Steps), row.Termination, row.Error)
			}
			seq, first := &row.Sequences[0], row.Steps[0]
			at := slices.Index(seq.TokenIDs, beyond)
			if at != first.Start+3 || !seq.LossMask[at] || seq.Logprobs[at] != -.5 {
				t.Errorf("%s, %s: the id is at %d of the sequence, whose reply begins at %d", name, row.ID, at, first.Start)
			}
			prompt := seq.TokenIDs[:row.Steps[1].Start]
			if !slices.ContainsFunc(s.Requests(), func(r llmtest.Request) bool { return slices.Equal(r.Prompt, prompt) }) {
				t.Errorf("%s, %s: the second reply was asked for with another prompt than the sequence has", name, row.ID)
			}
		}
	}
}

func TestTokenModeAutoSaysWhatItChose(t *testing.T) {
	hubtest.Start(t, map[string]map[string]string{"org/tiny": hubtest.Folder(t, tinyFolder)})
	data := writeProducts(t, 2)
	for name, tc := range map[string]struct {
		o    llmtest.Options
		args []string
		want string
		path string
	}{
		"vllm": {llmtest.Options{Completions: true, Window: 4096}, []string{"--tokenizer", tinyFolder},
			" completions: /v1/completions ", llmtest.Completions},
		"the hub's name": {llmtest.Options{Completions: true, Window: 4096, Root: "org/tiny"}, nil,
			" completions: /v1/completions ", llmtest.Completions},
		"sglang, a folder": {llmtest.Options{SGLang: true, Window: 4096, Root: tinyFolder}, nil,
			" completions: SGLang's /generate ", llmtest.Generate},
		"no tokenizer": {everyAddress, nil, `"mock"`, llmtest.Chat},
		"nothing at completions": {llmtest.Options{}, []string{"--tokenizer", tinyFolder, "--max-tokens", "64"},
			"(completions: ", llmtest.Chat},
		"no window, no length": {llmtest.Options{Completions: true}, []string{"--tokenizer", tinyFolder, "--max-tokens", "64"},
			" completions", llmtest.Completions},
	} {
		t.Run(name, func(t *testing.T) {
			s := llmtest.NewWith(t, tc.o, newOracle(t, tinyFolder).script)
			_, log, code := run(
				t, append([]string{"rollout", "--base-url", s.BaseURL(), "--model", "mock", "-d", data, "--reward",
					"exact", "-n", "1", "--tools", "calculator",
					"--output", filepath.Join(t.TempDir(), "run"), "--token-mode", "auto"}, tc.args...)...)
			if code != exitDone || strings.Count(log, "token mode") != 1 || !strings.Contains(log, tc.want) {
				t.Fatalf("%d %s", code, log)
			}
			if all := s.Requests(); all[len(all)-1].Path != tc.path {
				t.Errorf("asked at %s", all[len(all)-1].Path)
			}
		})
	}
}

func TestTokenModeSaysWhatIsMissing(t *testing.T) {
	s := llmtest.NewWith(t, everyAddress, newOracle(t, tinyFolder).script)
	bare := llmtest.New(t, newOracle(t, tinyFolder).script)
	noIDs := llmtest.NewWith(t, llmtest.Options{Completions: true, Window: 99},
		func(*llmtest.Request) llmtest.Reply { return llmtest.Text("words") })
	base := t.TempDir()
	for _, tc := range []struct {
		url  string
		args []string
		code int
		want string
	}{
		{s.BaseURL(), []string{"--token-mode", "exact"}, exitUsage, `--token-mode "exact"`},
		{s.BaseURL(), []string{"--token-mode", "completions"}, exitUsage, "--tokenizer"},
		{s.BaseURL(), []string{"--token-mode", "completions", "--tokenizer", "nowhere"}, exitUsage,
			"--tokenizer nowhere"},
		{s.BaseURL(), []string{"--token-mode", "auto", "--tokenizer", "nowhere"}, exitUsage, "--tokenizer nowhere"},
		{s.BaseURL(), []string{"--token-mode", "completions", "--tokenizer", base}, exitFailed, "--tokenizer " + base},
		{bare.BaseURL(), []string{"--token-mode", "completions", "--tokenizer", tinyFolder}, exitFailed, "(404"},
		{noIDs.BaseURL(), []string{"--token-mode", "completions", "--tokenizer", tinyFolder}, exitFailed, noIDs.BaseURL()},
	} {
		_, log, code := run(
			t, append([]string{"rollout", "--base-url", tc.url, "--model", "mock", "-d", writeProducts(t, 1),
				"--reward", "exact", "--max-tokens", "8",
				"--output", filepath.Join(t.TempDir(), "run")}, tc.args...)...)
		if code != tc.code || !strings.Contains(log, tc.want) || strings.Count(strings.TrimSpace(log), "\n") > 0 {
			t.Errorf("%v: %d %s", tc.args, code, log)
		}
	}
	// A run goes on in the mode that it began in.
	out := filepath.Join(base, "run")
	begin := []string{"rollout", "--base-url", s.BaseURL(), "--model", "mock", "-d", writeProducts(t, 2),
		"--reward", "exact", "-n", "1", "--tools", "calculator"}
	if _, log, code := run(t, append(begin, "--output", out, "--token-mode", "completions", "--tokenizer", tinyFolder)...); code != exitDone {
		t.Fatal(log)
	}
	if _, log, code := run(t, "rollout", "--resume", out, "-n", "2"); code != exitDone || !strings.Contains(log, "4 trajectories") {
		t.Errorf("%d %s", code, log)
	}
	if _, log, code := run(t, "rollout", "--resume", out, "--token-mode", "chat"); code != exitUsage ||
		!strings.Contains(log, "--token-mode is chat") {
		t.Errorf("%d %s", code, log)
	}
}

// The same run against the same server gives the same data, however many
// trajectories run at once, at every address.
func TestTheSameRunGivesTheSameDataHoweverParallel(t *testing.T) {
	t.Parallel()
	data := writeProducts(t, 30)
	for mode, args := range map[string][]string{"chat": nil, "chat streamed": {"--stream"},
		"completions": {"--token-mode", "completions", "--tokenizer", tinyFolder}} {
		t.Run(mode, func(t *testing.T) {
			o := everyAddress
			o.SGLang = false
			s := llmtest.NewWith(t, o, newOracle(t, tinyFolder).script)
			var want []byte
			for _, parallel := range []string{"1", "7", "64"} {
				out := filepath.Join(t.TempDir(), "run")
				_, log, code := run(
					t, append([]string{"rollout", "--base-url", s.BaseURL(), "--model", "mock", "-d", data, "--reward",
						"exact", "-n", "3", "--limit", "30", "--tools", "calculator",
						"--seed", "5", "--output", out, "--ordered", "--parallel", parallel}, args...)...)
				if code != exitDone {
					t.Fatal(log)
				}
				rows, _ := rowsOf(t, filepath.Join(out, rundir.TrajectoriesFile))
				for i, row := range rows {
					if id := fmt.Sprintf("products/p%d#%d", i/3+1, i%3); row.ID != id {
						t.Fatalf("row %d is %s, want %s", i, row.ID, id)
					}
				}
				if got := dataColumns(t, rows); want == nil {
					want = got
				} else if !bytes.Equal(got, want) {
					t.Errorf("--parallel %s gave other rows: %s", parallel, cmp.Diff(string(want), string(got)))
				}
			}
			if len(want) < 10000 || !bytes.Contains(want, []byte("I say")) {
				t.Errorf("there is little to compare: %s", want)
			}
		})
	}
}

// dataColumns is everything of the rows but when and how long.
func dataColumns(t *testing.T, rows []*traj.Trajectory) []byte {
	t.Helper()
	for _, r := range rows {
		r.DurationMS, r.StartedAt = 0, time.Time{}
		for i := range r.Steps {
			r.Steps[i].ModelMS, r.Steps[i].EnvMS = 0, 0
		}
	}
	b, err := json.Marshal(rows)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
