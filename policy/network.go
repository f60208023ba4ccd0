//go:build libtorch

package policy

import (
	"fmt"
	"math"

	"agentcli/internal/torch"
	"agentcli/model/arch"
	"agentcli/model/weights"
)

// network is a decoder of package arch on tensors. q, k and v are one matrix, gate and up
// another: fewer, larger products. The same code runs sampling (cached attention, no
// gradient) and training (tree attention).
type network struct {
	cfg     weights.Config
	dtype   torch.DType
	device  torch.Device
	params  []param // what is trained and saved, in a fixed order
	embed   torch.Tensor
	norm    torch.Tensor
	head    matrix       // the embedding itself where they are tied; none in a scoring model
	score   torch.Tensor // [1, hidden size] of the value head, in the type of the masters; none without one
	layers  []layer
	vision  *encoder   // of images; nil where there is none
	ropes   []rotation // of arch.Decoder.Ropes
	maxSeen int        // positions of their tables
	panels  bool       // the packed weights are such that a torch.Decoder reads them
	frozen  bool       // no weight but the value head gets a gradient

	perLayer struct{ embed, projection, norm torch.Tensor } // of arch.PerLayer
}

type layer struct {
	arch.Layer
	beforeAttention, afterAttention, beforeMLP, afterMLP torch.Tensor // norms; zero Tensor where there is none
	qkv, o                                               matrix       // of a recurrent mixer: what goes into it, and what comes out
	qkvBias, oBias                                       torch.Tensor
	qNorm, kNorm                                         torch.Tensor
	gateUp, down                                         matrix
	gateUpBias, downBias                                 torch.Tensor
	sinks                                                torch.Tensor // [heads]
	conv, convBias                                       torch.Tensor // of a recurrent mixer, as the next ones
	aLog, dtBias, deltaNorm                              torch.Tensor
	mlpGate                                              torch.Tensor
	router, routerBias, correction                       torch.Tensor // of the experts, whose matrices stand one below the other
	expertsGateUp, expertsDown                           torch.Tensor
	expertsGateUpBias, expertsDownBias                   torch.Tensor
	expertPairs                                          torch.ExpertPairs
	expertRows                                           []expertRows // of adapters for some rows, in sampling
	routerNorm, expertScale                              torch.Tensor // of arch.Beside, as the norms that follow
	afterBeside, beforeExperts, afterExperts             torch.Tensor
	perLayerGate, perLayerProjection, perLayerNorm       torch.Tensor
	outputScale                                          torch.Tensor // [1]
}

// param is one tensor of the network and the Hugging Face tensors that it holds,
// one below the other along the first dimension.
type param struct {
	tensor *torch.Tensor
	parts  []part
}

type part struct {
	name  string
	shape []int64
}

const (
	headName  = arch.Head
	scoreName = arch.Score
)

// What goes into a layer's mixer of tokens, whichever it is, and what comes out of it.
var (
	mixerIn = []string{arch.QKVProj, arch.QProj, arch.KProj, arch.VProj, arch.ConvIn,
		arch.DeltaInQKV, arch.DeltaInZ, arch.DeltaInB, arch.DeltaInA}
	mixerOut = []string{arch.OProj, arch.OutProj, arch.ConvOut, arch.DeltaOut}
)

