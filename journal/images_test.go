package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"agentcli/traj"

	"github.com/google/go-cmp/cmp"
)

// looking is attempt n at a task with a file of its own seed and a crop of it.
func looking(task uint64, attempt int) *traj.Trajectory {
	file := make([]byte, 100_000)
	rng := rand.New(rand.NewPCG(task, 0))
	for i := range file {
		file[i] = byte(rng.Uint32())
	}
	sum := sha256.Sum256(file)
	im := traj.Image{Hash: hex.EncodeToString(sum[:]), Path: "a.png", Bytes: file, Width: 3, Height: 4}
	crop := traj.Image{Hash: "c0ffee", Width: 2, Height: 1, Crop: &traj.Crop{Source: im.Hash, Box: [4]int{1, 2, 3, 3}, File: file}}
	asked := []traj.Message{{Role: "user", Content: traj.ImageMark + "?", Images: []traj.Image{im}}}
	return &traj.Trajectory{ID: fmt.Sprintf("%d#%d", task, attempt), Attempt: attempt, Task: traj.Task{ID: fmt.Sprint(task), Messages: asked},
		Messages: append(asked[:1:1], traj.Message{Role: "tool", Content: traj.ImageMark, Images: []traj.Image{crop}}),
		Images:   []traj.Image{im, crop}, Termination: traj.Answered}
}

func TestAJournalHasEachImageOnceAndGivesItBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, err := create(path)
	if err != nil {
		t.Fatal(err)
	}
	const tasks, attempts = 6, 8
	var wg sync.WaitGroup
	for i := range tasks * attempts {
		wg.Go(func() {
			if _, err := j.Append(looking(uint64(i%tasks), i/tasks)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	check := func(j *Journal) {
		t.Helper()
		n := 0
		err := j.Replay(func(got *traj.Trajectory) error {
			var task uint64
			var attempt int
			if _, err := fmt.Sscanf(got.ID, "%d#%d", &task, &attempt); err != nil {
				return err
			}
			if d := cmp.Diff(looking(task, attempt), got, cmp.Comparer(bytes.Equal)); d != "" {
				t.Fatalf("(-wrote +read)\n%s", d)
			}
			n++
			return j.SameTask(got.ID, &got.Task)
		})
		if err != nil || n != tasks*attempts {
			t.Fatalf("%d trajectories, %v", n, err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	kinds, size := recordsByKind(t, path)
	if want := map[byte]int{kindHeader: kinds[kindHeader], kindImage: tasks, kindLooking: tasks * attempts}; !maps.Equal(kinds, want) {
		t.Fatalf("records %v, want %v", kinds, want)
	}
	if size[kindImage] > tasks*105_000 {
		t.Fatalf("%d bytes for %d images of 100,000 bytes", size[kindImage], tasks)
	}
	if j, err = open(path, func(s string) { t.Error(s) }); err != nil {
		t.Fatal(err)
	}
	check(j)
	at, err := j.Append(looking(3, 99)) // of an image that is there
	if err != nil {
		t.Fatal(err)
	}
	if got, err := j.At(at); err != nil || !bytes.Equal(got.Images[0].Bytes, looking(3, 99).Images[0].Bytes) {
		t.Fatalf("%v", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(path); err != nil || after.Size() > st.Size()+5000 {
		t.Errorf("an image is written a second time: %d bytes more, %v", after.Size()-st.Size(), err)
	}
}

// recordsByKind are how many records of each kind a file has, and their bytes.
func recordsByKind(t *testing.T, path string) (n, size map[byte]int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n, size = map[byte]int{}, map[byte]int{}
	w := &window{r: bytes.NewReader(b), size: int64(len(b))}
	for at := int64(0); at < w.size; {
		rec, ok, err := w.record(&layoutV2, at)
		if err != nil || !ok {
			t.Fatalf("no record at byte %d, %v", at, err)
		}
		kind := rec.body[0]
		n[kind]++
		size[kind] += int(rec.end - rec.at)
		at = rec.end
	}
	return n, size
}

// A trajectory whose image cannot be read is played again; no other is.
func TestADamagedImageTakesItsTrajectoriesAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, err := create(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 9 {
		if _, err := j.Append(looking(uint64(i%3), i/3)); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(whole, looking(1, 0).Images[0].Bytes)
	whole[at+500] ^= 1
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	for round := range 2 { // the file is rewritten at the first
		told := 0
		if j, err = open(path, func(string) { told++ }); err != nil {
			t.Fatal(err)
		}
		if told != 1-round {
			t.Errorf("%d notices of the damage, round %d", told, round)
		}
		n := 0
		if err := j.Replay(func(got *traj.Trajectory) error {
			n++
			if got.Task.ID == "1" {
				t.Errorf("%s has lost its image", got.ID)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if n != 6 || j.Finished("1#0") || !j.Finished("2#0") {
			t.Errorf("%d trajectories, finished: %v, %v", n, j.Finished("1#0"), j.Finished("2#0"))
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
