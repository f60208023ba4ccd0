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

// fileRows are the rows of the image in the order of the file: all, or of an interlaced frame
// every eighth, those between them, then every fourth and every second one.
func (f *frame) fileRows() []int {
	passes := [][2]int{{0, 1}}
	if f.interlaced {
		passes = [][2]int{{0, 8}, {4, 8}, {2, 4}, {1, 2}}
	}
	rows := make([]int, 0, f.height)
	for _, p := range passes {
		for y := p[0]; y < f.height; y += p[1] {
			rows = append(rows, y)
		}
	}
	return rows
}

// decode writes the frame's indices in the order of the file. It ends with the last pixel:
// data behind it, as a missing end code, does not matter. The string of a code is what was
// written for the code before that made it, and one pixel more.
func (f *frame) decode(out []byte) error {
	var start, length [tableSize]int
	clearCode, end := 1<<f.minBits, 1<<f.minBits+1
	in := codes{data: f.data}
	next, size := clearCode+2, f.minBits+1
	lastStart, lastLength := 0, 0 // of the code before; length 0: there is none
	for n := 0; n < len(out); {
		code := in.next(size)
		long := 1
		switch {
		case code < 0 || code == end:
			return raster.Truncated()
		case code == clearCode:
			next, size, lastLength = clearCode+2, f.minBits+1, 0
			continue
		case code < clearCode:
			out[n] = byte(code)
		case lastLength == 0 || code > next || code >= tableSize:
			return malformed.Errorf(malformed.Syntax, "code %d of its pixels is not defined yet", code)
		case code == next: // the string before, and its own first pixel
			long = lastLength + 1
			if copied := copy(out[n:], out[lastStart:n]); n+copied < len(out) {
				out[n+copied] = out[lastStart]
			}
		default:
			long = length[code]
			copy(out[n:], out[start[code]:start[code]+long])
		}
		if lastLength > 0 && next < tableSize {
			start[next], length[next] = lastStart, lastLength+1
			if next == 1<<size-1 && size < 12 {
				size++
			}
			next++
		}
		lastStart, lastLength = n, long
		n += long
	}
	return nil
}
