//go:build libtorch

package policy

import (
	"agentcli/internal/malformed"
	"agentcli/model/arch"
	"agentcli/traj"
)

// expertLayers are the numbers of the layers that have experts, and how many of them a token asks.
func expertLayers(layers []arch.Layer) (with []int, active int) {
	for i, l := range layers {
		if l.Experts.Count > 0 {
			with, active = append(with, i), l.Experts.Active
		}
	}
	return with, active
}

// checkExperts holds what was recorded of sequences to the model. Some servers record all layers of
// a model, also those without experts.
func (b Batch) checkExperts(layers []arch.Layer) error {
	with, active := expertLayers(layers)
	for i, e := range b.Experts {
		switch {
		case e.Tokens() == 0:
			continue
		case e.Active != active || e.Layers != len(with) && e.Layers != len(layers):
			return malformed.Field("experts", malformed.Mismatch,
				"sequence %d was sampled by a model that chose %d experts in each of %d layers; this one chooses %d in %d", i, e.Active, e.Layers,
				active, len(with))
		case e.Tokens() > len(b.Sequences[i]):
			return malformed.Field("experts", malformed.Range, "sequence %d has %d tokens and experts of %d", i, len(b.Sequences[i]), e.Tokens())
		}
		for k, id := range e.IDs {
			layer := k / active % e.Layers
			if e.Layers == len(with) {
				layer = with[layer]
			}
			if n := layers[layer].Experts.Count; n > 0 && id != traj.NoExpert && int(id) >= n {
				return malformed.Field("experts", malformed.Range, "sequence %d: expert %d of the %d in layer %d", i, id, n, layer)
			}
		}
	}
	return nil
}

// givenExperts are those that were recorded of a pack's tokens, by layer that has experts:
// [rows, active], -1 where none are known. rows are the tokens that the last layer computes. Tokens that
// sequences share have the experts of the first that knows them.
func (b Batch) givenExperts(p *Pack, layers []arch.Layer, rows []int32) map[int][]int64 {
	with, active := expertLayers(layers)
	if len(with) == 0 {
		return nil
	}
	out := map[int][]int64{}
	for at, layer := range with {
		all := make([]int64, len(p.IDs)*active)
		for i := range all {
			all[i] = -1
		}
		for i, e := range b.Experts {
			if e.Tokens() == 0 {
				continue
			}
			from := at
			if e.Layers != len(with) {
				from = layer
			}
			for token, row := range p.Rows(i, 0, e.Tokens()) {
				to := all[int(row)*active:][:active]
				if to[0] >= 0 {
					continue
				}
				for k, id := range e.At(token, from) {
					if id == traj.NoExpert {
						to[0] = -1
						break
					}
					to[k] = int64(id)
				}
			}
		}
		if layer == len(layers)-1 {
			wanted := make([]int64, 0, len(rows)*active)
			for _, r := range rows {
				wanted = append(wanted, all[int(r)*active:][:active]...)
			}
			all = wanted
		}
		out[layer] = all
	}
	return out
}

// expertStore has the experts of the tokens whose keys and values are in the cache, by their
// places there: a prompt that begins in the cache has those that were chosen when that was computed.
// A nil store keeps nothing.
type expertStore struct {
	layers, active int
	ids            []uint16 // [blocks·blockSize, layers, active]
}

func newExpertStore(layers []arch.Layer, blocks int) *expertStore {
	with, active := expertLayers(layers)
	if len(with) == 0 {
		return nil
	}
	return &expertStore{len(with), active, make([]uint16, blocks*blockSize*len(with)*active)}
}

// keep puts what a step chose into the store: [layers, rows of the step, active]. A sequence that has ended meanwhile has no
// places.
func (e *expertStore) keep(plan []work, chosen []int32) {
	rows, row := 0, 0
	for _, w := range plan {
		rows += w.to - w.from
	}
	for _, w := range plan {
		if w.seq.blocks == nil {
			row += w.to - w.from
			continue
		}
		for t := w.from; t < w.to; t++ {
			slot := (int(w.seq.blocks[t/blockSize])*blockSize + t%blockSize) * e.layers * e.active
			for l := range e.layers {
				for k, id := range chosen[(l*rows+row)*e.active:][:e.active] {
					e.ids[slot+l*e.active+k] = uint16(id)
				}
			}
			row++
		}
	}
}

// move makes the move of a block, of a device's cache of so many blocks: those of the host are behind them.
func (e *expertStore) move(m blockMove, blocks int) {
	n := blockSize * e.layers * e.active
	from, to := int(m.device)*n, (blocks+int(m.host))*n
	if m.back {
		from, to = to, from
	}
	copy(e.ids[to:to+n], e.ids[from:from+n])
}

// of gives the experts of the tokens of a sequence that are in the cache.
func (e *expertStore) of(q *sequence) *traj.Experts {
	if e == nil {
		return nil
	}
	out, n := &traj.Experts{Layers: e.layers, Active: e.active}, e.layers*e.active
	if q.blocks == nil {
		return out
	}
	out.IDs = make(traj.ExpertIDs, 0, q.cached*n)
	for t := 0; t < q.cached; t += blockSize {
		slot := int(q.blocks[t/blockSize]) * blockSize * n
		out.IDs = append(out.IDs, e.ids[slot:slot+min(blockSize, q.cached-t)*n]...)
	}
	return out
}
