package policy

import (
	"encoding/binary"
	"hash/maphash"
)

// blockTable hands out the blocks of the paged key-value cache and remembers
// the contents of full ones, so that a prompt that starts like an earlier one
// finds its keys and values computed (as vLLM's automatic prefix caching). A
// block that no sequence holds keeps its contents until it is needed; the one
// unused longest goes first. Not safe for concurrent use.
type blockTable struct {
	seed   maphash.Seed
	blocks []block
	byHash map[uint64]int32
	free   lru
	host   *hostTable // nil: what is forgotten is lost
}

type block struct {
	refs   int
	hash   uint64 // 0: not full, or forgotten
	parent uint64 // hash of the block before, 0 at the start
	tokens []int32
	tag    string // of what else decides the contents (sequence.tag)
	prev   int32  // in the free list
	next   int32
}

// lru is a doubly linked list of free blocks through block.prev and next.
type lru struct{ head, tail, n int32 }

func newBlockTable(n int) *blockTable {
	t := &blockTable{seed: maphash.MakeSeed(), blocks: make([]block, n), byHash: map[uint64]int32{}, free: lru{-1, -1, 0}}
	for i := range t.blocks {
		t.pushFree(int32(i))
	}
	return t
}

func (t *blockTable) pushFree(i int32) {
	b := &t.blocks[i]
	b.prev, b.next = t.free.tail, -1
	if t.free.tail >= 0 {
		t.blocks[t.free.tail].next = i
	} else {
		t.free.head = i
	}
	t.free.tail = i
	t.free.n++
}

func (t *blockTable) dropFree(i int32) {
	b := &t.blocks[i]
	if b.prev >= 0 {
		t.blocks[b.prev].next = b.next
	} else {
		t.free.head = b.next
	}
	if b.next >= 0 {
		t.blocks[b.next].prev = b.prev
	} else {
		t.free.tail = b.prev
	}
	t.free.n--
}

func (t *blockTable) available() int { return int(t.free.n) }

func (t *blockTable) hash(parent uint64, tokens []int32, tag string) uint64 {
	var h maphash.Hash
	h.SetSeed(t.seed)
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], parent)
	h.Write(b[:])
	for _, id := range tokens {
		binary.LittleEndian.PutUint32(b[:4], uint32(id))
		h.Write(b[:4])
	}
	h.WriteString(tag)
	if v := h.Sum64(); v != 0 {
		return v
	}
	return 1
}

// lookup finds the block that holds these tokens, with this tag, after the given
// prefix. The contents are compared: a hash may collide, wrong keys and values may not.
func (t *blockTable) lookup(parent uint64, tokens []int32, tag string) (int32, uint64, bool) {
	h := t.hash(parent, tokens, tag)
	i, ok := t.byHash[h]
	if !ok {
		return 0, h, false
	}
	b := &t.blocks[i]
	if b.parent != parent || b.tag != tag || len(b.tokens) != len(tokens) {
		return 0, h, false
	}
	for k, id := range tokens {
		if b.tokens[k] != id {
			return 0, h, false
		}
	}
	return i, h, true
}

// prefix takes hold of the blocks that hold a prefix of ids, never all of ids:
// the last token's logits have to be computed. It returns them and the hash of
// the last one.
func (t *blockTable) prefix(ids []int32, tag func(from, to int) string) (blocks []int32, hash uint64) {
	for n := 0; n+blockSize < len(ids); n += blockSize {
		i, h, ok := t.take(hash, ids[n:n+blockSize], tag(n, n+blockSize))
		if !ok {
			break
		}
		blocks, hash = append(blocks, i), h
	}
	return blocks, hash
}

// take is lookup that takes hold of what it finds.
func (t *blockTable) take(parent uint64, tokens []int32, tag string) (int32, uint64, bool) {
	i, h, ok := t.lookup(parent, tokens, tag)
	if ok {
		if t.blocks[i].refs == 0 {
			t.dropFree(i)
		}
		t.blocks[i].refs++
	}
	return i, h, ok
}

// alloc takes a free block, forgetting what it held; -1 if there is none.
func (t *blockTable) alloc() int32 {
	i := t.free.head
	if i < 0 {
		return -1
	}
	t.dropFree(i)
	b := &t.blocks[i]
	if found, ok := t.byHash[b.hash]; ok && found == i {
		t.host.save(i, b)
		delete(t.byHash, b.hash)
	}
	b.refs, b.hash, b.parent, b.tokens, b.tag = 1, 0, 0, b.tokens[:0], ""
	return i
}

// seal records the contents of a full block, so that others can share it. It
// returns the hash that the next block of the sequence names as its parent.
func (t *blockTable) seal(i int32, parent uint64, tokens []int32, tag string) uint64 {
	h := t.hash(parent, tokens, tag)
	b := &t.blocks[i]
	b.hash, b.parent, b.tag = h, parent, tag
	b.tokens = append(b.tokens[:0], tokens...)
	if _, taken := t.byHash[h]; !taken {
		t.byHash[h] = i
	}
	return h
}

// forget has nothing that is held now be found again.
func (t *blockTable) forget() {
	clear(t.byHash)
	t.host.forget()
}

// release lets go of a sequence's blocks, the last first: a prefix is worth
// more than what follows it.
func (t *blockTable) release(blocks []int32) {
	for k := len(blocks) - 1; k >= 0; k-- {
		b := &t.blocks[blocks[k]]
		if b.refs--; b.refs == 0 {
			t.pushFree(blocks[k])
		}
	}
}
