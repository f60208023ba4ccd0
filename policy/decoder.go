//go:build libtorch

package policy

import (
	"math"
	"slices"

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

func makeDecoders(sc *scheduler, s *torch.Scope) {
	sc.decoder = decoderOf(s, sc.p.net, sc.kpool, sc.vpool)
	sc.device = deviceDecoderOf(s, sc.p.net, sc.kpool, sc.vpool, sc.p.cfg)
	sc.pace.hasGraphs = sc.device != nil
}

func closeDecoders(sc *scheduler) {
	sc.decoder.Close()
	sc.device.Close()
}

// decoderOf is the network as one call a step, for sampling on a CPU; nil where it has parts
// that the call does not know, or weights that it cannot read.
func decoderOf(s *torch.Scope, n *network, kpool, vpool []torch.Tensor) *torch.Decoder {
	if !n.panels || !oneCall(n) || slices.ContainsFunc(n.layers, func(l layer) bool { return l.MLP.Act == arch.GELUTanh }) {
		return nil
	}
	return s.NewDecoder(decoderParts(n, kpool, vpool, matrix.panels))
}

// deviceDecoderOf is the same on a device, for steps of one token of each sequence; nil where it
// has no kernels of ours.
func deviceDecoderOf(s *torch.Scope, n *network, kpool, vpool []torch.Tensor, c Config) *torch.DeviceDecoder {
	if n.device == torch.CPU || n.dtype == torch.Float64 || !oneCall(n) {
		return nil
	}
	m, layers := decoderParts(n, kpool, vpool, func(x matrix) torch.Tensor { return x.w })
	shaped := n.cfg.LogitCap > 0 || n.cfg.LogitScale != 1 || len(n.cfg.Barred) > 0
	return s.NewDeviceDecoder(m, layers, c.MaxBatch, (c.MaxContext+blockSize-1)/blockSize, !shaped)
}

// decoderParts are those of a network for a decoder; of gives a weight in its form.
func decoderParts(n *network, kpool, vpool []torch.Tensor, of func(matrix) torch.Tensor) (torch.DecoderModel, []torch.DecoderLayer) {
	m := torch.DecoderModel{Embed: n.embed, Norm: n.norm, Head: of(n.head), EmbedScale: n.rounded(n.cfg.EmbedScale),
		ResidualScale: n.cfg.ResidualScale, Rms: n.rms()}
	for i, r := range n.ropes {
		m.Ropes = append(m.Ropes, torch.RopeTable{Cos: r.cos, Sin: r.sin, Interleaved: n.cfg.Ropes[i].Interleaved})
	}
	layers := make([]torch.DecoderLayer, len(n.layers))
	for i := range n.layers {
		l := &n.layers[i]
		a := l.Attention
		layers[i] = torch.DecoderLayer{BeforeAttention: l.beforeAttention, AfterAttention: l.afterAttention, BeforeMLP: l.beforeMLP,
			AfterMLP: l.afterMLP, QKV: of(l.qkv), QKVBias: l.qkvBias, O: of(l.o), OBias: l.oBias, GateUp: of(l.gateUp),
			GateUpBias: l.gateUpBias, Down: of(l.down), DownBias: l.downBias, QNorm: l.qNorm, KNorm: l.kNorm, KPool: kpool[i], VPool: vpool[i],
			Heads: a.Heads, KVHeads: a.KVHeads, Dim: a.HeadDim, Rope: a.Rope, GELU: l.MLP.Act == arch.GELUTanh, Look: n.look(i)}
		switch a.QKNorm {
		case arch.PerHead:
			layers[i].QKNorm = torch.EachHead
		case arch.WholeVector:
			layers[i].QKNorm = torch.AllHeads
		}
	}
	return m, layers
}

// oneCall reports whether decoders know all parts of the network.
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
			l.MLP.Size == 0 {
			return false
		}
	}
	return true
}
