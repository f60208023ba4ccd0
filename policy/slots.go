package policy

import "slices"

// slotTable hands out the slots of the recurrent layers' states: one to each running
// sequence, the rest to snapshots, which are states at the end of a full block of the cache.
// A sequence that shares a prefix begins at the last block that has one. A snapshot goes with
// its block, or when a slot is needed and it was not used for longest. Slot 0 is the state of
// an empty text. A nil table is of a model without such layers. Not safe for concurrent use.
type slotTable struct {
	all       int
	free      []int32
	snapshots map[int32]*snapshot // by slot
	byBlock   map[int32]int32     // block → slot
	pending   []snapshotMark      // of the step that runs
	clock     int64
}

type snapshot struct {
	block int32
	pins  int   // sequences whose next step begins with it
	used  int64 // by the clock
}

// snapshotMark is a state that a step puts into a slot: after the first `tokens` of a sequence.
type snapshotMark struct {
	seq    *stateUse
	tokens int
	slot   int32
}

// stateUse is what a sequence has of the table.
type stateUse struct {
	slot   int32 // of its own states; 0: none
	from   int32 // what its next step begins with: its own slot, a snapshot's, or 0
	shared int   // tokens that are in the cache for others, where a snapshot would be of use
	newest int32 // the slot of the snapshot behind its newest tokens, and
	age    int64 // when it was taken: the slot may be another's since
}

func newSlotTable(n int) *slotTable {
	t := &slotTable{all: n}
	t.forget()
	return t
}

// forget empties the table. No sequence may have a slot.
func (t *slotTable) forget() {
	if t == nil {
		return
	}
	t.snapshots, t.byBlock, t.pending, t.free = map[int32]*snapshot{}, map[int32]int32{}, nil, nil
	for i := int32(t.all) - 1; i > 0; i-- {
		t.free = append(t.free, i)
	}
}

// oldest is the snapshot that would go first; 0: none can.
func (t *slotTable) oldest() (slot int32) {
	for at, x := range t.snapshots {
		if x.pins == 0 && (slot == 0 || x.used < t.snapshots[slot].used) {
			slot = at
		}
	}
	return slot
}

// room reports whether another sequence can run.
func (t *slotTable) room() bool { return t == nil || len(t.free) > 0 || t.oldest() > 0 }

// alloc takes a slot; 0: there is none.
func (t *slotTable) alloc() int32 {
	if len(t.free) == 0 {
		old := t.oldest()
		if old == 0 {
			return 0
		}
		t.drop(t.snapshots[old].block)
	}
	i := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	return i
}

// drop forgets the snapshot of a block that is to hold something else.
func (t *slotTable) drop(block int32) {
	if t == nil {
		return
	}
	if slot, ok := t.byBlock[block]; ok {
		delete(t.byBlock, block)
		delete(t.snapshots, slot)
		t.free = append(t.free, slot)
	}
}

// usable is how many of the blocks of a shared prefix a sequence can begin behind.
func (t *slotTable) usable(blocks []int32) int {
	if t == nil {
		return len(blocks)
	}
	n := len(blocks)
	for n > 0 {
		if _, ok := t.byBlock[blocks[n-1]]; ok {
			break
		}
		n--
	}
	return n
}

// take gives a sequence that begins behind these blocks a slot.
func (t *slotTable) take(u *stateUse, blocks []int32) {
	if t == nil {
		return
	}
	if u.from = 0; len(blocks) > 0 {
		u.from = t.byBlock[blocks[len(blocks)-1]]
		t.clock++
		t.snapshots[u.from].pins++
		t.snapshots[u.from].used = t.clock
	}
	if u.slot = t.alloc(); u.slot == 0 { // nothing is free but what it begins with
		u.slot = u.from
		block := t.snapshots[u.from].block
		delete(t.byBlock, block)
		delete(t.snapshots, u.from)
	}
}

// began says that a sequence has states of its own now.
func (t *slotTable) began(u *stateUse) {
	if t == nil {
		return
	}
	if x := t.snapshots[u.from]; x != nil && u.from != u.slot {
		x.pins--
	}
	u.from = u.slot
}

// release takes a sequence's slot back.
func (t *slotTable) release(u *stateUse) {
	if t == nil || u.slot == 0 {
		return
	}
	t.began(u)
	t.free = append(t.free, u.slot)
	*u = stateUse{}
}

// mark plans a snapshot in the step that is being put together; 0: there is no slot for it.
func (t *slotTable) mark(u *stateUse, tokens int) int32 {
	slot := t.alloc()
	if slot > 0 {
		t.pending = append(t.pending, snapshotMark{u, tokens, slot})
	}
	return slot
}

// attach gives the block that ends behind a sequence's first tokens its snapshot, where the
// step has taken one. With newest the one
// before it that was its newest is forgotten.
func (t *slotTable) attach(u *stateUse, tokens int, block int32, newest bool) {
	if t == nil {
		return
	}
	for i, m := range t.pending {
		if m.seq != u || m.tokens != tokens {
			continue
		}
		t.pending = slices.Delete(t.pending, i, i+1)
		if _, has := t.byBlock[block]; has {
			t.free = append(t.free, m.slot)
			return
		}
		t.clock++
		t.snapshots[m.slot], t.byBlock[block] = &snapshot{block: block, used: t.clock}, m.slot
		if newest {
			if x := t.snapshots[u.newest]; x != nil && x.pins == 0 && x.used == u.age { // nobody has begun there
				t.drop(x.block)
			}
			u.newest, u.age = m.slot, t.clock
		}
		return
	}
}

// abandon frees the slots of snapshots that were not taken: the step failed.
func (t *slotTable) abandon() {
	for _, m := range t.pending {
		t.free = append(t.free, m.slot)
	}
	t.pending = nil
}
