// Package arch says what a language model computes, one file a family: which tensors a
// model of that family has, what of its configuration counts, and how its layers are put
// together from the parts that package policy computes. A family that needs no new part
// is one file here and one line in families.
//
// Where a sentence names no other source, the truth is transformers' class of that name.
package arch

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"agentcli/internal/malformed"
)

// Decoder is a language model of one configuration.
type Decoder struct {
	Architecture string // model_type of config.json: "llama"
	Class        string // "LlamaForCausalLM"
	VocabSize    int
	HiddenSize   int
	MaxPositions int     // tokens of the longest text
	Eps          float64 // of the norms
	NormOffset   float64 // norms multiply by this plus their weight: 1 in Gemma
	FinalNorm    string  // the name of the last norm's weight
	Tied         bool    // the output matrix is the embedding

	EmbedScale    float64 // embeddings are multiplied by it
	ResidualScale float64 // what a sub-layer gives is, before it is added
	LogitScale    float64 // logits are
	LogitCap      float64 // logits z are c·tanh(z/c); 0: as they are

	PerLayer PerLayer

	Ropes  []Rope  // the ways in which positions are rotated; layers name one by its index
	Layers []Layer // from the first to the last

	Vision *Vision // the encoder of images; nil: the model takes text alone
}

// Layer is one layer: a mixer of tokens, which is attention, a short convolution or the gated
// delta rule, then an MLP or experts, each added to what goes into it.
type Layer struct {
	Norms     Norms
	Attention Attention // no Heads: there is none
	Conv      ShortConv // no Kernel: there is none
	Delta     DeltaNet  // no Kernel: there is none
	MLP       MLP       // with experts: those that every token asks; Size 0 is none
	Experts   Experts

	OutputScale bool // what the layer gives is multiplied by one number, which is not trained
}

// PerLayer are embeddings that each layer has of the tokens, beside those that go into the first
// layer (Gemma 3n and 4): a token's numbers for a layer are (norm(P·x) + e)/√2, where x is its
// embedding and e its row of a second table; the layer adds norm(W·(act(G·h)·numbers)) to what it
// gives.
type PerLayer struct {
	Size      int // numbers of a token and layer; 0: there are none
	VocabSize int // of the second table
	Act       Activation
}

// Width is how many inner numbers of an MLP a token has in this layer.
func (l Layer) Width() int { return l.MLP.Size + l.Experts.Active*l.Experts.Size }

// Norms are the names of a layer's norms, without ".weight"; "" is none. Those after a
// sub-layer norm what is about to be added.
type Norms struct{ BeforeAttention, AfterAttention, BeforeMLP, AfterMLP string }

// The norms of most families.
var preNorms = Norms{BeforeAttention: "input_layernorm", BeforeMLP: "post_attention_layernorm"}

// all in the order of a layer.
func (n Norms) all() [4]string {
	return [4]string{n.BeforeAttention, n.AfterAttention, n.BeforeMLP, n.AfterMLP}
}

// QKNorm says whether queries and keys are normed before they are rotated.
type QKNorm int

// The kinds of norms of queries and keys.
const (
	NoQKNorm    QKNorm = iota
	PerHead            // one weight of a head's size for all heads
	WholeVector        // all heads together
)

// Attention is grouped-query attention (Ainslie et al. 2023).
type Attention struct {
	Heads, KVHeads, HeadDim int
	Fused                   bool // q, k and v are one matrix on disk
	LFM2                    bool // tensors have LFM2's names
	QKVBias, OBias          bool
	QKNorm                  QKNorm
	Rope                    int     // index of Ropes; NoRope: positions are not rotated
	Window                  int     // positions that a token sees, its own included; 0: all before it
	Scale                   float64 // of the products; 0: 1/√HeadDim
	ValueNorm               bool    // values are normed, without a weight
	KeysAreValues           bool    // values are the keys before their norm, and have no matrix
	Shared                  bool    // keys and values are those of layer From
	From                    int
	Gated                   bool // each head's result is times sigmoid of a gate, whose rows follow the head's of q
	Sinks                   bool // a learned logit a head takes part in the softmax, and gives nothing (Xiao et al. 2024)
}

