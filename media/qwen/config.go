// Package qwen prepares images for Qwen2-VL, Qwen2.5-VL and Qwen3-VL as the image processor
// of transformers does: the size that a model sees, pixels normalised, patches in the order
// of its encoder. It imports media/raster and media/resize.
package qwen

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"agentcli/internal/malformed"
	"agentcli/media/resize"
)

// Config is what an image processor is set to. DefaultConfig is that of Qwen2-VL and
// Qwen2.5-VL where a file leaves something out.
type Config struct {
	PatchSize         int // pixels of a patch's side
	TemporalPatchSize int // frames of a patch; a still image is repeated
	MergeSize         int // patches of a token's side
	MinPixels         int // of the image that the model sees: width times height
	MaxPixels         int
	RescaleFactor     float64
	Mean, Std         [3]float64 // of red, green and blue, from 0 to 1
	Rule              resize.Rule
}

// DefaultConfig is Qwen2VLImageProcessor's.
func DefaultConfig() Config {
	return Config{PatchSize: 14, TemporalPatchSize: 2, MergeSize: 2, MinPixels: 56 * 56, MaxPixels: 28 * 28 * 1280,
		RescaleFactor: 1.0 / 255, Rule: resize.Torchvision,
		Mean: [3]float64{0.48145466, 0.4578275, 0.40821073}, Std: [3]float64{0.26862954, 0.26130258, 0.27577711}}
}

// The files of a model's folder that may have the settings. The first has more than one
// processor's.
const (
	processorFile    = "processor_config.json"
	preprocessorFile = "preprocessor_config.json"
)

// settings are the keys of the file that decide about pixels.
type settings struct {
	Type       string     `json:"image_processor_type"`
	Patch      *int       `json:"patch_size"`
	Temporal   *int       `json:"temporal_patch_size"`
	Merge      *int       `json:"merge_size"`
	MinPixels  *int       `json:"min_pixels"`
	MaxPixels  *int       `json:"max_pixels"`
	Size       *edges     `json:"size"`
	Mean       *[]float64 `json:"image_mean"`
	Std        *[]float64 `json:"image_std"`
	Factor     *float64   `json:"rescale_factor"`
	Resample   *int       `json:"resample"`
	Resize     *bool      `json:"do_resize"`
	Rescale    *bool      `json:"do_rescale"`
	Normalize  *bool      `json:"do_normalize"`
	ConvertRGB *bool      `json:"do_convert_rgb"`
}

// edges are areas, in spite of their names.
type edges struct {
	Shortest *int `json:"shortest_edge"`
	Longest  *int `json:"longest_edge"`
}

// ReadConfig reads the settings of a model's folder. Without a file of settings the error is
// fs.ErrNotExist; others are malformed.Error with the file and the key.
func ReadConfig(folder string) (Config, error) {
	path := filepath.Join(folder, processorFile)
	var outer struct {
		Image *settings `json:"image_processor"`
	}
	switch err := readJSON(path, &outer); {
	case err == nil && outer.Image != nil:
		return outer.Image.config(path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return Config{}, err
	}
	var s settings
	path = filepath.Join(folder, preprocessorFile)
	if err := readJSON(path, &s); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return Config{}, fmt.Errorf("%s has no %s: the model takes no images: %w", folder, preprocessorFile, fs.ErrNotExist)
		}
		return Config{}, err
	}
	return s.config(path)
}

func readJSON(path string, into any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return malformed.At(path, "", malformed.Syntax, "%w", err)
	}
	return nil
}

// config puts what the file says over the defaults, and refuses what it does not do.
func (s *settings) config(path string) (Config, error) {
	c := DefaultConfig()
	switch s.Type {
	case "", "Qwen2VLImageProcessor", "Qwen2VLImageProcessorFast", "Qwen2VLImageProcessorPil", "Qwen2_5_VLImageProcessor":
	default:
		return c, malformed.At(path, "image_processor_type", malformed.Unsupported, "%q; Qwen2VLImageProcessor is supported", s.Type)
	}
	if s.Resample != nil && *s.Resample != 3 {
		return c, malformed.At(path, "resample", malformed.Unsupported, "%d; 3 (bicubic) is supported", *s.Resample)
	}
	for key, v := range map[string]*bool{
		"do_resize": s.Resize, "do_rescale": s.Rescale, "do_normalize": s.Normalize, "do_convert_rgb": s.ConvertRGB,
	} {
		if v != nil && !*v {
			return c, malformed.At(path, key, malformed.Unsupported, "false; the processor's default, true, is supported")
		}
	}
	set := func(to, from *int) {
		if from != nil {
			*to = *from
		}
	}
	set(&c.PatchSize, s.Patch)
	set(&c.TemporalPatchSize, s.Temporal)
	set(&c.MergeSize, s.Merge)
	if s.Size != nil {
		set(&c.MinPixels, s.Size.Shortest)
		set(&c.MaxPixels, s.Size.Longest)
	}
	set(&c.MinPixels, s.MinPixels)
	set(&c.MaxPixels, s.MaxPixels)
	if s.Factor != nil {
		c.RescaleFactor = *s.Factor
	}
	for key, from := range map[string]*[]float64{"image_mean": s.Mean, "image_std": s.Std} {
		if from == nil {
			continue
		}
		if len(*from) != 3 {
			return c, malformed.At(path, key, malformed.Range, "%d numbers, not 3", len(*from))
		}
		if key == "image_mean" {
			c.Mean = [3]float64(*from)
		} else {
			c.Std = [3]float64(*from)
		}
	}
	if err := c.Validate(); err != nil {
		return c, &malformed.Error{Path: path, Err: err}
	}
	return c, nil
}

// largestSide bounds patch times merge, so that sizes stay far from overflow.
const largestSide = 1 << 12

// Validate names the field that makes no sense.
func (c *Config) Validate() error {
	refuse := func(field string, v any) error {
		return malformed.Field(field, malformed.Range, "%v is out of range", v)
	}
	switch {
	case c.PatchSize < 1 || c.PatchSize > largestSide:
		return refuse("patch_size", c.PatchSize)
	case c.TemporalPatchSize < 1 || c.TemporalPatchSize > 64:
		return refuse("temporal_patch_size", c.TemporalPatchSize)
	case c.MergeSize < 1 || c.MergeSize*c.PatchSize > largestSide:
		return refuse("merge_size", c.MergeSize)
	case c.MinPixels < 1 || c.MinPixels > math.MaxInt32:
		return refuse("min_pixels", c.MinPixels)
	case c.MaxPixels < c.MinPixels || c.MaxPixels > math.MaxInt32:
		return refuse("max_pixels", c.MaxPixels)
	case !(c.RescaleFactor > 0 && c.RescaleFactor <= 1):
		return refuse("rescale_factor", c.RescaleFactor)
	}
	for i := range 3 {
		if !(c.Std[i] > 0 && c.Std[i] < math.MaxFloat32) || !(math.Abs(c.Mean[i]) < math.MaxFloat32) {
			return refuse("image_std and image_mean", c.Std[i])
		}
	}
	return nil
}
