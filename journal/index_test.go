package journal

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"agentcli/traj"
)

// TestTheIndexIsAMap: whatever is put, forgotten and put again, also where many ids
// have one hash, it says what a map says.
func TestTheIndexIsAMap(t *testing.T) {
	for name, hash := range map[string]func(string) uint64{
		"hashes":         hash64,
		"eight hashes":   func(s string) uint64 { return hash64(s) % 8 },
		"one hash":       func(string) uint64 { return 7 },
		"hashes of zero": func(string) uint64 { return 0 },
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 9))
			ids := map[int64]string{} // the journal
			f := newIndex(func(at int64) (string, error) { return ids[at], nil })
			f.hash = hash
			want := map[string]int64{}
			check := func(f *Index, want map[string]int64) {
				t.Helper()
				var all []int64
				for i := range 300 {
					id := fmt.Sprint("task/", i)
					if f.Offset(id) != want[id] {
						t.Fatalf("%s is at %d, want %d", id, f.Offset(id), want[id])
					}
					if want[id] > 0 {
						all = append(all, want[id])
					}
				}
				slices.Sort(all)
				if !slices.Equal(f.Offsets(), all) || f.Len() != len(all) {
					t.Fatalf("%d are left, %d counted, want %d", len(f.Offsets()), f.Len(), len(all))
				}
			}
			check(f, want)
			for at := int64(100); at < 2100; at += 2 {
				id := fmt.Sprint("task/", rng.IntN(300))
				if rng.IntN(3) == 0 {
					f.Forget(id)
					delete(want, id)
					continue
				}
				ids[at] = id
				f.put(id, at)
				if f.Offset(id) != at {
					t.Fatal(id, "is not where it was put")
				}
				want[id] = at
			}
			check(f, want)
			c := f.clone()
			for i := range 300 {
				c.Forget(fmt.Sprint("task/", i))
			}
			check(c, map[string]int64{})
			check(f, want)
		})
	}
}

// TestAFinishedTrajectoryTakesTwentyFourBytes of a run that is resumed.
func TestAFinishedTrajectoryTakesTwentyFourBytes(t *testing.T) {
	live := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what pools held goes in the second
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const n = 200_000
	before := live()
	f := newIndex(nil)
	for i := range n {
		f.put(fmt.Sprint("task/", i, "#0"), int64(i+1)*100)
	}
	if each := float64(live()-before) / n; each > 24 || each < 16 {
		t.Errorf("a trajectory takes %.1f bytes", each)
	}
	runtime.KeepAlive(f)
}

// TestTheJournalKnowsAnIDAgain: however it is written in JSON, and however long it is.
func TestTheJournalKnowsAnIDAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, err := create(path)
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int64{}
	for _, id := range []string{"a#0", "", "ä \"quoted\" <b>\n#0", `back\slash`, strings.Repeat("long", 200), "last#1"} {
		if at[id], err = j.Append(&traj.Trajectory{ID: id, Termination: traj.Answered}); err != nil {
			t.Fatal(err)
		}
	}
	for id, offset := range at {
		if got, err := j.idAt(offset); err != nil || got != id {
			t.Errorf("%q %v, want %q", got, err, id)
		}
	}
	if _, err := j.idAt(3); err == nil {
		t.Error("an id where there is no record")
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if j, err = open(path, nil); err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	j.index.hash = func(string) uint64 { return 0 } // of no id in it
	if j.index.Offset("other#0") > 0 {
		t.Error("an id that it never had")
	}
	j.index = newIndex(j.idAt)
	j.index.hash = func(string) uint64 { return 0 } // of every id
	if err := j.load(); err != nil {
		t.Fatal(err)
	}
	for id := range at {
		if j.index.Offset(id) == 0 {
			t.Errorf("%q is lost", id)
		}
	}
	if j.index.Offset("other#0") > 0 || j.index.n != len(at) {
		t.Errorf("an id that it never had, or %d of %d", j.index.n, len(at))
	}
}
