package trainer

import (
	"path/filepath"
	"strings"
	"testing"

	"agentcli/parquet/parquettest"
	"agentcli/traj"
)

func TestAGreedyFileThatIsNotGreedyIsRefused(t *testing.T) {
	one := []*traj.Trajectory{row("a#0", "a", number(.5), nil)}
	for name, x := range map[string]struct {
		run  string
		rows []*traj.Trajectory
		want []string // in the error; nil: none
	}{
		"greedy":                {`{"sampling": {"temperature": 0}}`, one, nil},
		"nothing is said":       {"", one, nil},
		"sampled":               {`{"sampling": {"temperature": 0.7}}`, one, []string{"temperature 0.7", "--temperature 0"}},
		"several at one task":   {`{"sampling": {"temperature": 0}}`, append(one, row("a#1", "a", number(1), nil)), []string{`"a"`, "-n 1"}},
		"one of them failed":    {`{"sampling": {"temperature": 0}}`, append(one, row("a#1", "a", nil, nil)), nil},
		"of another task alone": {`{"sampling": {"temperature": 0}}`, []*traj.Trajectory{row("b#0", "b", number(1), nil)}, []string{`"a"`}},
	} {
		path := parquettest.Write(t, filepath.Join(t.TempDir(), "greedy.parquet"), x.run, x.rows...)
		d := &Data{Episodes: []*Episode{{ID: "a#5", Task: "a"}}}
		err := d.CompareWithGreedy(t.Context(), path)
		if x.want == nil {
			if err != nil || *d.Episodes[0].Greedy != .5 {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		for _, want := range append(x.want, path) {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q in it", name, err, want)
			}
		}
	}
}

func TestTooLongPromptsAreNotBlamedOnAServer(t *testing.T) {
	long := row("a#0", "a", number(0), func(x *traj.Trajectory) { x.Termination, x.Sequences, x.Steps = traj.PromptTooLong, nil, nil })
	_, reason, err := episode(long, "a#0", needs{reward: true})
	if err != nil || !strings.Contains(reason, "prompt_too_long") || strings.Contains(reason, "server") {
		t.Errorf("%q, %v", reason, err)
	}
	later := row("a#0", "a", number(0), func(x *traj.Trajectory) { x.Termination = traj.PromptTooLong })
	if e, reason, err := episode(later, "a#0", needs{reward: true}); e == nil {
		t.Errorf("one whose first replies were sampled is left out: %q, %v", reason, err)
	}
}

func TestPartWeightsAreCheckedAgainstTheRewards(t *testing.T) {
	rows := func(n int) string {
		parts := []traj.Part{{Name: "p", Value: .5}, {Name: "q", Value: 1}}[:n]
		set := func(x *traj.Trajectory) { x.RewardParts = parts }
		return parquettest.Write(t, filepath.Join(t.TempDir(), "parts.parquet"), "", row("a#0", "a", number(1), set), row("a#1", "a", number(0), set))
	}
	for _, x := range []struct {
		advantage, weights string
		parts              int
		want               string
	}{
		{"gdpo", "1,2", 1, "--part-weights 1,2: its weights must be as many as the components of the rewards, here 1 (p)"},
		{"gdpo", "1,2", 2, ""},
		{"gdpo", "", 1, ""},
		{"gdpo", "", 0, "parts.parquet: a#0 has none: take another --advantage"},
		{"grpo", "", 0, ""},
	} {
		c := DefaultConfig()
		c.Advantage, c.PartWeights = x.advantage, x.weights
		d, err := LoadFor(t.Context(), []string{rows(x.parts)}, c, From{OnDisk: true})
		if err != nil {
			t.Fatal(err)
		}
		err = d.CheckParts(c)
		if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%+v: %v", x, err)
		}
		d.Close()
	}
}

func TestOfMixedTemperaturesTheFilesAreNamed(t *testing.T) {
	dir := t.TempDir()
	put := func(name, run string) string {
		return parquettest.Write(t, filepath.Join(dir, name), run, row("a#0", "a", number(1), nil), row("a#1", "a", number(0), nil))
	}
	cool, one := put("cool.parquet", `{"sampling": {"temperature": 0.7}}`), put("one.parquet", `{"sampling": {"temperature": 1}}`)
	c := DefaultConfig()
	load := func(files ...string) *Data {
		d, err := LoadFor(t.Context(), files, c, From{})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if got := load(cool, one).Tempering(c); !strings.Contains(got, "of 2 of the 4 rows") || !strings.Contains(got, cool) || strings.Contains(got, one) {
		t.Errorf("it says %q", got)
	}
	c.OldLogprobs = OldFile
	if err := load(one, cool).CheckRecorded(c); err == nil || !strings.Contains(err.Error(), cool+": a#0") {
		t.Errorf("the file is not named: %v", err)
	}
	if got, zero := load(one, put("zero.parquet", `{"sampling": {"temperature": 0}}`)).Greedy(), filepath.Join(dir, "zero.parquet")+": a#0"; got != zero {
		t.Errorf("named %q, want %q", got, zero)
	}
}
