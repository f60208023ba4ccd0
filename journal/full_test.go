//go:build unix

package journal

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"agentcli/traj"

	"github.com/google/go-cmp/cmp"
)

// fullJournal, in the environment, makes this test the child that fills a journal.
const fullJournal = "AGENTCLI_TEST_FULL_JOURNAL"

// Where a journal's disk is full, what it said is on disk is there, and nothing is
// there that it said is not: of records that were written together as well.
func TestAFullJournalKeepsExactlyWhatItSaidItKept(t *testing.T) {
	if path := os.Getenv(fullJournal); path != "" {
		fillJournal(t, path)
		return
	}
	path := filepath.Join(t.TempDir(), "journal")
	cmd := exec.Command("sh", "-c", `ulimit -f 64 && exec "$0" -test.run '^TestAFullJournal'`, os.Args[0])
	cmd.Env = append(os.Environ(), fullJournal+"="+path)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var said, kept []string
	for _, line := range strings.Split(string(out), "\n") {
		if id, ok := strings.CutPrefix(line, "kept "); ok {
			said = append(said, id)
		}
	}
	j, err := open(path, func(s string) { t.Errorf("a torn record is left behind: %s", s) })
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if err := j.Replay(func(x *traj.Trajectory) error { kept = append(kept, x.ID); return nil }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(said)
	slices.Sort(kept)
	if diff := cmp.Diff(said, kept); diff != "" || len(kept) < 3 {
		t.Errorf("%d kept: %s", len(kept), diff)
	}
	if _, err := j.Append(&traj.Trajectory{ID: "later"}); err != nil { // there is room again
		t.Error(err)
	}
}

func fillJournal(t *testing.T, path string) {
	signal.Ignore(syscall.SIGXFSZ)
	j, err := create(path)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	failed := 0
	for i := range 256 { // at once, so that many are written together
		all.Go(func() {
			x := &traj.Trajectory{ID: fmt.Sprint("t", i), Termination: traj.Answered, Error: strings.Repeat("x", 500)}
			_, err := j.Append(x)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed++
				return
			}
			fmt.Println("kept", x.ID)
		})
	}
	all.Wait()
	if failed == 0 {
		t.Error("there was room for all")
	}
	_ = j.Close()
}
