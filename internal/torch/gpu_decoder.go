//go:build libtorch

package torch

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"runtime"
	"unsafe"
)

// DeviceDecoder computes a step of a plain decoder on a device in one call, from a token of each
// sequence to the one drawn behind it; gpu_decoder.cpp says how. It is not safe for concurrent
// use.
type DeviceDecoder struct {
	of       Decoder // what its steps are held to
	rows     int
	draws    bool
	launched int // rows of the last step
}

// NewDeviceDecoder makes one, for steps of at most so many rows and sequences of at most so many
// blocks of the cache; nil where the device has no kernels of ours, or they do not take the model's
// shapes. It holds on to the tensors until Close. With draws a step draws its tokens.
func (s *Scope) NewDeviceDecoder(m DecoderModel, layers []DecoderLayer, rows, blocks int, draws bool) *DeviceDecoder {
	if !s.ok("decoder", m.Embed, m.Norm, m.Head) || len(layers) == 0 || C.agt_gpu_has(m.Embed.p) == 0 {
		return nil
	}
	for _, l := range layers {
		if l.Dim%8 != 0 || l.Dim > MaxDeviceHead || s.Shape(m.Embed)[1]%8 != 0 || s.Shape(l.Down)[1]%8 != 0 {
			return nil
		}
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	cm, cl, of := decoderArguments(s, m, layers, &pin)
	var p unsafe.Pointer
	var msg *C.char
	drawing := C.int(0)
	if draws {
		drawing = 1
	}
	if s.Err() != nil || !s.check("decoder", C.agt_gpu_decoder_new(&p, &cm, &cl[0], C.int(len(cl)), C.int64_t(rows), C.int64_t(blocks),
		drawing, &msg), msg) {
		return nil
	}
	of.p = p
	return &DeviceDecoder{of: *of, rows: rows, draws: draws}
}

// MaxDeviceHead is the size of the largest head that our kernels on a device take.
const MaxDeviceHead = 256

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
	return d.rows
}

// Launch starts a step on the device, which computes the one token of each segment and adds it to the
// cache, and returns before the step has ended.
func (d *DeviceDecoder) Launch(s *Scope, ids, positions []int32, segs []CachedSegment, blocks []int32, how []SampleRow) {
	if s.Err() != nil || len(ids) == 0 {
		return
	}
	step := DecoderStep{IDs: ids, Positions: positions, Segs: segs, Blocks: blocks}
	if err := d.of.checkRows(step); err != nil {
		s.Fail(err)
		return
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	r := rowsOf(step, &pin)
	var drawing *C.agt_sampling
	if d.draws {
		drawing = (*C.agt_sampling)(unsafe.Pointer(&how[0]))
	}
	var msg *C.char
	if s.check("decoder", C.agt_gpu_decoder_launch(d.of.p, &r, drawing, &msg), msg) {
		d.launched = len(ids)
	}
}

// Wait gives the logits [rows, V] of the launched step; they are valid until the next launch. ids and
// lps are what Sample gives where the decoder draws, and nil otherwise.
func (d *DeviceDecoder) Wait(s *Scope) (z Tensor, ids []int32, lps []float32) {
	if s.Err() != nil || d.launched == 0 {
		return z, nil, nil
	}
	var to *C.int32_t
	var at *C.float
	if d.draws {
		ids, lps = make([]int32, d.launched), make([]float32, d.launched)
		to, at = (*C.int32_t)(unsafe.Pointer(&ids[0])), (*C.float)(unsafe.Pointer(&lps[0]))
	}
	z = s.op("decoder", func(o *C.agt_tensor, m **C.char) C.int {
		return C.agt_gpu_decoder_wait(d.of.p, C.int64_t(d.launched), to, at, o, m)
	})
	return z, ids, lps
}
