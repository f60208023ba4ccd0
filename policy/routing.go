//go:build libtorch

package policy

import "agentcli/internal/torch"

// routing is what a pass does about the choice of experts; nil: nothing.
type routing struct {
	scope  *torch.Scope         // owns what follows
	record bool                 // chosen grows
	chosen []torch.Tensor       // by layer that has experts, [T, active]
	given  map[int]torch.Tensor // by layer, what was chosen when the tokens were sampled (givenExperts)
	replay bool                 // given is chosen again, with the weights that the layer gives it now
	count  torch.Tensor         // missed and known, summed over the layers (Routing); none yet: not defined
	again  bool                 // layers run a second time, and nothing is counted
}

// recorded is a routing for the tokens of a batch whose experts were recorded; nil: no batch has any.
func (b Batch) recorded(s *torch.Scope, n *network, p *Pack, rows []int32) *routing {
	if b.Experts == nil {
		return nil
	}
	r := &routing{scope: s, replay: b.Replay, given: map[int]torch.Tensor{}}
	_, active := expertLayers(n.cfg.Layers)
	for layer, ids := range b.givenExperts(p, n.cfg.Layers, rows) {
		r.given[layer] = s.To(s.Int64(ids, int64(len(ids)/active), int64(active)), torch.Int64, n.device)
	}
	return r
}

// route chooses the experts of a layer's tokens by their logits.
func (r *routing) route(c *torch.Scope, layer int, logits, bias torch.Tensor, how torch.Router) (ids, shares torch.Tensor) {
	ids, shares = c.Route(logits, bias, torch.Tensor{}, how)
	if r == nil || c.Err() != nil {
		return ids, shares
	}
	if r.record {
		r.chosen = append(r.chosen, c.Keep(ids, r.scope))
	}
	given, ok := r.given[layer]
	if !ok {
		return ids, shares
	}
	if !r.again {
		count := c.NotChosen(ids, given)
		if r.count.Defined() {
			count = c.Add(r.count, count)
		}
		r.count = c.Keep(count, r.scope)
	}
	if r.replay {
		return c.Route(logits, bias, given, how)
	}
	return ids, shares
}

// counted is what was counted.
func (r *routing) counted(s *torch.Scope) (out Routing) {
	if r == nil || !r.count.Defined() {
		return out
	}
	if n := s.Float64s(r.count); s.Err() == nil {
		out.Missed, out.Known = n[0], n[1]
	}
	return out
}

// HasExperts reports whether layers of the model choose experts.
func HasExperts(p *Policy) bool {
	with, _ := expertLayers(p.model.Layers)
	return len(with) > 0
}

// ids are those of the experts that were recorded: [layers with experts, rows, active].
func (r *routing) ids(s *torch.Scope) []int32 {
	chosen := s.Float64s(s.Cat(0, r.chosen...))
	out := make([]int32, len(chosen))
	for i, id := range chosen {
		out[i] = int32(id)
	}
	return out
}
