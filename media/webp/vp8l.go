package webp

import (
	"agentcli/internal/malformed"
	"agentcli/media/raster"
)

// Lossless WebP (RFC 9649, section 3): pixels are numbers of 32 bits, alpha, red, green and
// blue from the highest byte on.

// The alphabets of the five codes of a group; the first is longer by the colour cache.
var alphabets = [5]int{256 + 24, 256, 256, 256, 40}

// group are the codes for green, lengths and cached colours; red; blue; alpha; distances.
type group [5]*code

// nearby is the place of the first 120 distances: rows up in the upper half of each byte, 8
// less columns to the left in the lower one.
var nearby = [120]uint8{
	0x18, 0x07, 0x17, 0x19, 0x28, 0x06, 0x27, 0x29, 0x16, 0x1a, 0x26, 0x2a, 0x38, 0x05, 0x37,
	0x39, 0x15, 0x1b, 0x36, 0x3a, 0x25, 0x2b, 0x48, 0x04, 0x47, 0x49, 0x14, 0x1c, 0x35, 0x3b,
	0x46, 0x4a, 0x24, 0x2c, 0x58, 0x45, 0x4b, 0x34, 0x3c, 0x03, 0x57, 0x59, 0x13, 0x1d, 0x56,
	0x5a, 0x23, 0x2d, 0x44, 0x4c, 0x55, 0x5b, 0x33, 0x3d, 0x68, 0x02, 0x67, 0x69, 0x12, 0x1e,
	0x66, 0x6a, 0x22, 0x2e, 0x54, 0x5c, 0x43, 0x4d, 0x65, 0x6b, 0x32, 0x3e, 0x78, 0x01, 0x77,
	0x79, 0x53, 0x5d, 0x11, 0x1f, 0x64, 0x6c, 0x42, 0x4e, 0x76, 0x7a, 0x21, 0x2f, 0x75, 0x7b,
	0x31, 0x3f, 0x63, 0x6d, 0x52, 0x5e, 0x00, 0x74, 0x7c, 0x41, 0x4f, 0x10, 0x20, 0x62, 0x6e,
	0x30, 0x73, 0x7d, 0x51, 0x5f, 0x40, 0x72, 0x7e, 0x61, 0x6f, 0x50, 0x71, 0x7f, 0x60, 0x70,
}

// transform is what an encoder has done to the pixels.
type transform struct {
	kind  int
	bits  int      // log2 of a tile's side, or of the pixels in a byte
	data  []uint32 // of each tile, or the palette
	width int      // of the image before it
}

// Kinds of transforms.
const (
	predict = iota
	crossColour
	subtractGreen
	indices
)

// vp8l decodes the pixels of a lossless image, whose header of five bytes has been read.
func vp8l(data []byte, width, height int) ([]uint32, error) {
	r := &bitReader{data: data}
	var done []transform
	w := width
	for r.bits(1) == 1 {
		t := transform{kind: r.bits(2), width: w}
		for _, other := range done {
			if other.kind == t.kind {
				return nil, malformed.Errorf(malformed.Duplicate, "transform %d is there twice", t.kind)
			}
		}
		var err error
		switch t.kind {
		case predict, crossColour:
			t.bits = r.bits(3) + 2
			t.data, err = r.pixels(tiles(w, t.bits), tiles(height, t.bits), false)
		case indices:
			size := r.bits(8) + 1
			if t.data, err = r.pixels(size, 1, false); err == nil {
				for i := 1; i < size; i++ {
					t.data[i] = add(t.data[i], t.data[i-1])
				}
			}
			switch {
			case size <= 2:
				t.bits = 3
			case size <= 4:
				t.bits = 2
			case size <= 16:
				t.bits = 1
			}
			w = tiles(w, t.bits)
		}
		if err != nil {
			return nil, err
		}
		done = append(done, t)
	}
	pix, err := r.pixels(w, height, true)
	if err != nil {
		return nil, err
	}
	for i := len(done) - 1; i >= 0; i-- {
		pix = done[i].undo(pix, height)
	}
	return pix, nil
}

// tiles is how many tiles of 2^bits pixels cover n pixels.
func tiles(n, bits int) int { return (n + 1<<bits - 1) >> bits }

