package files

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"agentcli/app/console"
	"agentcli/model/tokenizer"
	"agentcli/parquet"
	"agentcli/traj"
)

// scheduled plays a trajectory as a scheduler would: a worked example, a reply that is cut
// back and goes on, another turn, and where rewritten is true a turn of another history.
func scheduled(t *testing.T, tok *tokenizer.Tokenizer, rewritten bool) *traj.Trajectory {
	t.Helper()
	ids := tok.EncodeOrdinary
	opens := ids("\nassistant:\n")
	row := &traj.Trajectory{ID: "a#0", GroupID: "a", Termination: traj.Answered}
	var prompt []int32
	reply := func(said string) {
		t.Helper()
		sampled := ids(said)
		seq, start, end, err := row.Record(prompt, nil, sampled, make([]traj.Logprob, len(sampled)))
		if err != nil {
			t.Fatal(err)
		}
		row.Steps = append(row.Steps, traj.Step{Sequence: seq, Start: start, End: end})
		prompt = slices.Concat(prompt, sampled)
	}
	say := func(role, content string) {
		row.Messages = append(row.Messages, traj.Message{Role: role, Content: content})
	}
	say(traj.RoleUser, "example")
	say(traj.RoleAssistant, "shot")
	say(traj.RoleUser, "question")
	prompt = slices.Concat(ids("question"), opens)
	reply("one two three four")
	kept := len(ids("one two"))
	row.Cut(traj.Cut{Tokens: kept})
	reward := .1 + .2
	row.Steps[0].Reward = &reward
	row.SetInfo(traj.Info(`{"cut": true}`))
	prompt = slices.Concat(row.Sequences[1].TokenIDs, ids(" but wait, that was wrong,"))
	reply(" five")
	say(traj.RoleAssistant, "one two but wait, that was wrong, five")
	say(traj.RoleUser, "again")
	prompt = slices.Concat(prompt, ids("again"), opens)
	reply("six")
	say(traj.RoleAssistant, "six")
	if rewritten {
		row.Messages = nil
		say(traj.RoleUser, "summary")
		say(traj.RoleAssistant, "six")
		say(traj.RoleUser, "go on")
		prompt = slices.Concat(ids("summary, six, go on"), opens)
		reply("seven")
		say(traj.RoleAssistant, "seven")
	}
	return row
}

func TestStepsAreShownAtTheRepliesThatTheySampled(t *testing.T) {
	tok, err := tokenizer.Open(tinyModel)
	if err != nil {
		t.Fatal(err)
	}
	got, history := replySteps(scheduled(t, tok, false))
	if want := [][]int{nil, nil, nil, {0, 1}, nil, {2}}; !reflect.DeepEqual(got, want) || history {
		t.Errorf("a reply that goes on: %v, history %v; want %v", got, history, want)
	}
	got, history = replySteps(scheduled(t, tok, true))
	if want := [][]int{nil, nil, nil, {3}}; !reflect.DeepEqual(got, want) || !history {
		t.Errorf("a rewritten history: %v, history %v; want %v", got, history, want)
	}
}

func TestInspectShowsWhatASchedulerSaidAndTookBack(t *testing.T) {
	tok, err := tokenizer.Open(tinyModel)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "t.parquet")
	w, err := parquet.CreateFile(path, parquet.Metadata{}, parquet.WriterConfig{Columns: []string{parquet.ColumnInfos,
		parquet.ColumnLossWeights}})
	if err != nil {
		t.Fatal(err)
	}
	row := scheduled(t, tok, false)
	other := &traj.Trajectory{ID: "b#0", GroupID: "b", Termination: traj.Answered}
	for _, one := range []*traj.Trajectory{row, other} {
		if err := w.Write(one); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	inspect := func(o InspectOptions) string {
		t.Helper()
		var out, errs bytes.Buffer
		o.Path, o.Tokenizer = path, tinyModel
		if err := Inspect(t.Context(), o, console.Streams{Out: &out, Err: &errs}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	var summary fileSummary
	if err := json.Unmarshal([]byte(inspect(InspectOptions{JSON: true})), &summary); err != nil {
		t.Fatal(err)
	}
	cut := row.Sequences[0].Sampled()
	if c := summary.Scheduler; cut == 0 || c == nil || *c != (told{Infos: 1, Cut: 1, CutTokens: cut}) {
		t.Errorf("of the file: %+v; %d tokens were cut off", c, cut)
	}
	one := inspect(InspectOptions{ID: "a#0"})
	for _, want := range []string{`{"cut":true}`, "cut off, in sequence 0", "0.3\n"} {
		if !strings.Contains(one, want) {
			t.Errorf("%q is not shown:\n%s", want, one)
		}
	}
	// A training that weighs only the last round does not cut anything off.
	if err := json.Unmarshal([]byte(inspect(InspectOptions{JSON: true, LossScale: "last_round"})), &summary); err != nil {
		t.Fatal(err)
	}
	if summary.Scheduler.CutTokens != cut {
		t.Errorf("with weights of a training %d tokens are cut off, without %d", summary.Scheduler.CutTokens, cut)
	}
}