// NoRope is the Rope of a layer that does not rotate.
const NoRope = -1

// Softmax is the scale of the products of queries and keys.
func (a Attention) Softmax() float64 {
	if a.Scale != 0 {
		return a.Scale
	}
	return 1 / math.Sqrt(float64(a.HeadDim))
}

// Activation is the function of an MLP's gate.
type Activation int

// The activations.
const (
	SiLU     Activation = iota
	GELUTanh            // GELU by its approximation with tanh
)

// Experts are MLPs of which each token asks a few (Shazeer et al. 2017).
type Experts struct {
	Count, Active, Size int  // how many there are, how many a token asks, the inner size of one; Count 0: none
	Numbered            bool // tensors are named as those of an MLP that is Numbered
	Clamped             *Clamp
	Beside              *Beside
	Act                 Activation
	Router
}

// Beside is the form of Gemma 4's experts: they take what goes into the layer's MLP before its
// norm, and their sum is added to the MLP's. The names are of norms. The router norms its input
// and multiplies each expert's weight by a learned number; an expert's gate and up are one matrix.
type Beside struct{ AfterMLP, Before, After string }

// Clamp is the form of gpt-oss's experts: those of a layer are one tensor, whose columns are
// gate, up, gate, up, …, with biases, and an expert is down((u + 1)·g·sigmoid(Alpha·g)) of
// g = min(gate, Limit) and u = up between −Limit and Limit.
type Clamp struct{ Alpha, Limit float64 }

// Router chooses a token's experts by its logits, one an expert, and weighs them.
type Router struct {
	Sigmoid    bool    // weights are sigmoids of the logits, in float32; otherwise their softmax
	Correction bool    // a bias is added for the choice alone (DeepSeek-AI 2024)
	Normalise  bool    // the chosen weights sum to 1
	Epsilon    float64 // added to the sum that Normalise divides by; 0 is as good as none
	Scale      float64 // the weights are multiplied by it; 0 is 1
	Groups     int     // experts are in so many groups, and only those of the best TopGroups are chosen; 0: no groups
	TopGroups  int
}

// MLP is down(act(gate(x))·up(x)) (Shazeer 2020).
type MLP struct {
	Prefix   string // of its tensors' names; "" is "mlp"
	Size     int
	Fused    bool // gate and up are one matrix on disk
	Bias     bool
	Numbered bool // gate, up and down are called w1, w3 and w2
	Gated    bool // the result is times sigmoid of one logit a token
	Act      Activation
}

// Expert is expert k as an MLP, for the names of its tensors.
func (e Experts) Expert(k int) MLP {
	if e.Numbered {
		return MLP{Prefix: fmt.Sprintf("feed_forward.experts.%d", k), Numbered: true}
	}
	return MLP{Prefix: fmt.Sprintf("mlp.experts.%d", k)}
}

// Stack is one of the two matrices of a layer's experts, which transformers keeps as one parameter
// for all of them: [Count, Out, In], or with ByInput [Count, In, Out].
type Stack struct {
	Module, Parameter string // as in "mlp.experts" and "gate_up_proj"
	Count, In, Out    int
	ByInput           bool
}

// Stacks are those of the experts beside a hidden size: gate and up as one, whose outputs are the
// gate's before the other's, or with Clamped gate, up, gate, …; and down.
func (e Experts) Stacks(hidden int) (gateUp, down Stack) {
	gateUp = Stack{Module: "mlp.experts", Count: e.Count, ByInput: e.Clamped != nil}
	switch {
	case e.Numbered:
		gateUp.Module = "feed_forward.experts"
	case e.Beside != nil:
		gateUp.Module = "experts"
	}
	down = gateUp
	gateUp.Parameter, gateUp.In, gateUp.Out = "gate_up_proj", hidden, 2*e.Size
	down.Parameter, down.In, down.Out = "down_proj", e.Size, hidden
	return gateUp, down
}

// Gate is the name of the gate's matrix in the layer, without a suffix.
func (m MLP) Gate() string { return m.named(GateProj) }

