//go:build libtorch

package policy

import "agentcli/internal/torch"

// layeredChunk is a chunk of a long prompt that is computed a few layers a step, beside sequences
// that decode (layered prefill, arXiv 2510.08055). Behind a long context the time of a step allows a
// few tokens in all layers. Each such chunk reads the keys and values of the whole context, which
// takes longer than its tokens do. A chunk of many tokens reads those of a layer once for all of them.
type layeredChunk struct {
	seq      *sequence
	from, to int
	layer    int     // the next
	layers   int     // of this step
	each     float64 // work of a layer
	credit   float64 // work that the steps so far had for it and it has not taken
	held     []byte  // the rows between two steps
}

const (
	layeredTokens = 64 // of a chunk at most
	layeredDepth  = 2  // times pace's depth: from there on reading the context is a large part of a step
)

// takesLayers reports whether the next chunk of q is computed a few layers a step, beside sequences that decode.
func takesLayers(sc *scheduler, q *sequence) bool {
	depth := sc.pace.depth
	return sc.decoder != nil && sc.slots == nil && sc.experts == nil && len(q.images) == 0 && !q.adapter.changesExperts() &&
		depth > 0 && float64(q.cached) > layeredDepth*depth
}

// planLayers plans how many layers of q's next chunk a step computes that has room for so much work, and gives the
// work of these layers. Shared says that other prompts get the rest.
func planLayers(sc *scheduler, q *sequence, room float64, shared bool) float64 {
	l, all := sc.layered, len(sc.p.net.layers)
	if l == nil || l.seq != q || l.from != q.cached {
		// One layer shall fit into a step. The last token of a prompt has logits: it is no part of a chunk.
		token := sc.pace.tokenWork(q.cached)
		n := min(layeredTokens, max(int(room*float64(all)/token), leastChunk), len(q.ids)-1-q.cached)
		l = &layeredChunk{seq: q, from: q.cached, to: q.cached + n, each: float64(n) * token / float64(all), held: sc.decoder.NewHeld(n)}
		sc.layered = l
		if !sc.makeRoom(q, l.to) { // q itself was preempted
			return 0
		}
	}
	if shared {
		room /= 4
	}
	l.credit = min(l.credit+room, max(room, l.each))
	l.layers = min(int(l.credit/l.each), all-l.layer)
	l.credit -= float64(l.layers) * l.each
	return float64(l.layers) * l.each
}

// runLayers computes the layers of this step, if there are any, and gives their work.
func runLayers(sc *scheduler, s *torch.Scope) promptWork {
	l := sc.layered
	if l == nil || l.layers == 0 {
		return promptWork{}
	}
	part := []work{{seq: l.seq, from: l.from, to: l.to}}
	st := newStep(part)
	st.layers = &torch.LayerPart{First: l.layer, End: l.layer + l.layers, Held: l.held}
	rows, _ := adapterRows(part)
	oneCallLogits(sc, s, st, withAdapters(sc.p.net, rows, nil))
	var done promptWork
	done.add(l.layers, l.each)
	l.layer, l.layers = l.layer+l.layers, 0
	switch {
	case s.Err() != nil:
		sc.layered = nil
	case l.layer == len(sc.p.net.layers):
		sc.layered = nil
		computed(sc, l.seq, l.to)
	}
	return done
}
