//go:build libtorch

package policy

import (
	"time"

	"agentcli/internal/torch"
)

// maxPipelined is the largest number of steps in a row. Other work of the scheduler's thread, such as
// log-probs of given texts, waits for them.
const maxPipelined = 16

// isDecodeOnly reports whether a step has one token of each sequence and nothing that the device's
// decoder cannot compute.
func isDecodeOnly(sc *scheduler, st *stepInput) bool {
	adapted, _ := adapterRows(st.plan)
	return len(st.in.ids) <= sc.device.Rows() && len(st.in.ids) == len(st.plan) && len(st.rows) == len(st.plan) && adapted == nil &&
		st.in.images == nil && st.in.positions[1] == nil && haveStates(sc, st.plan)
}

// decodePipelined computes a step on a device, and further steps while no other request needs
// attention. A step is launched before the text of the last one is processed, so that the device
// computes meanwhile. A sequence that a stop string ends has one token too many: it is dropped.
func decodePipelined(sc *scheduler, s *torch.Scope, st *stepInput) error {
	launch := func(st *stepInput) {
		moveBlocks(sc, s)
		step := torch.DecoderStep{IDs: st.in.ids, Positions: st.in.positions[0], Segs: st.segs, Blocks: st.blocks}
		if sc.slots != nil {
			step.States = planStates(sc, st.plan)
		}
		sc.device.Launch(s, step, st.how)
	}
	start := time.Now()
	launch(st)
	for n := 1; ; n++ {
		c := s.Child()
		tokens := awaitTokens(sc, c, st)
		err := c.Err()
		c.Close()
		if err != nil {
			return err
		}
		sc.pace.took(st.decoding, promptWork{}, time.Since(start).Seconds())
		start = time.Now() // a step lasts from tokens to tokens
		var next *stepInput
		if n < maxPipelined {
			if next = nextDecodeStep(sc, st); next != nil {
				launch(next)
			}
		}
		for i, d := range st.draw {
			if tokens[i] != nil {
				processText(sc, d.seq, *tokens[i])
			}
		}
		if next == nil || s.Err() != nil {
			return s.Err()
		}
		st = next
	}
}

// awaitTokens waits for the launched step and appends its tokens to their sequences. A token is nil
// where its sequence has ended.
func awaitTokens(sc *scheduler, s *torch.Scope, st *stepInput) []*Token {
	var got scored
	got.logits, got.ids, got.lps, st.chosen = sc.device.Wait(s)
	if sc.experts != nil && s.Err() == nil {
		sc.experts.keep(st.plan, st.chosen)
	}
	drawn := newDraws(sc, s, scored{sc.p.net.shaped(s, got.logits), got.ids, got.lps}, st.draw, st.how)
	if s.Err() != nil {
		return nil
	}
	tokens := make([]*Token, len(st.draw))
	for i, d := range st.draw {
		if d.seq.blocks == nil {
			continue
		}
		computed(sc, d.seq, st.plan[i].to)
		t, err := drawn.token(s, d, 0)
		if err != nil {
			sc.finish(d.seq, nil, err)
			continue
		}
		d.seq.appendID(t)
		sc.load.SampledTokens++
		tokens[i] = &t
	}
	return tokens
}

// nextDecodeStep is the next step of the sequences that are not complete. It is nil where the
// scheduler has other work first.
func nextDecodeStep(sc *scheduler, st *stepInput) *stepInput {
	sc.mu.Lock()
	busy := sc.closed || sc.change != nil || sc.forget || sc.gone || sc.paused || len(sc.inbox) > 0 || len(sc.retired) > 0
	sc.seen = loadOf(sc)
	sc.mu.Unlock()
	if busy || len(sc.waiting) > 0 {
		return nil
	}
	var plan []work
	for _, w := range st.plan {
		q := w.seq
		if q.blocks == nil || q.isComplete() {
			continue
		}
		if !sc.reserve(q, len(q.ids)) {
			return nil
		}
		plan = append(plan, work{seq: q, from: q.cached, to: len(q.ids)})
	}
	if len(plan) == 0 {
		return nil
	}
	next := newStep(plan)
	if !isDecodeOnly(sc, next) {
		return nil
	}
	return next
}
