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

// drawTokens draws the next token of each sequence from its row of logits [n, V]. Those with a
// grammar are drawn among the ids that it allows, by the same rule: cuts and draw are of the
// masked distribution, log-probs of the whole one.
func drawTokens(sc *scheduler, s *torch.Scope, logits torch.Tensor, of []*sequence, how []torch.SampleRow) []Token {
	version := sc.p.version.Load()
	out := make([]Token, len(of))
	var special []int32 // rows that are looked at here
	for i, q := range of {
		if q.top > 0 || q.grammar != nil {
			special = append(special, int32(i))
		}
	}
	var rows []float32 // of the special ones
	vocab := sc.p.model.VocabSize
	if special != nil {
		rows = s.Float32s(s.To(s.IndexSelect(logits, 0, s.To(s.IDs(special), torch.Int64, sc.p.net.device)), torch.Float32, torch.CPU))
		if s.Err() != nil {
			return nil
		}
		vocab = len(rows) / len(special)
	}
	ids, lps := s.Sample(logits, how)
	if s.Err() != nil {
		return nil
	}
	for i := range of {
		out[i] = Token{ID: ids[i], Logprob: traj.Logprob(lps[i]), Version: version}
	}
	for k, i := range special {
		q, row := of[i], rows[k*vocab:(k+1)*vocab]
		scale := 1.0
		if h := how[i]; h.Tempered == 1 && h.Temperature > 0 {
			scale = 1 / h.Temperature
		}
		norm := logSum(row, scale)
		if q.grammar != nil {
			id, err := drawAllowed(s, row, q.grammar, how[i])
			if err != nil {
				q.err = err
				continue
			}
			out[i].ID, out[i].Logprob = id, traj.Logprob(float64(row[id])*scale-norm)
		}
		out[i].Top = topOf(row, q.top, scale, norm)
		for k := range out[i].Top {
			if out[i].Top[k].ID == out[i].ID {
				out[i].Top[k].Logprob = out[i].Logprob
			}
		}
	}
	return out
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
