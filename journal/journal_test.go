package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"agentcli/internal/filesys"
	"agentcli/traj"
)

// TestJournalTorn cuts the file at every byte: what is whole is kept, and the
// journal goes on.
func TestJournalTorn(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "journal")
	j, err := create(path)
	if err != nil {
		t.Fatal(err)
	}
	var ends []int
	st, _ := os.Stat(path)
	head := int(st.Size()) // two copies of the header
	for i := range 3 {
		if _, err := j.Append(&traj.Trajectory{ID: fmt.Sprint(i), Termination: traj.Answered}); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, int(st.Size()))
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := 0; cut <= len(whole); cut += 7 {
		torn := filepath.Join(dir, fmt.Sprint("torn", cut))
		if err := os.WriteFile(torn, whole[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		var notices []string
		j, err := open(torn, func(s string) { notices = append(notices, s) })
		if cut < head/2 {
			if err == nil {
				t.Fatalf("cut at %d: no header, no error", cut)
			}
			continue
		}
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		want, clean := 0, cut == head || cut == head/2
		for _, e := range ends {
			if cut >= e {
				want++
			}
			clean = clean || cut == e
		}
		got := 0
		if err := j.Replay(func(*traj.Trajectory) error { got++; return nil }); err != nil {
			t.Fatal(err)
		}
		if got != want || (len(notices) == 0) != clean {
			t.Fatalf("cut at %d: %d records, want %d; notices %q", cut, got, want, notices)
		}
		if _, err := j.Append(&traj.Trajectory{ID: "new", Termination: traj.Answered}); err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		j, err = open(torn, func(s string) { t.Errorf("after mending: %s", s) })
		if err != nil || j.index.Offset("new") == 0 {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		_ = j.Close()
	}
}

func create(path string) (*Journal, error) {
	return Create(filesys.OS, path, Header{Config: "h"}, nil)
}

func open(path string, notice func(string)) (*Journal, error) {
	return Open(filesys.OS, path, Header{Config: "h"}, notice)
}

func TestJournalConcurrent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, err := create(path)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			if _, err := j.Append(&traj.Trajectory{ID: fmt.Sprint(i), Termination: traj.Answered}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Append(&traj.Trajectory{}); err == nil {
		t.Fatal("a closed journal takes nothing")
	}
	j, err = open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	n := 0
	if err := j.Replay(func(*traj.Trajectory) error { n++; return nil }); err != nil || n != 200 {
		t.Fatal(n, err)
	}
}

func FuzzJournal(f *testing.F) {
	path := filepath.Join(f.TempDir(), "journal")
	j, err := create(path)
	if err != nil {
		f.Fatal(err)
	}
	_, _ = j.Append(&traj.Trajectory{ID: "a", Termination: traj.Answered})
	_ = j.Close()
	whole, _ := os.ReadFile(path)
	f.Add(whole)
	f.Add([]byte("PAR1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "j")
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		j, err := open(path, func(string) {})
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("%v", err)
			}
			return
		}
		_ = j.Replay(func(*traj.Trajectory) error { return nil })
		_ = j.Close()
	})
}
