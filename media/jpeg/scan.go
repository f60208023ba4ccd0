package jpeg

import (
	"agentcli/internal/malformed"
	"agentcli/media/raster"
)

// band is what a scan says of the coefficients in it: from which to which in zigzag order,
// and which bits of them (T.81, G.1.1.1).
type band struct {
	from, to  int
	high, low int
	eobRun    int // blocks of this band that are still to be passed over
}

// scan reads a scan. It is done where all pixels of a sequential file have been read.
func (d *decoder) scan(b []byte) (done bool, err error) {
	if d.components == nil {
		return false, malformed.Field("SOS", malformed.Missing, "there is no frame before it")
	}
	if len(b) < 1 || len(b) < 4+2*int(b[0]) {
		return false, raster.Truncated()
	}
	n := int(b[0])
	var in []*component
	for i := range n {
		c, err := d.chosen(b[1+2*i], b[2+2*i], in)
		if err != nil {
			return false, err
		}
		in = append(in, c)
	}
	if n < 1 || n > len(d.components) {
		return false, malformed.Field("SOS", malformed.Range, "%d components", n)
	}
	s := band{from: 0, to: 63}
	if d.progressive {
		s = band{from: int(b[1+2*n]), to: int(b[2+2*n]), high: int(b[3+2*n] >> 4), low: int(b[3+2*n] & 15)}
		if s.to > 63 || s.from > s.to || s.low > 13 || s.high != 0 && s.high != s.low+1 ||
			s.from == 0 && s.to != 0 || s.from > 0 && n != 1 {
			return false, malformed.Field("SOS", malformed.Range, "coefficients %d to %d, bits %d to %d", s.from, s.to, s.high, s.low)
		}
	}
	if err := d.tables(in, s); err != nil {
		return false, err
	}
	for _, c := range in {
		d.visits += c.blocksX * c.blocksY
	}
	if d.visits > maxVisits*d.blocks {
		return false, malformed.Field("SOS", malformed.Range, "the scans go over the image more than %d times", maxVisits)
	}
	if d.progressive {
		for _, c := range in {
			for k := s.from; k <= s.to; k++ {
				c.missing[k] = uint8(s.low)
			}
		}
	}
	d.bits = bitReader{data: d.file[d.at:]}
	if err := d.mcus(in, &s); err != nil {
		return false, err
	}
	d.at += d.bits.at
	return !d.progressive && d.complete() == nil, nil
}

// chosen is a component of a scan, with its memory.
func (d *decoder) chosen(id, tables byte, before []*component) (*component, error) {
	for i := range d.components {
		c := &d.components[i]
		if c.id != id {
			continue
		}
		for _, other := range before {
			if other == c {
				return nil, malformed.Field("SOS", malformed.Duplicate, "component %d is in it twice", id)
			}
		}
		if c.dc, c.ac = int(tables>>4), int(tables&15); c.dc > 3 || c.ac > 3 {
			return nil, malformed.Field("SOS", malformed.Range, "Huffman tables %d and %d", c.dc, c.ac)
		}
		if c.seen {
			if !d.progressive {
				return nil, malformed.Field("SOS", malformed.Duplicate, "component %d is in two scans", id)
			}
			return c, nil
		}
		if c.quant = d.quant[c.table]; c.quant == nil {
			return nil, malformed.Field("DQT", malformed.Missing, "table %d is not there", c.table)
		}
		c.seen = true
		c.plane = make([]byte, 64*c.strideBlocks*c.rowsBlocks)
		if d.progressive {
			c.coefficients = make([]int16, 64*c.strideBlocks*c.rowsBlocks)
			for k := range c.missing {
				c.missing[k] = unknown
			}
		}
		return c, nil
	}
	return nil, malformed.Field("SOS", malformed.Missing, "component %d is not in the frame", id)
}

// tables checks that the Huffman tables that the scan reads with are there.
func (d *decoder) tables(in []*component, s band) error {
	for _, c := range in {
		if s.from == 0 && s.high == 0 && d.huffman[0][c.dc] == nil || s.to > 0 && d.huffman[1][c.ac] == nil {
			return malformed.Field("DHT", malformed.Missing, "a table of component %d is not there", c.id)
		}
	}
	return nil
}

// mcus reads the blocks of a scan in the order of the file.
func (d *decoder) mcus(in []*component, s *band) error {
	across, down := d.mcusX, d.mcusY
	if len(in) == 1 {
		across, down = in[0].blocksX, in[0].blocksY
	}
	left := d.restart
	d.reset(in, s)
	next := byte(rst0)
	for y := range down {
		for x := range across {
			if d.restart > 0 && left == 0 {
				if err := d.restartMarker(next); err != nil {
					return err
				}
				d.reset(in, s)
				left, next = d.restart, rst0+(next-rst0+1)&7
			}
			left--
			if len(in) == 1 {
				if !d.block(in[0], s, x, y) {
					return errCode()
				}
				continue
			}
			for _, c := range in {
				for v := range c.v {
					for h := range c.h {
						if !d.block(c, s, x*c.h+h, y*c.v+v) {
							return errCode()
						}
					}
				}
			}
		}
		if d.bits.fake > d.bits.n {
			return raster.Truncated()
		}
	}
	return nil
}

