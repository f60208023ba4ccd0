package weights

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"agentcli/internal/malformed"
	"agentcli/model/arch"
)

// Short names of the matrices of a layer's experts that a LoRA adapter may change. Each is one
// parameter for all experts in transformers, with one pair in PEFT's layout (ParamWrapper of
// peft/tuners/lora/layer.py): A [experts·rank, in], whose rows are those of one expert below those of
// the other, and B [out, rank·experts], whose columns are one of every expert for each of rank.
const (
	ExpertsGateUp = "experts_gate_up"
	ExpertsDown   = "experts_down"
)

// ExpertTargets are their short names.
func ExpertTargets() []string { return []string{ExpertsGateUp, ExpertsDown} }

// IsExpertTarget reports whether a short name is of experts.
func IsExpertTarget(short string) bool { return slices.Contains(ExpertTargets(), short) }

// ExpertPair is the low-rank pair on one stack of experts.
type ExpertPair struct {
	arch.Stack
	Layer  int
	Target string // ExpertsGateUp or ExpertsDown
	A, B   string // names of its tensors, without PEFT's prefix
}

// HasExperts reports whether layers of the model choose experts.
func HasExperts(c Config) bool {
	return slices.ContainsFunc(c.Layers, func(l arch.Layer) bool { return l.Experts.Count > 0 })
}

// ExpertPairs are the pairs of an adapter on these targets, those of a layer together. PEFT wraps the
// module of the experts once for each parameter, gate_up_proj first: its names are those of the
// outermost wrapper, with base_layer for what lies within.
func ExpertPairs(c Config, targets []string) (out []ExpertPair) {
	gateUp, down := slices.Contains(targets, ExpertsGateUp), slices.Contains(targets, ExpertsDown)
	for i, l := range c.Layers {
		if l.Experts.Count == 0 {
			continue
		}
		into, back := l.Experts.Stacks(c.HiddenSize)
		if gateUp {
			out = append(out, expertPair(into, i, ExpertsGateUp, down))
		}
		if down {
			out = append(out, expertPair(back, i, ExpertsDown, false))
		}
	}
	return out
}

func expertPair(s arch.Stack, layer int, target string, within bool) ExpertPair {
	module := arch.LayerPrefix(layer) + s.Module
	if within {
		module += ".base_layer"
	}
	a, b := LoRANames(module)
	return ExpertPair{Stack: s, Layer: layer, Target: target, A: a, B: b}
}

// slice is what a pair changes of one tensor: all experts of a stack, or some outputs of one.
type slice struct {
	*ExpertPair
	expert int // -1: all
	from   int // the first output of the pair that is the tensor's
}

// slices are the tensors that a pair changes, by name.
func (p *ExpertPair) slices(c Config) map[string]slice {
	at, e := arch.LayerPrefix(p.Layer), c.Layers[p.Layer].Experts
	if e.Clamped != nil || e.Beside != nil {
		return map[string]slice{at + p.Module + "." + p.Parameter: {p, -1, 0}}
	}
	out := map[string]slice{}
	for k := range e.Count {
		m := e.Expert(k)
		if p.Target == ExpertsDown {
			out[at+m.Down()+".weight"] = slice{p, k, 0}
			continue
		}
		out[at+m.Gate()+".weight"], out[at+m.Up()+".weight"] = slice{p, k, 0}, slice{p, k, e.Size}
	}
	return out
}

