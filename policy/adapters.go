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
	a, b   torch.Tensor // [rank, in] and [out, rank]
	weight part
	row    int64 // where the weight begins in its matrix
	layer  int
	target string
}

// matrix is the one that a target is part of.
func (l *layer) matrix(target string) *matrix {
	switch target {
	case "q", "k", "v", "qkv", "in", "in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a":
		return &l.qkv
	case "o", "out":
		return &l.o
	case "gate", "up", "gate_up", "w1", "w3":
		return &l.gateUp
	}
	return &l.down
}

// adapt makes the adapters of a network: those that the model has, or new ones,
// whose A is drawn as PEFT draws it (Kaiming-uniform with a = √5, so that values
// lie within ±1/√in) and whose B is 0: the model is then what its base is.
func adapt(s, keep *torch.Scope, n *network, c weights.AdapterConfig, seed int64, m *weights.Model, master torch.DType) (*adapters, error) {
	x := &adapters{AdapterConfig: c, seed: seed}
	type place struct {
		part
		row int64
	}
	places := map[string]place{}
	for _, p := range n.params {
		row := int64(0)
		for _, q := range p.parts {
			places[q.name] = place{q, row}
			row += q.shape[0]
		}
	}
	rnd := rand.New(rand.NewPCG(uint64(seed), 0x10a1))
	for i := range n.layers {
		for _, t := range weights.LoRATargets {
			if !slices.Contains(c.Targets, t.Short) {
				continue
			}
			at, ok := places[arch.LayerPrefix(i)+t.Module+".weight"]
			if !ok { // a layer of experts among layers without
				continue
			}
			p := &pair{weight: at.part, row: at.row, layer: i, target: t.Short}
			x.pairs = append(x.pairs, p)
			rank, in, out := int64(c.Rank), at.shape[1], at.shape[0]
			if _, has := m.Adapter(); has {
				an, bn := weights.LoRANames(at.name)
				for name, into := range map[string]*torch.Tensor{an: &p.a, bn: &p.b} {
					raw, ok := m.Low(name)
					if !ok {
						return nil, fmt.Errorf("%s: the adapter has no %s; one that changes some layers only can be merged, not trained on", m.Path(), name)
					}
					d, err := dtypeOf(raw.DType)
					if err != nil {
						return nil, fmt.Errorf("%s: tensor %s: %w", m.Path(), name, err)
					}
					*into = s.Keep(s.Clone(s.FromBytes(raw.Data, d, raw.Shape...), master, n.device), keep)
				}
				continue
			}
			bound := 1 / math.Sqrt(float64(in))
			values := make([]float64, rank*in)
			for k := range values {
				values[k] = (2*rnd.Float64() - 1) * bound
			}
			p.a = s.Keep(s.Clone(s.Float64(values, rank, in), master, n.device), keep)
			p.b = s.Keep(s.Full(0, master, n.device, out, rank), keep)
		}
	}
	return x, s.Err()
}

// params are what is trained: every A, and below it its B.
func (x *adapters) params() []param {
	var out []param
	for _, p := range x.pairs {
		a, b := weights.LoRANames(p.weight.name)
		rank := int64(x.Rank)
		out = append(out, param{&p.a, []part{{a, []int64{rank, p.weight.shape[1]}}}}, param{&p.b, []part{{b, []int64{p.weight.shape[0], rank}}}})
	}
	return out
}

// on gives the network with the adapters, in the type of the computation. Call
// tells passes apart that drop different inputs; nil: none are dropped.
func (x *adapters) on(s *torch.Scope, base *network, call *uint64) *network {
	n := *base
	n.layers = slices.Clone(base.layers)
	for k, p := range x.pairs {
		m := n.layers[p.layer].matrix(p.target)
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
func (x *adapters) merge(s *torch.Scope, p param, into, from torch.Tensor) {
	row := int64(0)
	for _, q := range p.parts {
		for _, low := range x.pairs {
			if low.weight.name == q.name {
				delta := s.MatMul(low.b, low.a)
				s.Scale([]torch.Tensor{delta}, x.Scale())
				sum := s.Add(s.To(s.Narrow(from, 0, row, q.shape[0]), s.DType(delta), s.Device(delta)), delta)
				s.Copy(s.Narrow(into, 0, row, q.shape[0]), sum)
			}
		}
		row += q.shape[0]
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
