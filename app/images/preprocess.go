// Package images prepares image files for a model: model preprocess.
package images

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"

	"agentcli/internal/malformed"
	"agentcli/internal/setting"
	"agentcli/media"
	"agentcli/media/qwen"
	"agentcli/media/resize"
	"agentcli/model/weights"
	"agentcli/policy"
)

// Options say how images are prepared. Zero values are the defaults of the model's folder
// and of media.Limits.
type Options struct {
	Resize         string // a rule of media/resize; "": torchvision
	MinPixels      int    // of the image that the model sees
	MaxPixels      int
	MaxImagePixels int // of a file, by its header
	MaxImageBytes  int
}

// Validate names the first field that is out of range.
func (o Options) Validate() error {
	if _, err := resize.Parse(o.Resize); err != nil {
		return setting.Errorf("%s: %w", setting.Name("Resize"), err)
	}
	for _, f := range []struct {
		name  setting.Name
		value int
	}{{"MinPixels", o.MinPixels}, {"MaxPixels", o.MaxPixels}, {"MaxImagePixels", o.MaxImagePixels}, {"MaxImageBytes", o.MaxImageBytes}} {
		if f.value < 0 || f.value > math.MaxInt32 {
			return setting.Errorf("%s is %d; it must be from 1 to %d, or 0 (default)", f.name, f.value, math.MaxInt32)
		}
	}
	return nil
}

// Preprocessor prepares images as the image processor of a model.
type Preprocessor struct {
	config qwen.Config
	limits media.Limits
}

// Open reads the settings of the image processor in a model's folder, or in that of an adapter's base.
func Open(folder string, o Options) (*Preprocessor, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	folder, err := weights.BaseOf(folder)
	if err != nil {
		return nil, err
	}
	c, err := qwen.ReadConfig(folder)
	if err != nil {
		return nil, err
	}
	if o.MinPixels > 0 {
		c.MinPixels = o.MinPixels
	}
	if o.MaxPixels > 0 {
		c.MaxPixels = o.MaxPixels
	}
	if c.MinPixels > c.MaxPixels {
		return nil, setting.Errorf("%s is %d, more than %s, which is %d", setting.Name("MinPixels"), c.MinPixels,
			setting.Name("MaxPixels"), c.MaxPixels)
	}
	if c.Rule, err = resize.Parse(o.Resize); err != nil {
		return nil, err
	}
	return &Preprocessor{c, media.Limits{Pixels: o.MaxImagePixels, Bytes: o.MaxImageBytes}}, nil
}

// Answer is what is known of a prepared image.
type Answer struct {
	Width       int       `json:"width"` // of the image, turned as EXIF says, or of the box
	Height      int       `json:"height"`
	PixelsHash  string    `json:"pixels_sha256"` // of its RGB bytes
	SeenWidth   int       `json:"resized_width"` // of the image that the model sees
	SeenHeight  int       `json:"resized_height"`
	SeenHash    string    `json:"resized_sha256"`
	Grid        qwen.Grid `json:"image_grid_thw"`
	Tokens      int       `json:"tokens"`
	PatchesHash string    `json:"pixel_values_sha256"` // of its little-endian float32 values
}

// File prepares an image file, or the rectangle box of it: left, upper, right and lower edge
// in pixels of the whole image. Errors about its content are of kind malformed.
func (p *Preprocessor) File(path string, box *[4]int) (Answer, error) {
	fail := func(err error) (Answer, error) { return Answer{}, &malformed.Error{Path: path, Err: err} }
	file, err := p.read(path)
	if err != nil {
		return Answer{}, err
	}
	img, err := media.Decode(file, p.limits)
	if err != nil {
		return fail(err)
	}
	if box != nil {
		if img, err = img.Crop(box[0], box[1], box[2], box[3]); err != nil {
			return fail(err)
		}
	}
	seen, err := p.config.Resize(img)
	if err != nil {
		return fail(err)
	}
	patches, err := p.config.Patches(seen)
	if err != nil {
		return fail(err)
	}
	return Answer{Width: img.Width, Height: img.Height, PixelsHash: img.Hash(),
		SeenWidth: seen.Width, SeenHeight: seen.Height, SeenHash: seen.Hash(),
		Grid: patches.Grid, Tokens: patches.Tokens, PatchesHash: patches.Hash()}, nil
}

// Place finds the places of image files among the ids of a text: the first takes as many as it
// needs from the first id of images on, the next those behind it. What is left of such ids is
// text. Errors about a file's content, and places that do not fit, are of kind malformed.
func (p *Preprocessor) Place(ids []int32, imageToken int32, paths []string) (policy.Sequence, error) {
	q, at := policy.Sequence{IDs: ids}, 0
	for k, path := range paths {
		img, err := p.image(path)
		if err != nil {
			return q, err
		}
		n := slices.Index(ids[at:], imageToken)
		if n < 0 {
			return q, malformed.Field("images", malformed.Mismatch, "there are %d, and %d places of id %d in the text", len(paths), k, imageToken)
		}
		img.Start = at + n
		at = min(img.Start+img.Tokens, len(ids))
		q.Images = append(q.Images, img)
	}
	return q, nil
}

// image is a file as the model's encoder takes it, without a place.
func (p *Preprocessor) image(path string) (policy.Image, error) {
	fail := func(err error) (policy.Image, error) { return policy.Image{}, &malformed.Error{Path: path, Err: err} }
	file, err := p.read(path)
	if err != nil {
		return policy.Image{}, err
	}
	img, err := media.Decode(file, p.limits)
	if err != nil {
		return fail(err)
	}
	seen, err := p.config.Resize(img)
	if err != nil {
		return fail(err)
	}
	patches, err := p.config.Patches(seen)
	if err != nil {
		return fail(err)
	}
	out := policy.Image{Tokens: patches.Tokens, Grid: patches.Grid, Patches: func() ([]float32, error) { return patches.Values, nil }}
	key, err := hex.DecodeString(seen.Hash())
	if err != nil {
		return fail(err)
	}
	copy(out.Key[:], key)
	return out, nil
}

func (p *Preprocessor) read(path string) ([]byte, error) { return read(path, p.limits) }

// ReadFile reads an image file no further than the default limit of its bytes. What is no
// regular file is refused.
func ReadFile(path string) ([]byte, error) { return read(path, media.Limits{}) }

func read(path string, limits media.Limits) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, malformed.At(path, "", malformed.Missing, "there is no such file")
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, malformed.At(path, "", malformed.Type, "it is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	most := int64(limits.MaxBytes())
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}
