package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"

	"agentcli/internal/malformed"
	"agentcli/media/processor"
	"agentcli/model/arch"
	"agentcli/traj"
)

// Image is an image at its places in a sequence of token ids. Where an image is follows from
// these spans alone: an id of an image that was sampled is text.
type Image struct {
	Start  int      // index of its first token
	Tokens int      // how many places it has
	Grid   [3]int   // its patches: frames (1), rows, columns
	Key    [32]byte // hash of its pixels: images of one key and one grid are the same
	// Patches gives the encoder's input, [patches, numbers of a patch], in the order of
	// media/qwen. It is asked where the features of Key are not in memory.
	Patches func() ([]float32, error)
}

// imageKey tells images apart.
type imageKey struct {
	key  [32]byte
	grid [3]int
}

func (i Image) key() imageKey { return imageKey{i.Key, i.Grid} }

// end is the index behind its last token.
func (i Image) end() int { return i.Start + i.Tokens }

// Sequence is a text with images.
type Sequence struct {
	IDs    []int32
	Images []Image // in order of Start
}

// ImagesOf are the images of a sequence as an encoder takes them: spans say where they are,
// by their numbers in images. It fails where a processor would make another grid of one: the
// sequence was made with other settings.
func ImagesOf(p *processor.Processor, images []traj.Image, spans []traj.ImageSpan) ([]Image, error) {
	out := make([]Image, len(spans))
	for i, span := range spans {
		if span.Image < 0 || span.Image >= len(images) {
			return nil, malformed.Field("images", malformed.Range, "a span is of image %d, there are %d", span.Image, len(images))
		}
		im := &images[span.Image]
		grid, tokens, err := p.Grid(im.Width, im.Height)
		if err != nil {
			return nil, malformed.Field("images", malformed.Range, "image %.12s: %w", im.Hash, err)
		}
		if grid != span.Grid || tokens != span.Tokens {
			return nil, malformed.Field("images", malformed.Mismatch,
				"image %.12s of %d × %d pixels has %d tokens of grid %v in the sequence; the model's image processor makes %d of %v: "+
					"was it sampled with other settings?", im.Hash, im.Width, im.Height, span.Tokens, span.Grid, tokens, grid)
		}
		out[i] = Image{Start: span.Start, Tokens: tokens, Grid: grid, Key: KeyOf(im),
			Patches: func() ([]float32, error) { return p.Patches(im) }}
	}
	return out, nil
}

// KeyOf tells the pixels of images apart: of crops of other sides the bytes may be the same.
func KeyOf(im *traj.Image) [32]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%s %d %d", im.Hash, im.Width, im.Height))
}

// checkImages holds the images of a sequence to its ids and to the model. Errors are
// malformed.Error with the field.
func checkImages(ids []int32, images []Image, v *arch.Vision) error {
	if len(images) == 0 {
		return nil
	}
	if v == nil {
		return malformed.Field("images", malformed.Unsupported, "the model takes text alone; open one with an encoder of images")
	}
	at := 0
	for n, i := range images {
		field := func(name string) string { return fmt.Sprintf("images[%d].%s", n, name) }
		switch {
		case i.Start < 0 || i.Tokens < 1 || i.Tokens > len(ids) || i.Start > len(ids)-i.Tokens:
			return malformed.Field(field("start"), malformed.Range, "its %d tokens from %d are not within the %d of the sequence",
				i.Tokens, i.Start, len(ids))
		case i.Start < at:
			return malformed.Field(field("start"), malformed.Mismatch, "it begins at token %d, the image before ends at %d", i.Start, at)
		case v.Tokens(i.Grid) == 0:
			return malformed.Field(field("grid"), malformed.Range, "%v: one frame is needed, and rows and columns that are multiples of %d",
				i.Grid, v.Merge)
		case v.Tokens(i.Grid) != i.Tokens:
			return malformed.Field(field("grid"), malformed.Mismatch, "%v takes %d tokens, the image has %d places",
				i.Grid, v.Tokens(i.Grid), i.Tokens)
		case i.Patches == nil:
			return malformed.Field(field("patches"), malformed.Missing, "there are none")
		}
		for k, id := range ids[i.Start:i.end()] {
			if id != v.ImageToken {
				return malformed.Field(field("start"), malformed.Mismatch, "token %d is %d, not the id of images, %d", i.Start+k, id, v.ImageToken)
			}
		}
		at = i.end()
	}
	return nil
}

// patchesOf asks an image for its patches and holds their number to its grid.
func patchesOf(i Image, v *arch.Vision) ([]float32, error) {
	p, err := i.Patches()
	if err != nil {
		return nil, err
	}
	if want := i.Grid[1] * i.Grid[2] * v.PatchSize(); len(p) != want {
		return nil, malformed.Field("patches", malformed.Mismatch, "%d numbers for a grid of %v; %d are needed", len(p), i.Grid, want)
	}
	for _, x := range p {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return nil, malformed.Field("patches", malformed.Range, "%v is no number of a pixel", x)
		}
	}
	return p, nil
}

// positions are those of tokens: of time, row and column. The last two are nil where all
// three are equal for every token.
type positions [3][]int32

// Positions are those of n tokens with images at these spans, of an encoder that merges patches
// of merge × merge: of time, row and column.
func Positions(n int, spans []traj.ImageSpan, merge int) [3][]int32 {
	images := make([]Image, len(spans))
	for i, s := range spans {
		images[i] = Image{Start: s.Start, Tokens: s.Tokens, Grid: s.Grid}
	}
	out := positionsOf(n, images, merge)
	for a := range out {
		if out[a] == nil {
			out[a] = out[0]
		}
	}
	return out
}

// positionsOf are the positions of n tokens (Wang et al. 2024, section 2.1): text advances all
// three by 1; an image at p has time p, row p + i and column p + j; the text behind it goes on
// after the largest of them.
func positionsOf(n int, images []Image, merge int) (out positions) {
	axes := 1
	if len(images) > 0 {
		axes = 3
	}
	for a := range axes {
		out[a] = make([]int32, 0, n)
	}
	p := int32(0)
	text := func(to int) {
		for len(out[0]) < to {
			for a := range axes {
				out[a] = append(out[a], p)
			}
			p++
		}
	}
	for _, i := range images {
		text(i.Start)
		rows, columns := int32(i.Grid[1]/merge), int32(i.Grid[2]/merge)
		for r := range rows {
			for c := range columns {
				out[0], out[1], out[2] = append(out[0], p), append(out[1], p+r), append(out[2], p+c)
			}
		}
		p += max(rows, columns)
	}
	text(n)
	return out
}

// after is what is added to the index of a token behind all images for its position.
func after(images []Image, merge int) int32 {
	shift := 0
	for _, i := range images {
		shift += max(i.Grid[1], i.Grid[2])/merge - i.Tokens
	}
	return int32(shift)
}

// tagOf tells the images of the tokens from..to-1 of a sequence apart from others of the same
// ids: "" where there are none.
func tagOf(images []Image, from, to int) string {
	var tag []byte
	for _, i := range images {
		if i.Start >= to || i.end() <= from {
			continue
		}
		tag = append(tag, i.Key[:]...)
		for _, n := range []int{i.Grid[0], i.Grid[1], i.Grid[2], i.Start - from} {
			tag = binary.LittleEndian.AppendUint64(tag, uint64(n))
		}
	}
	if tag == nil {
		return ""
	}
	h := sha256.Sum256(tag)
	return string(h[:])
}
