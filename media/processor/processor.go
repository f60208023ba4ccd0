// Package processor is the image processor of a model for images of conversations: how many
// tokens an image takes, and its patches. It is in layer 1: it knows traj and media.
package processor

import (
	"context"
	"encoding/json"
	"fmt"

	"agentcli/media"
	"agentcli/media/album"
	"agentcli/media/qwen"
	"agentcli/media/resize"
	"agentcli/traj"
)

// Processor prepares images for a model of the Qwen-VL families, as transformers'
// AutoProcessor does. It is safe for concurrent use.
type Processor struct{ config qwen.Config }

// Open reads the settings of a model's folder. Errors are those of qwen.ReadConfig.
func Open(folder string) (*Processor, error) {
	c, err := qwen.ReadConfig(folder)
	if err != nil {
		return nil, err
	}
	return &Processor{c}, nil
}

// New is a processor with these settings, which Validate accepts.
func New(c qwen.Config) *Processor { return &Processor{c} }

// Config is what the processor is set to.
func (p *Processor) Config() qwen.Config { return p.config }

// Within is the processor with other bounds of the area that the model sees, in pixels; 0
// leaves one as it is.
func (p *Processor) Within(minPixels, maxPixels int) (*Processor, error) {
	c := p.config
	if minPixels > 0 {
		c.MinPixels = minPixels
	}
	if maxPixels > 0 {
		c.MaxPixels = maxPixels
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Processor{c}, nil
}

// Size is the width and height in pixels at which the model sees an image.
func (p *Processor) Size(width, height int) (w, h int, err error) {
	h, w, err = p.config.Size(height, width)
	return w, h, err
}

// Grid is the number of patches of an image of width × height pixels (frames, rows, columns),
// and how many tokens stand for it. Nothing is decoded.
func (p *Processor) Grid(width, height int) (grid [3]int, tokens int, err error) {
	h, w, err := p.config.Size(height, width)
	if err != nil {
		return grid, 0, err
	}
	grid = [3]int{1, h / p.config.PatchSize, w / p.config.PatchSize}
	return grid, grid[1] * grid[2] / (p.config.MergeSize * p.config.MergeSize), nil
}

// Patches decodes, resizes and cuts an image: [patches, numbers of a patch] in the order of
// the encoder. The image's file must be there; errors are those of album.Pixels. It waits
// while album.MaxDecoding pixels are decoded by others.
func (p *Processor) Patches(im *traj.Image) ([]float32, error) {
	var seen *media.Image
	err := album.Use(context.Background(), im, func(pixels *media.Image) (err error) {
		seen, err = p.config.Resize(pixels)
		return err
	})
	if err != nil {
		return nil, err
	}
	patches, err := p.config.Patches(seen)
	if err != nil {
		return nil, err
	}
	return patches.Values, nil
}

// rule is what decides about the patches of an image.
type rule struct {
	Resize    resize.Rule `json:"resize"`
	MinPixels int         `json:"min_pixels"`
	MaxPixels int         `json:"max_pixels"`
	Patch     int         `json:"patch_size"`
	Temporal  int         `json:"temporal_patch_size"`
	Merge     int         `json:"merge_size"`
	Factor    float64     `json:"rescale_factor"`
	Mean      [3]float64  `json:"image_mean"`
	Std       [3]float64  `json:"image_std"`
}

// Rule is all settings that decide about an image's patches, as JSON: processors of one rule
// make the same patches.
func (p *Processor) Rule() string {
	c := &p.config
	b, err := json.Marshal(rule{c.Rule, c.MinPixels, c.MaxPixels, c.PatchSize, c.TemporalPatchSize, c.MergeSize,
		c.RescaleFactor, c.Mean, c.Std})
	if err != nil { // numbers and a word
		return fmt.Sprint(err)
	}
	return string(b)
}
