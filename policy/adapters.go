//go:build libtorch

package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"agentcli/internal/splitmix"
	"agentcli/internal/torch"
	"agentcli/model/arch"
	"agentcli/model/weights"
)

// lowRank are the adapters on one matrix in one pass: q, k and v, and gate and up,
// are one matrix here, and each has its own.
type lowRank struct {
	parts          []torch.LowRank
	scale, dropout float64
}

// adapters are those of a model in training.
type adapters struct {
	weights.AdapterConfig
	seed  int64
	pairs []*pair
}

// pair is the adapter of one weight, in the type of the masters.
type pair struct {
	a, b   torch.Tensor // [rank, in] and [out, rank]; of experts as PEFT has them (weights.ExpertPair)
	names  [2]string    // of a and b in the adapter's file
	shapes [2][]int64
	weight part  // none of experts
	row    int64 // where the weight begins in its matrix
	layer  int
	target string
	vision *weights.VisionModule // of an encoder of images, otherwise nil
	stack  *weights.ExpertPair   // of experts, otherwise nil
}

// matrix is the one of a network that the pair changes a part of.
func (p *pair) matrix(n *network) *matrix {
	if p.vision != nil {
		return n.vision.matrix(*p.vision)
	}
	return n.layers[p.layer].matrices()[slotOf(p.target)]
}

// stack is the tensor of a target of experts.
func (l *layer) stack(target string) *torch.Tensor {
	if target == weights.ExpertsGateUp {
		return &l.expertsGateUp
	}
	return &l.expertsDown
}

// adapt makes the adapters of a network: those that the model has, or new ones,
// whose A is drawn as PEFT draws it (Kaiming-uniform with a = √5, so that values
// lie within ±1/√in) and whose B is 0: the model is then what its base is.
func adapt(s, keep *torch.Scope, n *network, c weights.AdapterConfig, seed int64, m *weights.Model, master torch.DType) (*adapters, error) {
	x := &adapters{AdapterConfig: c, seed: seed}
	places := placesOf(n)
	add := func(p pair, at place) {
		an, bn := weights.LoRANames(at.name)
		p.weight, p.row, p.names = at.part, at.row, [2]string{an, bn}
		p.shapes = [2][]int64{{int64(c.Rank), at.shape[1]}, {at.shape[0], int64(c.Rank)}}
		x.pairs = append(x.pairs, &p)
	}
	rnd := rand.New(rand.NewPCG(uint64(seed), 0x10a1))
	for i := range n.layers {
		for _, t := range weights.LoRATargets {
			if !slices.Contains(c.Targets, t.Short) {
				continue
			}
			if at, ok := places[arch.LayerPrefix(i)+t.Module+".weight"]; ok { // a layer of experts has none among layers without
				add(pair{layer: i, target: t.Short}, at)
			}
		}
	}
	for _, e := range weights.ExpertPairs(n.cfg, c.Targets) {
		all := int64(c.Rank * e.Count)
		x.pairs = append(x.pairs, &pair{layer: e.Layer, target: e.Target, stack: &e, names: [2]string{e.A, e.B},
			shapes: [2][]int64{{all, int64(e.In)}, {int64(e.Out), all}}})
	}
	for _, v := range weights.VisionModules(n.cfg, c.Targets) {
		add(pair{vision: &v}, places[v.Module+".weight"])
	}
	_, has := m.Adapter()
	for _, p := range x.pairs {
		for k, into := range []*torch.Tensor{&p.a, &p.b} {
			switch {
			case has:
				raw, ok := m.Low(p.names[k])
				if !ok {
					return nil, fmt.Errorf("%s: the adapter has no %s; one that changes some layers only can be merged, not trained on", m.Path(),
						p.names[k])
				}
				t, err := fromFile(s, raw, master, n.device)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", m.Path(), err)
				}
				*into = s.Keep(t, keep)
			case k == 0:
				bound := 1 / math.Sqrt(float64(p.shapes[0][1]))
				values := make([]float64, elements(p.shapes[0]))
				for i := range values {
					values[i] = (2*rnd.Float64() - 1) * bound
				}
				*into = s.Keep(s.Clone(s.Float64(values, p.shapes[0]...), master, n.device), keep)
			default:
				*into = s.Keep(s.Full(0, master, n.device, p.shapes[1]...), keep)
			}
		}
	}
	return x, s.Err()
}

// onVision reports whether there are pairs on the encoder of images.
func (x *adapters) onVision() bool { return slices.ContainsFunc(x.Targets, weights.IsVisionTarget) }

// params are what is trained: every A, and below it its B.
func (x *adapters) params() []param {
	var out []param
	for _, p := range x.pairs {
		out = append(out, param{&p.a, []part{{p.names[0], p.shapes[0]}}}, param{&p.b, []part{{p.names[1], p.shapes[1]}}})
	}
	return out
}

