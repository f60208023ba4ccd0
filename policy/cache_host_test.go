package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// What a sequence finds is what its tokens had written there, however often blocks went to the
// host and came back.
func TestBlocksComeBackFromTheHostWithWhatTheyHeld(t *testing.T) {
	for _, onHost := range []int{1, 3, 40} {
		t.Run(fmt.Sprint(onHost), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, uint64(onHost)))
			table := newBlockTable(24)
			table.host = newHostTable(onHost, table)
			device, host := make([]string, 24), make([]string, onHost)
			tag := func(int, int) string { return "" }
			type held struct {
				blocks []int32
				ids    []int32
			}
			var running []held
			back := 0
			for step := range 3000 {
				for len(running) > 0 && (len(running) == 3 || r.IntN(3) == 0) { // one ends
					k := r.IntN(len(running))
					table.release(running[k].blocks)
					running = slices.Delete(running, k, k+1)
				}
				ids := make([]int32, 8+r.IntN(56)) // one of few texts, up to a point
				for i := range ids {
					ids[i] = int32(step % 7)
				}
				if r.IntN(4) == 0 {
					ids[r.IntN(len(ids))] = 99
				}
				blocks, hash := table.prefix(ids, tag)
				found := len(blocks)
				blocks, hash = table.restore(blocks, hash, ids, tag)
				back += len(blocks) - found
				full := len(blocks)
				for len(blocks)*blockSize < len(ids) {
					b := table.alloc()
					if b < 0 {
						break
					}
					blocks = append(blocks, b)
				}
				for _, m := range table.host.moves { // the step
					if m.back {
						device[m.device] = host[m.host]
					} else {
						host[m.host] = device[m.device]
					}
				}
				table.host.moved()
				for k, b := range blocks {
					want := fmt.Sprint(ids[:min((k+1)*blockSize, len(ids))])
					if k < full && device[b] != want {
						t.Fatalf("step %d: block %d holds %s, not %s", step, k, device[b], want)
					}
					device[b] = want
					if k >= full && (k+1)*blockSize <= len(ids) {
						hash = table.seal(b, hash, ids[k*blockSize:(k+1)*blockSize], "")
					}
				}
				if running = append(running, held{blocks, ids}); r.IntN(200) == 0 {
					table.forget()
				}
			}
			for _, q := range running {
				table.release(q.blocks)
			}
			if table.available() != 24 || table.host.available() != onHost {
				t.Errorf("%d of 24 and %d of %d blocks are free at the end", table.available(), table.host.available(), onHost)
			}
			if back < 50*min(onHost, 4) {
				t.Errorf("%d blocks came back", back)
			}
		})
	}
}

// Where the host has room for nothing more, what it was to keep is lost, and nothing else.
func TestAHostThatIsFullForgets(t *testing.T) {
	table := newBlockTable(2)
	table.host = newHostTable(1, table)
	tag := func(int, int) string { return "" }
	ids := slices.Repeat([]int32{1}, 3*blockSize)
	var hash uint64
	for k := range 2 {
		hash = table.seal(table.alloc(), hash, ids[k*blockSize:(k+1)*blockSize], "")
	}
	table.release([]int32{0, 1})
	table.alloc()
	table.alloc()
	if len(table.host.moves) != 1 {
		t.Fatalf("%d moves to a host of one block", len(table.host.moves))
	}
	table.release([]int32{0, 1})
	table.host.moved()
	// Block 1 went first, and was kept; without block 0 before it, it is of no use.
	if blocks, _ := table.restore(nil, 0, ids, tag); len(blocks) != 0 {
		t.Errorf("%d blocks came back", len(blocks))
	}
}
