package lossscale

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/internal/goldenfile"
	"agentcli/model/tokenizer"
	"agentcli/traj"
)

// golden is what ms-swift's own code gave (scripts/golden/lossscale.py).
type golden struct {
	Cases []struct {
		Scale, File string
		Rows        []struct {
			Reply, Query string
			Pieces       []goldenPiece
		}
	}
	Strategies []struct {
		Strategy string
		Messages []struct {
			Role      string
			Loss      *bool
			LossScale *float64 `json:"loss_scale"`
		}
		Weights []float64
	}
}

type goldenPiece Piece

func (p *goldenPiece) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&p.Text, &p.Weight})
}

func readGolden(t *testing.T) (g golden) {
	t.Helper()
	goldenfile.Load(t, "swift.json.gz", &g)
	return g
}

// rulesOf opens the rules of a case, from a file where it has one.
func rulesOf(t *testing.T, scale, file string) *Rules {
	t.Helper()
	_, names := Split(scale)
	if file != "" {
		names = filepath.Join(t.TempDir(), scale+".json")
		if err := os.WriteFile(names, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Open(names)
	if err != nil {
		t.Fatalf("%s: %v", scale, err)
	}
	return r
}

func TestPiecesAreThoseOfSwift(t *testing.T) {
	g := readGolden(t)
	seen := map[string]bool{}
	for _, c := range g.Cases {
		r := rulesOf(t, c.Scale, c.File)
		seen[c.Scale] = true
		if len(c.Rows) < 200 {
			t.Errorf("%s: %d replies", c.Scale, len(c.Rows))
		}
		for _, row := range c.Rows {
			var want []Piece
			for _, p := range row.Pieces {
				want = append(want, Piece(p))
			}
			if got := r.Pieces(row.Reply, []string{row.Query}); !slices.Equal(got, want) {
				t.Fatalf("%s: %q asked %q\n%v, want\n%v", c.Scale, row.Reply, row.Query, got, want)
			}
		}
		if r.Unmatched() != nil && c.Scale != "react+react" {
			t.Errorf("%s: %v", c.Scale, r.Unmatched())
		}
	}
	for _, name := range Names() {
		if !seen[name] {
			t.Errorf("no replies of rule %s", name)
		}
	}
}

// The tokens of a reply weigh what swift's pieces do. Where a piece begins within a token,
// the piece of the token's first byte counts.
func TestTokensWeighWhatTheirPieceDoes(t *testing.T) {
	tok, err := tokenizer.Open("../policy/testdata/tiny-qwen3")
	if err != nil {
		t.Fatal(err)
	}
	end := special(t, tok)
	within, across := 0, 0
	rounded, want := Rounded{}, Rounded{}
	for _, c := range readGolden(t).Cases {
		r := rulesOf(t, c.Scale, c.File)
		for _, row := range c.Rows {
			ids := append(tok.EncodeOrdinary(row.Reply), end)
			weights := r.Tokens(tok, ids, []string{row.Query})
			if len(weights) != len(ids) || weights[len(ids)-1] != 1 {
				t.Fatalf("%s: %d weights of %d tokens, the last %v", c.Scale, len(weights), len(ids), weights)
			}
			var bytes []float64 // what each weighs
			for _, p := range row.Pieces {
				bytes = append(bytes, slices.Repeat([]float64{p.Weight}, len(p.Text))...)
			}
			at, piece, left := 0, -1, 0
			for i, id := range ids[:len(ids)-1] {
				for left <= 0 { // the token begins behind this piece
					piece++
					left += len(row.Pieces[piece].Text)
				}
				n := len(tok.Bytes(id))
				if weights[i] != row.Pieces[piece].Weight {
					t.Fatalf("%s: %q: token %d, %q at byte %d, weighs %v, want %v", c.Scale, row.Reply, i, tok.Bytes(id), at,
						weights[i], row.Pieces[piece].Weight)
				}
				want.Of++
				if slices.ContainsFunc(bytes[at:at+n], func(w float64) bool { return w != bytes[at] }) {
					want.Tokens++
				}
				if n > left {
					across++
				} else {
					within++
				}
				at, left = at+n, left-n
			}
		}
		rounded.Tokens, rounded.Of = rounded.Tokens+r.Rounded().Tokens, rounded.Of+r.Rounded().Of
	}
	if rounded != want || want.Tokens == 0 {
		t.Errorf("counted %+v, want %+v", rounded, want)
	}
	if within < 10000 || across == 0 {
		t.Errorf("%d tokens are within a piece, %d reach over its end", within, across)
	}
}

// special is a control token.
func special(t *testing.T, tok *tokenizer.Tokenizer) int32 {
	t.Helper()
	for id := range int32(tok.VocabSize()) {
		if tok.Special(id) {
			return id
		}
	}
	t.Fatal("the tokenizer has no control token")
	return 0
}

// A character may be cut into several tokens, none of which is UTF-8.
func TestTokensOfHalfACharacterHaveAWeight(t *testing.T) {
	tok, err := tokenizer.Open("../policy/testdata/tiny-qwen3")
	if err != nil {
		t.Fatal(err)
	}
	r := rulesOf(t, "own", `{"世": [3], "ü": [0.5]}`)
	ids := tok.EncodeOrdinary("a世ü世b")
	got := map[float64]int{} // bytes by weight
	partial := false
	for i, w := range r.Tokens(tok, ids, nil) {
		b := tok.Bytes(ids[i])
		got[w] += len(b)
		partial = partial || strings.ToValidUTF8(string(b), "") != string(b)
	}
	if got[3] != 6 || got[.5] != 2 || got[1] != 2 {
		t.Errorf("bytes by weight: %v", got)
	}
	if !partial {
		t.Error("every token is whole characters; the test shows nothing")
	}
}

// Replies are the model's messages; what is asked stands in the messages before.
func TestATrajectorysRepliesAreWeighed(t *testing.T) {
	tok, err := tokenizer.Open("../policy/testdata/tiny-qwen3")
	if err != nil {
		t.Fatal(err)
	}
	end := special(t, tok)
	var s traj.Sequence
	put := func(text string, sampled, ends bool) {
		ids := tok.EncodeOrdinary(text)
		if ends {
			ids = append(ids, end)
		}
		for _, id := range ids {
			s.TokenIDs, s.LossMask = append(s.TokenIDs, id), append(s.LossMask, sampled)
		}
	}
	put("q", false, true)
	put("Action: a ", true, false)
	put("Thought: Observation:", false, false) // inserted into the reply
	put(" b ", true, false)
	put("Thought:", true, true)
	put("Action:", false, true) // a turn
	last := len(s.TokenIDs)
	put("yes", true, true)
	s.Logprobs = make([]traj.Logprob, len(s.TokenIDs))
	cut := s // what was cut off of the first reply
	cut.Weights = make([]float64, len(s.TokenIDs))
	x := &traj.Trajectory{Sequences: []traj.Sequence{cut, s}, Messages: []traj.Message{
		{Role: traj.RoleUser, Content: "What is the value of x"}, {Role: traj.RoleAssistant},
		{Role: traj.RoleUser, Content: "q"}, {Role: traj.RoleAssistant},
		{Role: traj.RoleTool, Content: "What is the tool you want to use"}, {Role: traj.RoleAssistant}}}
	r, err := Open("agentflan")
	if err != nil {
		t.Fatal(err)
	}
	if !r.NeedsQueries() {
		t.Error("agentflan does not read what was asked")
	}
	got := map[float64]string{}
	all := r.Trajectory(tok, x)
	for k, w := range all[1] {
		if !s.LossMask[k] && w != 1 {
			t.Errorf("token %d was not sampled and weighs %v", k, w)
		} else if s.LossMask[k] && !tok.Special(s.TokenIDs[k]) {
			got[w] += string(tok.Bytes(s.TokenIDs[k]))
		}
	}
	// a follows Action:, b what was inserted; the tool's message gives the last reply its weight.
	if want := map[float64]string{1: "Action:Thought:", 3: " a yes", 0: " b "}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v: %v", got, want, all)
	}
	if slices.Min(all[0]) != 1 || slices.Max(all[0]) != 1 {
		t.Errorf("what was cut off weighs %v", all[0])
	}
	if i, at := LastReply(x.Sequences); i != 1 || at != last {
		t.Errorf("the last reply begins at %d of sequence %d", at, i)
	}
}