// Up is the other factor's matrix.
func (m MLP) Up() string { return m.named(UpProj) }

// GateUp is both, one below the other.
func (m MLP) GateUp() string { return m.named(GateUpProj) }

// Down is the matrix back to the hidden size.
func (m MLP) Down() string { return m.named(DownProj) }

func (m MLP) named(name string) string {
	if m.Numbered {
		return m.Prefix + map[string]string{GateProj: ".w1", UpProj: ".w3", DownProj: ".w2"}[name]
	}
	if m.Prefix == "" {
		return name
	}
	return m.Prefix + strings.TrimPrefix(name, "mlp")
}

// Names of tensors, within a layer where they are of one.
const (
	Embed = "model.embed_tokens.weight"
	Head  = "lm_head.weight"
	Score = "score.weight"

	QProj                    = "self_attn.q_proj"
	KProj                    = "self_attn.k_proj"
	VProj                    = "self_attn.v_proj"
	OProj                    = "self_attn.o_proj"
	QKVProj                  = "self_attn.qkv_proj"
	QNorm                    = "self_attn.q_norm"
	KNorm                    = "self_attn.k_norm"
	GateProj                 = "mlp.gate_proj"
	UpProj                   = "mlp.up_proj"
	DownProj                 = "mlp.down_proj"
	RouterWeight             = "mlp.gate.weight"
	RouterCorrection         = "mlp.gate.e_score_correction_bias"
	ClampedRouter            = "mlp.router" // of the experts that Clamp describes, as the four below
	ClampedGateUp            = "mlp.experts.gate_up_proj"
	ClampedGateUpBias        = "mlp.experts.gate_up_proj_bias"
	ClampedDown              = "mlp.experts.down_proj"
	ClampedDownBias          = "mlp.experts.down_proj_bias"
	BesideRouter             = "router.proj" // of the experts that Beside describes, as the four below
	BesideRouterNorm         = "router.scale"
	BesideExpertScale        = "router.per_expert_scale"
	BesideGateUp             = "experts.gate_up_proj"
	BesideDown               = "experts.down_proj"
	PerLayerEmbed            = "model.embed_tokens_per_layer.weight"
	PerLayerModelProjection  = "model.per_layer_model_projection.weight"
	PerLayerModelNorm        = "model.per_layer_projection_norm.weight"
	PerLayerGate             = "per_layer_input_gate.weight"
	PerLayerProjection       = "per_layer_projection.weight"
	PerLayerNorm             = "post_per_layer_input_norm.weight"
	OutputScale              = "layer_scalar"
	Sinks                    = "self_attn.sinks"
	OutProj                  = "self_attn.out_proj" // of LFM2, as those to NumberedDown
	QLayerNorm               = "self_attn.q_layernorm"
	KLayerNorm               = "self_attn.k_layernorm"
	ConvIn                   = "conv.in_proj"
	ConvWeight               = "conv.conv"
	ConvOut                  = "conv.out_proj"
	NumberedRouter           = "feed_forward.gate.weight"
	NumberedCorrection       = "feed_forward.expert_bias"
	NumberedGate             = "feed_forward.w1"
	NumberedUp               = "feed_forward.w3"
	NumberedDown             = "feed_forward.w2"
	DeltaInQKV               = "linear_attn.in_proj_qkv"
	DeltaInZ                 = "linear_attn.in_proj_z"
	DeltaInB                 = "linear_attn.in_proj_b"
	DeltaInA                 = "linear_attn.in_proj_a"
	DeltaConv                = "linear_attn.conv1d"
	DeltaALog                = "linear_attn.A_log"
	DeltaDtBias              = "linear_attn.dt_bias"
	DeltaNorm                = "linear_attn.norm"
	DeltaOut                 = "linear_attn.out_proj"
	SharedGate               = "mlp.shared_expert_gate"
	GateUpProj               = "mlp.gate_up_proj"
	weightSuffix, biasSuffix = ".weight", ".bias"
	layerPrefix              = "model.layers.%d."
)

