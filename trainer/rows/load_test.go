package rows

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"agentcli/internal/malformed"
	"agentcli/parquet"
	"agentcli/parquet/parquettest"
	"agentcli/trainer/episode"
	"agentcli/traj"
)

func TestLoadCountsAndNamesTheRowsItCannotUse(t *testing.T) {
	f := parquettest.Write(t, filepath.Join(t.TempDir(), "f.parquet"), `{"model": {"name": "m"}}`,
		row("a#0", "a", number(1), nil),
		row("a#1", "a", number(0), nil), // a score of 0 is a score
		row("a#2", "a", nil, nil),
		row("a#3", "a", number(1), func(x *traj.Trajectory) { x.Sequences = nil }),
		row("a#4", "a", number(1), func(x *traj.Trajectory) { x.Sequences = []traj.Sequence{sequence("abc", nil)} }),
		row("a#5", "a", number(1), func(x *traj.Trajectory) { x.Termination = traj.ModelFailed }),
		row("a#6", "a", nil, func(x *traj.Trajectory) { x.Termination = traj.ModelFailed }),
		row("a#0", "a", number(1), nil),
		row("a#7", "a", number(1), func(x *traj.Trajectory) {
			x.Sequences = []traj.Sequence{sequence("aBCDEFGHI", nil)}
		}),
		row("", "", number(1), func(x *traj.Trajectory) { x.Task.ID = "" }),
	)
	d, err := Load(context.Background(), []string{f}, policyRows)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.DropLong(8); err != nil {
		t.Fatal(err)
	}
	if len(d.Episodes) != 2 || d.Episodes[0].ID != "a#0" || d.Episodes[1].ID != "a#1" || d.Episodes[0].Group != d.Episodes[1].Group {
		t.Fatalf("%d episodes", len(d.Episodes))
	}
	e := d.Episodes[0]
	if e.Sampled != 2 || e.Turns != 2 || e.ToolCalls != 2 || e.ToolErrors != 1 || e.Score != 1 ||
		!slices.Equal(d.Policies, []Policy{{"model", f}}) || d.Runs[0].Model.Name != "m" {
		t.Errorf("%+v of %v, run %+v", e, d.Policies, d.Runs)
	}
	want := map[string]string{"without a reward": "a#2", "without token ids": "a#3", "without a sampled token": "a#4",
		"ended by model_error":         "a#5",
		"with an id that occurs twice": "a#0", "longer than the model's window of 8": "a#7", "without a group_id": "f.parquet:row 10"}
	for reason, example := range want {
		found := false
		for r, x := range d.Skipped.Example {
			found = found || (strings.HasPrefix(r, reason) && x == example)
		}
		if !found {
			t.Errorf("no row %s, first %s: %s", reason, example, d.Skipped.String())
		}
	}
	if len(d.Skipped.Reasons) != len(want) || d.Skipped.Rows != len(want)+1 {
		t.Errorf("%d rows, %d reasons: %s", d.Skipped.Rows, len(d.Skipped.Reasons), d.Skipped.String())
	}
	if s := d.Skipped.String(); !strings.HasPrefix(s, "2 ended by model_error (first: a#5); ") || strings.Contains(s, "\n") {
		t.Error(s)
	}
}

// A rollout writes its rows as they end.
func TestTheOrderOfAFilesRowsDoesNotMatter(t *testing.T) {
	rows := []*traj.Trajectory{row("a#0", "a", number(1), nil), row("a#1", "a", number(0), nil),
		row("b#0", "b", number(1), nil), row("b#1", "b", number(0), nil)}
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 1, 0, 2}, {2, 0, 3, 1}} {
		var file []*traj.Trajectory
		for _, i := range order {
			file = append(file, rows[i])
		}
		f := parquettest.Write(t, filepath.Join(t.TempDir(), "f.parquet"), `{}`, file...)
		d, err := Load(context.Background(), []string{f}, policyRows)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range d.Episodes {
			got = append(got, e.ID)
		}
		if want := []string{"a#0", "a#1", "b#0", "b#1"}; !slices.Equal(got, want) {
			t.Errorf("rows in the order %v are trained on in the order %v", order, got)
		}
	}
}

func TestLoadKeepsTheGroupsOfTwoFilesApart(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.parquet", "b.parquet"} {
		parquettest.Write(t, filepath.Join(dir, name), `{"sampling": {"top_p": 0.9}}`, row("q#0", "q", number(1), nil),
			row("q#1", "q", number(0), nil))
	}
	a, glob := filepath.Join(dir, "a.parquet"), filepath.Join(dir, "*.parquet")
	d, err := Load(context.Background(), []string{glob, a, filepath.Join(dir, ".", "a.parquet")}, policyRows)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Files) != 2 || len(d.Runs) != 2 || d.Skipped.Rows != 0 || len(d.Episodes) != 4 {
		t.Fatalf("%v: %d episodes, skipped %s", d.Files, len(d.Episodes), d.Skipped.String())
	}
	gs := episode.Groups(d.Episodes)
	if len(gs) != 2 || len(gs[0]) != 2 {
		t.Errorf("%d groups", len(gs))
	}
	ids := map[string]bool{}
	for _, e := range d.Episodes {
		ids[e.ID] = true
	}
	if len(ids) != 4 {
		t.Errorf("the ids are not told apart: %v", ids)
	}
	if how := d.Runs[1].Filtered(); how != "top_p 0.9" {
		t.Errorf("the second file was sampled with %q", how)
	}
}

