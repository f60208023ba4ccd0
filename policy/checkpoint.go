//go:build libtorch

package policy

import "agentcli/internal/torch"

// checkpointed is hidden of which only each layer's input is kept. back, called
// once backward has reached h, computes the layers again, the last one first, and
// adds up their gradients (Chen et al. 2016, "Training deep nets with sublinear
// memory cost", with one layer a segment). The layers run with recording on both
// times: the same kernels give the same bits.
//
// Features of a trained encoder are computed once: their gradient is added up first.
func (n *network) checkpointed(s *torch.Scope, in0 input, sees sight, rows []int32, trained bool) (h torch.Tensor, back func()) {
	p := &pass{sight: sees, turns: n.angles(s, in0.positions), rows: rows, routing: in0.routing, kv: map[int]keysValues{}}
	seen := in0
	var leaves []torch.Tensor
	if trained {
		seen, leaves = in0.leaves(s)
	}
	deep := seen.deepened(s, n)
	run := func(c *torch.Scope, i int, x torch.Tensor) torch.Tensor {
		x, y := n.layer(c, i, x, torch.Tensor{}, p)
		if i < len(deep) {
			y = c.Add(y, deep[i])
		}
		if !y.Defined() {
			return x
		}
		return c.Add(x, y)
	}
	in := make([]torch.Tensor, len(n.layers)+1)
	ids := s.IDs(in0.ids)
	x := n.embedded(s, ids)
	p.inputs = detached(s, perLayerInputs(n, s, ids, x), !n.frozen)
	in[0] = s.Detach(seen.place(s, n, x))
	for i := range n.layers {
		c := s.Child()
		in[i+1] = c.Keep(c.Detach(run(c, i, in[i])), s)
		if own := p.kv[i]; isTaken(n, i) {
			p.kv[i] = keysValues{c.Keep(c.Detach(own.k), s), c.Keep(c.Detach(own.v), s)}
		} else {
			delete(p.kv, i)
		}
		c.Close()
		if s.Err() != nil {
			return torch.Tensor{}, nil
		}
	}
	last := len(n.layers)
	s.RequiresGrad(in[last], true)
	for _, kv := range p.kv {
		s.RequiresGrad(kv.k, true)
		s.RequiresGrad(kv.v, true)
	}
	return s.RMSNorm(in[last], n.norm, n.rms()), func() {
		if p.routing != nil {
			p.routing.again = true
		}
		g := s.Grad(in[last])
		for i := last - 1; i >= 0 && s.Err() == nil; i-- {
			s.Free(in[i+1])
			taken, own := isTaken(n, i), p.kv[i]                      // whose gradient is complete: the layers behind this one have run
			first := i == 0 && n.frozen && !taken && len(leaves) == 0 // nobody asks for the gradient of what goes in
			c := s.Child()
			if !first {
				c.RequiresGrad(in[i], true)
			}
			xs, grads := []torch.Tensor{run(c, i, in[i])}, []torch.Tensor{g}
			if taken {
				xs, grads = append(xs, p.kv[i].k, p.kv[i].v), append(grads, c.Grad(own.k), c.Grad(own.v))
			}
			if !first || c.IsRecorded(xs[0]) { // a first layer without adapters ends the way
				c.BackwardAll(xs, grads)
			}
			s.Free(g)
			if !first {
				g = c.Keep(c.Grad(in[i]), s)
			}
			c.Close()
		}
		if !n.frozen || len(leaves) > 0 {
			x := n.embedded(s, ids)
			xs, grads := []torch.Tensor{seen.place(s, n, x)}, []torch.Tensor{g}
			if !n.frozen {
				for i, y := range perLayerInputs(n, s, ids, x) {
					xs, grads = append(xs, y), append(grads, s.Grad(p.inputs[i]))
				}
			}
			s.BackwardAll(xs, grads)
		}
		var grads []torch.Tensor
		for _, t := range leaves {
			grads = append(grads, s.Grad(t))
		}
		var made []torch.Tensor
		for _, p := range in0.images {
			made = append(made, p.all()...)
		}
		if len(leaves) > 0 {
			s.BackwardAll(made, grads)
		}
	}
}

// detached are leaves of the same values; trained says whether backward gives them gradients.
func detached(s *torch.Scope, xs []torch.Tensor, trained bool) []torch.Tensor {
	if xs == nil {
		return nil
	}
	out := make([]torch.Tensor, len(xs))
	for i, x := range xs {
		out[i] = s.RequiresGrad(s.Detach(x), trained)
	}
	return out
}