// findExperts finds the pairs on experts among an adapter's tensors, checks them, and gives what they
// change and the names that it has dealt with. A layer has the pairs that its names tell, one pair
// alone is of the parameter that target_parameters names.
func (x *adaptedTensors) findExperts(c Config) (changed map[string]slice, known map[string]bool, targets []string, err error) {
	a := x.adapter
	changed, known = map[string]slice{}, map[string]bool{}
	fail := func(tensor string, kind malformed.Kind, format string, args ...any) error {
		return malformed.At(a.shard.path, "tensor "+printable(tensor), kind, format, args...)
	}
	has := func(name string) bool { _, ok := a.shard.infos[adapterPrefix+name]; return ok }
	alone := ExpertsDown
	if named := func(p string) bool {
		return slices.ContainsFunc(a.parameters, func(t string) bool { return t == p || strings.HasSuffix(t, "."+p) })
	}; named("gate_up_proj") && !named("down_proj") {
		alone = ExpertsGateUp
	}
	both := ExpertPairs(c, ExpertTargets())
	for i := 0; i < len(both); i += 2 {
		here := both[i : i+2]
		if !has(here[0].A) && !has(here[0].B) {
			here = slices.DeleteFunc(ExpertPairs(c, []string{alone}), func(p ExpertPair) bool { return p.Layer != both[i].Layer })
		}
		for _, p := range here {
			if !has(p.A) && !has(p.B) {
				if len(here) == 2 {
					return nil, nil, nil, fail(adapterPrefix+p.A, malformed.Missing, "the experts' gate_up_proj has a pair within one that is not there")
				}
				continue
			}
			n, rank := int64(p.Count), int64(a.Rank)
			for name, want := range map[string][]int64{p.A: {n * rank, int64(p.In)}, p.B: {int64(p.Out), n * rank}} {
				i, ok := a.shard.infos[adapterPrefix+name]
				if !ok {
					return nil, nil, nil, fail(adapterPrefix+name, malformed.Missing, "the other tensor of its pair is there, it is not")
				}
				if !slices.Equal(i.Shape, want) {
					return nil, nil, nil, fail(adapterPrefix+name, malformed.Mismatch, "shape is %v, but rank %d of %d experts' %s needs %v", i.Shape,
						a.Rank, p.Count, p.Parameter, want)
				}
				known[adapterPrefix+name] = true
			}
			for name, s := range p.slices(c) {
				changed[name] = s
			}
			if !slices.Contains(targets, p.Target) {
				targets = append(targets, p.Target)
			}
		}
	}
	if len(targets) > 0 && a.Dropout > 0 {
		return nil, nil, nil, malformed.At(a.dir, "lora_dropout", malformed.Unsupported,
			"%v: adapters on experts drop nothing, in PEFT neither; set it to 0", a.Dropout)
	}
	slices.SortFunc(targets, func(a, b string) int { return slices.Index(ExpertTargets(), a) - slices.Index(ExpertTargets(), b) })
	return changed, known, targets, nil
}

// merged is W + Scale·B·A of experts in float32.
func (x *adaptedTensors) merged(w Tensor, s slice) (Tensor, error) {
	a, _ := x.low(s.A)
	b, _ := x.low(s.B)
	for _, t := range []*Tensor{&w, &a, &b} {
		var err error
		if *t, err = t.As(F32); err != nil {
			return w, fmt.Errorf("%s: %w", x.path, err)
		}
	}
	get := func(b []byte, i int) float32 { return math.Float32frombits(le.Uint32(b[4*i:])) }
	experts, rank, in := s.Count, x.adapter.Rank, s.In
	first, count, outs := s.expert, 1, 0
	if s.expert < 0 {
		first, count, outs = 0, experts, s.Out
	} else {
		outs = int(w.Shape[0])
	}
	out := Tensor{Name: w.Name, DType: F32, Shape: w.Shape, Data: make([]byte, len(w.Data))}
	scale := x.adapter.Scale()
	parallel(count*outs, 16, func(from, to int) {
		row := make([]float32, in)
		for k := from; k < to; k++ {
			e, o := first+k/outs, k%outs
			clear(row)
			for r := range rank {
				f := float32(scale * float64(get(b.Data, ((s.from+o)*rank+r)*experts+e)))
				for i := range row {
					row[i] += f * get(a.Data, (e*rank+r)*in+i)
				}
			}
			for i, d := range row {
				at := k*in + i
				if s.ByInput {
					at = (k/outs*in+i)*outs + o
				}
				put(out.Data, at, get(w.Data, at)+d)
			}
		}
	})
	return out, nil
}

// peftTargets are target_modules and target_parameters of adapter_config.json. PEFT (0.21) takes
// gate_proj, up_proj and down_proj among the modules of a model with experts for those of the experts, as
// transformers 4 had them, and leaves those of its other layers alone. Where nothing is dropped they are
// named as parameters, which are the same pairs.
func (c AdapterConfig) peftTargets(m Config) (modules, parameters []string) {
	misread := c.Dropout == 0 && (m.Architecture == "qwen3_moe" || m.Architecture == "glm4_moe")
	for _, t := range LoRATargets {
		switch at := strings.LastIndexByte(t.Module, '.'); {
		case !slices.Contains(c.Targets, t.Short):
		case misread && strings.HasPrefix(t.Module, "mlp."):
			if hasModule(m, t.Module) {
				parameters = append(parameters, t.Module+".weight")
			}
		default:
			modules = append(modules, t.Module[at+1:])
		}
	}
	for _, p := range ExpertPairs(m, c.Targets) {
		parameters = append(parameters, p.Module+"."+p.Parameter)
	}
	for _, names := range []*[]string{&modules, &parameters} {
		slices.Sort(*names)
		*names = slices.Compact(*names)
	}
	return modules, parameters
}

// hasModule reports whether a layer has such a matrix.
func hasModule(c Config, module string) bool {
	return slices.ContainsFunc(c.Tensors(), func(t TensorInfo) bool {
		return strings.HasPrefix(t.Name, "model.layers.") && strings.HasSuffix(t.Name, "."+module+".weight")
	})
}
