package gif

import (
	"agentcli/internal/malformed"
	"agentcli/media/raster"
)

const tableSize = 4096

// codes gives the codes of a frame, which are packed from the lowest bit on, in blocks of
// up to 255 bytes.
type codes struct {
	data []byte
	left int // bytes of this block
	bits uint32
	n    int
}

// next is a code of size bits, or -1 where the file ends.
func (c *codes) next(size int) int {
	for c.n < size {
		for c.left == 0 {
			if len(c.data) == 0 {
				return -1
			}
			c.left = int(c.data[0])
			// A block counts only whole.
			if c.left >= len(c.data) {
				return -1
			}
			c.data = c.data[1:]
		}
		c.bits |= uint32(c.data[0]) << c.n
		c.data = c.data[1:]
		c.left--
		c.n += 8
	}
	code := int(c.bits & (1<<size - 1))
	c.bits >>= size
	c.n -= size
	return code
}

// rows says where the pixels of a frame go, in the order of the file.
type rows struct {
	width, height int
	x, y          int
	start, step   int // of this pass
	out           []byte
}

// passes of an interlaced frame: first row, then how far to the next one.
var passes = [...][2]int{{0, 8}, {4, 8}, {2, 4}, {1, 2}}

func (r *rows) full() bool { return r.y >= r.height }

// put writes pixels; what is behind the last row is dropped.
func (r *rows) put(p []byte) {
	for len(p) > 0 && !r.full() {
		n := copy(r.out[r.y*r.width+r.x:(r.y+1)*r.width], p)
		p = p[n:]
		if r.x += n; r.x < r.width {
			continue
		}
		r.x = 0
		r.y += r.step
		for r.y >= r.height && r.step > 1 {
			r.start++
			if r.start == len(passes) {
				return
			}
			r.y, r.step = passes[r.start][0], passes[r.start][1]
		}
	}
}

// decode writes the frame's indices. It ends with the last pixel: data behind it, as a
// missing end code, does not matter.
func (f *frame) decode(out []byte) error {
	if len(out) == 0 {
		return nil
	}
	var (
		suffix [tableSize]byte
		prefix [tableSize]int16
		length [tableSize]uint16
		buffer [tableSize + 1]byte
	)
	clearCode, end := 1<<f.minBits, 1<<f.minBits+1
	for i := range min(clearCode, tableSize) {
		suffix[i], length[i] = byte(i), 1
	}
	in := codes{data: f.data}
	to := rows{width: f.width, height: f.height, step: 1, out: out}
	if f.interlaced {
		to.step = passes[0][1]
	}
	next, size, last := clearCode+2, f.minBits+1, -1
	for !to.full() {
		code := in.next(size)
		switch {
		case code < 0 || code == end:
			return raster.Truncated()
		case code == clearCode:
			next, size, last = clearCode+2, f.minBits+1, -1
			continue
		case last < 0 && code > clearCode, code > next, code >= tableSize:
			return malformed.Errorf(malformed.Syntax, "code %d of its pixels is not defined yet", code)
		case last < 0:
			buffer[0] = byte(code)
			to.put(buffer[:1])
			last = code
			continue
		}
		// The string of the code, or the last one with its own first pixel behind it.
		of, n := code, 0
		if code == next {
			of = last
			n = 1
		}
		long := int(length[of])
		n += long
		if n > tableSize {
			return malformed.Errorf(malformed.Syntax, "code %d of its pixels is too long", code)
		}
		for i, c := long-1, of; i >= 0; i-- {
			buffer[i] = suffix[c]
			c = int(prefix[c])
		}
		buffer[long] = buffer[0] // one too many where the code was known
		to.put(buffer[:n])
		if next < tableSize {
			suffix[next], prefix[next] = buffer[0], int16(last)
			length[next] = length[last] + 1
			if next == 1<<size-1 && size < 12 {
				size++
			}
			next++
		}
		last = code
	}
	return nil
}
