package raster

import (
	"math"
	"strconv"
)

// Rotated is the image turned counter-clockwise by an angle in degrees, on a canvas that holds
// all of it: Pillow's rotate(angle, expand=True). Multiples of 90 move pixels. Other angles take
// the nearest pixel, and what is outside of the image is black.
func (m *Image) Rotated(degrees float64) *Image {
	degrees = modulo360(degrees)
	switch degrees {
	case 0:
		return &Image{Width: m.Width, Height: m.Height, Pix: append([]byte(nil), m.Pix...)}
	case 90:
		return m.Oriented(8)
	case 180:
		return m.Oriented(3)
	case 270:
		return m.Oriented(6)
	}
	from, width, height := rotation(m.Width, m.Height, degrees)
	out := New(width, height)
	switch {
	case from[1] == 0 && from[3] == 0:
		m.scale(out, from)
	case from.isFixed(width, height):
		m.transformFixed(out, from)
	default:
		m.transform(out, from)
	}
	return out
}

// RotatedSize is the size of the image that Rotated gives, in pixels.
func (m *Image) RotatedSize(degrees float64) (width, height int) {
	switch degrees = modulo360(degrees); degrees {
	case 0, 180:
		return m.Width, m.Height
	case 90, 270:
		return m.Height, m.Width
	}
	_, width, height = rotation(m.Width, m.Height, degrees)
	return width, height
}

func modulo360(degrees float64) float64 {
	if degrees = math.Mod(degrees, 360); degrees < 0 {
		degrees += 360
	}
	return degrees
}

// affine says where a pixel of the output is in the input: x' = a[0]x + a[1]y + a[2],
// y' = a[3]x + a[4]y + a[5].
type affine [6]float64

// at is a point of the input. The conversions keep a compiler from fusing a product with a sum.
func (a affine) at(x, y float64) (float64, float64) {
	return float64(a[0]*x) + float64(a[1]*y) + a[2], float64(a[3]*x) + float64(a[4]*y) + a[5]
}

// rotation is the transform and the size of the output, with Pillow's rounding.
func rotation(w, h int, degrees float64) (a affine, width, height int) {
	angle := -float64(degrees * (math.Pi / 180))
	sin, cos := math.Sin(angle), math.Cos(angle)
	a = affine{round15(cos), round15(sin), 0, round15(-sin), round15(cos), 0}
	cx, cy := float64(w)/2, float64(h)/2
	x, y := a.at(-cx, -cy)
	a[2], a[5] = x+cx, y+cy
	left, upper, right, lower := math.Inf(1), math.Inf(1), math.Inf(-1), math.Inf(-1)
	for _, corner := range [][2]int{{0, 0}, {w, 0}, {w, h}, {0, h}} {
		x, y := a.at(float64(corner[0]), float64(corner[1]))
		left, right = min(left, x), max(right, x)
		upper, lower = min(upper, y), max(lower, y)
	}
	width = int(math.Ceil(right)) - int(math.Floor(left))
	height = int(math.Ceil(lower)) - int(math.Floor(upper))
	a[2], a[5] = a.at(-float64(width-w)/2, -float64(height-h)/2)
	return a, width, height
}

// round15 rounds to 15 decimals, as Python's round does: the cosine of 60 degrees is 0.5.
func round15(v float64) float64 {
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'f', 15, 64), 64) // a number that was just written
	return v
}

// scale is the transform of a whole turn, or of half a one, of an angle that is nearly that.
func (m *Image) scale(out *Image, a affine) {
	for y := range out.Height {
		sy := floor(a[5] + float64(a[4]*0.5) + float64(a[4]*float64(y)))
		for x := range out.Width {
			m.copyPixel(out, x, y, floor(a[2]+float64(a[0]*0.5)+float64(a[0]*float64(x))), sy)
		}
	}
}

// isFixed reports whether all places fit in a number of 16 bits before the point and 16 behind.
func (a affine) isFixed(width, height int) bool {
	for _, corner := range [][2]int{{0, 0}, {width, height}, {0, height}, {width, 0}} {
		if x, y := a.at(float64(corner[0]), float64(corner[1])); math.Abs(x) >= 32768 || math.Abs(y) >= 32768 {
			return false
		}
	}
	return true
}

// transformFixed counts in steps of 1/65536 of a pixel, from the middle of the first one.
func (m *Image) transformFixed(out *Image, a affine) {
	fix := func(v float64) int { return int(math.Floor(float64(v*65536) + 0.5)) }
	dx, dy := [2]int{fix(a[0]), fix(a[3])}, [2]int{fix(a[1]), fix(a[4])} // of a column, of a row
	row := [2]int{fix(a[2] + float64(a[0]*0.5) + float64(a[1]*0.5)), fix(a[5] + float64(a[3]*0.5) + float64(a[4]*0.5))}
	for y := range out.Height {
		at := row
		for x := range out.Width {
			m.copyPixel(out, x, y, at[0]>>16, at[1]>>16)
			at[0], at[1] = at[0]+dx[0], at[1]+dx[1]
		}
		row[0], row[1] = row[0]+dy[0], row[1]+dy[1]
	}
}

// transform is transformFixed of a larger image, in floating point.
func (m *Image) transform(out *Image, a affine) {
	row := [2]float64{a[2] + float64(a[1]*0.5) + float64(a[0]*0.5), a[5] + float64(a[4]*0.5) + float64(a[3]*0.5)}
	for y := range out.Height {
		at := row
		for x := range out.Width {
			m.copyPixel(out, x, y, floor(at[0]), floor(at[1]))
			at[0], at[1] = at[0]+a[0], at[1]+a[3]
		}
		row[0], row[1] = row[0]+a[1], row[1]+a[4]
	}
}

// floor is a place's pixel; -1: it is before the first.
func floor(v float64) int {
	if v < 0 {
		return -1
	}
	return int(v)
}

// copyPixel copies a pixel of m, which may be outside of it.
func (m *Image) copyPixel(out *Image, x, y, fromX, fromY int) {
	if fromX < 0 || fromX >= m.Width || fromY < 0 || fromY >= m.Height {
		return
	}
	to, from := 3*(y*out.Width+x), 3*(fromY*m.Width+fromX)
	copy(out.Pix[to:to+3], m.Pix[from:from+3])
}
