//go:build libtorch

package torch

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// spans are the sequences of one call of attention on a device (agt::Spans).
type spans struct {
	made                           bool
	gather, cuQ, cuK, hostQ, hostK Tensor
	longestQ, longestK             int64
}

// sequences makes spans: q[i] rows of queries against the rows keys[i] of keys. All
// says that the keys are all rows, in order. What is made belongs to s.
func (p *spans) sequences(s *Scope, dev Device, q []int, keys [][]int64, all bool) {
	cuQ, cuK := make([]int32, 1, len(q)+1), make([]int32, 1, len(q)+1)
	var gather []int64
	for i, n := range q {
		cuQ, cuK = append(cuQ, cuQ[i]+int32(n)), append(cuK, cuK[i]+int32(len(keys[i])))
		p.longestQ, p.longestK = max(p.longestQ, int64(n)), max(p.longestK, int64(len(keys[i])))
		if !all {
			gather = append(gather, keys[i]...)
		}
	}
	p.made = true
	p.hostQ, p.hostK = fromSlice(s, cuQ, Int32, nil), fromSlice(s, cuK, Int32, nil)
	p.cuQ, p.cuK = s.To(p.hostQ, Int32, dev), s.To(p.hostK, Int32, dev)
	if !all {
		p.gather = s.To(s.Int64(gather), Int64, dev)
	}
}

func (p *spans) c() *C.agt_spans {
	if !p.made {
		return nil
	}
	return &C.agt_spans{gather: p.gather.p, cu_q: p.cuQ.p, cu_k: p.cuK.p, host_q: p.hostQ.p, host_k: p.hostK.p,
		max_q: C.int64_t(p.longestQ), max_k: C.int64_t(p.longestK)}
}

// Look is how the tokens of one layer see each other.
type Look struct {
	Window int64   // > 0: how many positions a token sees, its own included
	Scale  float64 // of the products of queries and keys; 0 is 1/√D
	Sinks  Tensor  // [Hq]: logits that take part in the softmax and give nothing; the zero Tensor: none
}

// TreeNode is a run of tokens of a packed tree: it sees its own tokens causally
// and all tokens of its ancestors. Parent is the number of an earlier node, or -1.
type TreeNode struct{ Start, Len, Parent int32 }

// TreePlan is a packed tree, whose attention all layers compute. What a device needs
// of it is made at the first call and kept until the scope of the plan closes.
type TreePlan struct {
	s     *Scope
	nodes []TreeNode
	spans spans
}

// PlanTree lays out attention over a packed tree. The nodes tile the tokens in order.
func (s *Scope) PlanTree(nodes []TreeNode) *TreePlan { return &TreePlan{s: s, nodes: nodes} }

// prepare makes a sequence of each node: its tokens against those of its ancestors and
// its own.
func (p *TreePlan) prepare(dev Device) {
	if p.spans.made {
		return
	}
	q, keys, all := make([]int, len(p.nodes)), make([][]int64, len(p.nodes)), true
	for i, n := range p.nodes {
		q[i], all = int(n.Len), all && n.Parent < 0
		if n.Parent >= 0 && int(n.Parent) < i { // else the call itself says what is wrong
			keys[i] = append(keys[i], keys[n.Parent]...)
		}
		for t := n.Start; t < n.Start+n.Len; t++ {
			keys[i] = append(keys[i], int64(t))
		}
	}
	p.spans.sequences(p.s, dev, q, keys, all)
}

// TreeAttention is causal attention over a packed tree: q [T, Hq, D], k and v
// [T, Hkv, D]. Records for backward.
func (s *Scope) TreeAttention(q, k, v Tensor, plan *TreePlan, look Look) Tensor {
	if s.ok("tree_attention", q, k, v) && C.agt_fused_attention(q.p, k.p, v.p) == 0 {
		plan.prepare(s.Device(q))
	}
	return s.op("tree_attention", func(o *C.agt_tensor, m **C.char) C.int {
		return C.agt_tree_attention(o, q.p, k.p, v.p, (*C.int32_t)(unsafe.Pointer(unsafe.SliceData(plan.nodes))),
			C.int(len(plan.nodes)), C.int64_t(look.Window), C.double(look.Scale), look.Sinks.p, plan.spans.c(), m)
	}, q, k, v)
}

