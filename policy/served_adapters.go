//go:build libtorch

package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"agentcli/internal/setting"
	"agentcli/internal/torch"
	"agentcli/model/arch"
	"agentcli/model/weights"
)

// servedAdapter is a LoRA adapter that some of the replies under way are drawn with: what a matrix gives for
// their rows has the adapter's product added (S-LoRA, Sheng et al. 2023). The weights stay as they are.
type servedAdapter struct {
	Adapter
	number  int64                  // of the load: keys and values of two loads are never mixed
	layers  [][matrixSlots]lowPair // by layer and matrix
	experts []torch.ExpertPairs    // by layer
	keep    *torch.Scope
}

// lowPair is what an adapter adds to one matrix: x·Aᵀ·Bᵀ, with A [ranks, in] and B [out, ranks], the scale in B. Where the
// matrix is several weights below each other, as q, k and v are, A has the rows of each, and B its columns with zeros in the
// rows of the others.
type lowPair struct{ a, b torch.Tensor }

// newServedAdapter makes the tensors of an adapter in the type and on the device of the network.
func newServedAdapter(s *torch.Scope, n *network, pairs *weights.Pairs) (*servedAdapter, error) {
	c := pairs.Config()
	for i := range n.layers {
		for _, m := range n.layers[i].matrices() {
			if m.stored.Defined() {
				return nil, setting.Errorf("weights that are multiplied as their file has them take no adapters; leave out %s",
					setting.Name("AsStored"))
			}
		}
	}
	if i := slices.IndexFunc(c.Targets, weights.IsVisionTarget); i >= 0 {
		return nil, fmt.Errorf("it changes the encoder of images (%s), which all requests share; merge it, and open that model", c.Targets[i])
	}
	a := &servedAdapter{layers: make([][matrixSlots]lowPair, len(n.layers)), experts: make([]torch.ExpertPairs, len(n.layers)),
		keep: torch.NewScope()}
	places := placesOf(n)
	for i := range n.layers {
		var found [matrixSlots][]namedPair
		for _, t := range weights.LoRATargets {
			at, ok := places[arch.LayerPrefix(i)+t.Module+".weight"]
			if _, has := pairs.Tensor(loraName(at.name)); ok && has {
				found[slotOf(t.Short)] = append(found[slotOf(t.Short)], namedPair{at, int64(c.Rank)})
			}
		}
		for k, parts := range found {
			if parts != nil {
				a.layers[i][k] = joined(s, n, pairs, parts, c.Scale(), a.keep)
			}
		}
	}
	for _, e := range weights.ExpertPairs(n.cfg, c.Targets) {
		if _, has := pairs.Tensor(e.A); !has { // this layer's is as it was
			continue
		}
		to := &a.experts[e.Layer]
		to.Scale = c.Scale()
		left, right := s.Keep(low(s, n, pairs, e.A, n.dtype), a.keep), s.Keep(low(s, n, pairs, e.B, n.dtype), a.keep)
		if e.Target == weights.ExpertsGateUp {
			to.GateUpA, to.GateUpB = left, right
		} else {
			to.DownA, to.DownB = left, right
		}
	}
	if s.Err() != nil {
		a.keep.Close()
		return nil, s.Err()
	}
	return a, nil
}

// namedPair is the pair beside one weight of a matrix.
type namedPair struct {
	place
	rank int64
}

func loraName(weight string) string {
	a, _ := weights.LoRANames(weight)
	return a
}

// low is one tensor of an adapter.
func low(s *torch.Scope, n *network, pairs *weights.Pairs, name string, d torch.DType) torch.Tensor {
	raw, _ := pairs.Tensor(name)
	t, err := fromFile(s, raw, d, n.device)
	if err != nil {
		s.Fail(err)
	}
	return t
}

