package parquet

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"agentcli/internal/malformed"
	"agentcli/traj"

	"github.com/google/go-cmp/cmp"
)

// TestOtherReadersAndWriters: what went in comes out of pyarrow, duckdb and
// polars, and what they write is read here.
func TestOtherReadersAndWriters(t *testing.T) {
	python := os.Getenv("AGENTCLI_PYTHON")
	if python == "" {
		t.Skip("set AGENTCLI_PYTHON to a python with pyarrow, duckdb and polars to compare with them")
	}
	dir := t.TempDir()
	src := filepath.Join(dir, "ours.parquet")
	write(t, src, samples(), WriterConfig{RowGroupRows: 2})
	var out, errs bytes.Buffer
	cmd := exec.Command(python, "testdata/oracle.py", src, dir)
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "POLARS_MAX_THREADS=1")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	var seen struct {
		Metadata                map[string]string
		Types                   map[string]string
		Nullable                map[string]bool
		Compression             string
		RowGroups               int `json:"row_groups"`
		Pyarrow, Duckdb, Polars []map[string]any
	}
	if err := json.Unmarshal(out.Bytes(), &seen); err != nil {
		t.Fatal(err)
	}
	if seen.Metadata[KeySchema] != "1" || seen.Metadata[KeyRun] != `{"model":"m"}` || seen.Compression != "ZSTD" || seen.RowGroups != 2 {
		t.Errorf("%v, %s, %d row groups", seen.Metadata, seen.Compression, seen.RowGroups)
	}
	for name, want := range map[string]string{"id": "string", "attempt": "int32", "seed": "int64", "reward": "double", "correct": "bool",
		"started_at": "timestamp[us, tz=UTC]", "meta": "string", "turns": "int64"} {
		if seen.Types[name] != want {
			t.Errorf("%s is %s, want %s", name, seen.Types[name], want)
		}
	}
	for name, nullable := range seen.Nullable {
		want := slices.Contains([]string{"extracted", "reward", "correct", "error", "verdict", "extraction_rule", "env"}, name)
		if nullable != want {
			t.Errorf("%s: nullable %v", name, nullable)
		}
	}
	want := plainRows(t, samples())
	for name, got := range map[string][]map[string]any{"pyarrow": seen.Pyarrow, "duckdb": seen.Duckdb, "polars": seen.Polars} {
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-wrote +read)\n%s", name, d)
		}
	}
	for _, f := range []string{"pyarrow", "pyarrow_v1_plain", "pyarrow_v2", "pyarrow_large", "polars", "duckdb"} {
		if d := cmp.Diff(samples(), read(t, filepath.Join(dir, f+".parquet")), same); d != "" {
			t.Errorf("%s (-wrote +read)\n%s", f, d)
		}
	}
	few := read(t, filepath.Join(dir, "few.parquet"))
	if len(few) != 3 || few[0].GroupID != "arith/7@5" || few[0].Task.ID != "arith/7" || *few[0].Reward != 1 ||
		few[1].Reward != nil || few[0].Sequences != nil {
		t.Errorf("few columns: %+v", few[0])
	}
	if d := cmp.Diff(samples()[0].Messages, few[0].Messages, same); d != "" {
		t.Error(d)
	}
	seqs := read(t, filepath.Join(dir, "sequences.parquet"), "id", "group_id", "reward", "sequences", "steps")
	if d := cmp.Diff(samples()[0].Sequences, seqs[0].Sequences, same); d != "" {
		t.Error(d)
	}
	for _, tc := range []struct {
		file string
		want malformed.Error // but for the path
	}{
		{"foreign", malformed.Error{Kind: malformed.Mismatch}},
		{"sequences", malformed.Error{Field: "column messages", Kind: malformed.Missing}},
		{"wrongtype", malformed.Error{Row: 1, Field: "column reward", Kind: malformed.Type}},
		{"badrow", malformed.Error{Row: 2, Field: "column sequences", Kind: malformed.Mismatch}},
	} {
		path := filepath.Join(dir, tc.file+".parquet")
		r, err := Open(path)
		if err == nil {
			cols := []string{}
			if tc.file == "wrongtype" {
				cols = []string{"id", "reward"}
			}
			if tc.file == "badrow" {
				cols = []string{"sequences"}
			}
			for _, rerr := range r.Rows(context.Background(), cols...) {
				err = rerr
			}
			r.Close()
		}
		if tc.want.Path = path; malformed.Facts(err) != tc.want {
			t.Errorf("%s: %v, want %+v", tc.file, err, tc.want)
		}
	}
}

