package parquet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentcli/internal/malformed"
	"agentcli/traj"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func ptr[T any](v T) *T { return &v }

// samples are rows that use every column, the empty and the missing ones too.
func samples() []*traj.Trajectory {
	no := traj.NoLogprob()
	at := time.Date(2026, 3, 4, 5, 6, 7, 891234000, time.UTC)
	full := &traj.Trajectory{
		ID: "arith/7#2", GroupID: "arith/7@5", Attempt: 2, Seed: -9223372036854775808, Policy: "SmolLM2", PolicyVersion: 3,
		Verdict: "right", ExtractionRule: "boxed",
		Task: traj.Task{ID: "arith/7", Dataset: "arith", Split: "train", Question: "What is 12 * 7?",
			Answers: []string{"84", "84.0"}, Env: "search", Meta: json.RawMessage(`{"level":1,"note":"ü"}`)},
		Messages: []traj.Message{
			{Role: "system", Content: "Sei präzise. 中文 🙂"},
			{Role: "user", Content: "What is 12 * 7?", Name: "eve"},
			{Role: "assistant", Content: "", Reasoning: "hm",
				ToolCalls: []traj.ToolCall{{ID: "call_0", Name: "calculator", Arguments: `{"expression": "12*7"}`},
					{ID: "call_1", Name: "x", Arguments: "{}"}}},
			{Role: "tool", Content: "84", ToolCallID: "call_0"},
			{Role: "assistant", Content: "84\n\"quoted\", comma"},
		},
		Steps: []traj.Step{
			{Sequence: 0, Start: 4, End: 6, FinishReason: "tool_calls", ToolCalls: 2, ToolErrors: 1,
				ToolCached: ptr(1), ToolMalformed: ptr(0), PolicyVersions: []int64{3, 1 << 40},
				PromptTokens: 4, CompletionTokens: 2, ModelMS: 1.5, EnvMS: .25, Error: "boom"},
			{Sequence: 1, Start: 1, End: 2, FinishReason: "stop", Reward: ptr(0.0), PromptTokens: 1, CompletionTokens: 1},
		},
		Sequences: []traj.Sequence{
			{TokenIDs: []int32{1, 2, 3, 4, 5, 2147483647}, LossMask: []bool{false, false, false, false, true, true},
				Logprobs: []traj.Logprob{no, no, no, no, -.25, 0}},
			{TokenIDs: []int32{9, 0}, LossMask: []bool{false, true}, Logprobs: []traj.Logprob{no, no}},
		},
		Extracted: ptr("84"), Reward: ptr(1.0), RewardParts: []traj.Part{{Name: "exact", Value: 1}, {Name: "len", Value: -.5}},
		Correct:     ptr(true),
		Termination: traj.Answered, PromptTokens: 4, CompletionTokens: 3, DurationMS: 1234, StartedAt: at,
	}
	zero := &traj.Trajectory{ID: "t#0", Task: traj.Task{ID: "t"}, GroupID: "t", StartedAt: time.Unix(0, 0).UTC(),
		Termination: traj.ModelFailed, Error: "connection refused"}
	wrong := &traj.Trajectory{ID: "t#1", Task: traj.Task{ID: "t"}, GroupID: "t", Attempt: 1, StartedAt: at, Termination: traj.EmptyReply,
		Reward: ptr(0.0), Correct: ptr(false), Extracted: ptr(""), Messages: []traj.Message{{Role: "user", Content: ""}},
		Sequences: []traj.Sequence{{}}}
	return []*traj.Trajectory{full, zero, wrong}
}

var same = cmp.Options{cmpopts.EquateEmpty(), cmp.Comparer(sameLogprob), equal(slices.Equal[[]int32]), equal(slices.Equal[[]bool]),
	equal(func(a, b []traj.Logprob) bool { return slices.EqualFunc(a, b, sameLogprob) })}

// every thins out what is many times the same. The race detector makes it slow, and finds
// what there is to find in a part of it; make test does all of it without.
func every() int {
	if raced || testing.Short() {
		return 10
	}
	return 1
}

func sameLogprob(a, b traj.Logprob) bool { return a == b || !a.Known() && !b.Known() }

// equal passes over slices that are equal, which cmp would find an element at a time.
func equal[E any](is func(a, b []E) bool) cmp.Option {
	return cmp.FilterValues(func(a, b []E) bool { return is(a, b) }, cmp.Ignore())
}

func write(t *testing.T, path string, rows []*traj.Trajectory, c WriterConfig) {
	t.Helper()
	w, err := CreateFile(path, Metadata{Run: json.RawMessage(`{"model":"m"}`)}, c)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string, cols ...string) []*traj.Trajectory {
	t.Helper()
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out []*traj.Trajectory
	for row, err := range r.Rows(context.Background(), cols...) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, row)
	}
	return out
}