// joined are the pairs of one matrix as one.
func joined(s *torch.Scope, n *network, pairs *weights.Pairs, parts []namedPair, scale float64, keep *torch.Scope) lowPair {
	c := s.Child()
	defer c.Close()
	exact := torch.Float32
	if n.dtype == torch.Float64 {
		exact = torch.Float64
	}
	ranks := int64(0)
	for _, p := range parts {
		ranks += p.rank
	}
	var as []torch.Tensor
	b := c.Full(0, exact, n.device, parts[0].rows, ranks)
	at := int64(0)
	for _, p := range parts {
		an, bn := weights.LoRANames(p.name)
		as = append(as, low(c, n, pairs, an, n.dtype))
		c.Copy(c.Narrow(c.Narrow(b, 0, p.row, p.shape[0]), 1, at, p.rank), low(c, n, pairs, bn, exact))
		at += p.rank
	}
	c.Scale([]torch.Tensor{b}, scale)
	a := as[0]
	if len(as) > 1 {
		a = c.Cat(0, as...)
	}
	return lowPair{c.Keep(a, keep), c.Keep(c.Clone(b, n.dtype, n.device), keep)}
}

// rowSpan are rows of a pass whose replies are drawn with an adapter.
type rowSpan struct {
	adapter     *servedAdapter
	from, count int64
}

// expertRows are rows of a pass with pairs beside the experts of a layer.
type expertRows struct {
	pairs       torch.ExpertPairs
	from, count int64
}

// withAdapters is the network for a pass with these rows of each adapter. wanted are the same of the rows that the last
// layer ends with.
func withAdapters(n *network, all, wanted []rowSpan) *network {
	if len(all) == 0 {
		return n
	}
	m := *n
	m.layers = slices.Clone(n.layers)
	for i := range m.layers {
		l, behind := &m.layers[i], all // the rows behind the mixer of tokens
		if i == len(m.layers)-1 {
			behind = wanted
		}
		for k, x := range l.matrices() {
			rows := behind
			if k == slotQKV {
				rows = all
			}
			for _, r := range rows {
				if p := r.adapter.layers[i][k]; p.a.Defined() {
					x.rows = append(x.rows, torch.RowsPair{A: p.a, B: p.b, From: r.from, Count: r.count})
				}
			}
		}
		for _, r := range behind {
			if p := r.adapter.experts[i]; p.GateUpA.Defined() || p.DownA.Defined() {
				l.expertRows = append(l.expertRows, expertRows{p, r.from, r.count})
			}
		}
	}
	return &m
}

// overExperts has f compute the experts of a layer: of all rows, or of those of each adapter for itself.
func overExperts(l *layer, c *torch.Scope, x, ids, shares torch.Tensor,
	f func(x, ids, shares torch.Tensor, pairs torch.ExpertPairs) torch.Tensor) torch.Tensor {
	if len(l.expertRows) == 0 {
		return f(x, ids, shares, l.expertPairs)
	}
	var parts []torch.Tensor
	at := int64(0)
	some := func(to int64, pairs torch.ExpertPairs) {
		if n := to - at; n > 0 {
			parts = append(parts, f(c.Narrow(x, 0, at, n), c.Narrow(ids, 0, at, n), c.Narrow(shares, 0, at, n), pairs))
			at = to
		}
	}
	for _, r := range l.expertRows {
		some(r.from, torch.ExpertPairs{})
		some(r.from+r.count, r.pairs)
	}
	some(c.Shape(x)[0], torch.ExpertPairs{})
	return c.Cat(0, parts...)
}

