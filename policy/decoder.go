//go:build libtorch

package policy

import (
	"math"

	"agentcli/internal/torch"
	"agentcli/model/arch"

	"golang.org/x/sys/cpu"
)

// fusedRows is how many new tokens a step of a Decoder has at most. Ours are as fast as oneDNN's
// products for any number of them, and what they give for a row does not depend on the others;
// but oneDNN has tiles (AMX) where a processor has them, and cuts long rows for the cache.
func fusedRows(n *network) int {
	const cached = 512 << 10 // bytes of a panel that stay in a core's cache
	longest := n.cfg.HiddenSize
	for i := range n.layers {
		longest = max(longest, n.layers[i].MLP.Size, n.layers[i].Attention.Heads*n.layers[i].Attention.HeadDim)
	}
	switch {
	case n.layers[0].qkv.stored.Defined(): // there is no other form
		return math.MaxInt
	case n.dtype == torch.BFloat16 && cpu.X86.HasAMXBF16:
		return 64
	case longest*torch.PanelSize*n.dtype.Size() > cached:
		return 128
	}
	return math.MaxInt
}

// decoderOf is the network as one call a step, for sampling on a CPU; nil where it has parts
// that the call does not know, or weights that it cannot read.
func decoderOf(s *torch.Scope, n *network, kpool, vpool []torch.Tensor) *torch.Decoder {
	if !n.panels || !oneCall(n) {
		return nil
	}
	m := torch.DecoderModel{Embed: n.embed, Norm: n.norm, Head: n.head.panels(), EmbedScale: n.rounded(n.cfg.EmbedScale),
		ResidualScale: n.cfg.ResidualScale, Rms: n.rms()}
	for i, r := range n.ropes {
		m.Ropes = append(m.Ropes, torch.RopeTable{Cos: r.cos, Sin: r.sin, Interleaved: n.cfg.Ropes[i].Interleaved})
	}
	layers := make([]torch.DecoderLayer, len(n.layers))
	for i := range n.layers {
		l := &n.layers[i]
		a := l.Attention
		layers[i] = torch.DecoderLayer{BeforeAttention: l.beforeAttention, AfterAttention: l.afterAttention, BeforeMLP: l.beforeMLP,
			AfterMLP: l.afterMLP, QKV: l.qkv.panels(), QKVBias: l.qkvBias, O: l.o.panels(), OBias: l.oBias, GateUp: l.gateUp.panels(),
			GateUpBias: l.gateUpBias, Down: l.down.panels(), DownBias: l.downBias, QNorm: l.qNorm, KNorm: l.kNorm, KPool: kpool[i], VPool: vpool[i],
			Heads: a.Heads, KVHeads: a.KVHeads, Dim: a.HeadDim, Rope: a.Rope, Look: n.look(i)}
		switch a.QKNorm {
		case arch.PerHead:
			layers[i].QKNorm = torch.EachHead
		case arch.WholeVector:
			layers[i].QKNorm = torch.AllHeads
		}
	}
	return s.NewDecoder(m, layers)
}

// oneCall reports whether a decoder knows all parts of the network.
func oneCall(n *network) bool {
	if n.cfg.Recurrent() || n.cfg.PerLayer.Size > 0 || n.cfg.Score {
		return false
	}
	for _, r := range n.cfg.Ropes {
		if r.QueryBeta != 0 {
			return false
		}
	}
	for i := range n.layers {
		l := &n.layers[i]
		a := l.Attention
		if a.Heads == 0 || a.Shared || a.Gated || a.KeysAreValues || a.ValueNorm || a.HeadDim%8 != 0 ||
			a.Heads > torch.MaxGroup*a.KVHeads || l.Experts.Count > 0 || l.OutputScale || l.mlpGate.Defined() ||
			l.MLP.Act == arch.GELUTanh || l.MLP.Size == 0 {
			return false
		}
	}
	return true
}
