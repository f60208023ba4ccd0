package rows

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/internal/malformed"
	"agentcli/lossscale"
	"agentcli/model/tokenizer"
	"agentcli/parquet"
	"agentcli/trainer/episode"
	"agentcli/traj"
)

// A file by others may say what each token weighs (testdata/make.py).
func TestRowsHaveWeightsOfTheirTokens(t *testing.T) {
	d, err := Load(t.Context(), []string{"testdata/loss_weights.parquet"}, policyRows)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	want := [][][]float64{{{9, .5, 2}}, {nil, {0, 0, 0, 1}}, {nil}, {{0, 1, .25}}} // of the fourth, one sequence has no sampled token
	if len(d.Episodes) != len(want) {
		t.Fatalf("%d episodes", len(d.Episodes))
	}
	for i, e := range d.Episodes {
		var got [][]float64
		for _, s := range e.Sequences {
			got = append(got, s.Weights)
		}
		if !slices.EqualFunc(got, want[i], slices.Equal) {
			t.Errorf("%s: %v, want %v", e.ID, got, want[i])
		}
	}
	if d.Skipped.Rows != 1 || !strings.Contains(d.Skipped.String(), "weight 0") {
		t.Errorf("skipped: %s", d.Skipped.String())
	}
	_, err = Load(t.Context(), []string{"testdata/bad_weights.parquet"}, policyRows)
	fault := malformed.Error{Path: "testdata/bad_weights.parquet", Row: 2, Field: "column loss_weights", Kind: malformed.Mismatch}
	if malformed.Facts(err) != fault {
		t.Errorf("%v: %+v", err, malformed.Facts(err))
	}
}

// weighted is an Options that weighs replies by a file of a rule.
func weighted(t *testing.T, o Options, rule string) (Options, *tokenizer.Tokenizer) {
	t.Helper()
	_, tok := formats(t, "chatml")
	var err error
	if o.Weigh, err = lossscale.Open(write(t, "rule.json", rule)); err != nil {
		t.Fatal(err)
	}
	o.Vocabulary = func(string) (lossscale.Vocabulary, error) { return tok, nil }
	return o, tok
}

// byWeight is the text of the sampled tokens of an episode, by weight.
func byWeight(tok *tokenizer.Tokenizer, e *episode.Episode) map[float64]string {
	got := map[float64]string{}
	for _, s := range e.Sequences {
		for i, id := range s.TokenIDs {
			w := 1.
			if s.Weights != nil {
				w = s.Weights[i]
			}
			if s.LossMask[i] {
				got[w] += string(tok.Bytes(id))
			} else if w != 1 {
				got[-1] += string(tok.Bytes(id))
			}
		}
	}
	return got
}

