package eval

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"agentcli/traj"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// attempts are those of an evaluation in the order in which they end, with all that
// a report can tell apart: failures, problems that are short of attempts or have too
// many, answers that JSON must quote, rewards between 0 and 1.
func attempts(problems, samples int) []*traj.Trajectory {
	rng := rand.New(rand.NewPCG(7, 11))
	answers := []string{"1", "0.5", `\frac{1}{2}`, "<b>&", "grün ü", "a\"b", "7", "-3", " 7 ", ""}
	ends := []traj.Termination{traj.Answered, traj.Answered, traj.Answered, traj.EnvDone, traj.MaxTurns, traj.TurnLength, traj.MaxTokens,
		traj.PromptTooLong, traj.ModelFailed, traj.Cancelled, traj.RewardFailed}
	var all []*traj.Trajectory
	for i := range problems {
		n := samples
		switch rng.IntN(10) {
		case 0:
			n -= rng.IntN(samples)
		case 1:
			n += 2
		}
		for a := range n {
			x := played(fmt.Sprintf("set-%d/%d", i%3, rng.IntN(2)*1000+i), a, ends[rng.IntN(len(ends))], "", false)
			x.Task.ID = fmt.Sprintf("set-%d/%d", i%3, i)
			x.CompletionTokens = rng.IntN(3000)
			for range rng.IntN(3) {
				x.Steps = append(x.Steps, traj.Step{ToolCalls: rng.IntN(4), ToolErrors: rng.IntN(2), PromptTokens: rng.IntN(500)})
			}
			if x.Reward != nil {
				*x.Reward = float64(rng.IntN(7)) / 6
				*x.Correct = *x.Reward > .8
				if rng.IntN(4) == 0 {
					x.Correct = nil
				}
				if rng.IntN(9) == 0 {
					x.Reward = nil
				}
				if a := answers[rng.IntN(len(answers))]; rng.IntN(8) > 0 {
					x.Extracted = &a
				}
			}
			all = append(all, x)
		}
	}
	// As they end: mixed, but within a window, as in a run.
	for i := range all {
		j := min(i+rng.IntN(20), len(all)-1)
		all[i], all[j] = all[j], all[i]
	}
	return all
}

// TestReportsBytesStayTheSame: the golden files were written when every problem was
// held as a struct and the report was marshalled whole.
func TestReportsBytesStayTheSame(t *testing.T) {
	for _, c := range []struct {
		name                string
		problems, n, passK  int
		byMeaning, shuffled bool
	}{{"k1", 40, 1, 1, false, false}, {"k4", 60, 5, 4, true, false}, {"shuffled", 30, 3, 3, false, true}, {"none", 0, 1, 1, false, false}} {
		t.Run(c.name, func(t *testing.T) {
			conf := Config{Dataset: "d <1>", Split: "test", Model: "m", Samples: c.n, PassK: c.passK}
			if c.byMeaning {
				conf.Vote = func(t *traj.Trajectory) string { return strings.TrimSpace(*t.Extracted) }
			}
			y := New(conf)
			all := attempts(c.problems, c.n)
			if c.shuffled {
				rand.New(rand.NewPCG(1, 2)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			}
			for _, x := range all {
				y.Add(x)
			}
			var b bytes.Buffer
			if err := reported(t, y).WriteJSON(&b); err != nil {
				t.Fatal(err)
			}
			path := "testdata/report-" + c.name + ".json"
			if *update {
				if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), b.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