// pixels reads an image of entropy-coded pixels. The main one may have several groups of
// codes, by tiles.
func (r *bitReader) pixels(w, h int, main bool) ([]uint32, error) {
	cacheBits := 0
	if r.bits(1) == 1 {
		if cacheBits = r.bits(4); cacheBits < 1 || cacheBits > 11 {
			return nil, malformed.Errorf(malformed.Range, "a colour cache of %d bits", cacheBits)
		}
	}
	tileBits, groupOf, number := 0, []uint32(nil), 1
	if main && r.bits(1) == 1 {
		tileBits = r.bits(3) + 2
		var err error
		if groupOf, err = r.pixels(tiles(w, tileBits), tiles(h, tileBits), false); err != nil {
			return nil, err
		}
		for i, v := range groupOf {
			groupOf[i] = v >> 8 & 0xffff
			number = max(number, int(groupOf[i])+1)
		}
	}
	groups, err := r.groups(number, groupOf, cacheBits)
	if err != nil {
		return nil, err
	}
	if r.cut() {
		return nil, raster.Truncated()
	}
	d := &entropyDecoder{bitReader: r, width: w, pix: make([]uint32, w*h), groups: groups, groupOf: groupOf, tileBits: tileBits}
	if cacheBits > 0 {
		d.cache, d.cacheShift = make([]uint32, 1<<cacheBits), 32-cacheBits
	}
	if err := d.decode(); err != nil {
		return nil, err
	}
	return d.pix, nil
}

// groups reads the codes of all groups and keeps those that tiles name.
func (r *bitReader) groups(number int, groupOf []uint32, cacheBits int) ([]group, error) {
	used := make([]bool, number)
	if groupOf == nil {
		used[0] = true
	}
	for _, g := range groupOf {
		used[g] = true
	}
	all := make([]group, number)
	for g := range all {
		for i, alphabet := range alphabets {
			if i == 0 && cacheBits > 0 {
				alphabet += 1 << cacheBits
			}
			c, err := r.readCode(alphabet)
			if err != nil {
				return nil, err
			}
			if used[g] {
				all[g][i] = c
			}
		}
	}
	return all, nil
}

// entropyDecoder decodes one image.
type entropyDecoder struct {
	*bitReader
	width      int
	pix        []uint32
	groups     []group
	groupOf    []uint32 // of each tile
	tileBits   int
	cache      []uint32
	cacheShift int
	cached     int // pixels that are in the cache
}

func (d *entropyDecoder) decode() error {
	g, across := &d.groups[0], tiles(d.width, d.tileBits)
	x, y := 0, 0
	mask := 0
	if d.groupOf != nil {
		mask = 1<<d.tileBits - 1
	}
	for i := 0; i < len(d.pix); {
		if d.groupOf != nil && x&mask == 0 {
			g = &d.groups[d.groupOf[y>>d.tileBits*across+x>>d.tileBits]]
		}
		s := g[0].next(d.bitReader)
		switch {
		case s < 256:
			red := g[1].next(d.bitReader)
			blue := g[2].next(d.bitReader)
			d.pix[i] = uint32(g[3].next(d.bitReader)<<24 | red<<16 | s<<8 | blue)
			i++
			if x++; x == d.width {
				x, y = 0, y+1
			}
		case s < 256+24:
			n := d.prefixed(s - 256)
			distance := d.distance(d.prefixed(g[4].next(d.bitReader)))
			if distance > i || n > len(d.pix)-i {
				return d.fault("a copy from %d pixels before of %d at pixel %d leaves the image", distance, n, i)
			}
			for end := i + n; i < end; i++ {
				d.pix[i] = d.pix[i-distance]
			}
			if x += n; x >= d.width {
				y += x / d.width
				x %= d.width
			}
			if d.groupOf != nil && i < len(d.pix) {
				g = &d.groups[d.groupOf[y>>d.tileBits*across+x>>d.tileBits]]
			}
		default:
			if s -= 256 + 24; s >= len(d.cache) {
				return d.fault("colour %d is not in a cache of %d", s, len(d.cache))
			}
			d.remember(i)
			d.pix[i] = d.cache[s]
			i++
			if x++; x == d.width {
				x, y = 0, y+1
			}
		}
		if x == 0 && d.cut() {
			return raster.Truncated()
		}
	}
	if d.cut() {
		return raster.Truncated()
	}
	return nil
}

// fault is a fault of the file, unless it has ended before.
func (d *entropyDecoder) fault(format string, args ...any) error {
	if d.cut() {
		return raster.Truncated()
	}
	return malformed.Errorf(malformed.Range, format, args...)
}

// remember puts the pixels before the i-th into the cache.
func (d *entropyDecoder) remember(i int) {
	for ; d.cached < i; d.cached++ {
		v := d.pix[d.cached]
		d.cache[0x1e35a7bd*v>>d.cacheShift] = v
	}
}

// prefixed is a length or a distance by its prefix.
func (d *entropyDecoder) prefixed(s int) int {
	if s < 4 {
		return s + 1
	}
	extra := (s - 2) >> 1
	return (2+s&1)<<extra + d.bits(extra) + 1
}

// distance turns a distance of the file into pixels.
func (d *entropyDecoder) distance(v int) int {
	if v > len(nearby) {
		return v - len(nearby)
	}
	c := int(nearby[v-1])
	return max(1, c>>4*d.width+8-c&15)
}