func errCode() error {
	return malformed.Errorf(malformed.Syntax, "its pixels have a code that no table defines")
}

func (d *decoder) reset(in []*component, s *band) {
	s.eobRun = 0
	for _, c := range in {
		c.prediction = 0
	}
}

// restartMarker goes to the next marker, which has to be the one that is due.
func (d *decoder) restartMarker(want byte) error {
	r := &d.bits
	if r.fake > r.n {
		return raster.Truncated()
	}
	for r.at+1 < len(r.data) {
		if r.data[r.at] == 0xff && r.data[r.at+1] != 0 && r.data[r.at+1] != 0xff {
			if r.data[r.at+1] != want {
				return malformed.Errorf(malformed.Syntax, "restart marker %#x is missing", want)
			}
			*r = bitReader{data: r.data, at: r.at + 2}
			return nil
		}
		r.at++
	}
	return raster.Truncated()
}

// block reads what the scan has of a block. It is false where the codes make no sense.
func (d *decoder) block(c *component, s *band, x, y int) bool {
	if !d.progressive {
		var b [64]int16
		last, ok := d.sequential(c, &b)
		if ok {
			c.inverse(&b, last, x, y)
		}
		return ok
	}
	at := 64 * (y*c.strideBlocks + x)
	b := (*[64]int16)(c.coefficients[at : at+64])
	switch {
	case s.from == 0 && s.high == 0:
		diff, ok := d.difference(c)
		c.prediction += diff
		b[0] = int16(c.prediction << s.low)
		return ok
	case s.from == 0:
		if d.bits.n < 1 {
			d.bits.fill()
		}
		b[0] |= int16(d.bits.bits(1) << s.low)
		return true
	case s.high == 0:
		return d.first(c, s, b)
	}
	return d.refine(c, s, b)
}

// difference is the change of the first coefficient from the block before.
func (d *decoder) difference(c *component) (int32, bool) {
	n, ok := d.bits.symbol(d.huffman[0][c.dc])
	if !ok || n > 15 {
		return 0, false
	}
	return d.bits.extend(int(n)), true
}

// sequential reads all coefficients of a block; last is the highest in zigzag order that is
// not zero.
func (d *decoder) sequential(c *component, b *[64]int16) (last int, ok bool) {
	diff, ok := d.difference(c)
	if !ok {
		return 0, false
	}
	c.prediction += diff
	b[0] = int16(c.prediction)
	t, r := d.huffman[1][c.ac], &d.bits
	for k := 1; k < 64; k++ {
		v, ok := r.symbol(t)
		if !ok {
			return 0, false
		}
		n := int(v & 15)
		if n == 0 {
			if v != 0xf0 {
				break
			}
			k += 15
			continue
		}
		k += int(v >> 4)
		b[zigzag[k]] = int16(r.extend(n))
		last = k
	}
	return last, true
}

// first reads the high bits of a band (T.81, G.1.2.2).
func (d *decoder) first(c *component, s *band, b *[64]int16) bool {
	if s.eobRun > 0 {
		s.eobRun--
		return true
	}
	t, r := d.huffman[1][c.ac], &d.bits
	for k := s.from; k <= s.to; k++ {
		v, ok := r.symbol(t)
		if !ok {
			return false
		}
		run, n := int(v>>4), int(v&15)
		if n != 0 {
			k += run
			b[zigzag[k]] = int16(r.extend(n) << s.low)
			continue
		}
		if run != 15 {
			s.eobRun = 1<<run - 1 + int(r.bits(run))
			return true
		}
		k += 15
	}
	return true
}

// refine adds one bit to the coefficients of a band (T.81, G.1.2.3).
func (d *decoder) refine(c *component, s *band, b *[64]int16) bool {
	t, r := d.huffman[1][c.ac], &d.bits
	one := int16(1) << s.low
	k := s.from
	if s.eobRun == 0 {
		for k <= s.to {
			v, ok := r.symbol(t)
			if !ok {
				return false
			}
			run, n := int(v>>4), int(v&15)
			value := int16(0)
			switch {
			case n == 1:
				if value = -one; r.bits(1) == 1 {
					value = one
				}
			case n != 0:
				return false
			case run != 15:
				s.eobRun = 1<<run + int(r.bits(run))
			}
			if s.eobRun > 0 {
				break
			}
			if k = r.correct(b, k, s.to, run, one); k > 63 {
				break
			}
			if value != 0 {
				b[zigzag[k]] = value
			}
			k++
		}
	}
	if s.eobRun > 0 {
		s.eobRun--
		r.correct(b, k, s.to, -1, one)
	}
	return true
}

// correct reads a bit for each coefficient that is not zero, up to the zero behind zeros
// others (none where zeros is negative), whose place it gives.
func (r *bitReader) correct(b *[64]int16, k, to, zeros int, one int16) int {
	for ; k <= to; k++ {
		v := &b[zigzag[k]]
		if *v == 0 {
			if zeros == 0 {
				break
			}
			zeros--
			continue
		}
		if r.n < 1 {
			r.fill()
		}
		if r.bits(1) == 1 && *v&one == 0 {
			if *v > 0 {
				*v += one
			} else {
				*v -= one
			}
		}
	}
	return k
}
