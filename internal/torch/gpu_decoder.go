//go:build libtorch

package torch

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"math"
	"runtime"
	"unsafe"
)

// DeviceDecoder computes a step of a decoder on a device in one call, from a token of each
// sequence to the one drawn behind it; gpu_decoder.cpp says how. It is not safe for concurrent
// use.
type DeviceDecoder struct {
	of       Decoder // what its steps are held to
	how      DeviceSteps
	launched int // rows of the last step
}

// DeviceSteps says what the steps of a DeviceDecoder are.
type DeviceSteps struct {
	Rows, Blocks int  // of a step, and of a sequence in the cache, at most
	Draws        bool // a step draws its tokens
	Records      bool // Wait gives the experts that rows have
}

// What our kernels on a device take at most; see gpu_args.h.
const (
	maxDeviceHead    = 512 // numbers of a head
	maxDeviceDelta   = 256 // of a key or a value of the gated delta rule
	maxDeviceExperts = 512 // of a layer
	maxDeviceActive  = 32  // experts of a token
	maxDeviceGroups  = 32  // of a layer's experts
	rowsOfExpert     = 32  // for which an expert's weights are read once; libtorch's products take more rows
)

// takesOnDevice reports whether our kernels take a layer's shapes; rows is how many a step may have.
func (s *Scope) takesOnDevice(l DecoderLayer) (rows int, ok bool) {
	h := l.Recurrent.DeltaHeads
	if l.Dim%8 != 0 || l.Dim > maxDeviceHead || max(h.KeyDim, h.ValueDim) > maxDeviceDelta {
		return 0, false
	}
	if l.Down.Defined() && s.Shape(l.Down)[1]%8 != 0 || l.MLPGate.Defined() && !l.Experts.Router.Defined() {
		return 0, false
	}
	e := l.Experts
	if !e.Router.Defined() {
		return math.MaxInt, true
	}
	shape := s.Shape(e.Of.Down) // [experts·hidden, size], or of three dimensions
	size := shape[len(shape)-1]
	if e.Clamped != nil {
		size = s.Shape(e.Clamped.Down)[1] // [experts, size, hidden]
	}
	count := int(s.Shape(e.Router)[0])
	return rowsOfExpert * count / int(e.How.Active),
		size%8 == 0 && count <= maxDeviceExperts && e.How.Active <= maxDeviceActive && e.How.Groups <= maxDeviceGroups
}

// NewDeviceDecoder makes one; nil where the device has no kernels of ours, or they do not take the model's
// shapes. It holds on to the tensors until Close.
func (s *Scope) NewDeviceDecoder(m DecoderModel, layers []DecoderLayer, how DeviceSteps) *DeviceDecoder {
	if !s.ok("decoder", m.Embed, m.Norm, m.Head) || len(layers) == 0 || C.agt_gpu_has(m.Embed.p) == 0 || s.Shape(m.Embed)[1]%8 != 0 {
		return nil
	}
	if n := m.PerLayer.Norm; n.Defined() && s.Shape(n)[0]%8 != 0 {
		return nil
	}
	var active int64
	for _, l := range layers {
		rows, ok := s.takesOnDevice(l)
		own := l.Experts.How.Active
		if how.Rows = min(how.Rows, rows); !ok || how.Rows < 1 || own > 0 && active > 0 && own != active {
			return nil
		}
		active = max(active, own)
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	cm, cl, of := decoderArguments(s, m, layers, &pin)
	var p unsafe.Pointer
	var msg *C.char
	if s.Err() != nil || !s.check("decoder", C.agt_gpu_decoder_new(&p, &cm, &cl[0], C.int(len(cl)), C.int64_t(how.Rows),
		C.int64_t(how.Blocks), C.int(flag(how.Draws)), C.int(flag(how.Records)), &msg), msg) {
		return nil
	}
	of.p = p
	return &DeviceDecoder{of: *of, how: how}
}

// Close lets the tensors go.
func (d *DeviceDecoder) Close() {
	if d != nil {
		C.agt_gpu_decoder_free(d.of.p)
		d.of.p = nil
	}
}

// Rows is how many rows a step may have; 0: there is no decoder.
func (d *DeviceDecoder) Rows() int {
	if d == nil {
		return 0
	}
	return d.how.Rows
}

// Launch starts a step on the device, which computes the one token of each segment and adds it to the
// cache, and returns before the step has ended.
// Of the step its rows and the slots of their states are read.
func (d *DeviceDecoder) Launch(s *Scope, step DecoderStep, how []SampleRow) {
	if s.Err() != nil || len(step.IDs) == 0 {
		return
	}
	if err := errors.Join(d.of.checkRows(step), d.of.checkStates(step)); err != nil {
		s.Fail(err)
		return
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	r := rowsOf(step, &pin)
	var drawing *C.agt_sampling
	if d.how.Draws {
		drawing = (*C.agt_sampling)(unsafe.Pointer(&how[0]))
	}
	var msg *C.char
	if s.check("decoder", C.agt_gpu_decoder_launch(d.of.p, &r, drawing, &msg), msg) {
		d.launched = len(step.IDs)
	}
}

// Wait gives the logits [rows, V] of the launched step; they are valid until the next launch. ids and
// lps are what Sample gives where the decoder draws, and nil otherwise. chosen, where it records them, are the experts of the
// rows: [layers with experts, rows, active].
func (d *DeviceDecoder) Wait(s *Scope) (z Tensor, ids []int32, lps []float32, chosen []int32) {
	if s.Err() != nil || d.launched == 0 {
		return z, nil, nil, nil
	}
	var to, experts *C.int32_t
	var at *C.float
	if d.how.Draws {
		ids, lps = make([]int32, d.launched), make([]float32, d.launched)
		to, at = (*C.int32_t)(unsafe.Pointer(&ids[0])), (*C.float)(unsafe.Pointer(&lps[0]))
	}
	if d.how.Records && d.of.choices > 0 {
		chosen = make([]int32, d.launched*d.of.choices)
		experts = (*C.int32_t)(unsafe.Pointer(&chosen[0]))
	}
	z = s.op("decoder", func(o *C.agt_tensor, m **C.char) C.int {
		return C.agt_gpu_decoder_wait(d.of.p, C.int64_t(d.launched), to, at, experts, o, m)
	})
	return z, ids, lps, chosen
}
