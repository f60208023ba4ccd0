//go:build libtorch

package torch

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"slices"
	"unsafe"
)

// PanelSize is how many outputs of a weight a Decoder computes together.
const PanelSize = 64

// MaxTaps and MaxActive are how many tokens a convolution of a Decoder takes in, and how many experts a token has, at most.
const (
	MaxTaps   = 8
	MaxActive = 64
)

// MaxGroup is how many queries of a Decoder may share a head of keys.
const MaxGroup = 96

// InPanels reports whether packed, which PackLinear has made of w, is one that a Decoder
// reads.
func (s *Scope) InPanels(packed, w Tensor) bool {
	if !s.ok("in_panels", packed, w) {
		return false
	}
	var yes C.int
	var msg *C.char
	return s.check("in_panels", C.agt_in_panels(packed.p, w.p, &yes, &msg), msg) && yes != 0
}

// DecoderLayer is a layer of a Decoder: attention or a recurrent mixer, and a gated MLP, MoE experts or both. A
// Decoder's weights but for those of experts are packed, and InPanels holds of them. A DeviceDecoder's weights are as
// they are. Tensors that a model lacks are zero.
type DecoderLayer struct {
	BeforeAttention, AfterAttention, BeforeMLP, AfterMLP Tensor // norms
	QKV, QKVBias, O, OBias, GateUp, GateUpBias           Tensor
	Down, DownBias, QNorm, KNorm                         Tensor
	KPool, VPool                                         Tensor // [blocks, block size, KV heads, dim]
	Heads, KVHeads, Dim                                  int
	Rope                                                 int // of DecoderModel.Ropes; −1: none
	QKNorm                                               QKNorm
	GELU                                                 bool // is the gate's activation, not SiLU
	Look                                                 Look
	Gated                                                bool   // each head of QKV's queries is followed by its gate
	MLPGate                                              Tensor // [1, hidden]: what the MLP gives is times its sigmoid
	Recurrent                                            DecoderRecurrent
	Experts                                              DecoderExperts

	// Of a DeviceDecoder alone: heads as those of arch.Attention, and what stands behind the layer (arch.PerLayer).
	Shared, KeysAreValues, ValueNorm               bool
	OutputScale                                    Tensor // [1]
	PerLayerGate, PerLayerProjection, PerLayerNorm Tensor
}

// DecoderRecurrent is a mixer in place of attention: a convolution alone (LFM2), or one before the gated delta rule;
// Conv is the zero Tensor: there is none. States is of the rule. Pools are those of CausalConv and GatedDelta.
type DecoderRecurrent struct {
	Conv, ConvBias, Windows    Tensor
	ALog, DtBias, Norm, States Tensor
	DeltaHeads                 DeltaHeads
}

// DecoderExperts are a layer's experts, as Route and Experts take them; Router is the zero Tensor: there are none.
type DecoderExperts struct {
	Router, Correction Tensor // [experts, hidden]; float32 [experts], or the zero Tensor
	How                Router
	Of                 PlainExperts
	RouterBias         Tensor          // of a DeviceDecoder alone
	Clamped            *ClampedExperts // in place of Of; of a DeviceDecoder alone
	Beside             BesideExperts   // of a DeviceDecoder alone
}

// BesideExperts are the norms of experts that stand beside an MLP (arch.Beside): of what goes to the router and to the
// experts, and of what the MLP and the experts give; Factors [experts] multiply the experts' shares. A zero RouterNorm: they
// do not.
type BesideExperts struct{ RouterNorm, Before, AfterMLP, After, Factors Tensor }

// QKNorm is over what queries and keys are normed.
type QKNorm int

// The kinds.
const (
	NoQKNorm QKNorm = iota
	EachHead
	AllHeads
)

// RopeTable has the cosines and sines of each position, float32 [positions, dims/2].
type RopeTable struct {
	Cos, Sin           Tensor
	QueryCos, QuerySin Tensor // of queries, where theirs differ; DeviceDecoder alone takes them
	Interleaved        bool
}

// DecoderModel is what the layers of a Decoder have in common.
type DecoderModel struct {
	Embed, Norm, Head         Tensor // [V, hidden], the last norm, and the packed output matrix
	Ropes                     []RopeTable
	EmbedScale, ResidualScale float64
	Rms                       Norm
	PerLayer                  DecoderPerLayer // of a DeviceDecoder alone
}

// DecoderPerLayer are the numbers that each layer has of a token (arch.PerLayer): Embed [V, layers·size], times Scale, Projection
// [layers·size, hidden], Norm [size]. GELU, not SiLU, is the activation of their gates. A zero Embed: there are none.
type DecoderPerLayer struct {
	Embed, Projection, Norm Tensor
	Scale                   float64
	GELU                    bool
}

