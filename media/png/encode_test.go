package png

import (
	"bytes"
	stdpng "image/png"
	"math/rand/v2"
	"testing"

	"agentcli/media/raster"
)

// Both decoders read back what was written: noise (literals of both lengths), runs, rows that
// repeat, every length of a repetition, and images of one pixel.
func TestEncodedPixelsAreReadBack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	colours := make([][3]byte, 256)
	for i := range colours {
		colours[i] = [3]byte{byte(i), byte(r.Uint32()), byte(255 - i)}
	}
	for _, size := range [][2]int{{1, 1}, {1, 300}, {300, 1}, {2, 2}, {7, 5}, {259, 13}, {600, 40}, {8200, 9}} {
		for kind := range 4 {
			pixels := make([]byte, size[0]*size[1])
			for i := 0; i < len(pixels); {
				n := 1
				if kind == 1 {
					n += r.IntN(600)
				}
				v := byte(r.Uint32())
				for ; n > 0 && i < len(pixels); n-- {
					pixels[i] = v
					if kind == 2 && i >= size[0] && r.IntN(50) > 0 {
						pixels[i] = pixels[i-size[0]]
					}
					if kind == 3 && i > size[0] && r.IntN(50) > 0 {
						pixels[i] = pixels[i-size[0]-1]
					}
					i++
				}
			}
			file := Encode(size[0], size[1], colours, pixels)
			ours, _, err := Decode(file, raster.Limits{Pixels: 1 << 20})
			if err != nil {
				t.Fatalf("%v, kind %d: %v", size, kind, err)
			}
			other, err := stdpng.Decode(bytes.NewReader(file))
			if err != nil {
				t.Fatalf("%v, kind %d: %v", size, kind, err)
			}
			for i, p := range pixels {
				red, green, blue, _ := other.At(i%size[0], i/size[0]).RGBA()
				if got := [3]byte(ours.Pix[3*i:]); got != colours[p] || got != [3]byte{byte(red >> 8), byte(green >> 8), byte(blue >> 8)} {
					t.Fatalf("%v, kind %d: pixel %d", size, kind, i)
				}
			}
		}
	}
}
