// Package resize changes the size of images by the bicubic filter of Pillow, with its
// antialiasing, to the byte. Three rules differ in rounding and in the order of the two
// passes; the one with which a model was trained is the one to sample it with. It imports
// media/raster only.
package resize

import (
	"math"
	"slices"
	"strings"

	"agentcli/internal/malformed"
	"agentcli/media/raster"
)

// Rule names whose bytes are made.
type Rule string

// The rules.
const (
	// Torchvision is interpolate(uint8, bicubic, antialias=True) of PyTorch on a CPU, which
	// transformers and vLLM use by default.
	Torchvision Rule = "torchvision"
	// Pillow is Image.resize(BICUBIC) of Pillow up to 12.2.
	Pillow Rule = "pillow"
	// Pillow13 is that of Pillow 13, which at times begins with the columns.
	Pillow13 Rule = "pillow13"
)

// Rules are all of them, the default first.
func Rules() []string { return []string{string(Torchvision), string(Pillow), string(Pillow13)} }

// Parse is the rule of a name; "" is Torchvision. Another name is malformed.Unsupported.
func Parse(name string) (Rule, error) {
	if name == "" {
		return Torchvision, nil
	}
	if !slices.Contains(Rules(), name) {
		return "", malformed.Errorf(malformed.Unsupported, "rule %q; the rules are %s", name, strings.Join(Rules(), ", "))
	}
	return Rule(name), nil
}

// Resize makes an image of width × height pixels, both above 0. Equal size is the same
// image.
func (r Rule) Resize(m *raster.Image, width, height int) *raster.Image {
	shrinksMore := height < m.Height && m.Height-height > 2*(m.Width-width)
	if r == Pillow13 && shrinksMore {
		return r.across(r.down(m, height), width)
	}
	return r.down(r.across(m, width), height)
}

// across resizes the rows.
func (r Rule) across(m *raster.Image, width int) *raster.Image {
	if width == m.Width {
		return m
	}
	out := raster.New(width, m.Height)
	w := r.weights(m.Width, width)
	row := w.rowGo
	if vectors && r == Torchvision {
		row = w.rowKernel(m.Width)
	}
	for y := range m.Height {
		row(out.Pix[3*y*width:3*(y+1)*width], m.Pix[3*y*m.Width:3*(y+1)*m.Width])
	}
	return out
}

// down resizes the columns.
func (r Rule) down(m *raster.Image, height int) *raster.Image {
	if height == m.Height {
		return m
	}
	out := raster.New(m.Width, height)
	w := r.weights(m.Height, height)
	stride := 3 * m.Width
	column := w.columnKernel()
	if !vectors || r != Torchvision || stride < 16 {
		column = w.columnGo(stride)
	}
	for y := range height {
		column(out.Pix[y*stride:(y+1)*stride], m.Pix[w.first[y]*stride:], y)
	}
	return out
}

// weights are those of each pixel of an axis, as integers with a number of bits behind the
// point.
type weights struct {
	first  []int // the first source pixel of each pixel
	count  []int
	taps   int     // most source pixels of a pixel
	values []int32 // [pixels, taps]
	bits   int
}

func (w *weights) of(i int) []int32 { return w.values[i*w.taps : i*w.taps+w.count[i]] }

// cubic is Keys' kernel with a = −½.
func cubic(x float64) float64 {
	const a = -0.5
	x = math.Abs(x)
	switch {
	case x < 1:
		return float64(float64(float64(float64((a+2)*x)-(a+3))*x)*x) + 1
	case x < 2:
		return (float64((float64((x-5)*x)+8)*x) - 4) * a
	}
	return 0
}

// weights are computed in float64 in Pillow's order (Resample.c, precompute_coeffs), so that
// their rounding is the same. The conversions keep an arm64 processor from fusing a product
// with a sum.
func (r Rule) weights(in, out int) *weights {
	scale := float64(in) / float64(out)
	stretch := max(scale, 1)
	support := 2 * stretch
	inverse := 1 / stretch
	w := &weights{first: make([]int, out), count: make([]int, out), taps: 2*int(math.Ceil(support)) + 1}
	w.taps = min(w.taps, in)
	exact := make([]float64, out*w.taps)
	largest := 0.0
	for i := range out {
		centre := (float64(i) + 0.5) * scale
		from := max(0, int(centre-support+0.5))
		to := min(in, int(centre+support+0.5))
		k := exact[i*w.taps : i*w.taps+to-from]
		sum := 0.0
		for x := range k {
			k[x] = cubic(float64((float64(x+from) - centre + 0.5) * inverse))
			sum += k[x]
		}
		for x := range k {
			if sum != 0 {
				k[x] /= sum
			}
			largest = max(largest, k[x])
		}
		w.first[i], w.count[i] = from, to-from
	}
	w.bits = 22
	if r == Torchvision {
		// As many bits as the largest weight of the axis leaves in 16.
		for w.bits = 0; w.bits < 22 && int(0.5+largest*float64(int(2)<<w.bits)) < 1<<15; {
			w.bits++
		}
	}
	w.values = make([]int32, len(exact))
	for i, v := range exact {
		w.values[i] = int32(math.Copysign(0.5, v) + float64(v*float64(int(1)<<w.bits)))
	}
	return w
}

// round takes the bits behind the point off a sum.
func round(sum int32, bits int) byte {
	v := sum >> bits
	if uint32(v) > 255 {
		v = ^v >> 31 & 255
	}
	return byte(v)
}

// rowGo computes a row of pixels from a row.
func (w *weights) rowGo(dst, src []byte) {
	half := int32(1) << (w.bits - 1)
	for i := range w.first {
		r, g, b := half, half, half
		s := src[3*w.first[i]:]
		for k, v := range w.of(i) {
			p := s[3*k : 3*k+3 : 3*k+3]
			r += int32(p[0]) * v
			g += int32(p[1]) * v
			b += int32(p[2]) * v
		}
		d := dst[3*i : 3*i+3 : 3*i+3]
		d[0], d[1], d[2] = round(r, w.bits), round(g, w.bits), round(b, w.bits)
	}
}

// columnGo gives a function that computes row y from the rows that src begins with.
func (w *weights) columnGo(stride int) func(dst, src []byte, y int) {
	sums := make([]int32, stride)
	half := int32(1) << (w.bits - 1)
	return func(dst, src []byte, y int) {
		for i := range sums {
			sums[i] = half
		}
		for j, v := range w.of(y) {
			row := src[j*stride : (j+1)*stride]
			row = row[:len(sums)]
			for i, p := range row {
				sums[i] += int32(p) * v
			}
		}
		for i, s := range sums {
			dst[i] = round(s, w.bits)
		}
	}
}
