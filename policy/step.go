//go:build libtorch

package policy

import (
	"time"

	"agentcli/internal/torch"
)

// stepInput is what one computation of the scheduler takes in.
type stepInput struct {
	plan     []work
	in       input
	segs     []torch.CachedSegment
	blocks   []int32
	rows     []int32 // whose logits are wanted; not nil
	draw     []drawing
	how      []torch.SampleRow // of each of the rows
	decoding int               // rows
	chosen   []int32           // experts of all rows, where they are kept: [layers with experts, rows, active]
	layers   *torch.LayerPart  // nil: all
}

func newStep(plan []work) *stepInput {
	st := &stepInput{plan: plan, rows: []int32{}}
	for _, w := range plan {
		n := w.to - w.from + len(w.draft)
		st.segs = append(st.segs, torch.CachedSegment{Start: int32(len(st.in.ids)), Len: int32(n),
			Context: int32(w.to + len(w.draft)), FirstBlock: int32(len(st.blocks))})
		st.blocks = append(st.blocks, w.seq.blocks...)
		st.in.add(w)
		if !w.isPrompt() {
			st.decoding += n
		}
		if w.to == len(w.seq.ids) {
			st.draw = append(st.draw, drawing{seq: w.seq, first: len(st.rows), draft: w.draft})
			for i := range len(w.draft) + 1 {
				st.rows = append(st.rows, int32(len(st.in.ids)-len(w.draft)-1+i))
				h := w.seq.sampling
				h.Uniform = uniform(w.seq.seed, len(w.seq.ids)-w.seq.prompt+i)
				st.how = append(st.how, h)
			}
		}
	}
	return st
}

// runStep computes one step and samples for every sequence that is complete.
func runStep(sc *scheduler, s *torch.Scope, plan []work) error {
	start, st := time.Now(), newStep(plan)
	if isDecodeOnly(sc, st) {
		return decodePipelined(sc, s, st)
	}
	prompts := runLayers(sc, s)
	for _, w := range plan {
		if w.isPrompt() {
			prompts.add(w.to-w.from, sc.pace.tokenWork(w.from))
		}
	}
	if sc.experts != nil {
		st.in.routing = &routing{scope: s, record: true}
	}
	got := scored{logits: stepLogits(sc, s, st)}
	if sc.experts != nil && s.Err() == nil {
		sc.experts.keep(plan, st.chosen)
	}
	var drawn *draws
	if len(st.draw) > 0 {
		drawn = newDraws(sc, s, got, st.draw, st.how)
	}
	if s.Err() != nil {
		return s.Err()
	}
	sc.pace.took(st.decoding, prompts, time.Since(start).Seconds())
	for _, w := range plan {
		computed(sc, w.seq, w.to)
		sc.slots.began(&w.seq.state)
	}
	for _, d := range st.draw {
		right := 0
		for i := 0; ; i++ {
			t, err := drawn.token(s, d, i)
			if err != nil {
				sc.finish(d.seq, nil, err)
				break
			}
			if appendToken(sc, d.seq, t) || i == len(d.draft) || t.ID != d.draft[i] {
				break
			}
			right++
			computed(sc, d.seq, d.seq.cached+1)
		}
		d.seq.drafts.took(len(d.draft), right, len(st.draw))
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

// stepLogits computes the new tokens of a step, and the logits of the wanted rows; none where no row
// is wanted.
func stepLogits(sc *scheduler, s *torch.Scope, st *stepInput) torch.Tensor {
	all, wanted := adapterRows(st.plan)
	if st.in.routing != nil { // the last layer, too, chooses for all tokens
		wanted = all
	}
	n := withAdapters(sc.p.net, all, wanted)
	if sc.decoder != nil && !onExperts(all) && len(st.in.ids) <= fusedRows(n) && st.in.images == nil && st.in.positions[1] == nil {
		return oneCallLogits(sc, s, st, n)
	}
	cached := &cachedSight{s: s, n: n, kpool: sc.kpool, vpool: sc.vpool, segs: st.segs, blocks: st.blocks, plans: map[int]*torch.CachePlan{}}
	seen := sight{states: sc.states, cached: cached, attend: cached.attend}
	if sc.slots != nil {
		seen.runs = sc.planRuns(s, st.plan)
	}
	last := st.rows
	if st.in.routing != nil {
		last = nil
	}
	h := n.hidden(s, st.in, seen, last)
	if st.in.routing != nil {
		st.chosen = st.in.routing.ids(s)
	}
	if len(st.rows) == 0 {
		return torch.Tensor{}
	}
	if last == nil {
		h = s.IndexSelect(h, 0, s.To(s.IDs(st.rows), torch.Int64, n.device))
	}
	return n.logits(s, h)
}

// oneCallLogits is stepLogits by the call that computes a step. The adapters of its rows are beside the matrices of n.
func oneCallLogits(sc *scheduler, s *torch.Scope, st *stepInput, n *network) torch.Tensor {
	step := torch.DecoderStep{IDs: st.in.ids, Positions: st.in.positions[0], Segs: st.segs, Blocks: st.blocks, Wanted: st.rows,
		Part: st.layers}
	if sc.slots != nil {
		step.Runs = sc.planRuns(s, st.plan)
	}
	if sc.experts != nil {
		st.chosen = make([]int32, sc.experts.layers*len(st.in.ids)*sc.experts.active)
		step.Chosen = st.chosen
	}
	for i := range n.layers {
		for slot, m := range n.layers[i].matrices() {
			for _, pair := range m.rows {
				step.Pairs = append(step.Pairs, torch.DecoderPair{RowsPair: pair, Layer: i, Slot: slot})
			}
		}
	}
	z := sc.decoder.Step(s, step)
	if len(st.rows) == 0 {
		return torch.Tensor{}
	}
	return n.shaped(s, z)
}