// describe lays the parameters out. withScore adds a value head to a model that
// has a language-model head.
func describe(cfg weights.Config, withScore bool) (*network, error) {
	n := &network{cfg: cfg, layers: make([]layer, len(cfg.Layers))}
	// The shapes, and which tensors an architecture has, are weights.Config's to
	// say; here is which of them stand below each other in one parameter.
	shapes := map[string][]int64{}
	for _, t := range cfg.Tensors() {
		shapes[t.Name] = t.Shape
	}
	if cfg.Tied {
		delete(shapes, headName)
	}
	if withScore {
		shapes[scoreName] = []int64{1, int64(cfg.HiddenSize)}
	}
	known, used := len(shapes), 0
	add := func(t *torch.Tensor, prefix string, names ...string) {
		p := param{tensor: t}
		for _, name := range names {
			if shape, ok := shapes[prefix+name]; ok {
				p.parts = append(p.parts, part{prefix + name, shape})
			}
		}
		if used += len(p.parts); len(p.parts) > 0 { // otherwise the architecture has none
			n.params = append(n.params, p)
		}
	}
	add(&n.embed, "", arch.Embed)
	add(&n.perLayer.embed, "", arch.PerLayerEmbed)
	add(&n.perLayer.projection, "", arch.PerLayerModelProjection)
	add(&n.perLayer.norm, "", arch.PerLayerModelNorm)
	for i := range n.layers {
		l, at := &n.layers[i], arch.LayerPrefix(i)
		l.Layer = cfg.Layers[i]
		norm := func(t *torch.Tensor, name string) {
			if name != "" {
				add(t, at, name+".weight")
			}
		}
		weight := func(t *torch.Tensor, names ...string) { add(t, at, suffixed(names, ".weight")...) }
		bias := func(t *torch.Tensor, names ...string) { add(t, at, suffixed(names, ".bias")...) }
		gateUp := []string{l.MLP.GateUp(), l.MLP.Gate(), l.MLP.Up()}
		norm(&l.beforeAttention, l.Norms.BeforeAttention)
		weight(&l.qkv.w, mixerIn...)
		bias(&l.qkvBias, mixerIn...)
		weight(&l.qNorm, arch.QNorm, arch.QLayerNorm)
		weight(&l.kNorm, arch.KNorm, arch.KLayerNorm)
		weight(&l.conv, arch.ConvWeight, arch.DeltaConv)
		bias(&l.convBias, arch.ConvWeight)
		add(&l.aLog, at, arch.DeltaALog)
		add(&l.dtBias, at, arch.DeltaDtBias)
		weight(&l.deltaNorm, arch.DeltaNorm)
		bias(&l.oBias, mixerOut...)
		weight(&l.o.w, mixerOut...)
		norm(&l.afterAttention, l.Norms.AfterAttention)
		norm(&l.beforeMLP, l.Norms.BeforeMLP)
		add(&l.sinks, at, arch.Sinks)
		add(&l.router, at, arch.RouterWeight, arch.ClampedRouter+".weight", arch.BesideRouter+".weight", arch.NumberedRouter)
		bias(&l.routerBias, arch.ClampedRouter)
		add(&l.correction, at, arch.RouterCorrection, arch.NumberedCorrection)
		add(&l.expertsGateUpBias, at, arch.ClampedGateUpBias)
		add(&l.expertsDownBias, at, arch.ClampedDownBias)
		if l.Experts.Clamped != nil {
			add(&l.expertsGateUp, at, arch.ClampedGateUp)
			add(&l.expertsDown, at, arch.ClampedDown)
		}
		if b := l.Experts.Beside; b != nil {
			add(&l.routerNorm, at, arch.BesideRouterNorm)
			add(&l.expertScale, at, arch.BesideExpertScale)
			add(&l.expertsGateUp, at, arch.BesideGateUp)
			add(&l.expertsDown, at, arch.BesideDown)
			norm(&l.afterBeside, b.AfterMLP)
			norm(&l.beforeExperts, b.Before)
			norm(&l.afterExperts, b.After)
		}
		add(&l.perLayerGate, at, arch.PerLayerGate)
		add(&l.perLayerProjection, at, arch.PerLayerProjection)
		add(&l.perLayerNorm, at, arch.PerLayerNorm)
		add(&l.outputScale, at, arch.OutputScale)
		var inner, outer []string
		for k := range l.Experts.Count {
			e := l.Experts.Expert(k)
			inner, outer = append(inner, e.Gate(), e.Up()), append(outer, e.Down())
		}
		weight(&l.expertsGateUp, inner...)
		weight(&l.expertsDown, outer...)
		weight(&l.gateUp.w, gateUp...)
		bias(&l.gateUpBias, gateUp...)
		weight(&l.down.w, l.MLP.Down())
		bias(&l.downBias, l.MLP.Down())
		weight(&l.mlpGate, arch.SharedGate)
		norm(&l.afterMLP, l.Norms.AfterMLP)
	}
	if cfg.Vision != nil {
		n.vision = newEncoder(cfg.Vision)
		n.vision.each(func(t *torch.Tensor, names ...string) { add(t, "", names...) })
	}
	add(&n.norm, "", cfg.FinalNorm)
	add(&n.head.w, "", headName)
	add(&n.score, "", scoreName)
	if used != known {
		return nil, fmt.Errorf("the local policy knows what to do with %d of the %d tensors of a %s model", used, known, cfg.Architecture)
	}
	return n, nil
}

