//go:build libtorch

package policy

import (
	"math"

	"agentcli/internal/torch"
	"agentcli/model/arch"
)

// pass is what the layers of one forward pass have in common.
type pass struct {
	turns  []rotation
	attend attention
	rows   []int32            // those that are wanted at the end; nil: all
	inputs []torch.Tensor     // of arch.PerLayer, [T, size] for each layer; nil: there are none
	kv     map[int]keysValues // by layer, of those whose keys and values later layers take
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
func (n *network) keep(p *pass, i int, c, s *torch.Scope) {
	if !n.taken(i) {
		delete(p.kv, i)
		return
	}
	c.Keep(p.kv[i].k, s)
	c.Keep(p.kv[i].v, s)
}

// taken reports whether a later layer takes the keys and values of layer i.
func (n *network) taken(i int) bool {
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
func (n *network) perLayerInputs(s *torch.Scope, ids, x torch.Tensor) []torch.Tensor {
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

// besideExperts are the layer's MLP on h and its experts on x, of which h is the normed form,
// added up (arch.Beside).
func (n *network) besideExperts(c *torch.Scope, l *layer, x, h torch.Tensor) torch.Tensor {
	if c.Err() != nil {
		return h
	}
	e, hidden := l.Experts, int64(n.cfg.HiddenSize)
	dense := c.RMSNorm(l.dense(c, h), l.afterBeside, n.rms())
	to := c.Times(c.RMSNorm(x, l.routerNorm, n.rms()), 1/math.Sqrt(float64(hidden)))
	ids, shares := c.Route(c.Linear(to, l.router, torch.Tensor{}), torch.Tensor{}, torch.Router{Active: int64(e.Active), Normalise: e.Normalise})
	t, active := c.Shape(x)[0], int64(e.Active)
	shares = c.Mul(shares, c.Reshape(c.IndexSelect(l.expertScale, 0, c.Reshape(ids, t*active)), t, active))
	count, size := int64(e.Count), int64(e.Size)
	out := c.Experts(c.RMSNorm(x, l.beforeExperts, n.rms()), ids, shares, c.Reshape(l.expertsGateUp, count*2*size, hidden),
		c.Reshape(l.expertsDown, count*hidden, size), e.Count, e.Act == arch.GELUTanh)
	return c.Add(dense, c.RMSNorm(out, l.afterExperts, n.rms()))
}

// ended gives the residual stream, and what is to be added to it, behind a layer whose MLP gives
// y: with the layer's own numbers for the tokens and its factor, if it has them.
func (n *network) ended(c *torch.Scope, l *layer, x, y, input torch.Tensor) (torch.Tensor, torch.Tensor) {
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