func TestRoundTrip(t *testing.T) {
	for _, c := range []WriterConfig{{}, {RowGroupRows: 1}, {RowGroupBytes: 600}} {
		path := filepath.Join(t.TempDir(), "t.parquet")
		write(t, path, samples(), c)
		if d := cmp.Diff(samples(), read(t, path), same); d != "" {
			t.Errorf("%+v: (-wrote +read)\n%s", c, d)
		}
		r, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if m := r.Metadata(); m.Schema != 1 || string(m.Run) != `{"model":"m"}` {
			t.Errorf("metadata %+v", m)
		}
		r.Close()
		left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*"))
		if len(left) != 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}

// Values that span several pages and batches, with every list shape.
func TestRoundTripLarge(t *testing.T) {
	var rows []*traj.Trajectory
	for i := 0; i < 300; i++ {
		n := (i * 37) % 900
		r := &traj.Trajectory{ID: fmt.Sprintf("a/%d#0", i), Task: traj.Task{ID: fmt.Sprintf("a/%d", i)},
			GroupID: "g", StartedAt: time.Unix(int64(i), 0).UTC()}
		r.Messages = []traj.Message{{Role: "user", Content: strings.Repeat(fmt.Sprint(i, " "), n*5)}}
		for k := 0; k < i%4; k++ {
			s := traj.Sequence{}
			for j := 0; j < n; j++ {
				s.TokenIDs = append(s.TokenIDs, int32(i*j))
				s.LossMask = append(s.LossMask, j%3 == 0)
				lp := traj.NoLogprob()
				if j%3 == 0 {
					lp = traj.Logprob(-float32(j) / 7)
				}
				s.Logprobs = append(s.Logprobs, lp)
			}
			r.Sequences = append(r.Sequences, s)
		}
		rows = append(rows, r)
	}
	path := filepath.Join(t.TempDir(), "t.parquet")
	write(t, path, rows, WriterConfig{RowGroupRows: 128})
	if d := cmp.Diff(rows, read(t, path), same); d != "" {
		t.Errorf("(-wrote +read)\n%.2000s", d)
	}
	got := read(t, path, "id", "reward")
	if len(got) != 300 || got[299].ID != "a/299#0" || got[299].Messages != nil {
		t.Errorf("projection: %d rows, last %+v", len(got), got[len(got)-1])
	}
}

func TestInvalidUTF8IsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.parquet")
	write(t, path, []*traj.Trajectory{{ID: "a#0", Messages: []traj.Message{{Role: "assistant", Content: "ab\xf0\x9f"}}}}, WriterConfig{})
	if got := read(t, path)[0].Messages[0].Content; got != "ab\uFFFD" {
		t.Errorf("got %q", got)
	}
}

