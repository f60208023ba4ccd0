package media

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentcli/internal/goldenfile"
)

// hashes are width, height and the SHA-256 of the pixels by Pillow 13, of each file that
// scripts/golden/images.py has put into testdata.
func hashes(t testing.TB) map[string][3]any {
	var all map[string][3]any
	goldenfile.Load(t, "hashes.json", &all)
	kinds := map[string]int{}
	for name := range all {
		kinds[filepath.Ext(name)]++
	}
	for _, kind := range []string{".png", ".bmp", ".gif", ".jpg", ".webp"} {
		if kinds[kind] < 20 {
			t.Fatalf("%d files of %s; scripts/golden/images.py makes them", kinds[kind], kind)
		}
	}
	return all
}

func read(t testing.TB, name string) []byte {
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPixelsEqualPillowsToTheByte(t *testing.T) {
	for name, want := range hashes(t) {
		m, err := Decode(read(t, name), Limits{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if float64(m.Width) != want[0] || float64(m.Height) != want[1] || len(m.Pix) != 3*m.Width*m.Height {
			t.Errorf("%s has %d × %d pixels and %d bytes, not %v × %v", name, m.Width, m.Height, len(m.Pix), want[0], want[1])
		}
		if m.Hash() != want[2] {
			t.Errorf("%s: the pixels differ", name)
		}
	}
}

// What stands behind the last pixel is not looked at, as Pillow does not.
func TestTrailingBytesChangeNothing(t *testing.T) {
	for name, want := range hashes(t) {
		m, err := Decode(append(read(t, name), strings.Repeat("\xff\x00trailing", 99)...), Limits{})
		if err != nil || m.Hash() != want[2] {
			t.Errorf("%s with bytes behind it: %v", name, err)
		}
	}
}

func TestAHeaderSaysTheSizeOfTheDecodedImage(t *testing.T) {
	formats := map[string]Format{".png": PNG, ".jpg": JPEG, ".gif": GIF, ".webp": WebP, ".bmp": BMP}
	for name, want := range hashes(t) {
		h, err := ReadHeader(read(t, name), Limits{})
		if err != nil || h.Format != formats[filepath.Ext(name)] || float64(h.Width) != want[0] || float64(h.Height) != want[1] {
			t.Errorf("%s: %+v, %v; want %v × %v", name, h, err, want[0], want[1])
		}
	}
}

// fuzz holds a decoder to: no panic; an image of its own size or an error of one line; no
// more pixels than the limit. The seeds are the files of its kind.
func fuzz(f *testing.F, kind string) {
	for name := range hashes(f) {
		if filepath.Ext(name) == kind {
			f.Add(read(f, name))
		}
	}
	f.Fuzz(func(t *testing.T, file []byte) { checkDecode(t, file) })
}

func FuzzPNG(f *testing.F)  { fuzz(f, ".png") }
func FuzzJPEG(f *testing.F) { fuzz(f, ".jpg") }
func FuzzGIF(f *testing.F)  { fuzz(f, ".gif") }
func FuzzBMP(f *testing.F)  { fuzz(f, ".bmp") }
func FuzzWebP(f *testing.F) { fuzz(f, ".webp") }