// LayerPrefix is what the names of layer i's tensors begin with.
func LayerPrefix(i int) string { return fmt.Sprintf(layerPrefix, i) }

// First is the first layer with attention, or the first of all; one with no numbers where the
// model has none.
func (d Decoder) First() Layer {
	if len(d.Layers) == 0 {
		return Layer{}
	}
	return d.Layers[max(0, slices.IndexFunc(d.Layers, func(l Layer) bool { return l.Attention.Heads > 0 }))]
}

// Window is how many tokens a text may have when `asked` are asked for; 0 asks for none
// in particular: then only as many as each rotary embedding has one table for.
func (d Decoder) Window(asked int) int {
	if asked > 0 {
		return min(asked, d.MaxPositions)
	}
	n := d.MaxPositions
	for _, r := range d.Ropes {
		n = r.Reach(n)
	}
	return n
}

// CachedPerToken is how many numbers a token's keys and values are, in all layers.
func (d Decoder) CachedPerToken() int64 {
	n := int64(0)
	for _, l := range d.Layers {
		if !l.Attention.Shared {
			n += int64(2 * l.Attention.KVHeads * l.Attention.HeadDim)
		}
	}
	return n
}

// Tensor is one tensor of a model.
type Tensor struct {
	Name  string
	Shape []int64
}

// Tensors lists what the model consists of, the output matrix too where it is tied.
func (d Decoder) Tensors() []Tensor {
	h := int64(d.HiddenSize)
	out := []Tensor{{Embed, []int64{int64(d.VocabSize), h}}}
	per := int64(d.PerLayer.Size)
	if all := per * int64(len(d.Layers)); per > 0 {
		out = append(out, Tensor{PerLayerEmbed, []int64{int64(d.PerLayer.VocabSize), all}}, Tensor{PerLayerModelProjection, []int64{all, h}},
			Tensor{PerLayerModelNorm, []int64{per}})
	}
	for i, l := range d.Layers {
		add := func(name string, shape ...int64) { out = append(out, Tensor{LayerPrefix(i) + name, shape}) }
		a, m := l.Attention, l.MLP
		for _, name := range l.Norms.all() {
			if name != "" {
				add(name+weightSuffix, h)
			}
		}
		f := int64(m.Size)
		matrix := func(name string, rows, columns int64, bias bool) {
			add(name+weightSuffix, rows, columns)
			if bias {
				add(name+biasSuffix, rows)
			}
		}
		switch {
		case l.Conv.Kernel > 0:
			l.Conv.tensors(h, add, matrix)
		case l.Delta.Kernel > 0:
			l.Delta.tensors(h, add, matrix)
		default:
			a.tensors(h, add, matrix)
		}
		if e := l.Experts; e.Clamped != nil {
			count, f := int64(e.Count), int64(e.Size)
			matrix(ClampedRouter, count, h, true)
			add(ClampedGateUp, count, h, 2*f)
			add(ClampedGateUpBias, count, 2*f)
			add(ClampedDown, count, f, h)
			add(ClampedDownBias, count, h)
		} else if e.Beside != nil {
			count, f := int64(e.Count), int64(e.Size)
			matrix(BesideRouter, count, h, false)
			add(BesideRouterNorm, h)
			add(BesideExpertScale, count)
			add(BesideGateUp, count, 2*f, h)
			add(BesideDown, count, h, f)
			for _, name := range []string{e.Beside.AfterMLP, e.Beside.Before, e.Beside.After} {
				add(name+weightSuffix, h)
			}
		} else if e.Count > 0 {
			router, correction := RouterWeight, RouterCorrection
			if e.Numbered {
				router, correction = NumberedRouter, NumberedCorrection
			}
			add(router, int64(e.Count), h)
			if e.Correction {
				add(correction, int64(e.Count))
			}
			for k := range e.Count {
				at := e.Expert(k)
				matrix(at.Gate(), int64(e.Size), h, false)
				matrix(at.Up(), int64(e.Size), h, false)
				matrix(at.Down(), h, int64(e.Size), false)
			}
		}
		if per > 0 {
			add(PerLayerGate, per, h)
			add(PerLayerProjection, h, per)
			add(PerLayerNorm, h)
		}
		if l.OutputScale {
			add(OutputScale, 1)
		}
		switch {
		case m.Size == 0:
			continue
		case m.Fused:
			matrix(m.GateUp(), 2*f, h, m.Bias)
		default:
			matrix(m.Gate(), f, h, m.Bias)
			matrix(m.Up(), f, h, m.Bias)
		}
		matrix(m.Down(), h, f, m.Bias)
		if m.Gated {
			matrix(SharedGate, 1, h, false)
		}
	}
	if d.Vision != nil {
		out = append(out, d.Vision.Tensors()...)
	}
	return append(out, Tensor{d.FinalNorm, []int64{h}}, Tensor{Head, []int64{int64(d.VocabSize), h}})
}

