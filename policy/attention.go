//go:build libtorch

package policy

import (
	"agentcli/internal/torch"
	"agentcli/model/arch"
)

// cachedSight is how the new tokens of a step of sampling see the paged cache.
type cachedSight struct {
	s            *torch.Scope // of the step
	n            *network
	kpool, vpool []torch.Tensor // by layer
	segs         []torch.CachedSegment
	blocks       []int32
	plans        map[int]*torch.CachePlan // by the size of heads, which decides which kernel runs
}

func (x *cachedSight) plan(layer int) *torch.CachePlan {
	size := x.n.layers[layer].Attention.HeadDim
	if x.plans[size] == nil {
		x.plans[size] = x.s.PlanCache(x.segs, x.blocks)
	}
	return x.plans[size]
}

// attend is the attention of a layer. Keys and values that heads has written are zero.
func (x *cachedSight) attend(c *torch.Scope, layer int, q, k, v torch.Tensor) torch.Tensor {
	return c.CachedAttention(q, k, v, x.kpool[layer], x.vpool[layer], x.plan(layer), x.n.look(layer))
}

// heads gives the queries of a layer's projection, and writes its keys and values into the cache,
// where one kernel does both. ok: it has.
func (x *cachedSight) heads(c *torch.Scope, n *network, layer int, projected torch.Tensor, turns []rotation) (q torch.Tensor, ok bool) {
	l := &n.layers[layer]
	a := l.Attention
	if x == nil || c.Err() != nil || a.Shared || a.KeysAreValues || a.Gated || a.ValueNorm || a.QKNorm == arch.WholeVector ||
		isTaken(n, layer) {
		return q, false
	}
	rule := torch.HeadRule{QNorm: l.qNorm, KNorm: l.kNorm, Norm: n.rms()}
	if a.Rope != arch.NoRope {
		r := turns[a.Rope]
		of := r
		if r.queries != nil {
			of = *r.queries
		}
		rule.QCos, rule.QSin, rule.KCos, rule.KSin = of.cos, of.sin, r.cos, r.sin
		rule.Interleaved = n.cfg.Ropes[a.Rope].Interleaved
	}
	return c.CachedHeads(projected, rule, x.kpool[layer], x.vpool[layer], x.plan(layer))
}

// projectedHeads are how many heads a layer's projection has: those of queries, with their gates,
// of keys and of values, as far as they are its own.
func projectedHeads(a arch.Attention) []int64 {
	hq, hkv := int64(a.Heads), int64(a.KVHeads)
	if a.Gated {
		hq *= 2
	}
	switch {
	case a.Shared:
		return []int64{hq}
	case a.KeysAreValues:
		return []int64{hq, hkv}
	}
	return []int64{hq, hkv, hkv}
}

// projected are the heads that a layer's projection makes of its input: [T, heads, D].
func projected(c *torch.Scope, l *layer, h torch.Tensor) torch.Tensor {
	if c.Err() != nil {
		return torch.Tensor{}
	}
	all := int64(0)
	for _, heads := range projectedHeads(l.Attention) {
		all += heads
	}
	return c.Reshape(l.qkv.apply(c, h, l.qkvBias), c.Shape(h)[0], all, int64(l.Attention.HeadDim))
}

// queries are q, k and v of a layer's projection, normed and rotated, and the gate of what
// attention gives, where there is one.
func queries(c *torch.Scope, n *network, l *layer, x torch.Tensor, turns []rotation) (q, k, v, gate torch.Tensor) {
	a := l.Attention
	hq, hkv, d := int64(a.Heads), int64(a.KVHeads), int64(a.HeadDim)
	if c.Err() != nil {
		return q, k, v, gate
	}
	t := c.Shape(x)[0]
	if a.Shared {
		q = c.RMSNorm(x, l.qNorm, n.rms())
		return c.Rope(q, turns[a.Rope].cos, turns[a.Rope].sin, n.cfg.Ropes[a.Rope].Interleaved), k, v, gate
	}
	parts := c.Split(x, 1, projectedHeads(a)...)
	q, k, v = parts[0], parts[1], parts[len(parts)-1]
	if a.Gated { // of each head q, then its gate
		parts = c.Split(c.Reshape(q, t, hq, 2*d), 2, d, d)
		q, gate = parts[0], parts[1]
	}
	if a.ValueNorm {
		v = c.RMSNorm(v, c.Full(1, c.DType(v), n.device, d), n.rms())
	}
	switch a.QKNorm {
	case arch.PerHead:
		q, k = c.RMSNorm(q, l.qNorm, n.rms()), c.RMSNorm(k, l.kNorm, n.rms())
	case arch.WholeVector:
		q = c.Reshape(c.RMSNorm(c.Reshape(q, t, hq*d), l.qNorm, n.rms()), t, hq, d)
		k = c.Reshape(c.RMSNorm(c.Reshape(k, t, hkv*d), l.kNorm, n.rms()), t, hkv, d)
	}
	if a.Rope == arch.NoRope {
		return q, k, v, gate
	}
	r, pairs := turns[a.Rope], n.cfg.Ropes[a.Rope].Interleaved
	of := r
	if r.queries != nil {
		of = *r.queries
	}
	return c.Rope(q, of.cos, of.sin, pairs), c.Rope(k, r.cos, r.sin, pairs), v, gate
}