func TestWriteRefusesUnequalLengths(t *testing.T) {
	var b bytes.Buffer
	w, err := NewWriter(&b, Metadata{}, WriterConfig{})
	if err != nil {
		t.Fatal(err)
	}
	err = w.Write(&traj.Trajectory{ID: "a#0", Sequences: []traj.Sequence{{TokenIDs: []int32{1}}}})
	if err == nil || !strings.Contains(err.Error(), "a#0") {
		t.Fatalf("got %v", err)
	}
	if err := w.Write(samples()[0]); err != nil {
		t.Fatalf("the writer does not go on: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

var errDisk = errors.New("no space left on device")

// failing is a sink that fails at its k-th write, or after k bytes.
type failing struct {
	writes, bytes int // of the limit; -1 is none
	short         bool
}

func (f *failing) Write(p []byte) (int, error) {
	if f.writes == 0 {
		if f.short {
			return len(p) / 2, nil
		}
		return 0, errDisk
	}
	if f.writes > 0 {
		f.writes--
	}
	if f.bytes >= 0 {
		if len(p) > f.bytes {
			n := f.bytes
			f.bytes = 0
			return n, errDisk
		}
		f.bytes -= len(p)
	}
	return len(p), nil
}

type counting struct{ writes, bytes int }

func (c *counting) Write(p []byte) (int, error) {
	c.writes++
	c.bytes += len(p)
	return len(p), nil
}

// TestFailingSink fails the sink at every write and after every number of
// bytes: each gives the sink's error, never a panic, never silence.
func TestFailingSink(t *testing.T) {
	t.Parallel()
	t.Run("every write of arrow", func(t *testing.T) { t.Parallel(); failSink(t, 1, 13) })
	t.Run("in blocks, compressed", func(t *testing.T) { t.Parallel(); failSink(t, 256<<10, 997) })
}

// failSink fails the sink of a writer with a buffer at every write, and after every step
// bytes.
func failSink(t *testing.T, buffer, step int) {
	run := func(w interface{ Write([]byte) (int, error) }) error {
		pw, err := NewWriter(w, Metadata{}, WriterConfig{RowGroupRows: 1, buffer: buffer, plain: buffer == 1})
		if err != nil {
			return err
		}
		for _, r := range samples()[:2] {
			if err := pw.Write(r); err != nil {
				if again := pw.Write(r); !errors.Is(again, err) {
					t.Fatalf("the error is not sticky: %v then %v", err, again)
				}
				if cerr := pw.Close(); cerr == nil {
					t.Fatal("Close after an error is silent")
				}
				return err
			}
		}
		return pw.Close()
	}
	var c counting
	if err := run(&c); err != nil {
		t.Fatal(err)
	}
	if buffer == 1 && c.writes < 50 {
		t.Fatalf("only %d write points", c.writes)
	}
	for k := 0; k < c.writes; k += every() {
		if err := run(&failing{writes: k, bytes: -1}); !errors.Is(err, errDisk) || strings.Contains(err.Error(), "\n") {
			t.Fatalf("write %d of %d: %v", k, c.writes, err)
		}
		if k/every()%7 != 0 {
			continue
		}
		if err := run(&failing{writes: k, bytes: -1, short: true}); err == nil {
			t.Fatalf("short write %d of %d: no error", k, c.writes)
		}
	}
	for k := 0; k < c.bytes; k += step * every() {
		if err := run(&failing{writes: -1, bytes: k}); !errors.Is(err, errDisk) {
			t.Fatalf("byte %d of %d: %v", k, c.bytes, err)
		}
	}
}

// TestWritersThatFailTogetherShareNothing is for the race detector: pages come from a
// pool of all writers, and one that fails must not read a page that it gave back.
func TestWritersThatFailTogetherShareNothing(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for at := range 20 {
				w, err := NewWriter(&failing{writes: -1, bytes: 500 * at}, Metadata{}, WriterConfig{buffer: 1, plain: worker%2 == 0})
				if err == nil {
					err = errors.Join(w.Write(samples()[0]), w.Write(samples()[1]), w.Close())
				}
				if !errors.Is(err, errDisk) {
					t.Errorf("byte %d: %v", 500*at, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestAbortLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "t.parquet")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := CreateFile(path, Metadata{}, WriterConfig{RowGroupRows: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(samples()[0]); err != nil {
		t.Fatal(err)
	}
	w.Abort()
	w.Abort()
	es, _ := os.ReadDir(dir)
	b, _ := os.ReadFile(path)
	if len(es) != 1 || string(b) != "old" {
		t.Errorf("left %v, content %q", es, b)
	}
	if err := w.Write(samples()[0]); err == nil {
		t.Error("write after abort")
	}
	for _, bad := range []string{dir, filepath.Join(dir, "no", "such.parquet")} {
		if _, err := CreateFile(bad, Metadata{}, WriterConfig{}); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if w, err = CreateFile(os.DevNull, Metadata{}, WriterConfig{}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(os.DevNull); err != nil || st.Mode().IsRegular() {
		t.Fatal("the null device was replaced")
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good.parquet")
	write(t, good, samples(), WriterConfig{})
	data, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	newer := bytes.Replace(data, []byte("agentcli.schema\x18\x011"), []byte("agentcli.schema\x18\x019"), 1)
	if bytes.Equal(newer, data) {
		t.Fatal("cannot patch the schema's number")
	}
	for _, tc := range []struct {
		name string
		data []byte
		is   error
		kind malformed.Kind
	}{
		{"truncated", data[:len(data)-100], ErrNotParquet, malformed.Truncated},
		{"half", data[:len(data)/2], ErrNotParquet, malformed.Truncated},
		{"text", []byte("{\"id\": 1}\n"), ErrNotParquet, malformed.Syntax},
		{"empty", nil, ErrNotParquet, malformed.Missing},
		{"tiny", []byte("PAR1PAR1"), ErrNotParquet, malformed.Truncated},
		{"footer", append(append([]byte("PAR1"), bytes.Repeat([]byte{255}, 64)...), "PAR1"...), ErrNotParquet, malformed.Syntax},
		{"newer", newer, ErrNewerSchema, ""},
	} {
		path := filepath.Join(dir, tc.name)
		if err := os.WriteFile(path, tc.data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(path)
		if !errors.Is(err, tc.is) || malformed.Facts(err).Kind != tc.kind || !strings.HasPrefix(err.Error(), path) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	if _, err := Open(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	r, err := Open(good)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, err := range r.Rows(context.Background(), "rewrad") {
		if err == nil || !strings.Contains(err.Error(), "rewrad") {
			t.Errorf("misspelt column: %v", err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, err := range r.Rows(ctx) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	}
}

// TestDamaged flips bytes all over a file: an error or other values, but no
// panic and no endless loop.
func TestDamaged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good := filepath.Join(dir, "good.parquet")
	write(t, good, samples(), WriterConfig{RowGroupRows: 2, plain: true})
	data, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	const step, parts = 5, 4
	for part := range parts {
		t.Run(fmt.Sprint("part ", part), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "bad.parquet")
			for i := 4 + part*step; i < len(data)-8; i += parts * step * every() {
				x := []byte{0x01, 0x80, 0xff}[i/step%3]
				bad := bytes.Clone(data)
				bad[i] ^= x
				if err := os.WriteFile(path, bad, 0o600); err != nil {
					t.Fatal(err)
				}
				readDamaged(t, path, fmt.Sprintf("byte %d ^ %#x", i, x))
			}
		})
	}
}

// readDamaged reads a file to its end or its first error.
func readDamaged(t *testing.T, path, damage string) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			t.Fatalf("%s: panic %v", damage, r)
		}
	}()
	r, err := Open(path)
	if err != nil {
		return
	}
	defer r.Close()
	for _, err := range r.Rows(context.Background()) {
		if err != nil {
			return
		}
	}
}