// Decoder computes a step of a plain decoder on a CPU in one call; decoder.cpp says how. It is
// not safe for concurrent use.
type Decoder struct {
	p                    unsafe.Pointer
	vocab, maxSeen, pool int64
	block                int64
	choices              int // experts of a row, over all layers
	layers               int
	slots                int64 // of the states of recurrent mixers; 0: there are none
	row                  int64 // bytes of a row of hidden numbers
}

// NewDecoder makes one. It holds on to the tensors until Close.
func (s *Scope) NewDecoder(m DecoderModel, layers []DecoderLayer) *Decoder {
	if !s.ok("decoder", m.Embed, m.Norm, m.Head) || len(layers) == 0 {
		return nil
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	cm, cl, d := decoderArguments(s, m, layers, &pin)
	var msg *C.char
	if s.Err() != nil || !s.check("decoder", C.agt_decoder_new(&d.p, &cm, &cl[0], C.int(len(cl)), &msg), msg) {
		return nil
	}
	return d
}

// decoderArguments are a model's parts for C, and what its steps are held to.
func decoderArguments(s *Scope, m DecoderModel, layers []DecoderLayer, pin *runtime.Pinner) (
	C.agt_decoder_model, []C.agt_decoder_layer, *Decoder) {
	cm := C.agt_decoder_model{embed: m.Embed.p, norm: m.Norm.p, head: m.Head.p, n_ropes: C.int64_t(len(m.Ropes)),
		embed_scale: C.double(m.EmbedScale), residual_scale: C.double(m.ResidualScale),
		eps: C.double(m.Rms.Eps), norm_offset: C.double(m.Rms.Offset), per_layer_embed: m.PerLayer.Embed.p,
		per_layer_projection: m.PerLayer.Projection.p, per_layer_norm: m.PerLayer.Norm.p, per_layer_gelu: flag(m.PerLayer.GELU),
		per_layer_scale: C.double(m.PerLayer.Scale)}
	shape := s.Shape(m.Embed)
	d := &Decoder{vocab: shape[0], row: shape[1] * int64(s.DType(m.Embed).Size()), layers: len(layers)}
	if n := len(m.Ropes); n > 0 {
		cos, sin, pairs := make([]C.agt_tensor, n), make([]C.agt_tensor, n), make([]C.int32_t, n)
		queryCos, querySin := make([]C.agt_tensor, n), make([]C.agt_tensor, n)
		for i, r := range m.Ropes {
			cos[i], sin[i], queryCos[i], querySin[i] = r.Cos.p, r.Sin.p, r.QueryCos.p, r.QuerySin.p
			if r.Interleaved {
				pairs[i] = 1
			}
			d.maxSeen = s.Shape(r.Cos)[0]
		}
		pin.Pin(&cos[0])
		pin.Pin(&sin[0])
		pin.Pin(&queryCos[0])
		pin.Pin(&querySin[0])
		pin.Pin(&pairs[0])
		cm.cos, cm.sin, cm.query_cos, cm.query_sin, cm.pairs = &cos[0], &sin[0], &queryCos[0], &querySin[0], &pairs[0]
	}
	cl := make([]C.agt_decoder_layer, len(layers))
	for i, l := range layers {
		cl[i] = C.agt_decoder_layer{before_attention: l.BeforeAttention.p, after_attention: l.AfterAttention.p, before_mlp: l.BeforeMLP.p,
			after_mlp: l.AfterMLP.p, q_norm: l.QNorm.p, k_norm: l.KNorm.p, sinks: l.Look.Sinks.p, kpool: l.KPool.p, vpool: l.VPool.p,
			qkv: l.QKV.p, qkv_bias: l.QKVBias.p, o: l.O.p, o_bias: l.OBias.p, gate_up: l.GateUp.p, gate_up_bias: l.GateUpBias.p,
			down: l.Down.p, down_bias: l.DownBias.p, heads: C.int64_t(l.Heads), kv_heads: C.int64_t(l.KVHeads), dim: C.int64_t(l.Dim),
			window: C.int64_t(l.Look.Window), rope: C.int64_t(l.Rope), qk_norm: C.int64_t(l.QKNorm), gelu: flag(l.GELU),
			scale: C.double(l.Look.Scale), gated: flag(l.Gated), mlp_gate: l.MLPGate.p, recurrent: l.Recurrent.c(), experts: l.Experts.c(),
			shared: flag(l.Shared), keys_are_values: flag(l.KeysAreValues), value_norm: flag(l.ValueNorm), output_scale: l.OutputScale.p,
			per_layer_gate: l.PerLayerGate.p, per_layer_projection: l.PerLayerProjection.p, per_layer_norm: l.PerLayerNorm.p}
		if l.Experts.Router.Defined() {
			d.choices += int(l.Experts.How.Active)
		}
		if l.Recurrent.Windows.Defined() {
			d.slots = s.Shape(l.Recurrent.Windows)[0]
		}
		if l.KPool.Defined() {
			shape := s.Shape(l.KPool)
			d.pool, d.block = shape[0], shape[1]
		}
	}
	return cm, cl, d
}

func flag(on bool) C.int64_t {
	if on {
		return 1
	}
	return 0
}

func (r DecoderRecurrent) c() C.agt_decoder_recurrent {
	return C.agt_decoder_recurrent{conv: r.Conv.p, conv_bias: r.ConvBias.p, windows: r.Windows.p, a_log: r.ALog.p, dt_bias: r.DtBias.p,
		norm: r.Norm.p, states: r.States.p, heads: r.DeltaHeads.c()}
}

func (e DecoderExperts) c() C.agt_decoder_experts {
	c := C.agt_decoder_experts{router: e.Router.p, correction: e.Correction.p, gate_up: e.Of.GateUp.p, down: e.Of.Down.p, how: e.How.c(),
		gelu: flag(e.Of.GELU), router_bias: e.RouterBias.p, router_norm: e.Beside.RouterNorm.p, before: e.Beside.Before.p,
		after_mlp: e.Beside.AfterMLP.p, after: e.Beside.After.p, factors: e.Beside.Factors.p}
	if of := e.Clamped; of != nil {
		c.gate_up, c.gate_up_bias, c.down, c.down_bias = of.GateUp.p, of.GateUpBias.p, of.Down.p, of.DownBias.p
		c.clamped, c.alpha, c.limit = 1, C.double(of.Alpha), C.double(of.Limit)
	}
	return c
}

// Close lets the tensors go.
func (d *Decoder) Close() {
	if d != nil {
		C.agt_decoder_free(d.p)
		d.p = nil
	}
}

// DecoderStep is what a step of a Decoder takes in.
type DecoderStep struct {
	IDs, Positions []int32
	Segs           []CachedSegment
	Blocks         []int32
	Wanted         []int32  // rows whose logits are computed, in order
	Runs           *RunPlan // of a model with recurrent mixers
	Chosen         []int32  // not nil: where the experts of all rows go, [layers with experts, rows, active]
	Pairs          []DecoderPair
	Part           *LayerPart   // not nil: some of the layers, of rows without logits
	States         []StateSlots // of a DeviceDecoder of a model with recurrent mixers: of each row
}

// StateSlots are a sequence's slot in the pools of recurrent mixers, and one that gets a copy of the states behind a step;
// 0: none.
type StateSlots struct{ Own, Copy int32 }

// LayerPart are the layers First..End−1 of a step, of a model without recurrent mixers. Held is NewHeld's for the
// same rows: the parts of a step, one behind the other, give what all layers in one step give, to the bit.
type LayerPart struct {
	First, End int
	Held       []byte
}

// NewHeld is where a part of the layers leaves a number of rows for the next.
func (d *Decoder) NewHeld(rows int) []byte { return make([]byte, 2*int64(rows)*d.row) }

// DecoderPair is a low-rank pair beside a matrix of a layer. Behind the mixer of the last layer rows are counted
// among the wanted ones, without Chosen.
type DecoderPair struct {
	RowsPair
	Layer, Slot int // the matrix: 0 QKV, 1 O, 2 GateUp, 3 Down
}

// Step computes the tokens of the segments, which it adds to the cache, and gives the logits of
// the wanted rows: [len(Wanted), V].
func (d *Decoder) Step(s *Scope, step DecoderStep) Tensor {
	if s.Err() != nil || len(step.IDs) == 0 {
		return Tensor{}
	}
	if err := d.check(step); err != nil {
		s.Fail(err)
		return Tensor{}
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	r := rowsOf(step, &pin)
	return s.op("decoder", func(o *C.agt_tensor, m **C.char) C.int { return C.agt_decoder_step(d.p, &r, o, m) })
}

// check holds a step to the model and its cache: the kernels follow the numbers blindly.
func (d *Decoder) check(step DecoderStep) error {
	if err := d.checkRows(step); err != nil {
		return err
	}
	rows, w := len(step.IDs), step.Wanted
	if len(w) > 0 && (!slices.IsSorted(w) || w[0] < 0 || int(w[len(w)-1]) >= rows || len(w) > rows) {
		return fmt.Errorf("torch: decoder: the wanted rows %v are not in order or not of the %d rows", w, rows)
	}
	if step.Chosen != nil && len(step.Chosen) != d.choices*rows {
		return fmt.Errorf("torch: decoder: %d places for the experts of %d rows, of which each has %d", len(step.Chosen), rows, d.choices)
	}
	if step.Runs != nil && step.Runs.rows != int64(rows) {
		return fmt.Errorf("torch: decoder: runs of %d rows in a step of %d", step.Runs.rows, rows)
	}
	if p := step.Part; p != nil && (p.First < 0 || p.End <= p.First || p.End > d.layers || int64(len(p.Held)) != 2*int64(rows)*d.row ||
		len(w) > 0 || step.Runs != nil || step.Chosen != nil) {
		return fmt.Errorf("torch: decoder: the layers %d to %d of %d, %d bytes for %d rows, %d of them wanted", p.First, p.End, d.layers,
			len(p.Held), rows, len(w))
	}
	return nil
}

// checkStates holds the slots of a step on a device to the pools: each row has its own.
func (d *Decoder) checkStates(step DecoderStep) error {
	if d.slots == 0 && len(step.States) == 0 {
		return nil
	}
	taken := map[int32]bool{}
	for _, x := range step.States {
		if x.Own < 1 || int64(x.Own) >= d.slots || x.Copy < 0 || int64(x.Copy) >= d.slots || taken[x.Own] || taken[x.Copy] || x.Own == x.Copy {
			return fmt.Errorf("torch: decoder: a row has slot %d of %d and a copy in %d", x.Own, d.slots, x.Copy)
		}
		taken[x.Own] = true
		taken[x.Copy] = x.Copy > 0
	}
	if len(step.States) != len(step.IDs) {
		return fmt.Errorf("torch: decoder: %d slots for %d rows", len(step.States), len(step.IDs))
	}
	return nil
}

// checkRows holds the rows of a step to the vocabulary, the positions and the cache.
func (d *Decoder) checkRows(step DecoderStep) error {
	plan := CachePlan{segs: step.Segs, blocks: step.Blocks}
	if err := plan.check(int64(len(step.IDs)), d.pool, d.block); err != nil {
		return err
	}
	for i, id := range step.IDs {
		if at := step.Positions[i]; id < 0 || int64(id) >= d.vocab || at < 0 || d.maxSeen > 0 && int64(at) >= d.maxSeen {
			return fmt.Errorf("torch: decoder: row %d has id %d of %d at position %d of %d", i, id, d.vocab, at, d.maxSeen)
		}
	}
	return nil
}

// rowsOf are a step's rows for C.
func rowsOf(step DecoderStep, pin *runtime.Pinner) C.agt_decoder_rows {
	r := C.agt_decoder_rows{rows: C.int64_t(len(step.IDs)), n: C.int64_t(len(step.Segs)), n_wanted: C.int64_t(len(step.Wanted))}
	give := func(to **C.int32_t, from *int32) {
		if from != nil {
			pin.Pin(from)
			*to = (*C.int32_t)(unsafe.Pointer(from))
		}
	}
	give(&r.ids, unsafe.SliceData(step.IDs))
	give(&r.positions, unsafe.SliceData(step.Positions))
	give(&r.segs, (*int32)(unsafe.Pointer(unsafe.SliceData(step.Segs))))
	give(&r.blocks, unsafe.SliceData(step.Blocks))
	give(&r.wanted, unsafe.SliceData(step.Wanted))
	give(&r.chosen, unsafe.SliceData(step.Chosen))
	give(&r.states, (*int32)(unsafe.Pointer(unsafe.SliceData(step.States))))
	if len(step.Pairs) > 0 {
		pairs := make([]C.agt_decoder_pair, len(step.Pairs))
		for i, p := range step.Pairs {
			pairs[i] = C.agt_decoder_pair{a: p.A.p, b: p.B.p, layer: C.int64_t(p.Layer), slot: C.int64_t(p.Slot), from: C.int64_t(p.From),
				count: C.int64_t(p.Count)}
		}
		pin.Pin(&pairs[0])
		r.pairs, r.n_pairs = &pairs[0], C.int64_t(len(pairs))
	}
	if p := step.Part; p != nil {
		r.first_layer, r.end_layer = C.int64_t(p.First), C.int64_t(p.End)
		pin.Pin(&p.Held[0])
		r.held = unsafe.Pointer(&p.Held[0])
	}
	if p := step.Runs; p != nil {
		r.runs.n, r.runs.n_saves = C.int64_t(len(p.runs)), C.int64_t(len(p.saves))
		give(&r.runs.runs, (*int32)(unsafe.Pointer(unsafe.SliceData(p.runs))))
		give(&r.runs.saves, (*int32)(unsafe.Pointer(unsafe.SliceData(p.saves))))
	}
	return r
}
