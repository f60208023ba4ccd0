package parquet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"agentcli/internal/malformed"
	"agentcli/traj"

	"github.com/google/go-cmp/cmp"
)

func imageOf(file []byte, path string) traj.Image {
	sum := sha256.Sum256(file)
	return traj.Image{Hash: hex.EncodeToString(sum[:]), Path: path, Bytes: file, Width: 3, Height: 4}
}

func noise(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 0))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// seen is a trajectory with two files and a crop; text that looks like a place is none.
func seen(id string) *traj.Trajectory {
	cat, dog := imageOf([]byte("a cat"), "pics/cat.png"), imageOf([]byte{0, 255, 1}, "")
	crop := traj.Image{Hash: "c0ffee", Width: 2, Height: 1, Crop: &traj.Crop{Source: cat.Hash, Box: [4]int{1, 2, 3, 3}, File: cat.Bytes}}
	const mark = traj.ImageMark
	t := &traj.Trajectory{ID: id + "#0", Task: traj.Task{ID: id}, GroupID: id, Termination: traj.Answered,
		Messages: []traj.Message{
			{Role: "system", Content: "the word <image> and " + mark + " are text here"},
			{Role: "user", Content: mark + "Is <image> as " + mark + mark + "?", Images: []traj.Image{cat, dog, cat}},
			{Role: "assistant", ToolCalls: []traj.ToolCall{{ID: "1", Name: "zoom", Arguments: "{}"}}},
			{Role: "tool", Content: "see " + mark, ToolCallID: "1", Images: []traj.Image{crop}},
			{Role: "assistant", Content: "no"},
		},
		Sequences: []traj.Sequence{{TokenIDs: []int32{1, 9, 9, 2, 9, 3}, LossMask: []bool{false, false, false, false, false, true},
			Logprobs: []traj.Logprob{traj.NoLogprob(), traj.NoLogprob(), traj.NoLogprob(), traj.NoLogprob(), traj.NoLogprob(), -1},
			Images: []traj.ImageSpan{{Image: 0, Start: 1, Tokens: 2, Grid: [3]int{1, 2, 4}},
				{Image: 2, Start: 4, Tokens: 1, Grid: [3]int{1, 2, 2}}}}},
		StartedAt: samples()[0].StartedAt,
	}
	t.AddImages(t.Messages)
	return t
}

var withImages = WriterConfig{Columns: []string{ColumnImages}}

func TestImagesAndTheirPlacesComeBack(t *testing.T) {
	hidden := seen("hidden") // its history was rewritten: only the sequence still has the images
	hidden.Messages = hidden.Messages[:1]
	rows := append(samples(), seen("a"), hidden)
	for _, c := range []WriterConfig{withImages, {Columns: withImages.Columns, RowGroupRows: 1}} {
		path := filepath.Join(t.TempDir(), "t.parquet")
		write(t, path, rows, c)
		if d := cmp.Diff(rows, read(t, path), same); d != "" {
			t.Errorf("(-wrote +read)\n%s", d)
		}
		r, err := Open(path)
		if err != nil || r.Metadata().Schema != SchemaVersionImages {
			t.Fatalf("%+v, %v", r.Metadata(), err)
		}
		r.Close()
		part := read(t, path, "id", "messages")
		if d := cmp.Diff(rows[3].Messages, part[3].Messages, same); d != "" {
			t.Errorf("the column messages alone: (-wrote +read)\n%s", d)
		}
		part = read(t, path, "id", "sequences")
		if d := cmp.Diff(rows[3].Sequences, part[3].Sequences, same); d != "" {
			t.Errorf("the column sequences alone: (-wrote +read)\n%s", d)
		}
	}
}

