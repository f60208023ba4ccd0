//go:build libtorch

package policy

import (
	"fmt"
	"math"
	"strings"

	"agentcli/internal/setting"
	"agentcli/internal/torch"
	"agentcli/model/arch"
)

// optimizer is AdamW over the masters, and their running mean.
type optimizer struct {
	trained []param       // what has masters
	embed   *torch.Tensor // the embedding, which does not decay
	master  torch.DType
	device  torch.Device
	keep    *torch.Scope
	m, v    []torch.Tensor // AdamW's moments
	ema     []torch.Tensor // nil: no average is kept
	grads   bool           // the masters hold gradients of this step
	images  bool           // gradients come through images alone: only an encoder has adapters
}

// step takes one step with the gradients, and drops them. Its result is their norm
// before clipping.
func (o *optimizer) step(s *torch.Scope, c StepConfig) (norm float64, err error) {
	which, ps, gs := o.graded(s)
	if s.Err() != nil {
		return norm, s.Err()
	}
	switch {
	case len(ps) > 0:
	case o.images && o.m != nil: // a step of text alone leaves them as they are
		return 0, nil
	case o.images:
		return 0, setting.Errorf("there is no gradient to step on: no row has an image, and %s names the encoder of images alone; "+
			"name all-linear too", setting.Name("LoRA.Targets"))
	default:
		return 0, fmt.Errorf("there is no gradient to step on")
	}
	norm = s.GlobalNorm(gs)
	if s.Err() == nil && (math.IsNaN(norm) || math.IsInf(norm, 0)) {
		for _, p := range ps {
			s.ClearGrad(p) // or they would poison the next step
		}
		return norm, notFinite{norm}
	}
	if c.MaxGradNorm > 0 && norm > c.MaxGradNorm {
		s.Scale(gs, c.MaxGradNorm/(norm+1e-6)) // as torch's clip_grad_norm_
	}
	o.moments(s)
	for _, decays := range []bool{true, false} {
		cfg := torch.AdamWConfig{LR: c.LR, Beta1: c.Beta1, Beta2: c.Beta2, Eps: c.Eps}
		if decays {
			cfg.WeightDecay = c.WeightDecay
		}
		var p, g, m, v []torch.Tensor
		for i, at := range which {
			if o.decays(at) == decays {
				p, g, m, v = append(p, ps[i]), append(g, gs[i]), append(m, o.m[at]), append(v, o.v[at])
			}
		}
		s.AdamW(p, g, m, v, cfg, c.Number)
	}
	for _, p := range ps {
		s.ClearGrad(p)
	}
	if c.EMA > 0 {
		o.average(s, c.EMA)
	}
	return norm, s.Err()
}

// graded are the parameters that have a gradient, by number, and those gradients.
func (o *optimizer) graded(s *torch.Scope) (which []int, ps, gs []torch.Tensor) {
	for i, p := range o.trained {
		if o.grads && s.HasGrad(*p.tensor) { // a head that no loss asked has none
			which, ps, gs = append(which, i), append(ps, *p.tensor), append(gs, s.Grad(*p.tensor))
		}
	}
	return which, ps, gs
}

// finite fails with ErrNotFinite where the gradients' norm is NaN or infinite.
func (o *optimizer) finite(s *torch.Scope) error {
	_, _, gs := o.graded(s)
	norm := s.GlobalNorm(gs)
	if s.Err() == nil && (math.IsNaN(norm) || math.IsInf(norm, 0)) {
		return notFinite{norm}
	}
	return s.Err()
}

// notFinite is a step that was not taken.
type notFinite struct{ norm float64 }

func (n notFinite) Error() string {
	return fmt.Sprintf("the gradient's norm is %v; the parameters are left as they were (lower %s, or look at the rows of this step)",
		n.norm, setting.Name("LR"))
}

func (notFinite) Is(kind error) bool { return kind == ErrNotFinite }

// clear forgets the gradients.
func (o *optimizer) clear(s *torch.Scope) {
	for _, p := range o.trained {
		s.ClearGrad(*p.tensor)
	}
}

// decays reports whether weight decay acts on parameter i: on the matrices of the
// layers and an untied head, as is usual; not on norms, biases and embeddings.
func (o *optimizer) decays(i int) bool {
	p := o.trained[i]
	name := p.parts[0].name
	return len(p.shape()) > 1 && p.tensor != o.embed && name != arch.PerLayerEmbed &&
		!strings.HasSuffix(name, "_bias") // experts' biases are a matrix
}

// moments makes AdamW's moments, zero, unless they exist.
func (o *optimizer) moments(s *torch.Scope) {
	if o.m != nil {
		return
	}
	for _, p := range o.trained {
		shape := p.shape()
		o.m = append(o.m, s.Keep(s.Full(0, o.master, o.device, shape...), o.keep))
		o.v = append(o.v, s.Keep(s.Full(0, o.master, o.device, shape...), o.keep))
	}
}

// average moves the running mean of the masters: mean ← d·mean + (1−d)·master. It
// begins as the model before its first step.
func (o *optimizer) average(s *torch.Scope, d float64) {
	for i, p := range o.trained {
		if i < len(o.ema) {
			s.Scale([]torch.Tensor{o.ema[i]}, d)
			c := s.Child()
			c.Copy(o.ema[i], c.Add(o.ema[i], c.Mul(*p.tensor, c.Full(1-d, o.master, o.device))))
			c.Close()
		}
	}
}

// keepAverage begins the running mean, unless there is one.
func (o *optimizer) keepAverage(s *torch.Scope) {
	if o.ema != nil {
		return
	}
	for _, p := range o.trained {
		e := s.Keep(s.Empty(o.master, o.device, p.shape()...), o.keep)
		s.Copy(e, *p.tensor)
		o.ema = append(o.ema, e)
	}
}

// state lists the tensors that a resumed run needs: masters, then AdamW's moments.
func (o *optimizer) state() (names []string, tensors []torch.Tensor, shapes [][]int64) {
	add := func(prefix string, i int, x torch.Tensor) {
		p := o.trained[i]
		names, tensors, shapes = append(names, prefix+p.parts[0].name), append(tensors, x), append(shapes, p.shape())
	}
	for i := range o.trained {
		add("", i, *o.trained[i].tensor)
	}
	for i := range o.m {
		add("adam_m.", i, o.m[i])
		add("adam_v.", i, o.v[i])
	}
	for i := range o.ema {
		add("ema.", i, o.ema[i])
	}
	return names, tensors, shapes
}
