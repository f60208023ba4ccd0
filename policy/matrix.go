//go:build libtorch

package policy

import "agentcli/internal/torch"

// matrix is a weight, and where sampling on a CPU packed it, its packed copy, or the weight as
// its GGUF has it, and adapters on it: those that are trained, or of some rows of a pass.
type matrix struct {
	w, packed, stored torch.Tensor
	low               *lowRank
	rows              []torch.RowsPair // of adapters for some rows, in sampling
}

// panels is what a torch.Decoder reads.
func (m matrix) panels() torch.Tensor {
	if m.stored.Defined() {
		return m.stored
	}
	return m.packed
}

func (m matrix) apply(s *torch.Scope, x, bias torch.Tensor) torch.Tensor {
	if m.low != nil {
		return s.LoRALinear(x, m.w, bias, m.low.parts, m.low.scale, m.low.dropout)
	}
	var y torch.Tensor
	switch {
	case m.packed.Defined():
		y = s.LinearPacked(x, m.packed, bias)
	case m.stored.Defined() && !m.w.Defined():
		y = s.Linear(x, s.QuantDense(m.stored), bias)
	default:
		y = s.Linear(x, m.w, bias)
	}
	if len(m.rows) > 0 {
		s.AddLowRank(y, x, m.rows)
	}
	return y
}

// The matrices of a layer that adapters may change.
const (
	slotQKV = iota
	slotO
	slotGateUp
	slotDown
	matrixSlots
)

// matrices are those, in this order.
func (l *layer) matrices() [matrixSlots]*matrix {
	return [matrixSlots]*matrix{&l.qkv, &l.o, &l.gateUp, &l.down}
}

// slotOf is the one that a target is part of.
func slotOf(target string) int {
	switch target {
	case "q", "k", "v", "qkv", "in", "in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a":
		return slotQKV
	case "o", "out":
		return slotO
	case "gate", "up", "gate_up", "w1", "w3":
		return slotGateUp
	}
	return slotDown
}