// CachedSegment is a run of new tokens of one sequence: Len rows of q from
// Start, the last of a context of Context tokens whose cache blocks are listed
// from index FirstBlock on.
type CachedSegment struct{ Start, Len, Context, FirstBlock int32 }

// CachePlan is what one step adds to a paged cache, for all layers. It is checked, and
// what the layers need of it is made, at the first call.
type CachePlan struct {
	s      *Scope
	segs   []CachedSegment
	blocks []int32
	slots  Tensor // int64 [T]: the pools' row of each new token
	spans  spans
	decode decoding
	ready  bool // the first layer has made what all need
}

// PlanCache lays out attention to a paged cache: blocks lists the cache blocks of the
// segments.
func (s *Scope) PlanCache(segs []CachedSegment, blocks []int32) *CachePlan {
	return &CachePlan{s: s, segs: segs, blocks: blocks}
}

// check holds a plan of `rows` new tokens to a cache of `pool` blocks of `size`
// tokens: the kernels follow its numbers blindly.
func (p *CachePlan) check(rows, pool, size int64) error {
	row := int64(0)
	for i, g := range p.segs {
		if int64(g.Start) != row || g.Len < 0 || g.Context < g.Len {
			return fmt.Errorf("torch: cached_attention: segment %d has %d rows from %d of a context of %d; the segments must tile the rows in order",
				i, g.Len, g.Start, g.Context)
		}
		row += int64(g.Len)
		used := (int64(g.Context) + size - 1) / size
		if g.FirstBlock < 0 || int64(g.FirstBlock)+used > int64(len(p.blocks)) {
			return fmt.Errorf("torch: cached_attention: segment %d uses %d blocks from number %d of a list of %d",
				i, used, g.FirstBlock, len(p.blocks))
		}
		for _, b := range p.blocks[g.FirstBlock:][:used] {
			if b < 0 || int64(b) >= pool {
				return fmt.Errorf("torch: cached_attention: block %d is outside the cache of %d", b, pool)
			}
		}
	}
	if row != rows {
		return fmt.Errorf("torch: cached_attention: the segments hold %d rows, q has %d", row, rows)
	}
	return nil
}

// places are the pools' rows of the positions from..to-1 of a segment's context.
func (p *CachePlan) places(g CachedSegment, from, to int32, size int64) []int64 {
	out := make([]int64, 0, to-from)
	for t := int64(from); t < int64(to); t++ {
		out = append(out, int64(p.blocks[int64(g.FirstBlock)+t/size])*size+t%size)
	}
	return out
}

// prepare makes what the first layer needs, and the others after it.
func (p *CachePlan) prepare(q, k, v, kpool Tensor) {
	if p.ready {
		return
	}
	shape, pool := p.s.Shape(q), p.s.Shape(kpool)
	if len(shape) != 3 || len(pool) != 4 || p.s.Err() != nil {
		return // the call itself says what is wrong
	}
	size, dev := pool[1], p.s.Device(q)
	if err := p.check(shape[0], pool[0], size); err != nil {
		p.s.Fail(err)
		return
	}
	p.ready = true
	slots := make([]int64, 0, shape[0])
	for _, g := range p.segs {
		slots = append(slots, p.places(g, g.Context-g.Len, g.Context, size)...)
	}
	p.slots = p.s.To(p.s.Int64(slots, int64(len(slots))), Int64, dev)
	if C.agt_fused_attention(q.p, k.p, v.p) != 0 {
		return
	}
	prompts := p.segs
	if C.agt_gpu_decodes(q.p) != 0 {
		prompts = p.decode.sequences(p.s, dev, p.segs, p.blocks, size)
	}
	if len(prompts) == 0 && p.decode.n > 0 {
		return
	}
	rows, keys := make([]int, len(prompts)), make([][]int64, len(prompts))
	for i, g := range prompts {
		rows[i], keys[i] = int(g.Len), p.places(g, 0, g.Context, size)
	}
	p.spans.sequences(p.s, dev, rows, keys, false)
}

// decoding are the sequences of one new token, for our kernel on a device
// (agt::gpu::Decoding).
type decoding struct {
	numbers, prompts  Tensor
	n, width, longest int64
}