// plainRows are the rows as the oracle prints them.
func plainRows(t *testing.T, rows []*traj.Trajectory) []map[string]any {
	opt := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	list := func(n int, f func(i int) any) []any {
		out := []any{}
		for i := range n {
			out = append(out, f(i))
		}
		return out
	}
	var out []map[string]any
	for _, r := range rows {
		meta := string(r.Task.Meta)
		if meta == "" {
			meta = "{}"
		}
		m := map[string]any{
			"id": r.ID, "task_id": r.Task.ID, "dataset": r.Task.Dataset, "split": r.Task.Split, "group_id": r.GroupID,
			"attempt": r.Attempt, "seed": r.Seed, "policy": r.Policy, "policy_version": r.PolicyVersion, "question": r.Task.Question,
			"answer": list(len(r.Task.Answers), func(i int) any { return r.Task.Answers[i] }), "extracted": r.Extracted,
			"messages": list(len(r.Messages), func(i int) any {
				g := r.Messages[i]
				return map[string]any{"role": g.Role, "content": g.Content, "reasoning": opt(g.Reasoning),
					"name": opt(g.Name), "tool_call_id": opt(g.ToolCallID),
					"tool_calls": list(len(g.ToolCalls), func(i int) any {
						c := g.ToolCalls[i]
						return map[string]any{"id": c.ID, "name": c.Name, "arguments": c.Arguments}
					}),
					"images": list(len(g.Images), func(i int) any {
						var b any
						if g.Images[i].Bytes != nil {
							b = list(len(g.Images[i].Bytes), func(k int) any { return int(g.Images[i].Bytes[k]) })
						}
						return map[string]any{"path": opt(g.Images[i].Path), "bytes": b}
					})}
			}),
			"steps": list(len(r.Steps), func(i int) any {
				s := r.Steps[i]
				return map[string]any{"sequence": s.Sequence, "start": s.Start, "end": s.End, "finish_reason": s.FinishReason,
					"tool_calls":  s.ToolCalls,
					"tool_errors": s.ToolErrors, "tool_cached": s.ToolCached, "tool_malformed": s.ToolMalformed,
					"reward": s.Reward, "prompt_tokens": s.PromptTokens, "completion_tokens": s.CompletionTokens,
					"model_ms": s.ModelMS, "env_ms": s.EnvMS, "error": opt(s.Error), "policy_versions": versions(s.PolicyVersions)}
			}),
			"sequences": list(len(r.Sequences), func(i int) any {
				s := r.Sequences[i]
				return map[string]any{
					"token_ids": list(len(s.TokenIDs), func(k int) any { return s.TokenIDs[k] }),
					"loss_mask": list(len(s.LossMask), func(k int) any { return s.LossMask[k] }),
					"logprobs":  list(len(s.Logprobs), func(k int) any { return s.Logprobs[k] })}
			}),
			"reward": r.Reward, "correct": r.Correct, "termination": r.Termination, "error": opt(r.Error),
			"verdict": opt(r.Verdict), "extraction_rule": opt(r.ExtractionRule), "env": opt(r.Task.Env),
			"reward_parts": list(len(r.RewardParts), func(i int) any {
				return map[string]any{"name": r.RewardParts[i].Name, "value": r.RewardParts[i].Value}
			}),
			"prompt_tokens": r.PromptTokens, "completion_tokens": r.CompletionTokens, "turns": r.Turns(), "duration_ms": r.DurationMS,
			"started_at": r.StartedAt.UnixMicro(), "meta": meta,
		}
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var plain map[string]any
		if err := json.Unmarshal(b, &plain); err != nil {
			t.Fatal(err)
		}
		out = append(out, plain)
	}
	return out
}

// versions are those of a step, null where they are the row's.
func versions(of []int64) any {
	if of == nil {
		return nil
	}
	return of
}
