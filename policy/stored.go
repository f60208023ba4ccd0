//go:build libtorch

package policy

import (
	"slices"

	"agentcli/internal/torch"
	"agentcli/model/weights"
)

// storedMatrices keeps matrices as the file has them (Config.AsStored), if the processor and the
// model allow it, and reports the parameters that need no other form. The output matrix is in both:
// Logprobs reads its rows.
func storedMatrices(n *network, s, keep *torch.Scope, m source) map[*torch.Tensor]bool {
	done := map[*torch.Tensor]bool{}
	if !m.asStored || n.dtype != torch.BFloat16 || !torch.Native(n.device) || !torch.QuantKernels() || !oneCall(n) {
		return done
	}
	of := matricesOf(n)
	params := slices.DeleteFunc(slices.Clone(n.params), func(p param) bool { return of[p.tensor] == nil })
	for _, p := range params {
		x := of[p.tensor]
		var parts []torch.Quant
		for _, q := range p.parts {
			m.ahead.Reached(q.name)
			t, ok := weights.InBlocks(m.Model, q.name)
			b, known := torch.QuantOf(string(t.DType))
			if !ok || !known || !weights.LeastValuesFit(t) {
				parts = nil
				break
			}
			parts = append(parts, torch.Quant{Rows: int(t.Shape[0]), Cols: int(t.Shape[1]), Blocks: b, Data: t.Data})
		}
		if parts != nil {
			x.stored = s.Keep(s.PackQuant(parts...), keep)
			done[p.tensor] = x != &n.head
		}
	}
	return done
}

// HasStoredMatrices reports whether a matrix of a layer is multiplied as its file has it.
func HasStoredMatrices(p *Policy) bool {
	for i := range p.net.layers {
		l := &p.net.layers[i]
		for _, m := range []matrix{l.qkv, l.o, l.gateUp, l.down} {
			if m.stored.Defined() {
				return true
			}
		}
	}
	return false
}
