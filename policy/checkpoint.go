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
func (n *network) checkpointed(s *torch.Scope, in0 input, attend attention, rows []int32, trained bool) (h torch.Tensor, back func()) {
	turns := n.angles(s, in0.positions)
	seen := in0
	var leaves []torch.Tensor
	if trained {
		seen, leaves = in0.leaves(s)
	}
	deep := seen.deepened(s, n)
	run := func(c *torch.Scope, i int, x torch.Tensor) torch.Tensor {
		x, y := n.layer(c, i, x, torch.Tensor{}, turns, attend, rows)
		if i < len(deep) {
			y = c.Add(y, deep[i])
		}
		return c.Add(x, y)
	}
	in := make([]torch.Tensor, len(n.layers)+1)
	ids := s.IDs(in0.ids)
	in[0] = s.Detach(seen.place(s, n, n.embedded(s, ids)))
	for i := range n.layers {
		c := s.Child()
		in[i+1] = c.Keep(c.Detach(run(c, i, in[i])), s)
		c.Close()
		if s.Err() != nil {
			return torch.Tensor{}, nil
		}
	}
	last := len(n.layers)
	s.RequiresGrad(in[last], true)
	return s.RMSNorm(in[last], n.norm, n.rms()), func() {
		g := s.Grad(in[last])
		for i := last - 1; i >= 0 && s.Err() == nil; i-- {
			s.Free(in[i+1])
			first := i == 0 && n.frozen // nobody asks for the embedding's gradient
			c := s.Child()
			if !first {
				c.RequiresGrad(in[i], true)
			}
			c.Backward(run(c, i, in[i]), g)
			s.Free(g)
			if !first {
				g = c.Keep(c.Grad(in[i]), s)
			}
			c.Close()
		}
		if !n.frozen {
			s.Backward(seen.place(s, n, n.embedded(s, ids)), g)
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
