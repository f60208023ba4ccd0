//go:build libtorch

package policy

import (
	"time"

	"agentcli/internal/torch"
)

// stepsAhead is how many steps go before all else that the scheduler's thread is asked for.
const stepsAhead = 16

// onlyDecodes says that a step is one token of each sequence, of which the network's decoder on a
// device knows all.
func onlyDecodes(sc *scheduler, st *stepInput) bool {
	adapted, _ := adapterRows(st.plan)
	return len(st.in.ids) <= sc.device.Rows() && len(st.in.ids) == len(st.plan) && len(st.rows) == len(st.plan) && adapted == nil &&
		sc.experts == nil && st.in.images == nil && st.in.positions[1] == nil && sc.slots == nil
}

// decodeAhead computes a step on a device, and those behind it as long as only these sequences
// are there: each is launched before the text of the one before is looked at, so that the device
// computes meanwhile. A sequence that ends by its text has one token too many, which is dropped.
func decodeAhead(sc *scheduler, s *torch.Scope, st *stepInput) error {
	launch := func(st *stepInput) {
		sc.device.Launch(s, st.in.ids, st.in.positions[0], st.segs, st.blocks, st.how)
	}
	launch(st)
	for n := 1; ; n++ {
		start, c := time.Now(), s.Child()
		tokens := tokensOf(sc, c, st)
		err := c.Err()
		c.Close()
		if err != nil {
			return err
		}
		sc.pace.took(st.decoding, 0, time.Since(start).Seconds())
		var next *stepInput
		if n < stepsAhead {
			if next = stepBehind(sc, st); next != nil {
				launch(next)
			}
		}
		for i, d := range st.draw {
			if tokens[i] != nil {
				look(sc, d.seq, *tokens[i])
			}
		}
		if next == nil || s.Err() != nil {
			return s.Err()
		}
		st = next
	}
}

// tokensOf waits for what was launched, and adds the drawn tokens to their sequences; nil: the
// sequence has ended.
func tokensOf(sc *scheduler, s *torch.Scope, st *stepInput) []*Token {
	var got scored
	got.logits, got.ids, got.lps = sc.device.Wait(s)
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
		d.seq.take(t)
		sc.load.SampledTokens++
		tokens[i] = &t
	}
	return tokens
}

// stepBehind is the step that follows, of the sequences that go on; nil where something else
// has to be done first.
func stepBehind(sc *scheduler, st *stepInput) *stepInput {
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
		if q.blocks == nil || q.over() {
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
	if !onlyDecodes(sc, next) {
		return nil
	}
	return next
}
