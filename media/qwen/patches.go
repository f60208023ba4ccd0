package qwen

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"

	"agentcli/internal/malformed"
	"agentcli/media/raster"
)

// maxRatio is the largest ratio of the sides that the processor takes.
const maxRatio = 200

// Size is the size that a model sees of an image of height × width pixels: multiples of
// patch times merge, the area within the bounds, the ratio as near as that allows
// (smart_resize of transformers). A ratio above 200 is malformed.Range.
func (c *Config) Size(height, width int) (h, w int, err error) {
	if height < 1 || width < 1 {
		return 0, 0, malformed.Errorf(malformed.Range, "it has %d × %d pixels", width, height)
	}
	long, short := float64(max(height, width)), float64(min(height, width))
	if long/short > maxRatio {
		return 0, 0, malformed.Errorf(malformed.Range, "it has %d × %d pixels: one side is more than %d times the other", width, height, maxRatio)
	}
	// float64 in this order, as in Python; its round goes to the even number.
	fh, fw, f := float64(height), float64(width), float64(c.PatchSize*c.MergeSize)
	bh, bw := math.RoundToEven(fh/f)*f, math.RoundToEven(fw/f)*f
	most, least := float64(c.MaxPixels), float64(c.MinPixels)
	switch {
	case bh*bw > most:
		beta := math.Sqrt(fh * fw / most)
		bh = max(f, math.Floor(fh/beta/f)*f)
		bw = max(f, math.Floor(fw/beta/f)*f)
	case bh*bw < least:
		beta := math.Sqrt(least / (fh * fw))
		bh = math.Ceil(float64(fh*beta)/f) * f
		bw = math.Ceil(float64(fw*beta)/f) * f
	}
	return int(bh), int(bw), nil
}

// Grid is the number of patches of an image: frames, rows, columns.
type Grid [3]int

// Patches is how many patches a grid has.
func (g Grid) Patches() int { return g[0] * g[1] * g[2] }

// Patches are the input of a vision encoder.
type Patches struct {
	// Values are [Grid.Patches(), 3 · temporal · patch · patch]: the patches of one token
	// beside each other, tokens row by row.
	Values []float32
	Grid   Grid
	Tokens int // places that the image takes in the text
}

// Hash is the SHA-256, in hexadecimal, of the values as little-endian float32: in Python
// hashlib.sha256(pixel_values.numpy().tobytes()).hexdigest().
func (p *Patches) Hash() string {
	h := sha256.New()
	buffer := make([]byte, 0, 1<<14)
	for at := 0; at < len(p.Values); at += 1 << 12 {
		buffer = buffer[:0]
		for _, v := range p.Values[at:min(at+1<<12, len(p.Values))] {
			buffer = binary.LittleEndian.AppendUint32(buffer, math.Float32bits(v))
		}
		h.Write(buffer)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Resize gives the image as the model sees it.
func (c *Config) Resize(m *raster.Image) (*raster.Image, error) {
	h, w, err := c.Size(m.Height, m.Width)
	if err != nil {
		return nil, err
	}
	return c.Rule.Resize(m, w, h), nil
}

// Patches normalises and cuts an image of a size that Size gives.
func (c *Config) Patches(m *raster.Image) (*Patches, error) {
	p, side := c.PatchSize, c.PatchSize*c.MergeSize
	if m.Width%side != 0 || m.Height%side != 0 || m.Width == 0 || m.Height == 0 {
		return nil, malformed.Errorf(malformed.Range, "%d × %d pixels are no multiples of %d", m.Width, m.Height, side)
	}
	grid := Grid{1, m.Height / p, m.Width / p}
	out := &Patches{Grid: grid, Tokens: grid.Patches() / (c.MergeSize * c.MergeSize),
		Values: make([]float32, grid.Patches()*3*c.TemporalPatchSize*p*p)}
	values := c.values()
	to := out.Values
	for y := 0; y < m.Height; y += side {
		for x := 0; x < m.Width; x += side {
			for row := y; row < y+side; row += p {
				for column := x; column < x+side; column += p {
					to = c.patch(to, m, row, column, values)
				}
			}
		}
	}
	return out, nil
}

// values are the normalised values of the bytes of each channel: in float32
// (v − mean·255) / (std·255), as the torchvision processor computes it.
func (c *Config) values() *[3][256]float32 {
	var all [3][256]float32
	scale := float32(1 / c.RescaleFactor)
	for i := range all {
		mean, std := float32(c.Mean[i])*scale, float32(c.Std[i])*scale
		for v := range all[i] {
			all[i][v] = (float32(v) - mean) / std
		}
	}
	return &all
}

// patch writes the patch at (y, x) and gives what is behind it.
func (c *Config) patch(to []float32, m *raster.Image, y, x int, values *[3][256]float32) []float32 {
	p := c.PatchSize
	area := p * p
	for channel := range 3 {
		frame, table := to[:area], &values[channel]
		for dy := range p {
			src := m.Pix[3*((y+dy)*m.Width+x)+channel:]
			dst := frame[dy*p : dy*p+p]
			for i, k := 0, 0; i < len(dst) && k < len(src); i, k = i+1, k+3 {
				dst[i] = table[src[k]]
			}
		}
		for t := 1; t < c.TemporalPatchSize; t++ {
			copy(to[t*area:], frame)
		}
		to = to[c.TemporalPatchSize*area:]
	}
	return to
}
