package png

import (
	"encoding/binary"
	"hash/adler32"
	"hash/crc32"
	"math/bits"
)

// Encode writes an image of a palette, up to 256 colours: pixels are their numbers, row by
// row. The same image gives the same bytes with every version of this program and of Go.
func Encode(width, height int, colours [][3]byte, pixels []byte) []byte {
	const depth = 8
	header := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(width)), uint32(height))
	header = append(header, depth, palette, 0, 0, 0)
	var table []byte
	for _, c := range colours {
		table = append(table, c[:]...)
	}
	rows := make([]byte, 0, height*(1+width))
	for y := range height {
		rows = append(append(rows, 0), pixels[y*width:(y+1)*width]...) // 0: no filter
	}
	data := deflate([]byte{0x78, 0x01}, rows, width+1)
	data = binary.BigEndian.AppendUint32(data, adler32.Checksum(rows))
	file := []byte(Signature)
	for _, c := range []struct {
		name string
		body []byte
	}{{"IHDR", header}, {"PLTE", table}, {"IDAT", data}, {"IEND", nil}} {
		start := len(file) + 4
		file = append(append(binary.BigEndian.AppendUint32(file, uint32(len(c.body))), c.name...), c.body...)
		file = binary.BigEndian.AppendUint32(file, crc32.ChecksumIEEE(file[start:]))
	}
	return file
}

// Lengths of a repetition in deflate.
const shortest, longest = 3, 258

// deflate appends one block with fixed codes (RFC 1951, 3.2.6). Repetitions are looked for one
// byte before, and one row before and beside.
func deflate(out, data []byte, row int) []byte {
	w := bitWriter{out: out}
	w.bits(1, 1) // the last block
	w.bits(1, 2) // of fixed codes
	for i := 0; i < len(data); {
		length, distance := 0, 0
		for _, d := range [...]int{row, 1, row - 1, row + 1} {
			if n := repeated(data, i, d); n > length {
				length, distance = n, d
			}
			if length == longest {
				break
			}
		}
		if length < shortest {
			w.symbol(int(data[i]))
			i++
			continue
		}
		w.length(length)
		w.distance(distance)
		i += length
	}
	w.symbol(256)
	return w.flush()
}

// repeated is how many bytes from i on are those a distance before.
func repeated(data []byte, i, distance int) (n int) {
	if i < distance {
		return 0
	}
	for n < longest && i+n < len(data) && data[i+n] == data[i+n-distance] {
		n++
	}
	return n
}

// bitWriter packs bits, the lowest first.
type bitWriter struct {
	out  []byte
	held uint64
	n    int
}

func (w *bitWriter) bits(v uint64, n int) {
	w.held |= v << w.n
	for w.n += n; w.n >= 8; w.n -= 8 {
		w.out = append(w.out, byte(w.held))
		w.held >>= 8
	}
}

// code writes a Huffman code, whose highest bit is first.
func (w *bitWriter) code(v uint64, n int) { w.bits(bits.Reverse64(v)>>(64-n), n) }

// symbol writes a literal, the end (256) or the code of a length.
func (w *bitWriter) symbol(s int) {
	switch {
	case s < 144:
		w.code(uint64(0x30+s), 8)
	case s < 256:
		w.code(uint64(0x190+s-144), 9)
	case s < 280:
		w.code(uint64(s-256), 7)
	default:
		w.code(uint64(0xc0+s-280), 8)
	}
}

// length writes a length: four codes for each number of extra bits, and one of its own for 258.
func (w *bitWriter) length(n int) {
	if n == longest {
		w.symbol(285)
		return
	}
	v := n - shortest
	extra := max(0, bits.Len(uint(v))-3)
	w.symbol(257 + 4*extra + v>>extra)
	w.bits(uint64(v&(1<<extra-1)), extra)
}

// distance writes a distance: two codes for each number of extra bits.
func (w *bitWriter) distance(d int) {
	v := d - 1
	extra := max(0, bits.Len(uint(v))-2)
	w.code(uint64(2*extra+v>>extra), 5)
	w.bits(uint64(v&(1<<extra-1)), extra)
}

func (w *bitWriter) flush() []byte {
	if w.n > 0 {
		w.bits(0, 8-w.n)
	}
	return w.out
}
