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
	sc.decoder = decoderOf(s, sc)
	sc.device = deviceDecoderOf(s, sc)
	sc.pace.depth, sc.pace.hasGraphs = costDepth(sc.p.net.cfg.Decoder), sc.device != nil
}

func closeDecoders(sc *scheduler) {
	sc.decoder.Close()
	sc.device.Close()
}

// decoderOf is the network as one call a step, for sampling on a CPU; nil where it has parts
// that the call does not know, or weights that it cannot read.
func decoderOf(s *torch.Scope, sc *scheduler) *torch.Decoder {
	if n := sc.p.net; !n.panels || !oneCall(n) {
		return nil
	}
	return s.NewDecoder(decoderParts(sc, matrix.panels))
}

// deviceDecoderOf is the same on a device, for steps of one token of each sequence; nil where it
// has no kernels of ours.
func deviceDecoderOf(s *torch.Scope, sc *scheduler) *torch.DeviceDecoder {
	n, c := sc.p.net, sc.p.cfg
	if n.device == torch.CPU || n.dtype == torch.Float64 || !hasKnownLayers(n) {
		return nil
	}
	m, layers := decoderParts(sc, func(x matrix) torch.Tensor { return x.w })
	shaped := n.cfg.LogitCap > 0 || n.cfg.LogitScale != 1 || len(n.cfg.Barred) > 0
	return s.NewDeviceDecoder(m, layers, torch.DeviceSteps{Rows: c.MaxBatch, Blocks: (c.MaxContext + blockSize - 1) / blockSize,
		Draws: !shaped, Records: sc.experts != nil})
}

// decoderParts are those of a network for a decoder; of gives a weight in its form.
func decoderParts(sc *scheduler, of func(matrix) torch.Tensor) (torch.DecoderModel, []torch.DecoderLayer) {
	n := sc.p.net
	m := torch.DecoderModel{Embed: n.embed, Norm: n.norm, Head: of(n.head), EmbedScale: n.rounded(n.cfg.EmbedScale),
		ResidualScale: n.cfg.ResidualScale, Rms: n.rms()}
	if per := n.cfg.PerLayer; per.Size > 0 {
		m.PerLayer = torch.DecoderPerLayer{Embed: n.perLayer.embed, Projection: n.perLayer.projection, Norm: n.perLayer.norm,
			Scale: n.rounded(math.Sqrt(float64(per.Size))), GELU: per.Act == arch.GELUTanh}
	}
	for i, r := range n.ropes {
		t := torch.RopeTable{Cos: r.cos, Sin: r.sin, Interleaved: n.cfg.Ropes[i].Interleaved}
		if q := r.queries; q != nil {
			t.QueryCos, t.QuerySin = q.cos, q.sin
		}
		m.Ropes = append(m.Ropes, t)
	}
	layers := make([]torch.DecoderLayer, len(n.layers))
	for i := range n.layers {
		l := &n.layers[i]
		a := l.Attention
		layers[i] = torch.DecoderLayer{BeforeAttention: l.beforeAttention, AfterAttention: l.afterAttention, BeforeMLP: l.beforeMLP,
			AfterMLP: l.afterMLP, QKV: of(l.qkv), QKVBias: l.qkvBias, O: of(l.o), OBias: l.oBias, GateUp: of(l.gateUp),
			GateUpBias: l.gateUpBias, Down: of(l.down), DownBias: l.downBias, QNorm: l.qNorm, KNorm: l.kNorm, KPool: sc.kpool[i], VPool: sc.vpool[i],
			Heads: a.Heads, KVHeads: a.KVHeads, Dim: a.HeadDim, Rope: a.Rope, GELU: l.MLP.Act == arch.GELUTanh, Look: n.look(i),
			Gated: a.Gated, MLPGate: l.mlpGate, Shared: a.Shared, KeysAreValues: a.KeysAreValues, ValueNorm: a.ValueNorm,
			PerLayerGate: l.perLayerGate, PerLayerProjection: l.perLayerProjection, PerLayerNorm: l.perLayerNorm}
		if l.OutputScale {
			layers[i].OutputScale = l.outputScale
		}
		if sc.states != nil {
			layers[i].Recurrent = recurrentParts(l, sc.states[i])
		}
		if e := l.Experts; e.Count > 0 {
			layers[i].Experts = torch.DecoderExperts{Router: l.router, Correction: l.correction, How: routerOf(e),
				Of: l.plainExperts(torch.ExpertPairs{}), RouterBias: l.routerBias}
			if e.Beside != nil {
				layers[i].Experts.Beside = torch.BesideExperts{RouterNorm: l.routerNorm, Before: l.beforeExperts, AfterMLP: l.afterBeside,
					After: l.afterExperts, Factors: l.expertScale}
			}
			if e.Clamped != nil {
				clamped := l.clampedExperts(torch.ExpertPairs{})
				layers[i].Experts.Clamped = &clamped
			}
		}
		switch a.QKNorm {
		case arch.PerHead:
			layers[i].QKNorm = torch.EachHead
		case arch.WholeVector:
			layers[i].QKNorm = torch.AllHeads
		}
	}
	return m, layers
}

// recurrentParts are those of a recurrent mixer; nothing of a layer with attention.
func recurrentParts(l *layer, state layerState) torch.DecoderRecurrent {
	r := torch.DecoderRecurrent{Conv: l.conv, ConvBias: l.convBias, Windows: state.window}
	if d := l.Delta; d.Kernel > 0 {
		r.ALog, r.DtBias, r.Norm, r.States, r.DeltaHeads = l.aLog, l.dtBias, l.deltaNorm, state.delta, deltaHeads(d)
	}
	return r
}

// oneCall reports whether a decoder on a CPU knows all parts of the network.
func oneCall(n *network) bool {
	scales := func(r arch.Rope) bool { return r.QueryBeta != 0 }
	other := func(l layer) bool {
		a, e := l.Attention, l.Experts
		return a.Shared || a.KeysAreValues || a.ValueNorm || e.Clamped != nil || e.Beside != nil || l.routerBias.Defined() || l.OutputScale
	}
	return hasKnownLayers(n) && n.cfg.PerLayer.Size == 0 && !slices.ContainsFunc(n.cfg.Ropes, scales) && !slices.ContainsFunc(n.layers, other)
}

// hasKnownLayers reports whether a decoder on a device knows all parts of the layers, and one on a CPU where oneCall holds.
func hasKnownLayers(n *network) bool {
	if n.cfg.Score {
		return false
	}
	taps, attending := 0, 0 // of convolutions, which are alike; layers with a cache
	for i := range n.layers {
		l := &n.layers[i]
		if tokens, _ := n.cfg.ConvWindow(i); tokens > 0 {
			if taps > 0 && taps != tokens || tokens >= torch.MaxTaps {
				return false
			}
			taps = tokens
		} else if a := l.Attention; a.Heads == 0 || a.HeadDim%8 != 0 || a.Heads > torch.MaxGroup*a.KVHeads {
			return false
		}
		attending += min(l.Attention.Heads, 1)
		if l.Experts.Active > torch.MaxActive || l.MLP.Size == 0 && l.Experts.Count == 0 {
			return false
		}
	}
	return attending > 0
}
