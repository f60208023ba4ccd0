//go:build libtorch

package policy

import (
	"slices"

	"agentcli/internal/torch"
	"agentcli/model/arch"
)

// layerState are the states of a recurrent layer, one a slot: the last inputs of its
// convolution [slots, tokens, channels], and the matrices of the delta rule [slots, heads, key
// dim, value dim]. Zero Tensors: the layer has none.
type layerState struct{ window, delta torch.Tensor }

// state of a layer in this pass.
func (x sight) state(layer int) layerState {
	if x.states == nil {
		return layerState{}
	}
	return x.states[layer]
}

// shortConv is the mixer of layer i of LFM2 (arch.ShortConv), before its output projection.
func shortConv(n *network, c *torch.Scope, i int, h torch.Tensor, seen sight) torch.Tensor {
	l, size := &n.layers[i], int64(n.cfg.HiddenSize)
	parts := c.Split(l.qkv.apply(c, h, l.qkvBias), 1, size, size, size)
	if c.Err() != nil {
		return torch.Tensor{}
	}
	y := c.CausalConv(c.Mul(parts[0], parts[2]), l.conv, l.convBias, false, seen.runs, seen.state(i).window)
	return c.Mul(parts[1], y)
}

// deltaNet is the mixer of layer i by the gated delta rule (arch.DeltaNet), before its output
// projection.
func deltaNet(n *network, c *torch.Scope, i int, h torch.Tensor, seen sight) torch.Tensor {
	l, d, state := &n.layers[i], n.layers[i].Delta, seen.state(i)
	heads, values := int64(d.ValueHeads), int64(d.ValueHeads*d.ValueDim)
	parts := c.Split(l.qkv.apply(c, h, torch.Tensor{}), 1, int64(d.Channels()), values, heads, heads)
	if c.Err() != nil {
		return torch.Tensor{}
	}
	qkv := c.CausalConv(parts[0], l.conv, torch.Tensor{}, true, seen.runs, state.window)
	o := c.GatedDelta(qkv, parts[2], parts[3], l.aLog, l.dtBias, deltaHeads(d), seen.runs, state.delta)
	if c.Err() != nil {
		return torch.Tensor{}
	}
	t := c.Shape(o)[0]
	o = c.GatedRMSNorm(c.Reshape(o, t, heads, int64(d.ValueDim)), l.deltaNorm, parts[1], n.cfg.Eps)
	return c.Reshape(o, t, values)
}

func deltaHeads(d arch.DeltaNet) torch.DeltaHeads {
	return torch.DeltaHeads{KeyHeads: d.KeyHeads, ValueHeads: d.ValueHeads, KeyDim: d.KeyDim, ValueDim: d.ValueDim}
}

// makeStates makes the pools of the states, of at most half of the cache's bytes where that
// is enough for two sequences, and says what they take.
func (sc *scheduler) makeStates(s *torch.Scope, bytes int64) int64 {
	n, keep := sc.p.net, sc.p.keep
	acc := torch.Float32
	if n.dtype == torch.Float64 {
		acc = torch.Float64
	}
	each := n.cfg.StateBytes(int64(n.dtype.Size()))
	slots := 1 + min(2*int64(sc.p.cfg.MaxBatch), max(bytes/2/each, 2))
	pool := func(d torch.DType, shape ...int64) torch.Tensor {
		x := s.Empty(d, n.device, append([]int64{slots}, shape...)...)
		s.Copy(s.Narrow(x, 0, 0, 1), s.Full(0, d, n.device, append([]int64{1}, shape...)...))
		return s.Keep(x, keep)
	}
	sc.states = make([]layerState, len(n.layers))
	for i, l := range n.layers {
		if tokens, channels := n.cfg.ConvWindow(i); tokens > 0 {
			sc.states[i].window = pool(n.dtype, int64(tokens), int64(channels))
		}
		if d := l.Delta; d.Kernel > 0 {
			sc.states[i].delta = pool(acc, int64(d.ValueHeads), int64(d.KeyDim), int64(d.ValueDim))
		}
	}
	sc.slots = newSlotTable(int(slots))
	sc.most = mostRunning(sc)
	return slots * each
}

// beginAtState takes of the shared blocks of a sequence those behind which there is a state.
func (sc *scheduler) beginAtState(q *sequence) {
	if sc.slots == nil {
		return
	}
	q.state.shared = len(q.blocks) * blockSize
	n := sc.slots.usable(q.blocks)
	sc.table.release(q.blocks[n:])
	if q.blocks, q.hash = q.blocks[:n], 0; n > 0 {
		q.hash = sc.table.blocks[q.blocks[n-1]].hash
	}
}

// stateEnds are the numbers of a sequence's tokens behind which a step takes a snapshot, or 0, in order.
func stateEnds(w work) []int {
	q := w.seq
	ends := []int{q.state.shared, (q.prompt - 1) / blockSize * blockSize}
	if w.to > q.prompt {
		ends = append(ends, w.to/blockSize*blockSize)
	}
	slices.Sort(ends)
	return ends
}

// haveStates reports whether the sequences of a step have states of their own, if the model has any: none begins with a
// snapshot.
func haveStates(sc *scheduler, plan []work) bool {
	begins := func(w work) bool { return w.seq.state.from != w.seq.state.slot }
	return sc.slots == nil || !slices.ContainsFunc(plan, begins)
}

// planStates is planRuns for a step of one token of each sequence on a device, which haveStates allows.
func planStates(sc *scheduler, plan []work) []torch.StateSlots {
	sc.slots.abandon()
	out := make([]torch.StateSlots, len(plan))
	for i, w := range plan {
		out[i].Own = w.seq.state.slot
		if w.to%blockSize == 0 && slices.Contains(stateEnds(w), w.to) {
			out[i].Copy = sc.slots.mark(&w.seq.state, w.to)
		}
	}
	return out
}

// planRuns lays the step out for recurrent layers. A sequence's tokens are several runs where
// a snapshot is taken between them: where its prompt leaves what others share, behind the
// last full block of its prompt, and behind each full block of its reply.
func (sc *scheduler) planRuns(s *torch.Scope, plan []work) *torch.RunPlan {
	sc.slots.abandon()
	var runs []torch.Run
	var saves []torch.SavedState
	start := int32(0)
	for _, w := range plan {
		q, ends := w.seq, stateEnds(w)
		parent, at := int32(-1), w.from
		for _, end := range append(slices.Compact(ends), w.to) {
			if end > at && end <= w.to {
				runs = append(runs, torch.Run{Start: start, Len: int32(end - at), Parent: parent, From: q.state.from})
				start, parent, at = start+int32(end-at), int32(len(runs)-1), end
				if end%blockSize == 0 && slices.Contains(ends, end) {
					if slot := sc.slots.mark(&q.state, end); slot > 0 {
						saves = append(saves, torch.SavedState{Run: parent, Slot: slot})
					}
				}
			}
		}
		saves = append(saves, torch.SavedState{Run: parent, Slot: q.state.slot})
	}
	return s.PlanRuns(runs, saves)
}
