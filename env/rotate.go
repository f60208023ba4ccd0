package env

import (
	"context"
	"encoding/json"
	"fmt"

	"agentcli/media"
	"agentcli/media/album"
	"agentcli/traj"
)

// Rotate is DeepEyes' tool image_rotate_tool: it turns an image of the conversation
// counter-clockwise and shows all of it, with black corners. The result is a PNG file of its own.
type Rotate struct {
	Limits media.Limits // of the result
}

// Spec describes the tool to a model.
func (r Rotate) Spec() traj.ToolSpec {
	parameters, err := json.Marshal(map[string]any{"type": "object", "required": []string{"angle"}, "properties": map[string]any{
		"angle": map[string]any{"type": "number",
			"description": "degrees: positive ones turn the image counter-clockwise, negative ones clockwise"},
		"label": map[string]any{"type": "string", "description": "what is in the image"},
		"image": imageParameter(),
	}})
	if err != nil {
		panic(err) // it is a constant
	}
	return traj.ToolSpec{Name: "image_rotate_tool", Parameters: parameters,
		Description: "Rotate an image: all of it is turned by the angle and shown to you."}
}

// Call implements Tool: without images there is nothing to turn.
func (r Rotate) Call(context.Context, json.RawMessage) (string, error) { return "", errNoImage }

// Look implements Looking.
func (r Rotate) Look(ctx context.Context, args json.RawMessage, seen []traj.Image) (string, []traj.Image, error) {
	var a struct {
		Angle *float64 `json:"angle"`
		Label string   `json:"label"`
		Image int      `json:"image"`
	}
	if err := ReadArgs(args, &a); err != nil {
		return "", nil, err
	}
	im, err := imageNumber(seen, a.Image)
	if err != nil {
		return "", nil, err
	}
	if a.Angle == nil {
		return "", nil, fmt.Errorf("wrong arguments: angle is missing; give degrees")
	}
	file, err := r.turned(ctx, im, *a.Angle)
	if err != nil {
		return "", nil, err
	}
	if most := r.Limits.MaxBytes(); len(file) > most {
		return "", nil, fmt.Errorf("the turned image is a file of %d bytes, more than %d", len(file), most)
	}
	turned, err := album.Open(file, "", r.Limits)
	if err != nil {
		return "", nil, fmt.Errorf("%w: the turned image cannot be read again (%w)", ErrBroken, err)
	}
	return traj.ImageMark, []traj.Image{turned}, nil
}

// turned is an image, turned, as a PNG file.
func (r Rotate) turned(ctx context.Context, im *traj.Image, angle float64) (file []byte, err error) {
	var refused error
	err = album.Use(ctx, im, func(pixels *media.Image) (err error) {
		if w, h := pixels.RotatedSize(angle); w > r.Limits.MaxPixels()/h {
			refused = fmt.Errorf("the turned image would have %d × %d pixels, more than %d in all", w, h, r.Limits.MaxPixels())
			return nil
		}
		file, err = album.PNG(pixels.Rotated(angle))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: the image cannot be turned (%w)", ErrBroken, err)
	}
	return file, refused
}
