//go:build libtorch

package policy

import (
	"math"

	"agentcli/internal/torch"
	"agentcli/model/arch"
)

// pass is what the layers of one forward pass have in common.
type pass struct {
	sight
	turns   []rotation
	rows    []int32 // those that are wanted at the end; nil: all
	routing *routing
	inputs  []torch.Tensor     // of arch.PerLayer, [T, size] for each layer; nil: there are none
	kv      map[int]keysValues // by layer, of those whose keys and values later layers take
}

// keysValues are the rotated keys and the values of one layer, [T, Hkv, D].
type keysValues struct{ k, v torch.Tensor }

// shared gives the keys and values that layer i attends to, and keeps its own.
func (p *pass) shared(i int, a arch.Attention, k, v torch.Tensor) (torch.Tensor, torch.Tensor) {
	if a.Shared {
		return p.kv[a.From].k, p.kv[a.From].v
	}
	p.kv[i] = keysValues{k, v}
	return k, v
}

// keep gives layer i's keys and values to another scope where a later layer takes them.
func (p *pass) keep(n *network, i int, c, s *torch.Scope) {
	if !isTaken(n, i) {
		delete(p.kv, i)
		return
	}
	c.Keep(p.kv[i].k, s)
	c.Keep(p.kv[i].v, s)
}

// isTaken reports whether a later layer takes the keys and values of layer i.
func isTaken(n *network, i int) bool {
	for _, l := range n.layers[i+1:] {
		if l.Attention.Shared && l.Attention.From == i {
			return true
		}
	}
	return false
}

// input are the numbers of layer i for the tokens; the zero Tensor where there are none.
func (p *pass) input(i int) torch.Tensor {
	if p.inputs == nil {
		return torch.Tensor{}
	}
	return p.inputs[i]
}

// perLayerInputs are each layer's numbers for the tokens, whose embeddings are x (arch.PerLayer).
func perLayerInputs(n *network, s *torch.Scope, ids, x torch.Tensor) []torch.Tensor {
	size, layers := int64(n.cfg.PerLayer.Size), int64(len(n.layers))
	if size == 0 || s.Err() != nil {
		return nil
	}
	t := s.Shape(x)[0]
	c := s.Child()
	defer c.Close()
	own := scaled(c, c.Embedding(n.perLayer.embed, ids), n.rounded(math.Sqrt(float64(size))))
	context := c.Times(c.Linear(x, n.perLayer.projection, torch.Tensor{}), 1/math.Sqrt(float64(n.cfg.HiddenSize)))
	context = c.RMSNorm(c.Reshape(context, t, layers, size), n.perLayer.norm, n.rms())
	sum := c.Times(c.Add(context, c.Reshape(own, t, layers, size)), math.Sqrt2/2)
	sizes := make([]int64, layers)
	for i := range sizes {
		sizes[i] = 1
	}
	out := c.Split(sum, 1, sizes...)
	for i := range out {
		out[i] = c.Keep(c.Reshape(out[i], t, size), s)
	}
	return out
}

// ended gives the residual stream, and what is to be added to it, behind a layer whose MLP gives
// y: with the layer's own numbers for the tokens and its factor, if it has them.
func ended(n *network, c *torch.Scope, l *layer, x, y, input torch.Tensor) (torch.Tensor, torch.Tensor) {
	if !input.Defined() && !l.OutputScale {
		return x, y
	}
	x = c.Add(x, y)
	if input.Defined() {
		gated := c.Cat(1, c.Linear(x, l.perLayerGate, torch.Tensor{}), input)
		if n.cfg.PerLayer.Act == arch.GELUTanh {
			gated = c.GELUMul(gated)
		} else {
			gated = c.SiluMul(gated)
		}
		x = c.Add(x, c.RMSNorm(c.Linear(gated, l.perLayerProjection, torch.Tensor{}), l.perLayerNorm, n.rms()))
	}
	if l.OutputScale {
		x = c.Mul(x, c.Detach(l.outputScale))
	}
	return x, torch.Tensor{}
}