func TestLoadRefusesInOneLine(t *testing.T) {
	dir := t.TempDir()
	nan := parquettest.Write(t, filepath.Join(dir, "nan.parquet"), "", row("a#0", "a", number(1), nil),
		row("a#1", "a", number(math.NaN()), nil))
	first := parquettest.Write(t, filepath.Join(dir, "first.parquet"), "",
		row("a#0", "a", number(1), func(x *traj.Trajectory) { x.Sequences[0].LossMask[0] = true }))
	none := parquettest.Write(t, filepath.Join(dir, "none.parquet"), "", row("a#0", "a", nil, nil), row("a#1", "a", nil, nil))
	empty := parquettest.Write(t, filepath.Join(dir, "empty.parquet"), "")
	torn := filepath.Join(dir, "torn.parquet")
	whole, err := os.ReadFile(nan)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(torn, whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, path string
		want       malformed.Error // but for the path
		is         error
	}{
		{"a reward that is no number", nan, malformed.Error{ID: "a#1", Field: "reward", Kind: malformed.Range}, nil},
		{"first token sampled", first, malformed.Error{ID: "a#0", Field: "sequence 0", Kind: malformed.Range}, nil},
		{"no reward at all", none, malformed.Error{}, ErrNoRows},
		{"no rows", empty, malformed.Error{}, ErrEmpty},
		{"torn file", torn, malformed.Error{Path: torn, Kind: malformed.Truncated}, parquet.ErrNotParquet},
		{"missing file", filepath.Join(dir, "x.parquet"), malformed.Error{}, fs.ErrNotExist},
		{"no match", filepath.Join(dir, "x*.parquet"), malformed.Error{Kind: malformed.Missing}, nil},
		{"bad pattern", filepath.Join(dir, "[.parquet"), malformed.Error{Kind: malformed.Missing}, nil},
		{"no sequences", "testdata/no_sequences.parquet", malformed.Error{Field: "column sequences", Kind: malformed.Missing}, nil},
		{"no reward column", "testdata/no_reward.parquet", malformed.Error{Field: "column reward", Kind: malformed.Missing}, nil},
		{"unequal lengths", "testdata/ragged.parquet", malformed.Error{Row: 2, Field: "column sequences", Kind: malformed.Mismatch}, nil},
	} {
		_, err := Load(context.Background(), []string{c.path}, policyRows)
		if err == nil {
			t.Errorf("%s: no error", c.name)
			continue
		}
		if c.is == nil {
			c.want.Path = c.path
		}
		if got := malformed.Facts(err); got != c.want || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.path) {
			t.Errorf("%s: %q has %+v, want %+v and %v", c.name, err, got, c.want, c.is)
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: more than one line: %q", c.name, err)
		}
	}
	if _, reason, err := parseRow(
		&traj.Trajectory{Reward: number(1), Sequences: []traj.Sequence{{TokenIDs: []int32{1, 2}, LossMask: []bool{false}}}},
		"x", &Options{Reward: true}); err == nil || reason != "" {
		t.Errorf("unequal lengths in memory: %q, %v", reason, err)
	}
}

func TestEveryPolicyOfTheRowsIsNamed(t *testing.T) {
	dir := t.TempDir()
	other := func(x *traj.Trajectory) { x.Policy = "other" }
	none := func(x *traj.Trajectory) { x.Policy = "" }
	a := parquettest.Write(t, filepath.Join(dir, "a.parquet"), `{}`, row("a#0", "a", number(1), nil), row("a#1", "a", number(0), other))
	b := parquettest.Write(t, filepath.Join(dir, "b.parquet"), `{"model": {"name": "third"}}`,
		row("a#0", "a", number(1), none), row("a#1", "a", nil, nil))
	d, err := Load(context.Background(), []string{a, b}, policyRows)
	if want := []Policy{{"model", a}, {"other", a}, {"third", b}}; err != nil || !slices.Equal(d.Policies, want) {
		t.Errorf("%v, want %v; %v", d.Policies, want, err)
	}
}

func TestTokensThatTheModelDoesNotHave(t *testing.T) {
	d := &Data{Episodes: corpus()}
	if err := d.CheckTokens(10); err != nil {
		t.Error(err)
	}
	var outside *TokenError
	if err := d.CheckTokens(9); !errors.As(err, &outside) || outside.Token != 9 || outside.Position != 9 || outside.Vocab != 9 {
		t.Error(err)
	}
}

