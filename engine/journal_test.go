package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"agentcli/traj"
)

func TestJournalResume(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, err := CreateJournal(path, "hash")
	if err != nil {
		t.Fatal(err)
	}
	var calls int
	var mu sync.Mutex
	failing := true
	model := func(ctx context.Context, req *traj.Request) (*traj.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		calls++
		if failing && strings.HasSuffix(req.Messages[0].Content, " 2") {
			return nil, errors.New("server gone")
		}
		return toolThenAnswer(ctx, req)
	}
	c := config(model)
	c.Journal, c.Samples = j, 2
	if all, s, err := play(t, c, 3); err != nil || len(all) != 6 || s.Errors != 2 {
		t.Fatal(len(all), s, err)
	}
	if _, err := OpenJournal(path, "hash", nil); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Fatalf("two runs in one journal: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := CreateJournal(path, "hash"); err == nil || !strings.Contains(err.Error(), "--resume") {
		t.Fatal(err)
	}
	if _, err := OpenJournal(path, "other", nil); !errors.Is(err, ErrOtherRun) || !strings.Contains(err.Error(), "other settings") {
		t.Fatal(err)
	}
	calls, failing = 0, false
	if j, err = OpenJournal(path, "hash", nil); err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	c.Journal = j
	all, s, err := play(t, c, 4)
	if err != nil || len(all) != 8 || s.Resumed != 4 || s.Errors != 0 || calls != 8 {
		t.Fatal(len(all), s, calls, err)
	}
	seen := map[string]bool{}
	for _, x := range all {
		if seen[x.ID] || x.Reward == nil || *x.Reward != 1 || len(x.Sequences) != 1 {
			t.Fatalf("%+v", x)
		}
		seen[x.ID] = true
	}
}

// TestJournalTorn cuts the file at every byte: what is whole is kept, and the
// journal goes on.
func TestJournalTorn(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "journal")
	j, err := CreateJournal(path, "h")
	if err != nil {
		t.Fatal(err)
	}
	var ends []int
	st, _ := os.Stat(path)
	head := int(st.Size())
	for i := range 3 {
		if err := j.Append(&traj.Trajectory{ID: fmt.Sprint(i), Termination: traj.Answered}); err != nil {
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
		j, err := OpenJournal(torn, "h", func(s string) { notices = append(notices, s) })
		if cut < head {
			if err == nil {
				t.Fatalf("cut at %d: no header, no error", cut)
			}
			continue
		}
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		want, clean := 0, cut == head
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
		if err := j.Append(&traj.Trajectory{ID: "new", Termination: traj.Answered}); err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		j, err = OpenJournal(torn, "h", func(s string) { t.Errorf("after mending: %s", s) })
		if err != nil || !j.Finished("new") {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		_ = j.Close()
	}
	// A flipped bit is found.
	bad := bytes.Clone(whole)
	bad[len(bad)-3] ^= 1
	flipped := filepath.Join(dir, "flipped")
	if err := os.WriteFile(flipped, bad, 0o644); err != nil {
		t.Fatal(err)
	}
	if j, err = OpenJournal(flipped, "h", nil); err != nil || j.Finished("2") || !j.Finished("1") {
		t.Fatal(err)
	}
	_ = j.Close()
}

func TestJournalConcurrent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, err := CreateJournal(path, "h")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			if err := j.Append(&traj.Trajectory{ID: fmt.Sprint(i), Termination: traj.Answered}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(&traj.Trajectory{}); err == nil {
		t.Fatal("a closed journal takes nothing")
	}
	j, err = OpenJournal(path, "h", nil)
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
	j, err := CreateJournal(path, "h")
	if err != nil {
		f.Fatal(err)
	}
	_ = j.Append(&traj.Trajectory{ID: "a", Termination: traj.Answered})
	_ = j.Close()
	whole, _ := os.ReadFile(path)
	f.Add(whole)
	f.Add([]byte("PAR1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "j")
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		j, err := OpenJournal(path, "h", func(string) {})
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
