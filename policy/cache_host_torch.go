//go:build libtorch

package policy

import (
	"cmp"
	"math"
	"slices"

	"agentcli/internal/setting"
	"agentcli/internal/torch"
	"agentcli/model/arch"
)

// cachePools makes the memory of a cache of so many blocks: keys and values of each layer,
// [blocks, block size, kv heads, head dim]. Layers without have none, and some have another's.
func cachePools(sc *scheduler, s *torch.Scope, blocks, perBlock int64) {
	n := sc.p.net
	keep := func(x torch.Tensor) torch.Tensor { return s.Keep(x, sc.p.keep) }
	sc.kpool, sc.vpool = make([]torch.Tensor, len(n.layers)), make([]torch.Tensor, len(n.layers))
	free, err := torch.FreeMemory(torch.CPU)
	size := sc.p.cfg.HostCache
	bytes := cmp.Or(size.Bytes, int64(size.Share*float64(free)))
	switch {
	case size == CacheSize{}:
		for i, l := range n.layers {
			if a := l.Attention; hasPools(a) {
				sc.kpool[i] = keep(s.Empty(n.dtype, n.device, blocks, blockSize, int64(a.KVHeads), int64(a.HeadDim)))
				sc.vpool[i] = keep(s.Empty(n.dtype, n.device, blocks, blockSize, int64(a.KVHeads), int64(a.HeadDim)))
			}
		}
	case err != nil:
		s.Fail(err)
	case n.device == torch.CPU:
		s.Fail(setting.Errorf("%s is for a GPU; on a CPU give that memory to %s", setting.Name("KVHost"), setting.Name("KVCache")))
	case sc.slots != nil:
		s.Fail(setting.Errorf("%s: this model has recurrent layers, whose states cannot be put aside; leave it out", setting.Name("KVHost")))
	case bytes < perBlock:
		s.Fail(setting.Errorf("%s: %d bytes hold no block of the cache, which takes %d", setting.Name("KVHost"), bytes, perBlock))
	case bytes > free:
		s.Fail(setting.Errorf("%s: %d MB are more than the %d MB that are free", setting.Name("KVHost"), bytes>>20, free>>20))
	default:
		sc.host = newHostCache(s, sc, blocks, min(bytes/perBlock, math.MaxInt32))
	}
	for i, l := range n.layers {
		if a := l.Attention; a.Shared {
			sc.kpool[i], sc.vpool[i] = sc.kpool[a.From], sc.vpool[a.From]
		}
	}
}

// newTable makes an empty table of the cache, with the host's where there is one.
func newTable(sc *scheduler, blocks int) *blockTable {
	t := newBlockTable(blocks)
	if sc.host != nil {
		t.host = newHostTable(int(sc.host.blocks), t)
	}
	return t
}

func (h *hostCache) size() int64 {
	if h == nil {
		return 0
	}
	return h.blocks
}

func hasPools(a arch.Attention) bool { return a.Heads > 0 && !a.Shared }

// hostCache is the memory behind a hostTable. Layers whose blocks have the same shape are together,
// so that a block of all of them is one copy.
type hostCache struct {
	blocks int64
	pools  []hostPool
}

// hostPool are the keys and values of some layers.
type hostPool struct {
	device torch.Tensor // [2·layers, blocks, block size, kv heads, head dim]
	host   torch.Tensor // [blocks of the host, 2·layers, block size, kv heads, head dim]
	staged torch.Tensor // one block on its way, on the device
}

func newHostCache(s *torch.Scope, sc *scheduler, blocks, onHost int64) *hostCache {
	n := sc.p.net
	keep := func(x torch.Tensor) torch.Tensor { return s.Keep(x, sc.p.keep) }
	layers := map[[2]int][]int{} // by shape
	var shapes [][2]int
	for i, l := range n.layers {
		if a := l.Attention; hasPools(a) {
			shape := [2]int{a.KVHeads, a.HeadDim}
			if layers[shape] == nil {
				shapes = append(shapes, shape)
			}
			layers[shape] = append(layers[shape], i)
		}
	}
	h := &hostCache{blocks: onHost}
	for _, shape := range shapes {
		heads, dim, parts := int64(shape[0]), int64(shape[1]), 2*int64(len(layers[shape]))
		p := hostPool{device: keep(s.Empty(n.dtype, n.device, parts, blocks, blockSize, heads, dim)),
			host:   keep(s.EmptyOnHost(n.dtype, n.device, onHost, parts, blockSize, heads, dim)),
			staged: keep(s.Empty(n.dtype, n.device, 1, parts, blockSize, heads, dim))}
		part := func(i int) torch.Tensor {
			return keep(s.Reshape(s.Narrow(p.device, 0, int64(i), 1), blocks, blockSize, heads, dim))
		}
		for k, i := range layers[shape] {
			sc.kpool[i], sc.vpool[i] = part(2*k), part(2*k+1)
		}
		h.pools = append(h.pools, p)
	}
	return h
}

// moveBlocks makes the copies that the plan of a step needs. The device makes them before the step, and nobody
// waits.
func moveBlocks(sc *scheduler, s *torch.Scope) {
	h := sc.table.host
	if h == nil || len(h.moves) == 0 {
		return
	}
	c := s.Child()
	defer c.Close()
	for _, m := range h.moves {
		for _, p := range sc.host.pools {
			shape := c.Shape(p.staged)
			onDevice := c.Narrow(p.device, 1, int64(m.device), 1)
			onHost := c.Narrow(p.host, 0, int64(m.host), 1)
			block := c.Reshape(p.staged, append([]int64{shape[1], 1}, shape[2:]...)...)
			if m.back {
				c.CopyBehind(p.staged, onHost)
				c.CopyBehind(onDevice, block)
			} else {
				c.CopyBehind(block, onDevice)
				c.CopyBehind(onHost, p.staged)
			}
		}
		if sc.experts != nil {
			sc.experts.move(m, len(sc.table.blocks))
		}
	}
	h.moved()
	if err := c.Err(); err != nil { // who holds which block that was not copied is not known
		sc.table.forget()
		for _, q := range slices.Clone(sc.running) {
			sc.finish(q, nil, err)
		}
		s.Fail(err)
	}
}