func TestRewardsMadeAnewTakeTheFilesPlace(t *testing.T) {
	var all []*traj.Trajectory
	for i := range 150 { // more than are scored at once
		all = append(all, row(fmt.Sprintf("q%d#%d", i/2, i%2), fmt.Sprint("q", i/2), number(9), func(x *traj.Trajectory) {
			x.Messages = append(x.Messages, traj.Message{Role: traj.RoleAssistant, Content: fmt.Sprint(i)})
			switch i {
			case 4:
				x.Termination, x.Reward = traj.RewardFailed, nil
			case 6:
				x.Termination, x.Reward = traj.ModelFailed, nil
			}
		}))
	}
	f := parquettest.Write(t, filepath.Join(t.TempDir(), "f.parquet"), "", all...)
	d, err := Load(context.Background(), []string{f},
		Options{Reward: true, Group: true, Sources: Sources{Score: func(_ context.Context, x *traj.Trajectory) error {
			text := x.Messages[len(x.Messages)-1].Content
			if text == "8" {
				return errors.New("no score")
			}
			var v float64
			_, err := fmt.Sscan(text, &v)
			x.Reward = &v
			return err
		}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Episodes) != 148 || d.Skipped.Rows != 2 || d.Skipped.Example["ended by reward_error"] != "q4#0" ||
		d.Skipped.Example["ended by model_error"] != "q3#0" {
		t.Errorf("%d rows, left out: %s", len(d.Episodes), d.Skipped.String())
	}
	for _, e := range d.Episodes {
		var task, attempt int
		if _, err := fmt.Sscanf(e.ID, "q%d#%d", &task, &attempt); err != nil || e.Score != float64(2*task+attempt) {
			t.Errorf("%s has the score %v", e.ID, e.Score)
		}
	}
}

// A reward may say where it is earned; a run that goes on has that from when it began.
func TestRewardsOfStepsAreTrainedOnAndKept(t *testing.T) {
	f := parquettest.Write(t, filepath.Join(t.TempDir(), "f.parquet"), "", row("a#0", "a", number(3), func(x *traj.Trajectory) {
		x.Sequences = []traj.Sequence{{TokenIDs: []int32{1, 2, 3, 4, 5, 6}, LossMask: []bool{false, false, true, true, false, true},
			Logprobs: []traj.Logprob{0, 0, -1, -1, 0, -1}}}
		x.Steps = []traj.Step{{Start: 2, End: 4, Reward: number(1)}, {Start: 5, End: 6, Reward: number(2)}}
	}), row("a#1", "a", number(0), nil))
	var asked atomic.Int64 // rows are scored at once
	from := Sources{Score: func(_ context.Context, x *traj.Trajectory) error {
		asked.Add(1)
		if x.Reward = number(1); x.ID == "a#0" {
			x.Steps[0].Reward = number(.25)
		}
		return nil
	}}
	for range 2 {
		d, err := Load(t.Context(), []string{f}, Options{Reward: true, Group: true, Sources: from})
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Episodes[0].StepRewards; len(got) != 1 || got[0] != (episode.StepReward{Token: 3, Reward: .25}) || d.Episodes[0].Score != 1 {
			t.Errorf("%+v, score %v", got, d.Episodes[0].Score)
		}
		from.Made = d.Made
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("%d rows were scored, of 2", n)
	}
}

// A run's attempts at a task are one group, whichever files have them: the group's id has
// the tag of its run.
func TestAttemptsOfOneRunAreComparedAcrossFiles(t *testing.T) {
	dir := t.TempDir()
	of := func(id, group string) *traj.Trajectory {
		return row(id, group, number(float64(len(id)%2)), nil)
	}
	for group, want := range map[string]int{"q@0123abcd": 1, "q@0123abcd.7": 1, "q": 2, "q@home": 2} {
		a := parquettest.Write(t, filepath.Join(dir, "a.parquet"), `{}`, of("q#0", group))
		b := parquettest.Write(t, filepath.Join(dir, "b.parquet"), `{}`, of("q#10", group))
		d, err := Load(t.Context(), []string{a, b}, policyRows)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(episode.Groups(d.Episodes)); n != want {
			t.Errorf("%s: %d groups, want %d", group, n, want)
		}
		if err := d.CheckGroups(); (err == nil) != (want == 1) {
			t.Errorf("%s: %v", group, err)
		}
		if d.Episodes[1].Name() != b+": q#10" {
			t.Errorf("the second row is named %s", d.Episodes[1].Name())
		}
	}
}

// A row that failed leaves its id to the attempt that was made in its place.
func TestTheRetryOfAFailedRowIsTaken(t *testing.T) {
	f := parquettest.Write(t, filepath.Join(t.TempDir(), "f.parquet"), `{}`,
		row("a#0", "a", nil, func(x *traj.Trajectory) { x.Termination = traj.ModelFailed }),
		row("a#0", "a", number(1), nil), row("a#1", "a", number(0), nil), row("a#1", "a", number(1), nil))
	d, err := Load(t.Context(), []string{f}, policyRows)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Episodes) != 2 || d.Episodes[0].Score != 1 || d.Episodes[1].Score != 0 || d.Skipped.Rows != 2 {
		t.Errorf("%d rows, left out: %s", len(d.Episodes), d.Skipped.String())
	}
}
