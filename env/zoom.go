package env

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"agentcli/media/album"
	"agentcli/media/processor"
	"agentcli/media/qwen"
	"agentcli/traj"
)

// Spaces of a box's coordinates.
const (
	BoxSeen     = "seen"     // pixels of the image as the model was shown it, after smart_resize: Qwen2.5-VL
	BoxOriginal = "original" // pixels of the image as it is
	Box1000     = "1000"     // thousandths of each side: Qwen2-VL and Qwen3-VL
)

// BoxSpaces lists them.
var BoxSpaces = []string{BoxSeen, BoxOriginal, Box1000}

const (
	minCrop  = 28  // pixels of a side, one token of Qwen2.5-VL
	maxRatio = 200 // of the sides: smart_resize takes no larger one
)

// Zoom is DeepEyes' tool image_zoom_in_tool: it cuts a box out of an image of the
// conversation and shows it. A box of a crop is cut out of the file that the crop is of.
// Edges that leave the image are moved to its border, and a box with a side below 28
// pixels grows about its centre, within the image.
type Zoom struct {
	Space string // of the boxes' coordinates; "": BoxSeen
	// Seen gives the size at which the model is shown an image, in pixels; nil: Qwen2.5-VL's.
	Seen func(width, height int) (w, h int, err error)
}

// Spec describes the tool to a model.
func (z Zoom) Spec() traj.ToolSpec {
	space := "in pixels of the image as you see it"
	switch z.Space {
	case BoxOriginal:
		space = "in pixels of the original image"
	case Box1000:
		space = "in thousandths of the image's width and height"
	}
	parameters, err := json.Marshal(map[string]any{"type": "object", "required": []string{"bbox_2d"}, "properties": map[string]any{
		"bbox_2d": map[string]any{"type": "array", "items": map[string]any{"type": "number"}, "minItems": 4, "maxItems": 4,
			"description": "the box [x1, y1, x2, y2] " + space + ": x1, y1 is the upper left corner, x2, y2 the lower right one"},
		"label": map[string]any{"type": "string", "description": "what is in the box"},
		"image": imageParameter(),
	}})
	if err != nil {
		panic(err) // it is a constant
	}
	return traj.ToolSpec{Name: "image_zoom_in_tool", Parameters: parameters,
		Description: "Zoom in on a part of an image: the box is cut out of the original image and shown to you."}
}

// Call implements Tool: without images there is nothing to zoom into.
func (z Zoom) Call(context.Context, json.RawMessage) (string, error) { return "", errNoImage }

// Look implements Looking.
func (z Zoom) Look(ctx context.Context, args json.RawMessage, seen []traj.Image) (string, []traj.Image, error) {
	var a struct {
		Box   []float64 `json:"bbox_2d"`
		Label string    `json:"label"`
		Image int       `json:"image"`
	}
	if err := ReadArgs(args, &a); err != nil {
		return "", nil, err
	}
	im, err := imageNumber(seen, a.Image)
	if err != nil {
		return "", nil, err
	}
	if len(a.Box) != 4 {
		return "", nil, fmt.Errorf("wrong arguments: bbox_2d has %d numbers, not 4", len(a.Box))
	}
	box, err := z.pixels(im, [4]float64(a.Box))
	if err != nil {
		return "", nil, err
	}
	crop, err := album.Crop(ctx, im, box)
	if err != nil {
		return "", nil, fmt.Errorf("%w: the image cannot be cut (%w)", ErrBroken, err)
	}
	return traj.ImageMark, []traj.Image{crop}, nil
}

// pixels are a box's edges in pixels of the image, as it is cut.
func (z Zoom) pixels(im *traj.Image, b [4]float64) (box [4]int, err error) {
	size := [2]int{im.Width, im.Height}
	scale := [2]float64{1, 1}
	switch z.Space {
	case "", BoxSeen:
		seen := z.Seen
		if seen == nil {
			seen = processor.New(qwen.DefaultConfig()).Size
		}
		w, h, err := seen(im.Width, im.Height)
		if err != nil {
			return box, fmt.Errorf("%w: image %.12s cannot be shown (%w)", ErrBroken, im.Hash, err)
		}
		scale = [2]float64{float64(im.Width) / float64(w), float64(im.Height) / float64(h)}
	case Box1000:
		scale = [2]float64{float64(im.Width) / 1000, float64(im.Height) / 1000}
	}
	for i, v := range b {
		if math.IsNaN(v) {
			return box, errors.New("wrong arguments: bbox_2d has a number that is none")
		}
		side := size[i%2]
		box[i] = int(math.RoundToEven(min(max(v*scale[i%2], 0), float64(side))))
	}
	if !(b[0] < b[2]) || !(b[1] < b[3]) {
		return box, fmt.Errorf("the box %s is empty: want x1 < x2 and y1 < y2", numbers(b))
	}
	if box[0] >= size[0] || box[1] >= size[1] || box[2] <= 0 || box[3] <= 0 {
		return box, fmt.Errorf("the box %s is outside of the image", numbers(b))
	}
	for axis, side := range size {
		box[axis], box[axis+2] = grown(box[axis], box[axis+2], side)
	}
	if w, h := box[2]-box[0], box[3]-box[1]; max(w, h) > maxRatio*min(w, h) {
		return box, fmt.Errorf("the box %s is %d × %d pixels: one side is more than %d times the other", numbers(b), w, h, maxRatio)
	}
	return box, nil
}

// grown are the edges of a box along an axis, at least minCrop apart where the image has so
// many pixels.
func grown(from, to, side int) (int, int) {
	want := min(minCrop, side)
	if to-from >= want {
		return from, to
	}
	from = min(max((from+to-want)/2, 0), side-want)
	return from, from + want
}

func numbers(b [4]float64) string { return strings.ReplaceAll(fmt.Sprint(b), " ", ", ") }