// tensors of attention, by functions that add one and a matrix with its bias.
func (a Attention) tensors(h int64, add func(name string, shape ...int64), matrix func(name string, rows, columns int64, bias bool)) {
	q, kv := int64(a.Heads*a.HeadDim), int64(a.KVHeads*a.HeadDim)
	o, qNorm, kNorm, gates := OProj, QNorm, KNorm, int64(1)
	if a.LFM2 {
		o, qNorm, kNorm = OutProj, QLayerNorm, KLayerNorm
	}
	if a.Gated {
		gates = 2
	}
	if a.Fused {
		matrix(QKVProj, q+2*kv, h, a.QKVBias)
	} else {
		matrix(QProj, gates*q, h, a.QKVBias)
		if !a.Shared {
			matrix(KProj, kv, h, a.QKVBias)
		}
		if !a.Shared && !a.KeysAreValues {
			matrix(VProj, kv, h, a.QKVBias)
		}
	}
	switch a.QKNorm {
	case PerHead:
		add(qNorm+weightSuffix, int64(a.HeadDim))
		if !a.Shared {
			add(kNorm+weightSuffix, int64(a.HeadDim))
		}
	case WholeVector:
		add(qNorm+weightSuffix, q)
		add(kNorm+weightSuffix, kv)
	}
	matrix(o, h, q, a.OBias)
	if a.Sinks {
		add(Sinks, int64(a.Heads))
	}
}

// family is how one kind of model is read.
type family struct {
	name  string // model_type
	class string // of transformers
	// defaults are the values of keys that files of the class leave out.
	defaults map[string]int
	// vision: the model takes images; its language model's keys are in text_config, or at the top.
	vision bool
	// read puts the layers together; what it asks k for are the keys that count.
	read func(k *Keys, d *Decoder)
}

// families are the kinds of models, by name.
var families = []family{
	llama, mistral, ministral3, qwen2, qwen3, qwen3moe, phi3, smollm3, olmo2, olmo3, gemma3, gemma4, glm4, glm4moe, granite, gptoss,
	lfm2, lfm2moe, qwen35, qwen35moe, seedOSS,
	qwen2vl, qwen25vl, qwen3vl,
}

func find(name string) (family, bool) {
	i := slices.IndexFunc(families, func(f family) bool { return f.name == name })
	if i < 0 {
		return family{}, false
	}
	return families[i], true
}

// Names lists the architectures.
func Names() []string {
	out := make([]string, len(families))
	for i, f := range families {
		out[i] = f.name
	}
	return out
}

// Class is transformers' class of an architecture; "" where it is not known.
func Class(architecture string) string {
	f, _ := find(architecture)
	return f.class
}

// TakesImages reports whether models of an architecture have an encoder of images.
func TakesImages(architecture string) bool {
	f, _ := find(architecture)
	return f.vision
}

