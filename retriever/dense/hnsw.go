package dense

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"agentcli/internal/parallel"
	"agentcli/internal/vector"
	"agentcli/retriever"
	"agentcli/retriever/best"
)

// graph is a hierarchical navigable small world (Malkov and Yashunin, Efficient and robust
// approximate nearest neighbor search using Hierarchical Navigable Small World graphs,
// TPAMI 2020). Every vector is in layer 0, with at most 2m neighbours; one in m of each
// layer is in the next, with at most m. Each is reachable in layer 0 from the entry point
// (connect.go).
//
// Of equal vectors only the first is in the layers: the lists of many would name each
// other alone, and no walk would find its way in or out.
//
// graph.dat has numbers of 4 bytes, little-endian: m, the entry point, its layer; for each
// vector its place in the upper lists, none for a vector in layer 0 alone; for each vector
// the next one that is equal, or none; the lists of
// layer 0, 2m + 1 numbers a vector: how many neighbours, then they; the upper lists, m + 1
// numbers for each layer of a vector from 1 upwards.
type graph struct {
	m     int
	entry uint32
	top   int // layer of the entry point
	place []uint32
	equal []uint32
	base  []uint32
	upper []uint32
}

const none = math.MaxUint32

const headerLen = 3

// list is the neighbours of a vector in a layer, with the number of them before.
func (g *graph) list(node uint32, layer int) []uint32 {
	if layer == 0 {
		size := 2*g.m + 1
		return g.base[int(node)*size : (int(node)+1)*size]
	}
	size := g.m + 1
	at := int(g.place[node]) + (layer-1)*size
	return g.upper[at : at+size]
}

func (g *graph) append(b []byte) []byte {
	for _, part := range [][]uint32{{uint32(g.m), g.entry, uint32(g.top)}, g.place, g.equal, g.base, g.upper} {
		for _, x := range part {
			b = binary.LittleEndian.AppendUint32(b, x)
		}
	}
	return b
}

