//go:build libtorch

package policy

import (
	"time"

	"agentcli/internal/torch"
)

// runStep computes one step and samples for every sequence that is complete.
func runStep(sc *scheduler, s *torch.Scope, plan []work) error {
	start := time.Now()
	var in input
	var blocks, rows []int32
	var segs []torch.CachedSegment
	var draw []drawing
	var how []torch.SampleRow
	decoding, prompts := 0, 0 // rows
	for _, w := range plan {
		n := w.to - w.from + len(w.draft)
		segs = append(segs, torch.CachedSegment{Start: int32(len(in.ids)), Len: int32(n),
			Context: int32(w.to + len(w.draft)), FirstBlock: int32(len(blocks))})
		blocks = append(blocks, w.seq.blocks...)
		in.add(w)
		if w.to-w.from > 1 {
			prompts += n
		} else {
			decoding += n
		}
		if w.to == len(w.seq.ids) {
			draw = append(draw, drawing{seq: w.seq, first: len(rows), draft: w.draft})
			for i := range len(w.draft) + 1 {
				rows = append(rows, int32(len(in.ids)-len(w.draft)-1+i))
				h := w.seq.sampling
				h.Uniform = uniform(w.seq.seed, len(w.seq.ids)-w.seq.prompt+i)
				how = append(how, h)
			}
		}
	}
	if rows == nil {
		rows = []int32{} // a chunk of a long prompt: nothing to sample yet
	}
	if sc.experts != nil {
		in.routing = &routing{scope: s, record: true}
	}
	got := scored{}
	if sc.device.Rows() >= len(in.ids) && onlyDecodes(sc, plan, in, rows) {
		got.logits, got.ids, got.lps = sc.device.Step(s, in.ids, in.positions[0], segs, blocks, how)
		got.logits = sc.p.net.shaped(s, got.logits)
	} else {
		got.logits = stepLogits(sc, s, plan, in, segs, blocks, rows)
	}
	keepExperts(sc, s, plan, in.routing)
	var drawn *draws
	if len(draw) > 0 {
		drawn = newDraws(sc, s, got, draw, how)
	}
	if s.Err() != nil {
		return s.Err()
	}
	sc.pace.took(decoding, prompts, time.Since(start).Seconds())
	for _, w := range plan {
		computed(sc, w.seq, w.to)
		sc.slots.began(&w.seq.state)
	}
	for _, d := range draw {
		right := 0
		for i := 0; ; i++ {
			t, err := drawn.token(s, d, i)
			if err != nil {
				sc.finish(d.seq, nil, err)
				break
			}
			sc.load.SampledTokens++
			if appendToken(sc, d.seq, t) || i == len(d.draft) || t.ID != d.draft[i] {
				break
			}
			right++
			computed(sc, d.seq, d.seq.cached+1)
		}
		d.seq.drafts.took(len(d.draft), right, len(draw))
		sc.load.DraftTokens += int64(len(d.draft))
		sc.load.AcceptedTokens += int64(right)
	}
	return s.Err()
}

// scored are the logits of a step's wanted rows, and the tokens drawn from them where they were
// drawn with them.
type scored struct {
	logits torch.Tensor
	ids    []int32
	lps    []float32
}

// onlyDecodes says that a step is one token of each sequence, of which the network's decoder on a
// device knows all.
func onlyDecodes(sc *scheduler, plan []work, in input, rows []int32) bool {
	adapted, _ := adapterRows(plan)
	return len(in.ids) == len(plan) && len(rows) == len(plan) && adapted == nil && in.routing == nil && in.images == nil &&
		in.positions[1] == nil && sc.slots == nil
}

// stepLogits computes the new tokens of a step, and the logits of the wanted rows; none where no row
// is wanted.
func stepLogits(sc *scheduler, s *torch.Scope, plan []work, in input, segs []torch.CachedSegment, blocks, rows []int32) torch.Tensor {
	all, wanted := adapterRows(plan)
	if in.routing != nil { // the last layer, too, chooses for all tokens
		wanted = all
	}
	n := withAdapters(sc.p.net, all, wanted)
	if sc.decoder != nil && all == nil && len(in.ids) <= fusedRows(n) && in.images == nil && in.positions[1] == nil {
		z := sc.decoder.Step(s, in.ids, in.positions[0], segs, blocks, rows)
		if len(rows) == 0 {
			return torch.Tensor{}
		}
		return n.shaped(s, z)
	}
	cached := &cachedSight{s: s, n: n, kpool: sc.kpool, vpool: sc.vpool, segs: segs, blocks: blocks, plans: map[int]*torch.CachePlan{}}
	seen := sight{states: sc.states, cached: cached, attend: cached.attend}
	if sc.slots != nil {
		seen.runs = sc.planRuns(s, plan)
	}
	last := rows
	if in.routing != nil {
		last = nil
	}
	h := n.hidden(s, in, seen, last)
	if len(rows) == 0 {
		return torch.Tensor{}
	}
	if last == nil {
		h = s.IndexSelect(h, 0, s.To(s.IDs(rows), torch.Int64, n.device))
	}
	return n.logits(s, h)
}