func suffixed(names []string, suffix string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = n + suffix
	}
	return out
}

// place is where a tensor of the files stands in a parameter: from row on, of all its rows.
type place struct {
	part
	row, rows int64
}

// placesOf are those of all tensors of a network, by name.
func placesOf(n *network) map[string]place {
	out := map[string]place{}
	for _, p := range n.params {
		row := int64(0)
		for _, q := range p.parts {
			out[q.name] = place{q, row, p.shape()[0]}
			row += q.shape[0]
		}
	}
	return out
}

// shape of the whole parameter: its parts below each other.
func (p param) shape() []int64 {
	s := append([]int64{}, p.parts[0].shape...)
	for _, q := range p.parts[1:] {
		s[0] += q.shape[0]
	}
	return s
}

// tie makes the embedding the output matrix too, where the model says so.
func (n *network) tie() {
	if n.cfg.Tied && !n.cfg.Score {
		n.head.w = n.embed
	}
}

// sight is how the tokens of a pass see those before them.
type sight struct {
	attend attention
	cached *cachedSight   // of sampling
	runs   *torch.RunPlan // for recurrent layers
	states []layerState   // of sampling, one a layer; nil in training, where all sequences are whole
}

// attention of one layer: q [T, Hq, D], k and v [T, Hkv, D] → [T, Hq, D].
type attention func(s *torch.Scope, layer int, q, k, v torch.Tensor) torch.Tensor

// rms is how the network norms.
func (n *network) rms() torch.Norm { return torch.Norm{Eps: n.cfg.Eps, Offset: n.cfg.NormOffset} }

// hidden is the forward pass up to the last norm: [T, hidden size]. Rows, where
// it is not nil, are those that are wanted at the end.
func (n *network) hidden(s *torch.Scope, in input, seen sight, rows []int32) torch.Tensor {
	turns := n.angles(s, in.positions)
	if s.Err() != nil {
		return torch.Tensor{}
	}
	tokens := s.IDs(in.ids)
	x := n.embedded(s, tokens)
	p := &pass{sight: seen, turns: turns, rows: rows, routing: in.routing, inputs: perLayerInputs(n, s, tokens, x), kv: map[int]keysValues{}}
	x, deep := in.place(s, n, x), in.deepened(s, n)
	var y torch.Tensor // what the last sub-layer adds to x
	for i := range n.layers {
		c := s.Child()
		x, y = n.layer(c, i, x, y, p)
		if i < len(deep) {
			y = c.Add(y, deep[i])
		}
		c.Keep(x, s)
		c.Keep(y, s)
		p.keep(n, i, c, s)
		c.Close()
	}
	_, h := n.normed(s, x, y, n.norm)
	return h
}

// embedded is what goes into the first layer.
func (n *network) embedded(s *torch.Scope, ids torch.Tensor) torch.Tensor {
	return scaled(s, s.Embedding(n.embed, ids), n.rounded(n.cfg.EmbedScale)) // the id check runs on the CPU copy
}

