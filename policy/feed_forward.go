//go:build libtorch

package policy

import (
	"math"

	"agentcli/internal/torch"
	"agentcli/model/arch"
)

// feedForward is the MLP of layer i, its experts, or both added up.
func (l *layer) feedForward(c *torch.Scope, i int, x torch.Tensor, r *routing) torch.Tensor {
	var out torch.Tensor
	if e := l.Experts; e.Count > 0 {
		in, w := x, l.router
		if e.Sigmoid && c.DType(x) == torch.BFloat16 {
			in, w = c.To(x, torch.Float32, c.Device(x)), c.To(w, torch.Float32, c.Device(x))
		}
		ids, shares := r.route(c, i, c.Linear(in, w, l.routerBias), l.correction, routerOf(e))
		out = overExperts(l, c, x, ids, shares, func(x, ids, shares torch.Tensor, pairs torch.ExpertPairs) torch.Tensor {
			if e.Clamped != nil {
				return c.ClampedExperts(x, ids, shares, l.clampedExperts(pairs))
			}
			return c.Experts(x, ids, shares, l.plainExperts(pairs))
		})
	}
	if l.MLP.Size == 0 {
		return out
	}
	h := l.dense(c, x)
	if out.Defined() {
		h = c.Add(out, h)
	}
	return h
}

// plainExperts and clampedExperts are the layer's experts with pairs beside their matrices.
func (l *layer) plainExperts(pairs torch.ExpertPairs) torch.PlainExperts {
	return torch.PlainExperts{GateUp: l.expertsGateUp, Down: l.expertsDown, Count: l.Experts.Count, GELU: l.Experts.Act == arch.GELUTanh,
		Pairs: pairs}
}

func (l *layer) clampedExperts(pairs torch.ExpertPairs) torch.ClampedExperts {
	return torch.ClampedExperts{GateUp: l.expertsGateUp, GateUpBias: l.expertsGateUpBias, Down: l.expertsDown, DownBias: l.expertsDownBias,
		Alpha: l.Experts.Clamped.Alpha, Limit: l.Experts.Clamped.Limit, Pairs: pairs}
}

// routerOf is how a layer's experts are chosen.
func routerOf(e arch.Experts) torch.Router {
	return torch.Router{Active: int64(e.Active), Sigmoid: e.Sigmoid, Normalise: e.Normalise, Epsilon: e.Epsilon, Scale: e.Scale,
		Groups: int64(e.Groups), TopGroups: int64(e.TopGroups)}
}

// dense is the layer's MLP.
func (l *layer) dense(c *torch.Scope, x torch.Tensor) torch.Tensor {
	h := l.gateUp.apply(c, x, l.gateUpBias)
	if l.MLP.Act == arch.GELUTanh {
		h = c.GELUMul(h)
	} else {
		h = c.SiluMul(h)
	}
	h = l.down.apply(c, h, l.downBias)
	if l.mlpGate.Defined() {
		h = c.SigmoidMul(h, c.Linear(x, l.mlpGate, torch.Tensor{}))
	}
	return h
}

// besideExperts are the MLP of layer i on h and its experts on x, of which h is the normed form,
// added up (arch.Beside).
func besideExperts(n *network, c *torch.Scope, i int, x, h torch.Tensor, r *routing) torch.Tensor {
	l := &n.layers[i]
	if c.Err() != nil {
		return h
	}
	e, hidden := l.Experts, int64(n.cfg.HiddenSize)
	dense := c.RMSNorm(l.dense(c, h), l.afterBeside, n.rms())
	to := c.Times(c.RMSNorm(x, l.routerNorm, n.rms()), 1/math.Sqrt(float64(hidden)))
	ids, shares := r.route(c, i, c.Linear(to, l.router, torch.Tensor{}), torch.Tensor{},
		torch.Router{Active: int64(e.Active), Normalise: e.Normalise})
	t, active := c.Shape(x)[0], int64(e.Active)
	shares = c.Mul(shares, c.Reshape(c.IndexSelect(l.expertScale, 0, c.Reshape(ids, t*active)), t, active))
	count, size := int64(e.Count), int64(e.Size)
	out := overExperts(l, c, c.RMSNorm(x, l.beforeExperts, n.rms()), ids, shares,
		func(x, ids, shares torch.Tensor, pairs torch.ExpertPairs) torch.Tensor {
			of := l.plainExperts(pairs)
			of.GateUp, of.Down = c.Reshape(of.GateUp, count*2*size, hidden), c.Reshape(of.Down, count*hidden, size)
			return c.Experts(x, ids, shares, of)
		})
	return c.Add(dense, c.RMSNorm(out, l.afterExperts, n.rms()))
}
