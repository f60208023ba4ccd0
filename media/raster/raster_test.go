package raster

import (
	"errors"
	"slices"
	"testing"

	"agentcli/internal/malformed"
)

// letters is an image whose pixels have a letter in each channel.
func letters(width int, pixels string) *Image {
	m := New(width, len(pixels)/width)
	for i := range len(pixels) {
		m.Pix[3*i], m.Pix[3*i+1], m.Pix[3*i+2] = pixels[i], pixels[i], pixels[i]
	}
	return m
}

func text(m *Image) string {
	var b []byte
	for i := 0; i < len(m.Pix); i += 3 {
		b = append(b, m.Pix[i])
	}
	return string(b)
}

// What Pillow's exif_transpose makes of
//
//	a b c
//	d e f
func TestOrientationTurnsAsPillowDoes(t *testing.T) {
	for orientation, want := range map[int]string{0: "abcdef", 1: "abcdef", 2: "cbafed", 3: "fedcba", 4: "defabc",
		5: "adbecf", 6: "daebfc", 7: "fcebda", 8: "cfbead", 9: "abcdef", -1: "abcdef"} {
		m := letters(3, "abcdef").Oriented(orientation)
		width := 3
		if orientation >= 5 && orientation <= 8 {
			width = 2
		}
		if text(m) != want || m.Width != width || m.Height != 6/width {
			t.Errorf("%d: %q, %d × %d; want %q", orientation, text(m), m.Width, m.Height, want)
		}
	}
}

func TestACropIsItsRectangle(t *testing.T) {
	m, err := letters(3, "abcdef").Crop(1, 0, 3, 2)
	if err != nil || text(m) != "bcef" || m.Width != 2 || m.Height != 2 {
		t.Fatalf("%+v, %v", m, err)
	}
	m.Pix[0] = 'x' // it is a copy
	for _, box := range [][4]int{{-1, 0, 2, 2}, {0, 0, 4, 2}, {0, 0, 3, 3}, {2, 0, 2, 1}, {2, 1, 1, 2}, {0, -1, 1, 1}, {1 << 62, 0, 1, 1}} {
		if _, err := letters(3, "abcdef").Crop(box[0], box[1], box[2], box[3]); !errors.Is(err, malformed.Range) {
			t.Errorf("%v: %v, want %v", box, err, malformed.Range)
		}
	}
}

// 65,536 pairs against PIL's alpha_composite in the files of package media; here the ends.
func TestTransparencyIsWhite(t *testing.T) {
	for s := range 256 {
		if OverWhite(byte(s), 255) != byte(s) || OverWhite(byte(s), 0) != 255 {
			t.Errorf("%d: %d opaque, %d transparent", s, OverWhite(byte(s), 255), OverWhite(byte(s), 0))
		}
	}
}

func TestLimitsDoNotOverflow(t *testing.T) {
	l := Limits{Pixels: 1 << 40}
	for _, size := range [][2]int{{1 << 32, 1 << 32}, {1 << 40, 2}, {0, 1}, {1, 0}, {-5, -5}} {
		if err := l.Size(size[0], size[1]); !errors.Is(err, malformed.Range) {
			t.Errorf("%v: %v", size, err)
		}
	}
	if err := l.Size(1<<20, 1<<20); err != nil {
		t.Error(err)
	}
}

func TestOrientationOfEXIFComesBeforeXMP(t *testing.T) {
	exif := []byte("Exif\x00\x00II*\x00\x08\x00\x00\x00\x01\x00\x12\x01\x03\x00\x01\x00\x00\x00\x06\x00\x00\x00")
	big := []byte("MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x04\x00\x00\x00\x01\x00\x00\x00\x08")
	xmp := []byte(`<x tiff:Orientation="3"/>`)
	for i, tt := range []struct {
		exif, xmp []byte
		want      int
	}{{exif, xmp, 6}, {big, nil, 8}, {nil, xmp, 3}, {nil, []byte("<tiff:Orientation>5<"), 5}, {nil, nil, 1},
		{exif[:20], xmp, 3}, {slices.Concat(exif[:10], []byte{0xff, 0xff, 0xff, 0xff}), nil, 1}} {
		if got := Orientation(tt.exif, tt.xmp); got != tt.want {
			t.Errorf("%d: %d, want %d", i, got, tt.want)
		}
	}
}