// rounded is an embedding's factor in the type of the weights, which is what Gemma was
// trained with.
func (n *network) rounded(f float64) float64 {
	if n.dtype == torch.BFloat16 {
		bits := math.Float32bits(float32(f))
		f = float64(math.Float32frombits((bits + 0x7fff + bits>>16&1) &^ 0xffff))
	}
	return f
}

func scaled(s *torch.Scope, x torch.Tensor, factor float64) torch.Tensor {
	if factor == 1 {
		return x
	}
	return s.Times(x, factor)
}

// logits of hidden states, as the model multiplies them.
func (n *network) logits(s *torch.Scope, h torch.Tensor) torch.Tensor {
	return n.shaped(s, n.head.apply(s, h, torch.Tensor{}))
}

// shaped are logits as the model multiplies the products of the output matrix.
func (n *network) shaped(s *torch.Scope, z torch.Tensor) torch.Tensor {
	if n.cfg.LogitCap > 0 {
		z = s.SoftCap(z, n.cfg.LogitCap)
	}
	z = scaled(s, z, n.cfg.LogitScale)
	if len(n.cfg.Barred) > 0 {
		z = s.Bar(z, s.IDs(n.cfg.Barred))
	}
	return z
}

// headChunk is the number of rows whose logits exist at once: 512 × 49,152 float32 are
// 100 MB. On a GPU they are more, because with each chunk the gradient of the whole matrix is
// written and read again.
func headChunk(n *network) int64 {
	const least, most, bytes = 512, 8192, 1 << 30
	if n.device < 0 {
		return least
	}
	return min(max(least, bytes/(int64(n.cfg.VocabSize)*int64(n.dtype.Size()))), most)
}

// headLogprobs are the log-probs of target ids after hidden states, and the entropies, [rows]
// each. scales is what each row's logits are multiplied by; nil: 1.
func (n *network) headLogprobs(s *torch.Scope, h torch.Tensor, targets []int32, scales []float64) (logprobs, entropies torch.Tensor) {
	head := torch.Head{Cap: n.cfg.LogitCap, Chunk: headChunk(n)}
	if scales != nil {
		head.Scale = s.Float64(scales)
	}
	if len(n.cfg.Barred) > 0 {
		head.Barred = s.IDs(n.cfg.Barred)
	}
	return s.HeadLogprobsOf(h, n.head.w, s.IDs(targets), head)
}

// layer takes the residual stream x and what the layer before adds to it, if
// there is any, and gives both behind this layer.
func (n *network) layer(c *torch.Scope, i int, x, y torch.Tensor, p *pass) (torch.Tensor, torch.Tensor) {
	l := &n.layers[i]
	x, h := n.normed(c, x, y, l.beforeAttention)
	if c.Err() != nil {
		return x, y
	}
	var o torch.Tensor
	switch {
	case l.Conv.Kernel > 0:
		o = shortConv(n, c, i, h, p.sight)
	case l.Delta.Kernel > 0:
		o = deltaNet(n, c, i, h, p.sight)
	default:
		o = n.attention(c, i, h, p)
	}
	if c.Err() != nil {
		return x, y
	}
	input := p.input(i)
	if p.rows != nil && i == len(n.layers)-1 {
		// What follows works row by row: the others' last layer is not needed.
		idx := c.To(c.IDs(p.rows), torch.Int64, n.device)
		o, x = c.IndexSelect(o, 0, idx), c.IndexSelect(x, 0, idx)
		if input.Defined() {
			input = c.IndexSelect(input, 0, idx)
		}
	}
	y = n.given(c, l.o.apply(c, o, l.oBias), l.afterAttention)
	x, h = n.normed(c, x, y, l.beforeMLP)
	if l.Experts.Beside != nil {
		h = besideExperts(n, c, i, x, h, p.routing)
	} else {
		h = l.feedForward(c, i, h, p.routing)
	}
	return ended(n, c, l, x, n.given(c, h, l.afterMLP), input)
}