// What the file says and what a rule says are multiplied; the sampled ids stay as they are.
func TestRulesWeighTheRepliesOfAFile(t *testing.T) {
	o, tok := weighted(t, policyRows, `{"cd": [0.5, 2], "zz": [1, 1]}`)
	replies := []string{"abcdef", "ab", "xx cd yy"}
	path := filepath.Join(t.TempDir(), "t.parquet")
	w, err := parquet.CreateFile(path, parquet.Metadata{}, parquet.WriterConfig{Columns: []string{parquet.ColumnLossWeights}})
	if err != nil {
		t.Fatal(err)
	}
	var ids [][]int32
	for i, reply := range replies {
		said := tok.EncodeOrdinary(reply)
		row := row(fmt.Sprint("a#", i), "a", number(float64(i)), func(x *traj.Trajectory) {
			x.Steps, x.Sequences = nil, nil
			if _, _, _, err := x.Record(tok.EncodeOrdinary("cd?"), nil, said, make([]traj.Logprob, len(said))); err != nil {
				t.Fatal(err)
			}
			if i == 2 {
				x.Sequences[0].Weights = slices.Repeat([]float64{3}, len(x.Sequences[0].TokenIDs))
			}
		})
		ids = append(ids, row.Sequences[0].TokenIDs)
		if err := w.Write(row); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	d, err := Load(t.Context(), []string{path}, o)
	if err != nil {
		t.Fatal(err)
	}
	// The tokenizer of the test has single letters, so that no token reaches over a cut.
	for i, want := range []map[float64]string{{1: "ab", .5: "cd", 2: "ef"}, {1: "ab"}, {3: "xx ", 1.5: "cd", 6: " yy", -1: "cd?"}} {
		e := d.Episodes[i]
		if got := byWeight(tok, e); !maps.Equal(got, want) {
			t.Errorf("%q: %v, want %v", replies[i], got, want)
		}
		if !slices.Equal(e.Sequences[0].TokenIDs, ids[i]) {
			t.Errorf("%q: the ids are others than those that were sampled", replies[i])
		}
	}
	if d.Episodes[1].Sequences[0].Weights != nil {
		t.Error("a reply in which nothing matches has weights")
	}
	if u := d.Unmatched; len(u) != 1 || !slices.Equal(u[0].Patterns, []string{"zz"}) || u[0].Replies != 3 {
		t.Errorf("matched by nothing: %+v", u)
	}
}

// A row of which a rule leaves nothing is left out, and counted.
func TestRowsOfWeightZeroAreLeftOut(t *testing.T) {
	o, _ := weighted(t, Options{Text: TextReplies}, `{"(?s:.*no.*)": [0]}`)
	f, _ := formats(t, "chatml")
	o.Format = func() (*Format, error) { return f, nil }
	path := write(t, "rows.jsonl", `{"prompt":"q","completion":"yes"}`, `{"messages":[{"role":"user","content":"q"},`+
		`{"role":"assistant","content":"so","loss":false}]}`)
	d, err := Load(t.Context(), []string{path}, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Episodes) != 1 || d.Skipped.Rows != 1 {
		t.Errorf("%d rows, %d left out", len(d.Episodes), d.Skipped.Rows)
	}
}

// A message's own loss and loss_scale win over the strategy and the rules; the row's weight
// multiplies them. As in ms-swift, the token that ends a turn weighs 1.
func TestMessagesSayWhatTheyWeigh(t *testing.T) {
	const end = "<|im_end|>"
	turns := func(own ...string) string {
		var b strings.Builder
		for i, o := range own {
			fmt.Fprintf(&b, `,{"role":"user","content":"q","loss":true},{"role":"assistant","content":"Act%d"%s}`, i, o)
		}
		return `{"messages":[` + b.String()[1:] + `]`
	}
	for _, x := range []struct {
		row  string
		last bool // the strategy is last_round
		want map[float64]string
	}{
		{turns("", "") + "}", false, map[float64]string{3: "Act0Act1", 1: end + end}},
		{turns("", "") + `,"weight":[2,0.5]}`, false, map[float64]string{6: "Act0", 2: end, 1.5: "Act1", .5: end}},
		{turns(`,"loss":false`, `,"loss":true`) + "}", false, map[float64]string{0: "Act0" + end, 3: "Act1", 1: end}},
		{turns(`,"loss_scale":0.5`, `,"loss_scale":0`) + "}", false, map[float64]string{.5: "Act0", 1: end, 0: "Act1" + end}},
		{turns(`,"loss":true`, "", "") + "}", true, map[float64]string{3: "Act0Act2", 1: end + end, 0: "Act1" + end}},
		{turns(`,"loss":true,"loss_scale":4`, `,"loss":false`) + "}", true, map[float64]string{4: "Act0", 1: end, 0: "Act1" + end}},
		{turns(`,"loss":false`, "") + "}", true, map[float64]string{0: "Act0" + end, 3: "Act1", 1: end}},
	} {
		strategy := lossscale.Default
		if x.last {
			strategy = lossscale.LastRound
		}
		selection := episode.TokenSelection{Strategy: strategy}
		o, tok := weighted(t, Options{Text: TextReplies, LastRound: x.last, Layout: Layout{Count: func(e *episode.Episode) {
			e.CountTokens(selection)
		}}}, `{"Act\\d": [3]}`)
		f, _ := formats(t, "chatml")
		o.Format = func() (*Format, error) { return f, nil }
		d, err := Load(t.Context(), []string{write(t, "rows.jsonl", x.row)}, o)
		if err != nil {
			t.Fatal(err)
		}
		e := d.Episodes[0]
		if got := byWeight(tok, e); !maps.Equal(got, x.want) {
			t.Errorf("%s: %v, want %v", x.row, got, x.want)
		}
		e.LayOut(selection)
		n := 0
		for w, text := range x.want {
			if w > 0 && !(x.last && !e.OwnLoss) {
				n += len(tok.EncodeOrdinary(strings.ReplaceAll(text, end, ""))) + strings.Count(text, end)
			}
		}
		if n > 0 && n != e.Actions() {
			t.Errorf("%s: %d actions, want %d", x.row, e.Actions(), n)
		}
	}
	for own, want := range map[string]malformed.Error{
		`,"loss":"no"`:       {Field: "messages.loss", Kind: malformed.Type},
		`,"loss_scale":-1`:   {Field: "messages.loss_scale", Kind: malformed.Range},
		`,"loss_scale":true`: {Field: "messages.loss_scale", Kind: malformed.Type},
	} {
		_, err := loadText(t, TextReplies, "chatml", turns(own)+"}")
		got := malformed.Facts(err)
		want.Path, want.Row = got.Path, 1
		if got != want {
			t.Errorf("%s: %v: %+v", own, err, got)
		}
	}
}

// Which replies the strategies and the messages' own loss choose is what ms-swift chooses.
func TestChosenRepliesAreThoseOfSwift(t *testing.T) {
	z, err := os.Open("../../lossscale/testdata/swift.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	r, err := gzip.NewReader(z)
	if err != nil {
		t.Fatal(err)
	}
	var g struct {
		Strategies []struct {
			Strategy string
			Messages json.RawMessage
			Weights  []float64
		}
	}
	if err := json.NewDecoder(r).Decode(&g); err != nil {
		t.Fatal(err)
	}
	f, tok := formats(t, "chatml")
	trained := 0
	for _, x := range g.Strategies {
		if x.Strategy == lossscale.All {
			continue // between replies, where swift passes over what a message says
		}
		selection := episode.TokenSelection{Strategy: x.Strategy}
		o := Options{Text: TextReplies, LastRound: x.Strategy == lossscale.LastRound,
			Sources: Sources{Format: func() (*Format, error) { return f, nil }},
			Layout:  Layout{Count: func(e *episode.Episode) { e.CountTokens(selection) }}}
		d, err := Load(t.Context(), []string{write(t, "rows.jsonl", `{"messages":`+string(x.Messages)+"}")}, o)
		if errors.Is(err, ErrNoRows) && slices.Max(x.Weights) == 0 {
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", x.Messages, err)
		}
		e := d.Episodes[0]
		e.LayOut(selection)
		var got []float64 // of each reply, its first token's
		for i, s := range e.Sequences {
			k := 0
			for at := range s.TokenIDs {
				w := 0.
				if e.Streams[i].Want[at] {
					w = e.Streams[i].ActionWeight[k]
					k++
				}
				if s.LossMask[at] && !s.LossMask[at-1] {
					got = append(got, w)
				}
			}
		}
		if !slices.Equal(got, x.Weights) {
			t.Errorf("%s of %s: %v, want %v: %s", x.Strategy, x.Messages, got, x.Weights, tok.Decode(e.Sequences[0].TokenIDs, false))
		}
		trained++
	}
	if trained < 250 {
		t.Errorf("%d conversations were compared", trained)
	}
}
