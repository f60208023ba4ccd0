package parquet

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentcli/internal/malformed"
	"agentcli/traj"

	"github.com/google/go-cmp/cmp"
)

var beside = WriterConfig{Columns: []string{ColumnImages}, ImagesBeside: true}

// unnamed are rows without the paths of their images.
func unnamed(rows []*traj.Trajectory) []*traj.Trajectory {
	for _, t := range rows {
		for i := range t.Images {
			t.Images[i].Path = ""
		}
		for i := range t.Messages {
			for k := range t.Messages[i].Images {
				t.Messages[i].Images[k].Path = ""
			}
		}
	}
	return rows
}

func TestImagesBesideAFileComeBackWithItsRows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.parquet")
	rows := []*traj.Trajectory{seen("a"), seen("b")}
	file := noise(1, 1<<20)
	copy(file, "\x89PNG")
	big := imageOf(file, "big.png")
	rows[1].Messages[1].Images[1] = big
	rows[1].Images = nil
	rows[1].AddImages(rows[1].Messages)
	write(t, path, rows, beside)
	if rows[1].Messages[1].Images[1].Bytes == nil || rows[1].Images[0].Path != "pics/cat.png" {
		t.Fatal("writing took the images of the caller's rows")
	}
	if st, err := os.Stat(path); err != nil || st.Size() > 100<<10 {
		t.Errorf("the file holds images: %v, %v", st.Size(), err)
	}
	names, err := os.ReadDir(ImageFolder(path))
	if err != nil || len(names) != 3 {
		t.Errorf("%v, %v", names, err)
	}
	on, err := os.ReadFile(filepath.Join(filepath.Dir(path), "t.images", big.Hash+".png"))
	if err != nil || !bytes.Equal(on, file) {
		t.Error("the folder has another file", err)
	}
	got := read(t, path)
	if p := got[1].Images[1].Path; p != "t.images/"+big.Hash+".png" {
		t.Errorf("path %q", p)
	}
	if d := cmp.Diff(unnamed(rows), unnamed(got), same); d != "" {
		t.Errorf("(-wrote +read)\n%s", d)
	}
}

func TestAnImageBesideAFileThatIsGoneOrChangedIsAnError(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(file string) error
		want error
	}{
		"gone":       {os.Remove, malformed.Missing},
		"changed":    {func(file string) error { return os.WriteFile(file, []byte("a dog"), 0o600) }, malformed.Mismatch},
		"a folder":   {func(file string) error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o700)) }, malformed.Missing},
		"a link out": {func(file string) error { return errors.Join(os.Remove(file), os.Symlink("/etc/hostname", file)) }, malformed.Missing},
	} {
		path := filepath.Join(t.TempDir(), "t.parquet")
		row := seen("a")
		write(t, path, []*traj.Trajectory{row}, beside)
		if err := tc.do(filepath.Join(ImageFolder(path), row.Images[0].Hash)); err != nil {
			t.Fatal(err)
		}
		r, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		var got error
		for _, err := range r.Rows(t.Context()) {
			got = errors.Join(got, err)
		}
		r.Close()
		if !errors.Is(got, tc.want) || strings.Contains(got.Error(), "\n") {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestAFolderThatHasAnImageAlreadyIsHealed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.parquet")
	row := seen("a")
	write(t, path, []*traj.Trajectory{row}, beside)
	torn := filepath.Join(ImageFolder(path), row.Images[0].Hash)
	if err := os.WriteFile(torn, []byte("a c"), 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, path, []*traj.Trajectory{row}, beside)
	if d := cmp.Diff(unnamed([]*traj.Trajectory{row}), unnamed(read(t, path)), same); d != "" {
		t.Errorf("(-wrote +read)\n%s", d)
	}
}