// readGraph reads graph.dat for n vectors. Every list is checked: a search need not.
func readGraph(b []byte, n int) (*graph, error) {
	damaged := fmt.Errorf("%s: %w", graphName, retriever.ErrDamaged)
	if len(b)%4 != 0 || len(b) < 4*(headerLen+2*n) {
		return nil, damaged
	}
	x := make([]uint32, len(b)/4)
	for i := range x {
		x[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	g := &graph{m: int(x[0]), entry: x[1], top: int(x[2])}
	x = x[headerLen:]
	if g.m < 2 || g.m > 256 || int(g.entry) >= n || g.top > maxLayer || len(x) < 2*n+n*(2*g.m+1) {
		return nil, damaged
	}
	g.place, g.equal, x = x[:n], x[n:2*n], x[2*n:]
	g.base, g.upper = x[:n*(2*g.m+1)], x[n*(2*g.m+1):]
	if !g.sound() {
		return nil, damaged
	}
	return g, nil
}

// sound reports whether no search leaves the lists: upper lists are in the order of their
// vectors, and a neighbour in a layer has a list there.
func (g *graph) sound() bool {
	n, size := len(g.place), g.m+1
	levels := make([]int, n)
	end := len(g.upper)
	for node := n - 1; node >= 0; node-- {
		p := g.place[node]
		if p == none {
			continue
		}
		if int(p) >= end || (end-int(p))%size != 0 || (end-int(p))/size > maxLayer {
			return false
		}
		levels[node] = (end - int(p)) / size
		end = int(p)
	}
	if end != 0 || levels[g.entry] < g.top {
		return false
	}
	for node := range uint32(n) {
		if next := g.equal[node]; next != none && (next <= node || int(next) >= n) {
			return false
		}
		for layer := 0; layer <= levels[node]; layer++ {
			list := g.list(node, layer)
			if int(list[0]) >= len(list) {
				return false
			}
			for _, other := range list[1 : 1+list[0]] {
				if int(other) >= n || levels[other] < layer {
					return false
				}
			}
		}
	}
	return true
}

const maxLayer = 32

// walker is the memory of one search in a graph.
type walker struct {
	seen   []uint32 // by vector: the number of the search that saw it
	search uint32
	open   []best.Scored // to be visited: a heap with the best first
	found  best.List
	near   []uint32
	picked []best.Scored
}

func (w *walker) begin(n, ef int) {
	if len(w.seen) != n {
		w.seen, w.search = make([]uint32, n), 0
	}
	if w.search++; w.search == 0 {
		clear(w.seen)
		w.search = 1
	}
	w.open = w.open[:0]
	w.found.Reset(ef)
}

func (w *walker) visit(s best.Scored) {
	w.seen[s.Doc] = w.search
	if w.found.Full() && !best.Worse(w.found.Worst(), s) {
		return
	}
	w.found.Offer(s)
	w.open = append(w.open, s)
	for i := len(w.open) - 1; i > 0; {
		parent := (i - 1) / 2
		if !best.Worse(w.open[parent], w.open[i]) {
			break
		}
		w.open[parent], w.open[i] = w.open[i], w.open[parent]
		i = parent
	}
}

func (w *walker) next() best.Scored {
	s := w.open[0]
	last := len(w.open) - 1
	w.open[0] = w.open[last]
	w.open = w.open[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return s
		}
		if child+1 < last && best.Worse(w.open[child], w.open[child+1]) {
			child++
		}
		if !best.Worse(w.open[i], w.open[child]) {
			return s
		}
		w.open[i], w.open[child] = w.open[child], w.open[i]
		i = child
	}
}

// layer finds the ef vectors of a layer that are nearest to a query (algorithm 2), from
// some entry points. neighbours copies a list.
func (w *walker) layer(v vectors, query []float32, entries []best.Scored, ef, layer int,
	neighbours func(w *walker, node uint32, layer int)) []best.Scored {
	w.begin(v.len(), ef)
	for _, e := range entries {
		w.visit(e)
	}
	for len(w.open) > 0 {
		s := w.next()
		if w.found.Full() && best.Worse(s, w.found.Worst()) {
			break
		}
		neighbours(w, s.Doc, layer)
		for _, other := range w.near {
			if w.seen[other] != w.search {
				w.visit(best.Scored{Score: vector.Dot(query, v.at(other)), Doc: other})
			}
		}
	}
	return w.found.Sorted()
}

// copyList is for a graph that is not changed any more.
func (g *graph) copyList(w *walker, node uint32, layer int) {
	list := g.list(node, layer)
	w.near = list[1 : 1+list[0]]
}

// nearest finds about the k nearest vectors (algorithm 5), of ef that are looked at.
func (g *graph) nearest(v vectors, w *walker, query []float32, k, ef int) []best.Scored {
	entries := []best.Scored{{Score: vector.Dot(query, v.at(g.entry)), Doc: g.entry}}
	for layer := g.top; layer > 0; layer-- {
		entries = slices.Clone(w.layer(v, query, entries, 1, layer, g.copyList))
	}
	if entries[0].Doc != g.entry { // from the entry point every vector is reachable in layer 0
		entries = append(entries, best.Scored{Score: vector.Dot(query, v.at(g.entry)), Doc: g.entry})
	}
	var found []best.Scored
	for _, s := range w.layer(v, query, entries, max(k, ef), 0, g.copyList) {
		for doc := s.Doc; doc != none && len(found) < k; doc = g.equal[doc] {
			found = append(found, best.Scored{Score: s.Score, Doc: doc})
		}
	}
	return found
}

// graphBuilder builds a graph with several goroutines.
type graphBuilder struct {
	graph
	v       vectors
	ef      int
	locks   []sync.Mutex // of each vector's lists
	entered sync.RWMutex // of entry and top
	walkers sync.Pool
	level   []uint8
}

// buildGraph inserts all vectors. With several processors the graph depends on the order
// in which they come through.
func buildGraph(v vectors, m, ef int, cancelled func() error) (*graph, error) {
	n := v.len()
	b := &graphBuilder{v: v, ef: ef, locks: make([]sync.Mutex, n), level: make([]uint8, n)}
	b.m = m
	b.place, b.base = make([]uint32, n), make([]uint32, n*(2*m+1))
	copies := b.findEqual()
	r := rand.New(rand.NewPCG(1, uint64(n)))
	size := 0
	for i := range n {
		b.level[i] = uint8(min(maxLayer, int(-math.Log(1-r.Float64())/math.Log(float64(m)))))
		b.place[i] = none
		if copies[i] {
			b.level[i] = 0
		}
		if b.level[i] > 0 {
			b.place[i] = uint32(size)
			size += int(b.level[i]) * (m + 1)
		}
	}
	b.upper = make([]uint32, size)
	b.entry, b.top = 0, int(b.level[0])
	err := parallel.For(n-1, func(i int) error {
		if !copies[i+1] {
			b.insert(uint32(i + 1))
		}
		if i%1024 == 0 {
			return cancelled()
		}
		return nil
	})
	if err == nil {
		err = b.connect(v, copies, ef, cancelled)
	}
	return &b.graph, err
}

// findEqual chains equal vectors, and tells which are not the first of theirs.
func (b *graphBuilder) findEqual() (copies []bool) {
	n := b.v.len()
	b.equal, copies = make([]uint32, n), make([]bool, n)
	last := make(map[uint64]uint32, n) // by hash; of two vectors with one hash the second counts as new
	for i := range uint32(n) {
		at := b.v.at(i)
		b.equal[i] = none
		h := uint64(14695981039346656037) // FNV-1a, a number at a time
		for _, x := range at {
			h = (h ^ uint64(math.Float32bits(x))) * 1099511628211
		}
		if before, ok := last[h]; ok && slices.Equal(b.v.at(before), at) {
			b.equal[before], copies[i] = i, true
		}
		last[h] = i
	}
	return copies
}

// copyLocked is copyList of a graph that others change.
func (b *graphBuilder) copyLocked(w *walker, node uint32, layer int) {
	b.locks[node].Lock()
	list := b.list(node, layer)
	w.near = append(w.near[:0], list[1:1+list[0]]...)
	b.locks[node].Unlock()
}

// insert puts a vector into its layers (algorithm 1).
func (b *graphBuilder) insert(node uint32) {
	w, _ := b.walkers.Get().(*walker)
	if w == nil {
		w = &walker{}
	}
	defer b.walkers.Put(w)
	query, level := b.v.at(node), int(b.level[node])
	b.entered.RLock()
	entry, top := b.entry, b.top
	b.entered.RUnlock()
	entries := []best.Scored{{Score: vector.Dot(query, b.v.at(entry)), Doc: entry}}
	for layer := top; layer > level; layer-- {
		entries = slices.Clone(w.layer(b.v, query, entries, 1, layer, b.copyLocked))
	}
	for layer := min(top, level); layer >= 0; layer-- {
		entries = slices.Clone(w.layer(b.v, query, entries, b.ef, layer, b.copyLocked))
		near := slices.DeleteFunc(slices.Clone(entries), func(s best.Scored) bool { return s.Doc == node })
		near = slices.Clone(b.pick(w, near, b.m))
		b.locks[node].Lock()
		b.link(w, node, layer, near)
		b.locks[node].Unlock()
		for _, s := range near {
			b.locks[s.Doc].Lock()
			b.link(w, s.Doc, layer, []best.Scored{{Score: s.Score, Doc: node}})
			b.locks[s.Doc].Unlock()
		}
	}
	if level > top {
		b.entered.Lock()
		if level > b.top {
			b.entry, b.top = node, level
		}
		b.entered.Unlock()
	}
}

// link adds neighbours to a vector's list; if they are too many, some are picked.
func (b *graphBuilder) link(w *walker, node uint32, layer int, more []best.Scored) {
	list := b.list(node, layer)
	limit := len(list) - 1
	all := make([]best.Scored, 0, limit+len(more))
	for _, other := range list[1 : 1+list[0]] {
		all = append(all, best.Scored{Doc: other})
	}
	for _, s := range more {
		if !slices.ContainsFunc(all, func(o best.Scored) bool { return o.Doc == s.Doc }) {
			all = append(all, s)
		}
	}
	if len(all) > limit {
		at := b.v.at(node)
		for i := range all {
			all[i].Score = vector.Dot(at, b.v.at(all[i].Doc))
		}
		slices.SortFunc(all, func(a, b best.Scored) int {
			if best.Worse(a, b) {
				return 1
			}
			return -1
		})
		all = b.pick(w, all, limit)
	}
	list[0] = uint32(len(all))
	for i, s := range all {
		list[1+i] = s.Doc
	}
}

// pick takes neighbours that are nearer to the vector than to each other (algorithm 4,
// with those left out at the end), of candidates with the nearest first.
func (b *graphBuilder) pick(w *walker, candidates []best.Scored, limit int) []best.Scored {
	picked, rest := w.picked[:0], []best.Scored(nil)
	for _, c := range candidates {
		if len(picked) == limit {
			break
		}
		at := b.v.at(c.Doc)
		if slices.ContainsFunc(picked, func(p best.Scored) bool { return vector.Dot(at, b.v.at(p.Doc)) >= c.Score }) {
			rest = append(rest, c)
			continue
		}
		picked = append(picked, c)
	}
	picked = append(picked, rest[:min(len(rest), limit-len(picked))]...)
	w.picked = picked
	return picked
}
