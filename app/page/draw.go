package page

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"agentcli/internal/text"
	"agentcli/media"
	"agentcli/media/album"
	"agentcli/media/resize"
	"agentcli/traj"
)

// SaveImages writes the images of a trajectory into a folder: each file as it is, each crop as
// a PNG, and each file that crops are of with their boxes, numbered in the order of the calls. An
// image that cannot be written is in failed, with the reason; err is the folder's.
func SaveImages(folder string, t *traj.Trajectory) (names []string, failed []error, err error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, nil, err
	}
	numbers := cropNumbers(t)
	save := func(name string, data []byte) error {
		f, err := os.OpenFile(filepath.Join(folder, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		if e := f.Close(); err == nil {
			err = e
		}
		names = append(names, name)
		return err
	}
	for i := range t.Images {
		im := &t.Images[i]
		file, e := album.File(im)
		var name string
		var boxed []byte
		switch {
		case e != nil:
		case im.Crop != nil:
			name = fmt.Sprintf("image-%d-crop-%d.png", i, numbers[i])
		default:
			var h media.Header
			if h, e = media.ReadHeader(file, media.Limits{Bytes: len(file)}); e == nil {
				name = fmt.Sprintf("image-%d.%s", i, strings.ToLower(string(h.Format)))
				boxed, e = withBoxes(t, im, numbers)
			}
		}
		if e != nil {
			failed = append(failed, fmt.Errorf("image %d: %s", i, text.Line(e)))
			continue
		}
		if err := save(name, file); err != nil {
			return names, failed, err
		}
		if boxed == nil {
			continue
		}
		if err := save(fmt.Sprintf("image-%d-boxes.png", i), boxed); err != nil {
			return names, failed, err
		}
	}
	return names, failed, nil
}

// inks are the colours of boxes, by their number: those of the page.
var inks = [colors]color.NRGBA{{0xe4, 0x57, 0x2e, 255}, {0x2e, 0x86, 0xde, 255}, {0x1f, 0x9d, 0x55, 255}, {0xb8, 0x86, 0x0b, 255},
	{0x8e, 0x44, 0xad, 255}, {0xd6, 0x33, 0x6c, 255}}

// Picture is image number i of a trajectory with the boxes that were cut out of it, no longer
// than side pixels.
func Picture(t *traj.Trajectory, i, side int) (image.Image, error) {
	pixels, err := album.Pixels(&t.Images[i])
	if err != nil {
		return nil, err
	}
	scale := min(1, float64(side)/float64(max(pixels.Width, pixels.Height)))
	if scale < 1 {
		at := func(n int) int { return max(1, int(float64(n)*scale+.5)) }
		pixels = resize.Torchvision.Resize(pixels, at(pixels.Width), at(pixels.Height))
	}
	canvas := canvasOf(pixels)
	drawBoxes(canvas, t, &t.Images[i], cropNumbers(t), scale)
	return canvas, nil
}

// withBoxes is a file with the boxes that were cut out of it, as a PNG; nil: there are none.
func withBoxes(t *traj.Trajectory, im *traj.Image, numbers map[int]int) ([]byte, error) {
	if !slices.ContainsFunc(t.Images, func(x traj.Image) bool { return x.Crop != nil && x.Crop.Source == im.Hash }) {
		return nil, nil
	}
	pixels, err := album.Pixels(im)
	if err != nil {
		return nil, err
	}
	canvas := canvasOf(pixels)
	drawBoxes(canvas, t, im, numbers, 1)
	var b bytes.Buffer
	err = png.Encode(&b, canvas)
	return b.Bytes(), err
}

func canvasOf(pixels *media.Image) *image.NRGBA {
	canvas := image.NewNRGBA(image.Rect(0, 0, pixels.Width, pixels.Height))
	for k := range pixels.Width * pixels.Height {
		copy(canvas.Pix[4*k:], pixels.Pix[3*k:3*k+3])
		canvas.Pix[4*k+3] = 255
	}
	return canvas
}

// drawBoxes draws the boxes that were cut out of a file on the file, scaled as the canvas is.
func drawBoxes(canvas *image.NRGBA, t *traj.Trajectory, im *traj.Image, numbers map[int]int, scale float64) {
	for i := range t.Images {
		if c := t.Images[i].Crop; c != nil && c.Source == im.Hash {
			at := func(k int) int { return int(float64(c.Box[k])*scale + .5) }
			drawBox(canvas, image.Rect(at(0), at(1), at(2), at(3)), numbers[i])
		}
	}
}

var white = color.NRGBA{255, 255, 255, 255}

// frame draws the border of a box, w pixels inwards.
func frame(m *image.NRGBA, r image.Rectangle, w int, c color.NRGBA) {
	fill(m, image.Rect(r.Min.X, r.Min.Y, r.Max.X, r.Min.Y+w), c)
	fill(m, image.Rect(r.Min.X, r.Max.Y-w, r.Max.X, r.Max.Y), c)
	fill(m, image.Rect(r.Min.X, r.Min.Y, r.Min.X+w, r.Max.Y), c)
	fill(m, image.Rect(r.Max.X-w, r.Min.Y, r.Max.X, r.Max.Y), c)
}

func fill(m *image.NRGBA, r image.Rectangle, c color.NRGBA) {
	r = r.Intersect(m.Rect)
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			m.SetNRGBA(x, y, c)
		}
	}
}

// drawBox draws a frame inside a box, and its number in a corner.
func drawBox(m *image.NRGBA, r image.Rectangle, number int) {
	ink := inks[number%colors]
	unit := max(1, min(m.Rect.Dx(), m.Rect.Dy())/200) // pixels of a dot of the number
	frame(m, r.Inset(-unit), unit, white)             // seen on any ground
	frame(m, r, 2*unit, ink)
	at := r.Min
	for _, d := range fmt.Sprint(number) {
		fill(m, image.Rect(at.X, at.Y, at.X+7*unit, at.Y+9*unit), ink)
		for y, row := range digits[d-'0'] {
			for x := range 5 {
				if row>>(4-x)&1 == 1 {
					from := image.Pt(at.X+(x+1)*unit, at.Y+(y+1)*unit)
					fill(m, image.Rectangle{from, from.Add(image.Pt(unit, unit))}, white)
				}
			}
		}
		at.X += 7 * unit
	}
}

// digits are 0 to 9 in 5 × 7 dots, a row a number.
var digits = [10][7]uint8{
	{14, 17, 19, 21, 25, 17, 14}, {4, 12, 4, 4, 4, 4, 14}, {14, 17, 1, 2, 4, 8, 31}, {31, 2, 4, 2, 1, 17, 14}, {2, 6, 10, 18, 31, 2, 2},
	{31, 16, 30, 1, 1, 17, 14}, {6, 8, 16, 30, 17, 17, 14}, {31, 1, 2, 4, 8, 8, 8}, {14, 17, 17, 14, 17, 17, 14}, {14, 17, 17, 15, 1, 2, 12},
}
