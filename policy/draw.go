//go:build libtorch

package policy

import (
	"container/heap"
	"errors"
	"fmt"
	"math"
	"slices"

	"agentcli/internal/torch"
	"agentcli/traj"
)

// drawing is what a step draws for a sequence: a token behind its last one, and, as long as a
// draft says what was drawn, one behind each token of it. Their logits stand in rows from first on.
type drawing struct {
	seq   *sequence
	first int
	draft []int32
}

// draws are the tokens of a step. Those with a grammar are drawn among the ids that it allows,
// by the same rule: cuts and draw are of the masked distribution, log-probs of the whole one.
type draws struct {
	version int64
	how     []torch.SampleRow
	ids     []int32   // of each row
	lps     []float32 // in the same order
	vocab   int
	logits  []float32   // of rows that are looked at here, one behind the other
	place   map[int]int // of a row among them
}

// newDraws draws a token from each row of logits [n, V], where none was drawn, whatever grammars say.
func newDraws(sc *scheduler, s *torch.Scope, got scored, of []drawing, how []torch.SampleRow) *draws {
	d := &draws{version: sc.p.version.Load(), how: how, vocab: sc.p.model.VocabSize, place: map[int]int{}}
	var special []int32
	for _, x := range of {
		if x.seq.top > 0 || x.seq.grammar != nil {
			for i := range len(x.draft) + 1 {
				d.place[x.first+i] = len(special)
				special = append(special, int32(x.first+i))
			}
		}
	}
	if special != nil {
		d.logits = s.Float32s(s.To(s.IndexSelect(got.logits, 0, s.To(s.IDs(special), torch.Int64, sc.p.net.device)), torch.Float32, torch.CPU))
		d.vocab = len(d.logits) / len(special)
	}
	if d.ids, d.lps = got.ids, got.lps; d.ids == nil {
		d.ids, d.lps = s.Sample(got.logits, how)
	}
	return d
}

// token is what is drawn behind the first i tokens of a draft. Called in order: a grammar accepts it.
func (d *draws) token(s *torch.Scope, of drawing, i int) (Token, error) {
	q, row := of.seq, of.first+i
	t := Token{ID: d.ids[row], Logprob: traj.Logprob(d.lps[row]), Version: d.version}
	if q.adapter != nil {
		t.Version = q.adapter.Version
	}
	at, special := d.place[row]
	if !special {
		return t, nil
	}
	logits, how := d.logits[at*d.vocab:(at+1)*d.vocab], d.how[row]
	scale := 1.0
	if how.Tempered == 1 && how.Temperature > 0 {
		scale = 1 / how.Temperature
	}
	norm := logSum(logits, scale)
	if q.grammar != nil {
		id, err := drawAllowed(s, logits, q.grammar, how)
		if err != nil {
			return t, err
		}
		t.ID, t.Logprob = id, traj.Logprob(float64(logits[id])*scale-norm)
	}
	t.Top = topOf(logits, q.top, scale, norm)
	for k := range t.Top {
		if t.Top[k].ID == t.ID {
			t.Top[k].Logprob = t.Logprob
		}
	}
	return t, nil
}

// errNothingAllowed says that a grammar has no next id.
var errNothingAllowed = errors.New("the grammar allows no next token")

// drawAllowed draws one id that the grammar allows, and has it accept the id.
func drawAllowed(s *torch.Scope, row []float32, g Grammar, how torch.SampleRow) (int32, error) {
	mask := make([]uint32, (len(row)+31)/32)
	g.Fill(mask)
	var ids []int32 // that are allowed, and their logits
	var logits []float32
	for i, x := range row {
		if mask[i/32]&(1<<(i%32)) != 0 {
			ids, logits = append(ids, int32(i)), append(logits, x)
		}
	}
	if ids == nil {
		return 0, errNothingAllowed
	}
	how.Tempered = 0
	at, _ := s.Sample(s.Float32(logits, 1, int64(len(logits))), []torch.SampleRow{how})
	if s.Err() != nil {
		return 0, s.Err()
	}
	if id := ids[at[0]]; g.Accept(id) {
		return id, nil
	}
	return 0, fmt.Errorf("the grammar allowed token %d and refused it", ids[at[0]])
}

// logSum is log Σ exp(scale·x).
func logSum(row []float32, scale float64) float64 {
	most := float64(slices.Max(row)) * scale
	sum := 0.0
	for _, x := range row {
		sum += math.Exp(float64(x)*scale - most)
	}
	return most + math.Log(sum)
}

// topOf are the n most probable ids of a row of logits, the first one the most probable and
// of equals the one with the lowest id.
func topOf(row []float32, n int, scale, norm float64) []TopToken {
	if n <= 0 {
		return nil
	}
	n = min(n, len(row))
	best := make(topHeap, 0, n)
	for i, x := range row {
		switch {
		case len(best) < n:
			heap.Push(&best, topLogit{int32(i), x})
		case x > best[0].logit:
			best[0] = topLogit{int32(i), x}
			heap.Fix(&best, 0)
		}
	}
	out := make([]TopToken, len(best))
	for k := len(best) - 1; k >= 0; k-- {
		t, _ := heap.Pop(&best).(topLogit)
		out[k] = TopToken{ID: t.id, Logprob: traj.Logprob(float64(t.logit)*scale - norm)}
	}
	return out
}

type topLogit struct {
	id    int32
	logit float32
}

// topHeap has the least probable on top.
type topHeap []topLogit

func (h topHeap) Len() int { return len(h) }
func (h topHeap) Less(i, j int) bool {
	return h[i].logit < h[j].logit || h[i].logit == h[j].logit && h[i].id > h[j].id
}
func (h topHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *topHeap) Push(x any) { t, _ := x.(topLogit); *h = append(*h, t) }

// Pop implements heap.Interface.
func (h *topHeap) Pop() any { t := (*h)[len(*h)-1]; *h = (*h)[:len(*h)-1]; return t }
