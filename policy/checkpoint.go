//go:build libtorch

package policy

import "agentcli/internal/torch"

// checkpointed is hidden of which only each layer's input is kept. back, called
// once backward has reached h, computes the layers again, the last one first, and
// adds up their gradients (Chen et al. 2016, "Training deep nets with sublinear
// memory cost", with one layer a segment). The layers run with recording on both
// times: the same kernels give the same bits.
func (n *network) checkpointed(s *torch.Scope, pack *Pack, rows []int32) (h torch.Tensor, back func()) {
	turns := n.angles(s, pack.Positions)
	seen := n.tree(s, pack)
	run := func(c *torch.Scope, i int, x torch.Tensor) torch.Tensor {
		x, y := n.layer(c, i, x, torch.Tensor{}, turns, seen, rows)
		return c.Add(x, y)
	}
	in := make([]torch.Tensor, len(n.layers)+1)
	ids := s.IDs(pack.IDs)
	in[0] = s.Detach(n.embedded(s, ids))
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
			s.Backward(n.embedded(s, ids), g)
		}
	}
}
