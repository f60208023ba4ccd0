//go:build libtorch

package policy

import (
	"fmt"
	"slices"

	"agentcli/internal/malformed"
	"agentcli/internal/torch"
	"agentcli/model/weights"
)

// computation is how a model in training is computed.
type computation struct {
	model      weights.Config
	head       Head
	checkpoint bool     // Config.GradCheckpoint
	net        *network // the masters; with adapters, or frozen, the weights as they are computed with
	compute    torch.DType
	master     torch.DType
	lora       *adapters // nil: the whole model is trained
	vision     VisionTraining
	features   *featureCache // of images, while the encoder stays as it is
}

// cast gives the network in the type of the computation. Recorded for backward:
// a master's gradient is its copy's, cast and summed in the master's type. Call is
// of the adapters' dropout.
func (c *computation) cast(s *torch.Scope, call *uint64) *network {
	if c.lora != nil {
		return c.lora.on(s, c.net, call)
	}
	if c.compute == c.net.dtype {
		return c.net
	}
	n, err := describe(c.model, c.head == HeadBoth)
	if err != nil {
		s.Fail(err)
		return c.net
	}
	n.dtype, n.device, n.ropes, n.maxSeen = c.compute, c.net.device, c.net.ropes, c.net.maxSeen
	frozen := map[*torch.Tensor]bool{} // the encoder is cast where an image's features are not kept
	if n.vision != nil && !c.vision.trains() {
		c.net.vision.each(func(t *torch.Tensor, _ ...string) { frozen[t] = true })
		n.vision = c.net.vision
	}
	for i, p := range c.net.params {
		if frozen[p.tensor] {
			continue
		}
		d := c.compute
		if p.tensor == &c.net.score {
			d = c.master // a value of 8 bits would be a poor baseline
		}
		*n.params[i].tensor = s.To(*p.tensor, d, c.net.device)
	}
	n.tie()
	return n
}

// forward gives what the network says of the wanted tokens of a batch. With a loss it
// adds the gradient to the masters', and backed is true where there was one.
func (c *computation) forward(s *torch.Scope, n *network, b Batch, loss func(Outputs) Gradients) (out Outputs, backed bool) {
	if err := b.check(c.model.Vision); err != nil {
		s.Fail(err)
		return out, false
	}
	if err := b.checkExperts(c.model.Layers); err != nil && b.Replay {
		s.Fail(err)
		return out, false
	} else if err != nil { // of another model: they are neither replayed nor counted
		b.Experts = nil
	}
	pack, rows, targets := b.rows(c.model.Vision.MergeSide())
	if len(rows) == 0 {
		return out, false
	}
	seen, err := c.see(s, n, pack, loss != nil)
	if err != nil {
		s.Fail(err)
		return out, false
	}
	in := inputOf(pack, seen)
	in.routing = b.recorded(s, n, pack, rows)
	var h torch.Tensor
	again := func() {}
	if loss != nil && c.checkpoint {
		h, again = n.checkpointed(s, in, n.tree(s, pack), rows, c.trainsEncoder(n))
	} else {
		h = n.hidden(s, in, n.tree(s, pack), rows)
	}
	var lp, ent, value torch.Tensor
	if n.head.w.Defined() && !b.Own {
		scales, err := b.scales(len(rows), n.cfg.LogitScale)
		if err != nil {
			s.Fail(err)
			return out, false
		}
		for _, id := range targets {
			if slices.Contains(n.cfg.Barred, id) {
				s.Fail(malformed.Field("token_ids", malformed.Range, "id %d of images is wanted, which the model never draws", id))
				return out, false
			}
		}
		lp, ent = n.headLogprobs(s, h, targets, scales)
		out.Logprobs, out.Entropy = s.Float64s(lp), s.Float64s(ent)
	}
	if n.score.Defined() {
		value = s.Reshape(s.Linear(s.To(h, c.master, n.device), n.score, torch.Tensor{}), int64(len(rows)))
		out.Values = s.Float64s(value)
	}
	out.Routing = in.routing.counted(s)
	if loss == nil || s.Err() != nil {
		return out, false
	}
	g := loss(out)
	var ys, grads []torch.Tensor
	for _, x := range []struct {
		of   torch.Tensor
		grad []float64
		name string
	}{{lp, g.Logprobs, "log-probs"}, {ent, g.Entropy, "entropies"}, {value, g.Values, "values"}} {
		switch {
		case x.grad == nil:
		case !x.of.Defined() || len(x.grad) != len(rows):
			s.Fail(fmt.Errorf("the loss gave %d gradients of %s for %d tokens", len(x.grad), x.name, len(rows)))
			return out, false
		case !s.IsRecorded(x.of): // of text alone, where only an encoder has adapters
		default:
			ys, grads = append(ys, x.of), append(grads, s.To(s.Float64(x.grad), s.DType(x.of), n.device))
		}
	}
	if len(ys) > 0 {
		s.BackwardAll(ys, grads)
		again()
	}
	return out, len(ys) > 0
}
