package files

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/app/console"
	"agentcli/lossscale"
	"agentcli/model/tokenizer"
	"agentcli/parquet"
	"agentcli/traj"
)

const tinyModel = "../../policy/testdata/tiny-qwen3"

// weighed writes a file of one trajectory of two replies, of which the first has weights.
func weighed(t *testing.T) (path string, tok *tokenizer.Tokenizer, s traj.Sequence) {
	t.Helper()
	tok, err := tokenizer.Open(tinyModel)
	if err != nil {
		t.Fatal(err)
	}
	row := &traj.Trajectory{ID: "a#0", GroupID: "a", Termination: traj.Answered, Reward: new(1.),
		Messages: []traj.Message{{Role: traj.RoleUser}, {Role: traj.RoleAssistant}, {Role: traj.RoleTool}, {Role: traj.RoleAssistant}}}
	prompt := tok.EncodeOrdinary("?")
	for _, reply := range []string{"Action: x", "<tool_call>y</tool_call> Action: z"} {
		said := tok.EncodeOrdinary(reply)
		seq, start, end, err := row.Record(prompt, nil, said, make([]traj.Logprob, len(said)))
		if err != nil {
			t.Fatal(err)
		}
		row.Steps = append(row.Steps, traj.Step{Sequence: seq, Start: start, End: end})
		prompt = slices.Concat(row.Sequences[0].TokenIDs, tok.EncodeOrdinary(" ok "))
	}
	one := &row.Sequences[0]
	one.Weights = slices.Repeat([]float64{1}, len(one.TokenIDs))
	for k := range row.Steps[0].End {
		one.Weights[k] = .5
	}
	path = filepath.Join(t.TempDir(), "t.parquet")
	w, err := parquet.CreateFile(path, parquet.Metadata{}, parquet.WriterConfig{Columns: []string{parquet.ColumnLossWeights}})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(row); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path, tok, *one
}

func TestInspectShowsWhatTokensWeigh(t *testing.T) {
	path, tok, s := weighed(t)
	inspect := func(o InspectOptions) string {
		t.Helper()
		var out, errs bytes.Buffer
		o.Path, o.Tokenizer = path, tinyModel
		if err := Inspect(t.Context(), o, console.Streams{Out: &out, Err: &errs}); err != nil {
			t.Fatal(err)
		}
		if (o.LossScale == "qwen") != (errs.Len() > 0) { // nothing of which is in the file
			t.Errorf("%s: on stderr: %s", o.LossScale, &errs)
		}
		return out.String()
	}
	var summary fileSummary
	if err := json.Unmarshal([]byte(inspect(InspectOptions{JSON: true})), &summary); err != nil {
		t.Fatal(err)
	}
	if w := summary.Weights; w == nil || w.Min != .5 || w.Max != 1 || w.Zero != 0 || w.Tokens != s.Sampled() {
		t.Errorf("weights of the file: %+v", w)
	}
	if err := json.Unmarshal([]byte(inspect(InspectOptions{JSON: true, LossScale: "last_round"})), &summary); err != nil {
		t.Fatal(err)
	}
	if w := summary.Weights; w.Min != 0 || w.Zero == 0 || w.Zero >= w.Tokens {
		t.Errorf("weights of the last reply: %+v", w)
	}
	if w := summary.Weights; summary.TrainTokens != int64(w.Tokens-w.Zero) {
		t.Errorf("%d tokens are trained on, of %d of which %d weigh nothing", summary.TrainTokens, w.Tokens, w.Zero)
	}
	inspect(InspectOptions{LossScale: "qwen"})

	// What the rules say times what the file says, on the ids that were sampled.
	var got traj.Trajectory
	if err := json.Unmarshal([]byte(inspect(InspectOptions{ID: "a#0", JSON: true, LossScale: "hermes+react"})), &got); err != nil {
		t.Fatal(err)
	}
	rules, err := lossscale.Open("hermes+react")
	if err != nil {
		t.Fatal(err)
	}
	want := rules.Trajectory(tok, &got)[0]
	for k := range want {
		want[k] *= s.Weights[k]
		if !s.LossMask[k] {
			want[k] = s.Weights[k]
		}
	}
	if x := got.Sequences[0]; !slices.Equal(x.Weights, want) || !slices.Equal(x.TokenIDs, s.TokenIDs) {
		t.Errorf("weights %v, want %v", x.Weights, want)
	}
	if !slices.Contains(want, 2) || !slices.Contains(want, 1) || !slices.Contains(want, .5) {
		t.Errorf("the rules say nothing: %v", want)
	}
	shown := inspect(InspectOptions{ID: "a#0", Tokens: true, LossScale: "last_round+hermes"})
	for _, stretch := range []string{"⟦0× Action: x⟧", "⟦2× <tool_call>y</tool_call>⟧", "⟦ Action: z⟧"} {
		if !strings.Contains(shown, stretch) {
			t.Errorf("no %s in\n%s", stretch, shown)
		}
	}
}

// TestAllShowsWhatATrainingWouldLearn: with --loss-scale all everything behind the first sampled
// token is learned but images, at the weights that it has.
func TestAllShowsWhatATrainingWouldLearn(t *testing.T) {
	row := &traj.Trajectory{Sequences: []traj.Sequence{
		{TokenIDs: make([]int32, 7), LossMask: []bool{false, false, true, false, false, true, false}},
		{TokenIDs: make([]int32, 9), LossMask: []bool{false, true, false, false, false, false, false, true, false},
			Images: []traj.ImageSpan{{Start: 3, Tokens: 2}}}, // and the two tokens around it
		{TokenIDs: make([]int32, 3), LossMask: []bool{false, true, false}, Weights: []float64{0, 0, 0}}, // cut off
	}}
	for i := range row.Sequences {
		row.Sequences[i].Logprobs = make([]traj.Logprob, len(row.Sequences[i].TokenIDs))
		for k, sampled := range row.Sequences[i].LossMask {
			if !sampled {
				row.Sequences[i].Logprobs[k] = traj.NoLogprob()
			}
		}
	}
	w, err := openWeighing(InspectOptions{LossScale: lossscale.All}, "")
	if err != nil {
		t.Fatal(err)
	}
	w.apply(row)
	for i, want := range []int{5, 4, 0} {
		if n := row.Sequences[i].Trained(); n != want {
			t.Errorf("sequence %d: %d tokens are learned, want %d", i, n, want)
		}
	}
}