func TestAFileWithoutImagesIsOfVersion1(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.parquet")
	write(t, path, samples(), WriterConfig{})
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.Metadata().Schema != SchemaVersion {
		t.Errorf("version %d", r.Metadata().Schema)
	}
	w, err := CreateFile(path, Metadata{}, WriterConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	if err := w.Write(seen("a")); !errors.Is(err, ErrNoColumn) {
		t.Errorf("%v: the images of a trajectory are lost", err)
	}
}

// The file was written by the program at c66e81f, the last one that wrote images so.
func TestImagesOfVersion1StandInFrontOfTheText(t *testing.T) {
	row := read(t, "testdata/v1_images.parquet")[0]
	m := row.Messages[1]
	if m.Content != traj.ImageMark+traj.ImageMark+"What is 12 * 7?" || len(m.Images) != 2 || m.Images[0].Path != "a.png" ||
		!bytes.Equal(m.Images[1].Bytes, []byte{0, 255, 1}) || len(row.Images) != 2 {
		t.Errorf("%+v", m)
	}
}

func TestARowGroupHasEachImageOnce(t *testing.T) {
	const images, attempts, size = 12, 8, 200_000
	path := filepath.Join(t.TempDir(), "t.parquet")
	c := WriterConfig{Columns: withImages.Columns, RowGroupBytes: 4 * size}
	w, err := CreateFile(path, Metadata{}, c) // the first file of a process has encoders made that stay
	if err == nil {
		err = w.Write(seen("a"))
	}
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		w, err = CreateFile(path, Metadata{}, c)
	}
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	settle := func(m *runtime.MemStats) { // what pools hold is let go of at the second collection
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(m)
	}
	settle(&before)
	most := uint64(0)
	for i := range images {
		im := imageOf(noise(uint64(i), size), "x.png")
		for k := range attempts {
			row := seen(fmt.Sprint(i, "-", k))
			row.Messages = []traj.Message{{Role: "user", Content: traj.ImageMark + "?", Images: []traj.Image{im}}}
			row.Sequences, row.Images = nil, []traj.Image{im}
			if err := w.Write(row); err != nil {
				t.Fatal(err)
			}
		}
		settle(&after)
		most = max(most, after.HeapAlloc-min(after.HeapAlloc, before.HeapAlloc))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if limit := int64(images * size * 105 / 100); st.Size() > limit {
		t.Errorf("%d bytes for %d images of %d bytes, %d attempts each", st.Size(), images, size, attempts)
	}
	t.Logf("%d bytes of file, at most %d of memory between two images", st.Size(), most)
	if most > (4+4)*size {
		t.Errorf("%d bytes in memory with row groups of %d", most, 4*size)
	}
	for _, row := range read(t, path) {
		if im := row.Messages[0].Images[0]; !bytes.Equal(im.Bytes, row.Images[0].Bytes) || len(im.Bytes) != size {
			t.Fatal("an image came back as another")
		}
	}
}

func TestWhatCannotBeWrittenIsAnErrorAndTheWriterGoesOn(t *testing.T) {
	for name, spoil := range map[string]func(*traj.Trajectory){
		"a place too many":      func(t *traj.Trajectory) { t.Messages[1].Content += traj.ImageMark },
		"an unlisted image":     func(t *traj.Trajectory) { t.Images = t.Images[1:] },
		"a span of no image":    func(t *traj.Trajectory) { t.Sequences[0].Images[1].Image = 3 },
		"spans that overlap":    func(t *traj.Trajectory) { t.Sequences[0].Images[1].Start = 2 },
		"a span behind the end": func(t *traj.Trajectory) { t.Sequences[0].Images[1].Tokens = 9 },
		"a span of the reply":   func(t *traj.Trajectory) { t.Sequences[0].Images[1].Tokens = 2 },
	} {
		path := filepath.Join(t.TempDir(), "t.parquet")
		w, err := CreateFile(path, Metadata{}, withImages)
		if err != nil {
			t.Fatal(err)
		}
		bad := seen("bad")
		spoil(bad)
		if err := w.Write(bad); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		if err := errors.Join(w.Write(seen("good")), w.Close()); err != nil {
			t.Errorf("%s: the writer does not go on: %v", name, err)
		}
	}
}

func TestAFileThatWasChangedIsFoundByItsHash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.parquet")
	row := seen("a")
	row.Images[0].Hash = strings.Repeat("0", 64)
	for i := range row.Messages {
		for k := range row.Messages[i].Images {
			if im := &row.Messages[i].Images[k]; im.Path != "" {
				im.Hash = row.Images[0].Hash
			}
		}
	}
	write(t, path, []*traj.Trajectory{seen("b"), row}, withImages)
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n := 0
	for _, err = range r.Rows(context.Background()) {
		n++
	}
	if facts := malformed.Facts(err); facts.Kind != malformed.Mismatch || facts.Row != 2 || n != 2 {
		t.Errorf("%v after %d rows", err, n)
	}
}

func TestOtherReadersSeeTheImages(t *testing.T) {
	python := os.Getenv("AGENTCLI_PYTHON")
	if python == "" {
		t.Skip("set AGENTCLI_PYTHON to a python with pyarrow, duckdb and polars to compare with them")
	}
	names := []string{"../media/testdata/0001.jpg", "../media/testdata/0001.webp"}
	var files [2]traj.Image
	for i, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[i] = imageOf(b, filepath.Base(name))
	}
	row := seen("a")
	real := func(all []traj.Image) {
		for i := range all {
			switch im := &all[i]; {
			case im.Crop != nil:
				im.Crop.Source, im.Crop.File = files[0].Hash, files[0].Bytes
			case im.Path != "":
				*im = files[0]
			default:
				*im = files[1]
			}
		}
	}
	real(row.Images)
	for i := range row.Messages {
		real(row.Messages[i].Images)
	}
	second := *row
	second.ID, second.Attempt = "a#1", 1
	path := filepath.Join(t.TempDir(), "t.parquet")
	write(t, path, []*traj.Trajectory{row, &second}, withImages)
	cmd := exec.Command(python, append([]string{"testdata/image_readers.py", path}, names...)...)
	cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "POLARS_MAX_THREADS=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("read by %s", out)
}
