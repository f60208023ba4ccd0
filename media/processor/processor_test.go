package processor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"agentcli/media"
	"agentcli/media/album"
	"agentcli/traj"
)

// aPNG is one red pixel.
var aPNG = []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00\x00\x00\x90wS\xde" +
	"\x00\x00\x00\x0cIDATx\x9cc\xf8\xcf\xc0\x00\x00\x03\x01\x01\x00\xc9\xfe\x92\xef\x00\x00\x00\x00IEND\xaeB`\x82")

func open(t *testing.T, settings string) *Processor {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "preprocessor_config.json"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTheGridOfAnImageIsThatOfItsPatches(t *testing.T) {
	p := open(t, `{"patch_size": 4, "min_pixels": 512, "max_pixels": 4096}`)
	im, err := album.Open(aPNG, "a.png", media.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	grid, tokens, err := p.Grid(im.Width, im.Height)
	if err != nil {
		t.Fatal(err)
	}
	patches, err := p.Patches(&im)
	if err != nil {
		t.Fatal(err)
	}
	if n := grid[0] * grid[1] * grid[2]; n*3*2*4*4 != len(patches) || tokens*4 != n || n*16 < 512 {
		t.Errorf("grid %v, %d tokens, %d numbers", grid, tokens, len(patches))
	}
	w, h, err := p.Size(im.Width, im.Height)
	if err != nil || w != grid[2]*4 || h != grid[1]*4 {
		t.Errorf("seen at %d × %d: %v", w, h, err)
	}
	if _, err := p.Patches(&traj.Image{Hash: im.Hash, Width: 1, Height: 1}); err == nil {
		t.Error("patches of an image without its file")
	}
}

func TestProcessorsOfOneRuleMakeTheSamePatches(t *testing.T) {
	a := open(t, `{"patch_size": 14}`)
	b, err := a.Within(0, 12544)
	if err != nil {
		t.Fatal(err)
	}
	if a.Rule() == b.Rule() || b.Rule() != open(t, `{"size": {"longest_edge": 12544, "shortest_edge": 3136}}`).Rule() {
		t.Errorf("%s, %s", a.Rule(), b.Rule())
	}
	if _, err := a.Within(20000, 100); err == nil {
		t.Error("bounds that exclude each other")
	}
	if _, err := Open(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder without settings: %v", err)
	}
}
