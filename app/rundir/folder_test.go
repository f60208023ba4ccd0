package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"agentcli/internal/filesys"
	"agentcli/internal/filesys/faultfs"
)

// A power cut at any call leaves a run's settings whole: those of before, or, once
// WriteSettings has returned, those of now.
func TestSettingsSurviveAPowerCut(t *testing.T) {
	path := filepath.Join("run", ConfigFile)
	write := func(sys filesys.FS, limit int) error {
		return WriteSettings(sys, path, map[string]any{CommandKey: "rollout", "limit": limit})
	}
	want := func(limit int) string {
		b, err := MarshalSettings(map[string]any{CommandKey: "rollout", "limit": limit})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	const seeds = 50
	for seed := range uint64(seeds) {
		for at, done := 0, false; !done; at++ {
			sys := faultfs.New(seed)
			if err := write(sys, 1); err != nil {
				t.Fatal(err)
			}
			sys.Restart()
			if got := string(sys.Read(path)); got != want(1) {
				t.Fatalf("seed %d: new settings are %q after a power cut", seed, got)
			}
			sys.Fault = func(op faultfs.Op) error {
				if op.N == at {
					return faultfs.ErrCrashed
				}
				return nil
			}
			err := write(sys, 2)
			if done = err == nil && !sys.Crashed(); !done && !errors.Is(err, faultfs.ErrCrashed) {
				t.Fatalf("seed %d: a crash at call %d: %v", seed, at, err)
			}
			sys.Restart()
			if got := string(sys.Read(path)); got != want(2) && (done || got != want(1)) {
				t.Fatalf("seed %d: after a power cut at call %d the settings are %q", seed, at, got)
			}
		}
	}
}

// What a training run reads is kept beside its settings, as safely.
func TestTheListOfTrainingFilesSurvivesAPowerCut(t *testing.T) {
	data := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(data, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(50) {
		sys := faultfs.New(seed)
		if err := WriteInputs(sys, "run", map[string][]string{"data": {data}}); err != nil {
			t.Fatal(err)
		}
		whole := sys.Read(filepath.Join("run", InputsFile))
		sys.Restart()
		if got := sys.Read(filepath.Join("run", InputsFile)); len(got) == 0 || string(got) != string(whole) {
			t.Fatalf("seed %d: %q after a power cut, was %q", seed, got, whole)
		}
	}
}

// syncedFolders records which folders are synced.
type syncedFolders struct {
	filesys.FS
	list []string
}

func (s *syncedFolders) SyncDir(dir string) error {
	s.list = append(s.list, dir)
	return s.FS.SyncDir(dir)
}

// A folder's name is in its parent, and the parent's in its own: a new run is there
// after a power cut when all of them are synced.
func TestEveryNewFolderAboveARunIsSynced(t *testing.T) {
	top := t.TempDir()
	for _, c := range []struct {
		dir  string
		want []string
	}{
		{"run", []string{"."}},
		{"a/b/run", []string{"a/b", "a", "."}},
		{"a/c", []string{"a"}},
		{"a/c", []string{"a"}}, // an empty folder of the user's
	} {
		sys := &syncedFolders{FS: filesys.OS}
		if err := MakeFolder(sys, filepath.Join(top, c.dir)); err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, dir := range c.want {
			want = append(want, filepath.Join(top, dir))
		}
		if _, err := os.Stat(filepath.Join(top, c.dir)); err != nil || !slices.Equal(sys.list, want) {
			t.Errorf("%s: synced %q, want %q (%v)", c.dir, sys.list, want, err)
		}
	}
	t.Chdir(top)
	sys := &syncedFolders{FS: filesys.OS}
	if err := MakeFolder(sys, filepath.Join("runs", "x")); err != nil || !slices.Equal(sys.list, []string{"runs", "."}) {
		t.Errorf("a relative folder: synced %q, %v", sys.list, err)
	}
}
