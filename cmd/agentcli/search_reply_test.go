package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/app/rundir"
	"agentcli/llm/llmtest"
	"agentcli/traj"
)

const finder = `while read -r line; do
	id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9][0-9]*\).*/\1/')
	case $line in
	*describe*) echo "{\"id\":$id,\"tools\":[{\"name\":\"search\",\"description\":\"Find.\",\
\"parameters\":{\"type\":\"object\",\"properties\":{\"query\":{\"type\":\"string\"}},\"required\":[\"query\"]}}]}" ;;
	*) echo "{\"id\":$id,\"result\":\"Doc 1(Title: é世) the product\"}" ;;
	esac
done
`

// A search's results stand in the model's own reply, which is one sequence: what was
// sampled is trained on as it was sampled, the information between is not.
func TestInformationStandsInTheReplyAndIsMasked(t *testing.T) {
	o := newOracle(t, tinyFolder)
	const info, advice = "\n\n<information>Doc 1(Title: é世) the product</information>\n\n", "\nMy previous action is invalid. "
	replies := []string{"I think.<search> the product</search>", "Nothing of use.", "<answer>7</answer>"}
	encode := func(s string) (ids []int32) {
		for _, c := range s { // not as the tokenizer would
			ids = append(ids, o.tok.EncodeOrdinary(string(c))...)
		}
		return ids
	}
	s := llmtest.NewWith(t, everyAddress, func(r *llmtest.Request) llmtest.Reply {
		text := o.tok.Decode(r.Prompt, false)
		if question.FindString(text) == "" {
			return o.script(r)
		}
		said, stop := replies[0], any("</search>")
		switch {
		case strings.Contains(text, advice):
			said, stop = replies[2], o.end
		case strings.Contains(text, info):
			said, stop = replies[1], o.end
		}
		ids := encode(said)
		if stop == any(o.end) {
			ids = append(ids, o.end)
		}
		return llmtest.Reply{Content: strings.TrimSuffix(said, "</search>"), IDs: ids, Logprobs: make([]float64, len(ids)),
			Stop: stop, OutputTokens: len(ids)}
	})
	dir := t.TempDir()
	tool := filepath.Join(dir, "find.sh")
	if err := os.WriteFile(tool, []byte(finder), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, more := range [][]string{nil, {"--stream"}} {
		out := filepath.Join(t.TempDir(), "run")
		_, log, code := run(
			t, append([]string{"rollout", "--base-url", s.BaseURL(), "--model", "mock", "--token-mode", "completions", "--tokenizer", tinyFolder,
				"-d", writeProducts(t, 1), "--reward", "em", "-n", "1", "--tools", "none", "--tool", "exec:sh " + tool,
				"--continue-reply", "--output", out}, more...)...)
		if code != exitDone {
			t.Fatal(log)
		}
		rows, _ := rowsOf(t, filepath.Join(out, rundir.TrajectoriesFile))
		row := rows[0]
		if row.Termination != traj.Answered || row.Reward == nil || *row.Reward != 1 || len(row.Steps) != 3 || row.Steps[1].ToolErrors != 1 {
			t.Fatalf("%s %s, reward %v, %+v", row.Termination, row.Error, row.Reward, row.Steps)
		}
		last := row.Messages[len(row.Messages)-1]
		if want := replies[0] + info + replies[1] + advice; last.Role != traj.RoleAssistant ||
			!strings.HasPrefix(last.Content, want) || !strings.HasSuffix(last.Content, replies[2]) {
			t.Errorf("the reply is %q", last.Content)
		}
		// A reply that the model itself had ended is open again without its last token: a
		// new sequence. One that a stop string ended is gone on with.
		if len(row.Sequences) != 2 {
			t.Fatalf("%d sequences", len(row.Sequences))
		}
		var sampled []int32
		for i, q := range row.Sequences {
			var seen []int32
			for k, id := range q.TokenIDs {
				if q.LossMask[k] {
					sampled = append(sampled, id)
				} else {
					seen = append(seen, id)
				}
			}
			if text := o.tok.Decode(seen, false); !strings.Contains(text, info) || i == 0 && strings.Contains(text, "I think") {
				t.Errorf("what is not trained on is %q", text)
			}
		}
		want := slices.Concat(encode(replies[0]), encode(replies[1]), []int32{o.end}, encode(replies[2]), []int32{o.end})
		if !slices.Equal(sampled, want) {
			t.Errorf("trained on %q, sampled %q", o.tok.Decode(sampled, false), o.tok.Decode(want, false))
		}
	}
}

// A row that is no task ends a run that has begun, in the words of any other, and the
// run goes on once the row is corrected.
func TestABadRowFarBehindEndsTheRunAndItGoesOn(t *testing.T) {
	t.Parallel()
	model := newOracle(t, tinyFolder)
	s := llmtest.NewWith(t, llmtest.Options{Window: 4096}, model.script)
	path := writeProducts(t, 600)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for bad, want := range map[string]string{
		`{"id":"x"}`: `row 601: `,
		`{"id":"p3","question":"What is 3 * 7?","answer":"21"}`: `"p3"`,
		`{"id":"x","question":"What is 3 * 7?"}`:                `row 601: `,
	} {
		if err := os.WriteFile(path, append(slices.Clone(good), bad...), 0o600); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "run")
		args := []string{"rollout", "--base-url", s.BaseURL(), "--model", "mock", "-d", path, "--reward",
			"exact", "-n", "1", "--limit", "0", "--tools", "calculator", "--output", out}
		_, log, code := run(t, args...)
		if code != exitFailed || !strings.Contains(log, want) {
			t.Errorf("%d %s", code, log)
		}
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, log, code = run(t, "rollout", "--resume", out); code != exitDone {
			t.Fatal(log)
		}
		rows, _ := rowsOf(t, filepath.Join(out, rundir.TrajectoriesFile))
		seen := map[string]bool{}
		for _, row := range rows {
			seen[row.ID] = true
		}
		if len(rows) != 600 || len(seen) != 600 {
			t.Errorf("%d rows, %d of them different", len(rows), len(seen))
		}
	}
}
