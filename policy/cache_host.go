package policy

// hostTable remembers what a device's cache has put aside in memory of the host: full blocks
// that nobody holds and whose place something else needs. A prompt that begins with them has them
// copied back instead of computed. The one unused longest goes first, here too.
type hostTable struct {
	*blockTable
	moves  []blockMove // that the next step makes first, in this order
	tokens int64       // that came back so far
}

// blockMove copies a block from the device to the host, or back.
type blockMove struct {
	device, host int32
	back         bool
}

func newHostTable(n int, of *blockTable) *hostTable {
	t := newBlockTable(n)
	t.seed = of.seed // blocks have one name in both
	return &hostTable{blockTable: t}
}

// save keeps what block i of the device holds, which is about to hold something else.
func (h *hostTable) save(i int32, b *block) {
	if h == nil {
		return
	}
	at, _, has := h.lookup(b.parent, b.tokens, b.tag)
	if has {
		if h.blocks[at].refs == 0 { // it is the newest now
			h.dropFree(at)
			h.pushFree(at)
		}
		return
	}
	if at = h.alloc(); at < 0 { // all are about to be copied
		return
	}
	h.seal(at, b.parent, b.tokens, b.tag)
	h.moves = append(h.moves, blockMove{device: i, host: at})
}

// moved says that the moves have been made.
func (h *hostTable) moved() {
	for _, m := range h.moves {
		h.release([]int32{m.host})
	}
	h.moves = h.moves[:0]
}

// restored is how many tokens came back so far.
func (h *hostTable) restored() int64 {
	if h == nil {
		return 0
	}
	return h.tokens
}

// forget has nothing that is held now be found again.
func (h *hostTable) forget() {
	if h != nil {
		h.blockTable.forget()
	}
}

// restore goes on where prefix has ended, with blocks that the host has and those behind them that
// the device still has.
func (t *blockTable) restore(blocks []int32, hash uint64, ids []int32, tag func(from, to int) string) ([]int32, uint64) {
	if t.host == nil {
		return blocks, hash
	}
	for n := len(blocks) * blockSize; n+blockSize < len(ids); n += blockSize {
		next, name := ids[n:n+blockSize], tag(n, n+blockSize)
		i, h, ok := t.take(hash, next, name)
		if !ok {
			from, _, kept := t.host.take(hash, next, name)
			if !kept {
				break
			}
			if i = t.alloc(); i < 0 {
				t.host.release([]int32{from})
				break
			}
			t.seal(i, hash, next, name)
			t.host.moves = append(t.host.moves, blockMove{device: i, host: from, back: true})
			t.host.tokens += blockSize
		}
		blocks, hash = append(blocks, i), h
	}
	return blocks, hash
}
