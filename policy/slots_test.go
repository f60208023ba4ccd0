package policy

import "testing"

// A snapshot goes with its block and when a slot is needed, the one unused longest first, and
// none that a sequence is about to begin with.
func TestSnapshotsGoWithTheirBlocksAndByAge(t *testing.T) {
	s := newSlotTable(4) // three slots
	var a, b stateUse
	snap := func(u *stateUse, tokens int, block int32) bool {
		if s.mark(u, tokens) == 0 {
			return false
		}
		s.attach(u, tokens, block, false)
		return true
	}
	s.take(&a, nil)
	if a.slot == 0 || a.from != 0 {
		t.Fatalf("a begins with %+v", a)
	}
	if !snap(&a, 8, 5) || !snap(&a, 16, 6) {
		t.Fatal("no slot for a snapshot")
	}
	if s.usable([]int32{5, 6, 7}) != 2 || s.usable([]int32{5, 9}) != 1 || s.usable([]int32{9}) != 0 {
		t.Error("the snapshots of the blocks are not found")
	}
	s.take(&b, []int32{5}) // needs a slot: block 6's goes, block 5's is pinned
	if b.from == 0 || b.slot == 0 || b.from == b.slot || s.usable([]int32{6}) != 0 {
		t.Errorf("b has %+v, the table %+v", b, s)
	}
	if s.room() || snap(&a, 24, 8) {
		t.Error("a slot was given away that a sequence is about to begin with")
	}
	s.began(&b)
	if !snap(&a, 24, 8) || s.usable([]int32{5}) != 0 {
		t.Error("an old snapshot stays where a new one needs its slot")
	}
	s.drop(8)
	if s.usable([]int32{8}) != 0 || len(s.free) != 1 {
		t.Error("a block that holds something else keeps its snapshot")
	}
	s.mark(&a, 32)
	s.abandon()
	s.release(&a)
	s.release(&b)
	if len(s.free) != 3 {
		t.Errorf("%d slots are free at the end", len(s.free))
	}
}

// With every slot taken a sequence begins in the slot of its snapshot itself.
func TestASequenceTakesOverItsSnapshotWhereNoSlotIsFree(t *testing.T) {
	s := newSlotTable(3)
	var a, b stateUse
	s.take(&a, nil)
	s.mark(&a, 8)
	s.attach(&a, 8, 5, false)
	s.take(&b, []int32{5})
	if b.slot == 0 || b.from != b.slot || b.slot == a.slot || s.usable([]int32{5}) != 0 {
		t.Errorf("b has %+v beside %+v", b, a)
	}
}