// Read says what the model of a config.json is. Errors are malformed.Errors of the file.
func Read(architecture string, k *Keys) (Decoder, error) {
	f, ok := find(architecture)
	if !ok {
		return Decoder{}, k.unsupported("model_type", "%q is not supported; %s are", architecture, list(Names()))
	}
	for key, v := range f.defaults {
		if _, there := k.values[key]; !there { // null says that there is none
			k.values[key] = json.RawMessage(strconv.Itoa(v))
		}
	}
	d := Decoder{Architecture: f.name, Class: f.class, FinalNorm: "model.norm.weight", EmbedScale: 1, ResidualScale: 1, LogitScale: 1}
	t := k
	if f.vision {
		t = readText(k)
	}
	d.VocabSize, d.HiddenSize = t.Size("vocab_size", 1<<22), t.Size("hidden_size", 1<<18)
	d.MaxPositions = t.Size("max_position_embeddings", 1<<30)
	d.Eps = t.Float("rms_norm_eps", 1e-6)
	if !(d.Eps >= 0 && d.Eps < 1) {
		t.fail("rms_norm_eps", "%v is not between 0 and 1", d.Eps)
	}
	f.read(k, &d)
	if err := k.finish(); err != nil {
		return Decoder{}, err
	}
	most := 0
	for _, l := range d.Layers {
		most = max(most, l.Experts.Count)
		if l.Experts.Count > 0 && l.MLP.Act != l.Experts.Act {
			return Decoder{}, k.unsupported("hidden_act", "experts are computed with silu alone")
		}
	}
	if n := len(d.Layers) * (1 + most); n > mostParts {
		return Decoder{}, malformed.At(k.path, k.within+"num_hidden_layers", malformed.Range,
			"%d layers with their experts are %d parts, more than %d",
			len(d.Layers), n, mostParts)
	}
	return d, nil
}

// mostParts is the most layers times experts: ten times those of the largest models.
const mostParts = 1 << 18

// stack makes the layers, all alike; a family changes those that differ.
func stack(d *Decoder, k *Keys, n Norms, a Attention, m MLP) {
	for range k.Size("num_hidden_layers", 1<<12) {
		d.Layers = append(d.Layers, Layer{Norms: n, Attention: a, MLP: m})
	}
}

// readHeads reads the numbers of attention heads; size is a head's where no key says
// it: 0 is the hidden size over the heads.
func readHeads(d *Decoder, k *Keys, size int) Attention {
	a := Attention{Heads: k.Size("num_attention_heads", 1<<12)}
	a.KVHeads = k.SizeOr("num_key_value_heads", 1<<12, a.Heads)
	if size == 0 && a.Heads > 0 {
		size = d.HiddenSize / a.Heads
	}
	a.HeadDim = k.SizeOr("head_dim", 1<<14, size)
	if a.KVHeads > 0 && a.Heads%a.KVHeads != 0 {
		k.mismatch("num_key_value_heads", "%d does not divide num_attention_heads, %d", a.KVHeads, a.Heads)
	}
	if a.HeadDim%2 != 0 {
		k.refuse("head_dim", "%d is odd", a.HeadDim)
	}
	return a
}

// readMLP reads a gated MLP whose activation the key names; other is what it is without.
func readMLP(k *Keys, key string) MLP {
	m := MLP{Size: k.Size("intermediate_size", 1<<20)}
	switch act := k.String(key, map[string]string{"hidden_act": "silu", "hidden_activation": "gelu_pytorch_tanh"}[key]); act {
	case "silu", "swish":
	case "gelu_pytorch_tanh", "gelu_tanh":
		m.Act = GELUTanh
	default:
		k.refuse(key, "%q is not supported; silu and gelu_pytorch_tanh are", act)
	}
	return m
}

// layerTypes reads which layers see a window only; without the key, every says it.
func layerTypes(d *Decoder, k *Keys, window int, slides func(layer int) bool) (sliding []bool) {
	types := k.Strings("layer_types")
	if types != nil && len(types) != len(d.Layers) {
		k.mismatch("layer_types", "%d entries for %d layers", len(types), len(d.Layers))
		return make([]bool, len(d.Layers))
	}
	for i := range d.Layers {
		s := slides != nil && slides(i)
		if types != nil {
			switch types[i] {
			case "full_attention":
				s = false
			case "sliding_attention":
				s = true
			default:
				k.refuse("layer_types", "%q is not supported", types[i])
			}
		}
		if s = s && window > 0; s {
			d.Layers[i].Attention.Window = window
		}
		sliding = append(sliding, s)
	}
	return sliding
}
