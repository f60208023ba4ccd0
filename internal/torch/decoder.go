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

// DecoderLayer is a layer of a Decoder: attention and a gated MLP. A Decoder's weights are
// packed, and InPanels holds of them; a DeviceDecoder's are as they are. Tensors that a model lacks are zero.
type DecoderLayer struct {
	BeforeAttention, AfterAttention, BeforeMLP, AfterMLP Tensor // norms
	QKV, QKVBias, O, OBias, GateUp, GateUpBias           Tensor
	Down, DownBias, QNorm, KNorm                         Tensor
	KPool, VPool                                         Tensor // [blocks, block size, KV heads, dim]
	Heads, KVHeads, Dim                                  int
	Rope                                                 int // of DecoderModel.Ropes; −1: none
	QKNorm                                               QKNorm
	GELU                                                 bool // is the gate's activation, not SiLU; of a DeviceDecoder alone
	Look                                                 Look
}

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
	Cos, Sin    Tensor
	Interleaved bool
}

// DecoderModel is what the layers of a Decoder have in common.
type DecoderModel struct {
	Embed, Norm, Head         Tensor // [V, hidden], the last norm, and the packed output matrix
	Ropes                     []RopeTable
	EmbedScale, ResidualScale float64
	Rms                       Norm
}

// Decoder computes a step of a plain decoder on a CPU in one call; decoder.cpp says how. It is
// not safe for concurrent use.
type Decoder struct {
	p                    unsafe.Pointer
	vocab, maxSeen, pool int64
	block                int64
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
		eps: C.double(m.Rms.Eps), norm_offset: C.double(m.Rms.Offset)}
	d := &Decoder{vocab: s.Shape(m.Embed)[0]}
	if n := len(m.Ropes); n > 0 {
		cos, sin, pairs := make([]C.agt_tensor, n), make([]C.agt_tensor, n), make([]C.int32_t, n)
		for i, r := range m.Ropes {
			cos[i], sin[i] = r.Cos.p, r.Sin.p
			if r.Interleaved {
				pairs[i] = 1
			}
			d.maxSeen = s.Shape(r.Cos)[0]
		}
		pin.Pin(&cos[0])
		pin.Pin(&sin[0])
		pin.Pin(&pairs[0])
		cm.cos, cm.sin, cm.pairs = &cos[0], &sin[0], &pairs[0]
	}
	cl := make([]C.agt_decoder_layer, len(layers))
	for i, l := range layers {
		gelu := C.int64_t(0)
		if l.GELU {
			gelu = 1
		}
		cl[i] = C.agt_decoder_layer{before_attention: l.BeforeAttention.p, after_attention: l.AfterAttention.p, before_mlp: l.BeforeMLP.p,
			after_mlp: l.AfterMLP.p, q_norm: l.QNorm.p, k_norm: l.KNorm.p, sinks: l.Look.Sinks.p, kpool: l.KPool.p, vpool: l.VPool.p,
			qkv: l.QKV.p, qkv_bias: l.QKVBias.p, o: l.O.p, o_bias: l.OBias.p, gate_up: l.GateUp.p, gate_up_bias: l.GateUpBias.p,
			down: l.Down.p, down_bias: l.DownBias.p, heads: C.int64_t(l.Heads), kv_heads: C.int64_t(l.KVHeads), dim: C.int64_t(l.Dim),
			window: C.int64_t(l.Look.Window), rope: C.int64_t(l.Rope), qk_norm: C.int64_t(l.QKNorm), gelu: gelu, scale: C.double(l.Look.Scale)}
	}
	if shape := s.Shape(layers[0].KPool); len(shape) == 4 {
		d.pool, d.block = shape[0], shape[1]
	}
	return cm, cl, d
}

// Close lets the tensors go.
func (d *Decoder) Close() {
	if d != nil {
		C.agt_decoder_free(d.p)
		d.p = nil
	}
}

// Step computes the tokens of the segments, which it adds to the cache, and gives the logits of
// the wanted rows, which are in order: [len(wanted), V].
func (d *Decoder) Step(s *Scope, ids, positions []int32, segs []CachedSegment, blocks, wanted []int32) Tensor {
	if s.Err() != nil || len(ids) == 0 {
		return Tensor{}
	}
	if err := d.checkRows(ids, positions, segs, blocks); err != nil {
		s.Fail(err)
		return Tensor{}
	}
	if len(wanted) > 0 && (!slices.IsSorted(wanted) || wanted[0] < 0 || int(wanted[len(wanted)-1]) >= len(ids) || len(wanted) > len(ids)) {
		s.Fail(fmt.Errorf("torch: decoder: the wanted rows %v are not in order or not of the %d rows", wanted, len(ids)))
		return Tensor{}
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	r := rowsOf(ids, positions, segs, blocks, wanted, &pin)
	return s.op("decoder", func(o *C.agt_tensor, m **C.char) C.int { return C.agt_decoder_step(d.p, &r, o, m) })
}

// checkRows holds a step to the model and its cache: the kernels follow the numbers blindly.
func (d *Decoder) checkRows(ids, positions []int32, segs []CachedSegment, blocks []int32) error {
	plan := CachePlan{segs: segs, blocks: blocks}
	if err := plan.check(int64(len(ids)), d.pool, d.block); err != nil {
		return err
	}
	for i, id := range ids {
		if id < 0 || int64(id) >= d.vocab || positions[i] < 0 || d.maxSeen > 0 && int64(positions[i]) >= d.maxSeen {
			return fmt.Errorf("torch: decoder: row %d has id %d of %d at position %d of %d", i, id, d.vocab, positions[i], d.maxSeen)
		}
	}
	return nil
}

// rowsOf are a step's rows for C.
func rowsOf(ids, positions []int32, segs []CachedSegment, blocks, wanted []int32, pin *runtime.Pinner) C.agt_decoder_rows {
	r := C.agt_decoder_rows{rows: C.int64_t(len(ids)), n: C.int64_t(len(segs)), n_wanted: C.int64_t(len(wanted))}
	for _, x := range []struct {
		to   **C.int32_t
		from *int32
	}{{&r.ids, unsafe.SliceData(ids)}, {&r.positions, unsafe.SliceData(positions)}, {&r.segs, (*int32)(unsafe.Pointer(&segs[0]))},
		{&r.blocks, unsafe.SliceData(blocks)}, {&r.wanted, unsafe.SliceData(wanted)}} {
		if x.from != nil {
			pin.Pin(x.from)
			*x.to = (*C.int32_t)(unsafe.Pointer(x.from))
		}
	}
	return r
}