// adapterRows are the rows of a step that have adapters: of all its tokens, and of those whose logits are wanted.
func adapterRows(plan []work) (all, wanted []rowSpan) {
	add := func(to []rowSpan, a *servedAdapter, from, n int) []rowSpan {
		if last := len(to) - 1; a != nil && last >= 0 && to[last].adapter == a && to[last].from+to[last].count == int64(from) {
			to[last].count += int64(n)
			return to
		}
		if a == nil || n == 0 {
			return to
		}
		return append(to, rowSpan{a, int64(from), int64(n)})
	}
	tokens, ends := 0, 0
	for _, w := range plan {
		n, end := w.to-w.from+len(w.draft), 0
		if w.to == len(w.seq.ids) {
			end = len(w.draft) + 1
		}
		all, wanted = add(all, w.seq.adapter, tokens, n), add(wanted, w.seq.adapter, ends, end)
		tokens, ends = tokens+n, ends+end
	}
	return all, wanted
}

// onExperts reports whether an adapter of some rows changes experts, which operations alone compute.
func onExperts(rows []rowSpan) bool {
	return slices.ContainsFunc(rows, func(r rowSpan) bool { return r.adapter.changesExperts() })
}

func (a *servedAdapter) changesExperts() bool {
	return a != nil && slices.ContainsFunc(a.experts, func(p torch.ExpertPairs) bool { return p.GateUpA.Defined() || p.DownA.Defined() })
}

// partsOf are the passes of a step: one, with the sequences of an adapter side by side, or where a decoder computes some
// of them, which it alone gives to the bit whoever is beside them, two. Adapters that change experts are not for it, nor
// any adapter where the step has more rows than it takes.
func partsOf(sc *scheduler, plan []work) [][]work {
	if !slices.ContainsFunc(plan, func(w work) bool { return w.seq.adapter != nil }) {
		return [][]work{plan}
	}
	number := func(w work) int64 {
		switch a := w.seq.adapter; {
		case a == nil:
			return 0
		case a.changesExperts():
			return math.MaxInt64/2 + a.number // behind all others
		default:
			return a.number
		}
	}
	plan = slices.Clone(plan)
	slices.SortStableFunc(plan, func(a, b work) int { return cmp.Compare(number(a), number(b)) })
	rows := 0
	for _, w := range plan {
		rows += w.to - w.from + len(w.draft)
	}
	first := slices.IndexFunc(plan, func(w work) bool {
		return w.seq.adapter.changesExperts() || w.seq.adapter != nil && rows > fusedRows(sc.p.net)
	})
	if sc.decoder == nil || first <= 0 {
		return [][]work{plan}
	}
	return [][]work{plan[:first], plan[first:]}
}

// findAdapter is the adapter of a name, nil for the name "". The caller holds the lock.
func findAdapter(sc *scheduler, name string) (*servedAdapter, error) {
	if name == "" {
		return nil, nil
	}
	a := sc.adapters[name]
	if a == nil {
		return nil, fmt.Errorf("%w: %q", ErrNoAdapter, name)
	}
	return a, nil
}

// retire has an adapter forgotten once no reply is drawn with it any more. The caller holds the lock.
func retire(sc *scheduler, a *servedAdapter) {
	sc.retired = append(sc.retired, a)
	sc.gone = true
	sc.wake.Signal()
}

// freeRetired frees the adapters that nobody needs any more.
func freeRetired(sc *scheduler) {
	sc.mu.Lock()
	var free []*servedAdapter
	sc.retired = slices.DeleteFunc(sc.retired, func(a *servedAdapter) bool {
		uses := func(q *sequence) bool { return q.adapter == a }
		if slices.ContainsFunc(sc.inbox, uses) || slices.ContainsFunc(sc.waiting, uses) || slices.ContainsFunc(sc.running, uses) {
			return false
		}
		free = append(free, a)
		return true
	})
	sc.mu.Unlock()
	if free == nil {
		return
	}
	_ = sc.p.worker.Do(func(*torch.Scope) error {
		for _, a := range free {
			a.keep.Close()
		}
		return nil
	})
}

// freeAdapters frees all of them. The policy has ended.
func freeAdapters(sc *scheduler) {
	for _, a := range sc.adapters {
		a.keep.Close()
	}
	for _, a := range sc.retired {
		a.keep.Close()
	}
	sc.adapters, sc.retired = nil, nil
}
