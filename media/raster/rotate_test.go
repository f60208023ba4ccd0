package raster

import (
	"encoding/json"
	"os"
	"testing"
)

// coloured is the image of scripts/golden/images_rotate.py.
func coloured(width, height int) *Image {
	m := New(width, height)
	for y := range height {
		for x := range width {
			copy(m.Pix[3*(y*width+x):], []byte{byte(x), byte(y), byte(7*x + 11*y + 1)})
		}
	}
	return m
}

func TestRotatedImagesAreThoseOfPillow(t *testing.T) {
	b, err := os.ReadFile("testdata/rotate.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Width, Height int
		Angle         float64
		Rotated       [2]int
		SHA256        string
	}
	if err := json.Unmarshal(b, &rows); err != nil || len(rows) < 700 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for _, r := range rows {
		m := coloured(r.Width, r.Height)
		w, h := m.RotatedSize(r.Angle)
		got := m.Rotated(r.Angle)
		if [2]int{got.Width, got.Height} != r.Rotated || [2]int{w, h} != r.Rotated {
			t.Errorf("%d × %d by %v: %d × %d (%d × %d are announced), want %v", r.Width, r.Height, r.Angle, got.Width, got.Height, w, h, r.Rotated)
		} else if got.Hash() != r.SHA256 {
			t.Errorf("%d × %d by %v: other pixels", r.Width, r.Height, r.Angle)
		}
	}
}

func TestARotatedImageIsACopy(t *testing.T) {
	m := coloured(3, 2)
	was := m.Hash()
	for _, angle := range []float64{0, 90, 180, 270, 45} {
		m.Rotated(angle).Pix[0] = 'x'
	}
	if m.Hash() != was {
		t.Error("the image itself has other pixels now")
	}
}

// No angle and no size leaves the canvas, or takes another size than it says.
func FuzzRotated(f *testing.F) {
	f.Add(uint8(3), uint8(2), 45.)
	f.Add(uint8(200), uint8(1), -1e-300)
	f.Add(uint8(1), uint8(200), 1e308)
	f.Fuzz(func(t *testing.T, width, height uint8, angle float64) {
		if width == 0 || height == 0 || angle-angle != 0 { // no number
			return
		}
		m := New(int(width), int(height))
		w, h := m.RotatedSize(angle)
		got := m.Rotated(angle)
		if got.Width != w || got.Height != h || len(got.Pix) != 3*w*h || w*h > (m.Width+m.Height+3)*(m.Width+m.Height+3) {
			t.Errorf("%d × %d by %v: %d × %d, announced %d × %d", width, height, angle, got.Width, got.Height, w, h)
		}
	})
}