// sequences takes the segments of one row, and gives back the others.
func (d *decoding) sequences(s *Scope, dev Device, segs []CachedSegment, blocks []int32, size int64) (prompts []CachedSegment) {
	var rows, contexts []int32
	var first []int32
	var others []int64
	for _, g := range segs {
		if g.Len != 1 {
			prompts = append(prompts, g)
			for r := int64(g.Start); r < int64(g.Start+g.Len); r++ {
				others = append(others, r)
			}
			continue
		}
		rows, contexts, first = append(rows, g.Start), append(contexts, g.Context), append(first, g.FirstBlock)
		d.longest = max(d.longest, int64(g.Context))
	}
	if d.n = int64(len(rows)); d.n == 0 {
		return prompts
	}
	d.width = (d.longest + size - 1) / size
	numbers := append(append(append(make([]int32, 0, 1+d.n*(2+d.width)), int32(d.width)), rows...), contexts...)
	for i, at := range first {
		used := (int64(contexts[i]) + size - 1) / size
		numbers = append(append(numbers, blocks[at:][:used]...), make([]int32, d.width-used)...)
	}
	d.numbers = s.To(fromSlice(s, numbers, Int32, nil), Int32, dev)
	if len(others) > 0 {
		d.prompts = s.To(s.Int64(others), Int64, dev)
	}
	return prompts
}

func (d *decoding) c() *C.agt_decoding {
	if d.n == 0 {
		return nil
	}
	return &C.agt_decoding{numbers: d.numbers.p, prompts: d.prompts.p, n: C.int64_t(d.n), longest: C.int64_t(d.longest)}
}

// HeadRule is what the heads of queries and keys are normed and rotated by. Zero tensors: they are
// not. Rotations are as in Rope.
type HeadRule struct {
	QNorm, KNorm           Tensor // [D]
	Norm                   Norm
	QCos, QSin, KCos, KSin Tensor
	Interleaved            bool
}

// CachedHeads gives the queries [T, Hq, D] of x [T, Hq+2·Hkv, D], normed and rotated, and writes
// keys and values into the pools, for CachedAttention to be called with the queries alone. ok is
// false where x's device has no kernel for it: nothing was written then. No backward.
func (s *Scope) CachedHeads(x Tensor, r HeadRule, kpool, vpool Tensor, plan *CachePlan) (q Tensor, ok bool) {
	if !s.ok("cached_heads", x, kpool, vpool) || C.agt_gpu_heads(x.p) == 0 {
		return Tensor{}, false
	}
	if plan.prepare(x, x, x, kpool); plan.s.Err() != nil {
		s.Fail(plan.s.Err())
	}
	neighbours := C.int(0)
	if r.Interleaved {
		neighbours = 1
	}
	rule := C.agt_head_rule{q_norm: r.QNorm.p, k_norm: r.KNorm.p, q_cos: r.QCos.p, q_sin: r.QSin.p, k_cos: r.KCos.p, k_sin: r.KSin.p,
		neighbours: neighbours, eps: C.double(r.Norm.Eps), offset: C.double(r.Norm.Offset)}
	return s.op("cached_heads", func(o *C.agt_tensor, m **C.char) C.int {
		return C.agt_cached_heads(o, x.p, rule, plan.slots.p, kpool.p, vpool.p, m)
	}, x, kpool, vpool), true
}

// CachedAttention writes the new k and v [T, Hkv, D] into the pools
// [blocks, block size, Hkv, D] and attends q [T, Hq, D] to the cache. Zero k and v: CachedHeads
// has written them. No backward.
func (s *Scope) CachedAttention(q, k, v, kpool, vpool Tensor, plan *CachePlan, look Look) Tensor {
	used := []Tensor{q, kpool, vpool}
	if k.Defined() || !plan.ready {
		used = append(used, k, v)
	}
	if !s.ok("cached_attention", used...) {
		return Tensor{}
	}
	if !plan.ready {
		plan.prepare(q, k, v, kpool)
	}
	if plan.s.Err() != nil {
		s.Fail(plan.s.Err())
	}
	return s.op("cached_attention", func(o *C.agt_tensor, m **C.char) C.int {
		return C.agt_cached_attention(o, q.p, k.p, v.p, kpool.p, vpool.p, plan.slots.p,
			(*C.int32_t)(unsafe.Pointer(unsafe.SliceData(plan.segs))), C.int(len(plan.segs)),
			(*C.int32_t)(unsafe.Pointer(unsafe.SliceData(plan.blocks))), C.int64_t(look.Window), C.double(look.Scale),
			look.Sinks.p, plan.spans.c(), plan.decode.c(), m)
	}, used...)
}
