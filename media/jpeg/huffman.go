package jpeg

import (
	"encoding/binary"

	"agentcli/internal/malformed"
)

// lookBits is how many bits of a code the table decides at once.
const lookBits = 9

// huffman is a table of codes of up to 16 bits.
type huffman struct {
	look   [1 << lookBits]uint16 // value<<8 | length; length 0: longer, or no code
	limit  [18]int32             // of each length: the first 16-bit prefix beyond its codes
	offset [17]int32             // added to a code of a length gives its place in values
	values []byte
}

// readHuffman reads the tables of a DHT segment into those of DC and AC.
func readHuffman(b []byte, into *[2][4]*huffman) error {
	for len(b) > 0 {
		if len(b) < 17 {
			return malformed.Field("DHT", malformed.Truncated, "a table has %d bytes", len(b))
		}
		class, id := b[0]>>4, b[0]&15
		total := 0
		for _, n := range b[1:17] {
			total += int(n)
		}
		if class > 1 || id > 3 || total > 256 || 17+total > len(b) {
			return malformed.Field("DHT", malformed.Range, "table %d of class %d with %d codes", id, class, total)
		}
		t := &huffman{values: b[17 : 17+total]}
		code, k := int32(0), int32(0)
		for length := 1; length <= 16; length++ {
			n := int32(b[length])
			t.offset[length] = k - code
			if code+n > 1<<length {
				return malformed.Field("DHT", malformed.Range, "%d codes of %d bits do not fit", n, length)
			}
			if length <= lookBits {
				for range n {
					entry := uint16(t.values[k])<<8 | uint16(length)
					from := code << (lookBits - length)
					for i := range int32(1) << (lookBits - length) {
						t.look[from+i] = entry
					}
					code++
					k++
				}
			} else {
				code += n
				k += n
			}
			t.limit[length] = code << (16 - length)
			code <<= 1
		}
		t.limit[17] = 1 << 30
		into[class][id] = t
		b = b[17+total:]
	}
	return nil
}

// bitReader reads the entropy-coded bytes of a scan, up to the next marker, from the highest
// bit on. Behind them it gives zeros and counts them.
type bitReader struct {
	data []byte
	at   int
	acc  uint64 // the bits that were read and not taken, at the top
	n    int    // how many
	fake int    // bits that were made up
}

// fill makes at least 32 bits available.
func (r *bitReader) fill() {
	if r.at+8 <= len(r.data) {
		// Most often there is no 0xff among the next bytes.
		if w := binary.BigEndian.Uint64(r.data[r.at:]); hasFF(w) == 0 {
			take := (64 - r.n) / 8
			r.acc |= w >> r.n
			r.n += 8 * take
			r.at += take
			if r.n < 64 {
				r.acc &= ^uint64(0) << (64 - r.n)
			}
			return
		}
	}
	for r.n <= 56 {
		var b byte
		switch {
		case r.at >= len(r.data):
			r.fake += 8
		case r.data[r.at] != 0xff:
			b = r.data[r.at]
			r.at++
		case r.at+1 < len(r.data) && r.data[r.at+1] == 0:
			b = 0xff
			r.at += 2
		default: // a marker
			r.fake += 8
		}
		r.acc |= uint64(b) << (56 - r.n)
		r.n += 8
	}
}

// hasFF is not zero where one of the eight bytes is 0xff.
func hasFF(w uint64) uint64 {
	v := ^w // 0xff becomes zero
	return (v - 0x0101010101010101) & ^v & 0x8080808080808080
}

func (r *bitReader) skip(n int) {
	r.acc <<= n
	r.n -= n
}

// bits takes n bits, at most 16, of those that fill has made available.
func (r *bitReader) bits(n int) int32 {
	v := int32(r.acc >> (64 - n) & (1<<n - 1))
	r.skip(n)
	return v
}

// symbol takes a code; ok is false where the bits are none.
func (r *bitReader) symbol(t *huffman) (value byte, ok bool) {
	if r.n < 32 {
		r.fill()
	}
	if e := t.look[r.acc>>(64-lookBits)]; e&0xff != 0 {
		r.skip(int(e & 0xff))
		return byte(e >> 8), true
	}
	prefix := int32(r.acc >> 48)
	for length := lookBits + 1; length <= 16; length++ {
		if prefix < t.limit[length] {
			i := prefix>>(16-length) + t.offset[length]
			if int(i) >= len(t.values) || i < 0 {
				return 0, false
			}
			r.skip(length)
			return t.values[i], true
		}
	}
	return 0, false
}

// extend takes the n bits of a coefficient and gives its value (T.81, F.2.2.1).
func (r *bitReader) extend(n int) int32 {
	if n == 0 {
		return 0
	}
	v := r.bits(n)
	if v < 1<<(n-1) {
		v += -1<<n + 1
	}
	return v
}

// zigzag is the place of each coefficient of the file in a block of 8 × 8. Runs that leave
// the block stay in it.
var zigzag = [64 + 16]uint8{
	0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5,
	12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21, 28,
	35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
	58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
	63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
}
