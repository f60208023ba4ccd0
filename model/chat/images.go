package chat

import (
	"slices"

	"agentcli/internal/malformed"
	"agentcli/traj"
)

// ImagePlaces says how many tokens of a prompt stand for an image.
type ImagePlaces struct {
	Token int32 // the id of each of them
	// Grid is the patches of an image of that size in pixels, and how many tokens it takes.
	Grid func(width, height int) (grid [3]int, tokens int, err error)
}

// Expand puts the tokens of the images of msgs in the places that a renderer wrote for them in
// ids, and says where they are. It fails where there are not as many places as images.
func (p *ImagePlaces) Expand(ids []int32, msgs []traj.Message) ([]int32, []traj.ImageSpan, error) {
	return p.expand(ids, 0, nil, nil, msgs)
}

func errNoImages() error {
	return malformed.Field("images", malformed.Unsupported, "the model takes text alone; open one with an encoder of images")
}

func imagesOf(msgs []traj.Message) (all []traj.Image) {
	for i := range msgs {
		all = append(all, msgs[i].Images...)
	}
	return all
}

// expand puts the tokens of images in the places of their marks: in ids from index from on,
// each id that is Token stands for the next image of msgs. Special tokens are the template's
// alone, so there are no others. spans are those of ids before from, of the images of before.
// It fails where there are not as many marks as images.
func (p *ImagePlaces) expand(ids []int32, from int, spans []traj.ImageSpan, before, msgs []traj.Message) (
	[]int32, []traj.ImageSpan, error) {
	images := imagesOf(msgs)
	if len(images) == 0 {
		return ids, spans, nil
	}
	if p == nil {
		return nil, nil, errNoImages()
	}
	marks := 0
	for _, id := range ids[from:] {
		if id == p.Token {
			marks++
		}
	}
	if marks != len(images) {
		return nil, nil, malformed.Field("messages", malformed.Mismatch, "%w: the chat template wrote %d places for %d images",
			traj.ErrImagePlaces, marks, len(images))
	}
	out, spans := slices.Clone(ids[:from]), slices.Clone(spans)
	first, next := len(imagesOf(before)), 0
	for _, id := range ids[from:] {
		if id != p.Token {
			out = append(out, id)
			continue
		}
		grid, tokens, err := p.Grid(images[next].Width, images[next].Height)
		if err != nil {
			return nil, nil, malformed.Field("images", "", "%d: %w", first+next, err)
		}
		spans = append(spans, traj.ImageSpan{Image: first + next, Start: len(out), Tokens: tokens, Grid: grid})
		out = append(out, slices.Repeat([]int32{p.Token}, tokens)...)
		next++
	}
	return out, spans, nil
}