// attention is the attention of layer i: [T, heads·head dim].
func (n *network) attention(c *torch.Scope, i int, h torch.Tensor, p *pass) torch.Tensor {
	l := &n.layers[i]
	x := projected(c, l, h)
	var o, gate torch.Tensor
	if q, ok := p.cached.heads(c, n, i, x, p.turns); ok {
		o = p.attend(c, i, q, torch.Tensor{}, torch.Tensor{})
	} else {
		var k, v torch.Tensor
		q, k, v, gate = queries(c, n, l, x, p.turns)
		k, v = p.shared(i, l.Attention, k, v)
		o = p.attend(c, i, q, k, v)
	}
	if c.Err() != nil {
		return o
	}
	if gate.Defined() {
		o = c.SigmoidMul(o, gate)
	}
	return c.Reshape(o, c.Shape(o)[0], int64(l.Attention.Heads*l.Attention.HeadDim))
}

// normed adds y, where there is one, to the residual stream, and gives the sum and what a
// sub-layer takes of it: the sum itself where no norm stands before the sub-layer.
func (n *network) normed(c *torch.Scope, x, y, norm torch.Tensor) (sum, h torch.Tensor) {
	switch {
	case y.Defined() && norm.Defined():
		return c.AddRMSNorm(x, y, norm, n.rms())
	case norm.Defined():
		return x, c.RMSNorm(x, norm, n.rms())
	case y.Defined():
		x = c.Add(x, y)
	}
	return x, x
}

// given is what a sub-layer adds to the residual stream.
func (n *network) given(c *torch.Scope, y, norm torch.Tensor) torch.Tensor {
	if norm.Defined() {
		y = c.RMSNorm(y, norm, n.rms())
	}
	return scaled(c, y, n.cfg.ResidualScale)
}

// look is how the tokens of a layer see each other.
func (n *network) look(layer int) torch.Look {
	a := n.layers[layer].Attention
	return torch.Look{Window: int64(a.Window), Scale: a.Scale, Sinks: n.layers[layer].sinks}
}

// tree is how the tokens of a pack see each other; what its layers share belongs to s.
func (n *network) tree(s *torch.Scope, p *Pack) sight {
	nodes := make([]torch.TreeNode, len(p.Nodes))
	for i, x := range p.Nodes {
		nodes[i] = torch.TreeNode(x)
	}
	plan := s.PlanTree(nodes)
	seen := sight{}
	if n.cfg.Recurrent() {
		runs := make([]torch.Run, len(p.Nodes))
		for i, x := range p.Nodes {
			runs[i] = torch.Run{Start: x.Start, Len: x.Len, Parent: x.Parent}
		}
		seen.runs = s.PlanRuns(runs, nil)
	}
	seen.attend = func(c *torch.Scope, layer int, q, k, v torch.Tensor) torch.Tensor {
		return c.TreeAttention(q, k, v, plan, n.look(layer))
	}
	return seen
}

func equal(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// fromFile is a tensor of a file in another type and on a device.
func fromFile(s *torch.Scope, raw weights.Tensor, d torch.DType, dev torch.Device) (torch.Tensor, error) {
	from, err := dtypeOf(raw.DType)
	if err != nil {
		return torch.Tensor{}, fmt.Errorf("tensor %s: %w", raw.Name, err)
	}
	return s.Clone(s.FromBytes(raw.Data, from, raw.Shape...), d, dev), nil
}

// dtypeOf maps a file's element type to torch's.
func dtypeOf(d weights.DType) (torch.DType, error) {
	switch d {
	case weights.F32:
		return torch.Float32, nil
	case weights.F16:
		return torch.Float16, nil
	case weights.BF16:
		return torch.BFloat16, nil
	case weights.F64:
		return torch.Float64, nil
	}
	return 0, fmt.Errorf("the element type %s is not one that a model's weights may have (F32, F16, BF16, F64)", d)
}