// on gives the network with the adapters, in the type of the computation. Call
// tells passes apart that drop different inputs; nil: none are dropped.
func (x *adapters) on(s *torch.Scope, base *network, call *uint64) *network {
	n := *base
	n.layers = slices.Clone(base.layers)
	if x.onVision() {
		n.vision = base.vision.copied()
		n.vision.adapted = true
	}
	for k, p := range x.pairs {
		if p.stack != nil {
			to := &n.layers[p.layer].expertPairs
			to.Scale = x.Scale()
			a, b := s.To(p.a, n.dtype, n.device), s.To(p.b, n.dtype, n.device)
			if p.target == weights.ExpertsGateUp {
				to.GateUpA, to.GateUpB = a, b
			} else {
				to.DownA, to.DownB = a, b
			}
			continue
		}
		m := p.matrix(&n)
		if m.low == nil {
			m.low = &lowRank{scale: x.Scale()}
		}
		low := torch.LowRank{A: s.To(p.a, n.dtype, n.device), B: s.To(p.b, n.dtype, n.device), Row: p.row}
		if call != nil {
			m.low.dropout, low.Seed = x.Dropout, splitmix.Next(*call+uint64(k)*splitmix.Gamma)
		}
		m.low.parts = append(m.low.parts, low)
	}
	return &n
}

// call is the seed of one pass's dropout: of the run's seed, the optimiser step
// and the micro-batch. A resumed run drops what an uninterrupted one would. It is nil
// where nothing is dropped.
func (x *adapters) call(steps, passes int64) *uint64 {
	if x == nil || x.Dropout == 0 {
		return nil
	}
	c := splitmix.Next(uint64(x.seed))
	c = splitmix.Next(c ^ uint64(steps))
	c = splitmix.Next(c ^ uint64(passes))
	return &c
}

// merge adds scale·B·A to the weights of a matrix: into = from + scale·B·A, the
// sum taken in the type of the masters.
func (x *adapters) merge(s *torch.Scope, n *network, p param, into, from torch.Tensor) {
	add := func(c *torch.Scope, into, from, delta torch.Tensor) {
		c.Scale([]torch.Tensor{delta}, x.Scale())
		c.Copy(into, c.Add(c.To(from, c.DType(delta), c.Device(delta)), delta))
	}
	row := int64(0)
	for _, q := range p.parts {
		for _, low := range x.pairs {
			if low.stack == nil && low.weight.name == q.name {
				add(s, s.Narrow(into, 0, row, q.shape[0]), s.Narrow(from, 0, row, q.shape[0]), s.MatMul(low.b, low.a))
			}
		}
		row += q.shape[0]
	}
	for _, low := range x.pairs {
		if low.stack != nil && p.tensor == n.layers[low.layer].stack(low.target) {
			low.mergeExperts(s, int64(x.Rank), into, from, add)
		}
	}
}

// mergeExperts adds the products of each expert to its part of the stack.
func (p *pair) mergeExperts(s *torch.Scope, rank int64, into, from torch.Tensor, add func(c *torch.Scope, into, from, delta torch.Tensor)) {
	e := p.stack
	n, in, out := int64(e.Count), int64(e.In), int64(e.Out)
	shape := []int64{n, out, in}
	if e.ByInput {
		shape = []int64{n, in, out}
	}
	into, from = s.Reshape(into, shape...), s.Reshape(from, shape...)
	b := s.Reshape(p.b, out, rank, n)
	for k := range n {
		c := s.Child()
		delta := c.MatMul(c.Reshape(c.Narrow(b, 2, k, 1), out, rank), c.Narrow(p.a, 0, k*rank, rank))
		if e.ByInput {
			delta = c.Transpose(delta, 0, 1)
		}
		add(c, c.Reshape(c.Narrow(into, 0, k, 1), shape[1:]...), c.Reshape(c.Narrow(from, 0, k, 1), shape[1:]...), delta)
		c.Close()
	}
}

// Base asks the model without its adapters.
type Base struct{ t *Trainable }

// Base is the frozen model under the adapters: the reference of a run that began
// with new adapters, without weights of its own. It is nil where there are none.
func (t *Trainable) Base() *Base {
	if t.lora == nil {
		return nil
	}
	return &Base{t}
}

// Forward gives the log-probs and entropies of the base.
func (b *Base) Forward(batch Batch) (out Outputs, err error) {
	err = b.t.worker.Do(func(s *torch.Scope) error {
		n := *b.t.net
		n.score = torch.Tensor{}
		out, _ = b.t.forward(s, &n, batch, nil)
		return s.Err()
	})
	return out, err
}
