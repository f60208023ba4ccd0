//go:build libtorch

package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentcli/app/models"
	"agentcli/datasets"
	"agentcli/eval"
	"agentcli/traj"
)

// fieldOf is where the plate of a problem of fineprint is: 0 in the upper left field, 1 in the lower right,
// -1 in another.
func fieldOf(task *traj.Task) int {
	parts := strings.Split(task.ID, "-") // …/[split-]level-field.x.y.print
	switch parts[len(parts)-1][0] {
	case '0':
		return 0
	case '8':
		return 1
	}
	return -1
}

// cornerLook is the call that zooms into one of those fields.
func cornerLook(field int) string {
	from, to := 8, 28
	if field == 1 {
		from, to = 83, 103
	}
	return fmt.Sprintf("<tool_call>\n{\"name\": \"image_zoom_in_tool\", \"arguments\": {\"bbox_2d\": [%d, %d, %d, %d]}}\n</tool_call>",
		from, from, to, to)
}

// corners writes n problems of fineprint whose plate is in one of those two fields as rows of a file.
// replies gives those of demonstration k; nil: the rows have none.
func corners(t *testing.T, split string, n int, replies func(k int, task *traj.Task) []string) string {
	t.Helper()
	d, err := datasets.Open(t.Context(), "fineprint", datasets.Options{Split: split, Limit: 9 * n, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	var rows []byte
	k := 0
	for task, err := range d.Tasks(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if fieldOf(&task) < 0 || k == n {
			continue
		}
		m := task.Messages[0]
		row := map[string]any{"question": strings.ReplaceAll(m.Content, traj.ImageMark, "<image>"), "answer": task.Answers[0],
			"images": []any{map[string]string{"bytes": base64.StdEncoding.EncodeToString(m.Images[0].Bytes)}}}
		if replies != nil {
			row["replies"] = replies(k, &task)
		}
		line, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		rows, k = append(append(rows, line...), '\n'), k+1
	}
	file := filepath.Join(t.TempDir(), split+".jsonl")
	if err := os.WriteFile(file, rows, 0o600); err != nil || k < n {
		t.Fatal(err, k)
	}
	return file
}

// A Qwen2.5-VL with random weights learns where to look, by the commands of bench/look.sh and on two of the nine
// fields. Its demonstrations look half of the time, and then at the right field in two cases of three. The reward of
// the answers tells the rest. Chance is .25, and .63 for who always looks, at either field.
func TestAModelLearnsWhereToLook(t *testing.T) {
	if testing.Short() {
		t.Skip("a minute")
	}
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	must := func(args ...string) string {
		t.Helper()
		out, log, code := run(t, args...)
		if code != exitDone {
			t.Fatalf("%v: exit %d: %s", args, code, log)
		}
		return out
	}
	if err := models.Init("../../examples/look/config.json", 1, in("init")); err != nil {
		t.Fatal(err)
	}
	look := []string{"--reward", "exact", "--prompt", "{question}", "--tools", "image_zoom_in_tool", "--max-turns", "2", "--max-tokens", "60"}
	with := func(args ...string) []string { return append(args, look...) }
	held := corners(t, "test", 128, nil)
	measure := func(model string) float64 {
		t.Helper()
		var report eval.Report
		if err := json.Unmarshal([]byte(must(with("eval", "-d", held, "-n", "1", "--model", in(model), "--dtype", "float32", "--format", "json",
			"--output", in("eval-"+model))...)), &report); err != nil {
			t.Fatal(err)
		}
		right := report.Metrics["pass@1"].Value
		if right == nil {
			t.Fatalf("%s: no attempt was scored", model)
		}
		return *right
	}
	teach := func(from, to string, rows ...string) {
		t.Helper()
		args := []string{"train", "--algo", "sft", "--model", in(from), "-o", in(to), "--train-vision", "all", "--lr", "7e-4",
			"--warmup-steps", "10", "--minibatch", "32", "--betas", ".9,.99", "--dtype", "float32"}
		for i, rows := range rows {
			file := in(fmt.Sprintf("%s-%d.parquet", to, i))
			must(with("rollout", "-d", rows, "-n", "1", "--model", "replay:"+in("init"), "-o", file)...)
			args = append(args, file)
		}
		must(args...)
	}
	shown := func(_ int, task *traj.Task) []string { return datasets.Replies(task) }
	teach("init", "skills", corners(t, "crops", 1280, shown), corners(t, "places", 320, shown))
	ways := []string{"horizontal", "vertical", "rising", "falling"}
	teach("skills", "start", corners(t, "train", 960, func(k int, task *traj.Task) []string {
		if k%2 == 0 {
			return []string{ways[k/2%4]}
		}
		field := fieldOf(task)
		if k/2%3 > 0 { // a third of the looks is at the right field for certain
			field = k / 6 % 2
		}
		return []string{cornerLook(field), task.Answers[0]}
	}))
	before := measure("start")
	must(with("loop", "-d", corners(t, "train", 400, nil), "--model", in("start"), "--steps", "8", "--tasks", "16", "-n", "8",
		"--dtype", "float32", "--train-vision", "all", "--lr", "1e-4", "--epochs", "2", "--betas", ".9,.99", "--minibatch", "0",
		"--eval-every", "8", "--eval-tasks", "16", "--eval-samples", "1", "--output", in("loop"))...)
	if after := measure("loop"); before > .65 || after < .8 {
		t.Errorf("%.3f of the answers are right before, %.3f after", before, after)
	}
}
