package env

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"agentcli/internal/text"
	"agentcli/media"
	"agentcli/media/album"
	"agentcli/media/processor"
	"agentcli/media/qwen"
	"agentcli/traj"
)

// Looking is a Tool that is given the conversation's images so far, and may give others. The
// environment calls Look in place of Call. Calls of one reply see the same images.
type Looking interface {
	Tool
	// Look is Call. The result's text has a traj.ImageMark for each of its images.
	Look(ctx context.Context, args json.RawMessage, seen []traj.Image) (string, []traj.Image, error)
}

// Showing is a Tool whose results may have images that do not depend on the conversation's.
// Where ShowsImages is true the environment calls Show in place of Call, and reads the files.
type Showing interface {
	Tool
	ShowsImages() bool
	// Show is Call. The result's text has a traj.ImageMark for each of its files.
	Show(ctx context.Context, args json.RawMessage) (string, []ImageFile, error)
}

// ImageFile is an image of a tool's result that has not been read yet.
type ImageFile struct {
	Type  string // MIME type, as the tool names it; "": it names none
	Path  string // of a file on this machine; "": Bytes are the file
	Bytes []byte
}

// defaultMaxImages is how many images the results of a conversation may have.
const defaultMaxImages = 64

// ImageConfig says which images of tools' results a model is shown. The zero value is ready
// for use.
type ImageConfig struct {
	MaxImages int          // of the results of a conversation; 0: defaultMaxImages
	Limits    media.Limits // of a file
	MaxTokens int          // of one image, by Tokens; 0: no limit
	// Tokens is how many tokens an image of that size in pixels takes; nil: Qwen2.5-VL's.
	Tokens func(width, height int) (int, error)
	// TextAlone says that the model takes no images: it is given descriptions in their places.
	TextAlone bool
	Described func() // is called where an image was described for that; nil: nobody
}

// errNoImage is what a tool says that works on images of the conversation.
var errNoImage = errors.New("there is no image in this conversation")

// imageParameter is the schema of the argument that chooses an image.
func imageParameter() map[string]any {
	return map[string]any{"type": "integer", "minimum": 0, "description": "which image, counted from 0 (default: 0, the first)"}
}

// imageNumber is an image of the conversation.
func imageNumber(seen []traj.Image, n int) (*traj.Image, error) {
	switch {
	case len(seen) == 0:
		return nil, errNoImage
	case n < 0 || n >= len(seen):
		return nil, fmt.Errorf("there is no image %d: this conversation has %d, counted from 0", n, len(seen))
	}
	return &seen[n], nil
}

// WithoutFiles is a result's text with a description of each of its files in its place.
func WithoutFiles(result string, files []ImageFile) string {
	pieces := strings.SplitN(result, traj.ImageMark, len(files)+1)
	var b strings.Builder
	for i, f := range files {
		if i < len(pieces) {
			b.WriteString(pieces[i])
		}
		b.WriteString(f.describe())
	}
	if len(pieces) > len(files) {
		b.WriteString(pieces[len(files)])
	}
	return b.String()
}

func (f ImageFile) describe() string {
	words := []string{"an image"}
	if f.Type != "" {
		words = append(words, text.Cut(text.OneLine(f.Type), 40))
	}
	if f.Path != "" {
		words = append(words, text.Name(filepath.Base(f.Path), 60))
	} else {
		words = append(words, fmt.Sprintf("%d bytes", len(f.Bytes)))
	}
	return traj.PlainText("[" + strings.Join(words, ", ") + "]")
}

// maxImages is the limit with its default.
func (c *ImageConfig) maxImages() int {
	if c.MaxImages <= 0 {
		return defaultMaxImages
	}
	return c.MaxImages
}

// checkCount refuses images of a result where those of earlier results, shown, leave no room for
// them. Its error is for the model.
func (c *ImageConfig) checkCount(images []traj.Image, shown int) error {
	if len(images) == 0 || shown+len(images) <= c.maxImages() {
		return nil
	}
	return fmt.Errorf("the result has %d images and earlier results have %d; the limit of a conversation is %d: they are not shown",
		len(images), shown, c.maxImages())
}

// open reads the images of a result. Its errors are for the model.
func (c *ImageConfig) open(ctx context.Context, files []ImageFile) ([]traj.Image, error) {
	if len(files) > c.maxImages() {
		return nil, fmt.Errorf("the result has %d images, more than %d", len(files), c.maxImages())
	}
	images := make([]traj.Image, len(files))
	for i, f := range files {
		var err error
		if images[i], err = c.openFile(ctx, f); err != nil {
			return nil, fmt.Errorf("image %d of the result cannot be shown: %w", i, err)
		}
	}
	return images, nil
}

func (c *ImageConfig) openFile(ctx context.Context, f ImageFile) (traj.Image, error) {
	file := f.Bytes
	if f.Path != "" {
		var err error
		if file, err = readRegular(f.Path, c.Limits.MaxBytes()); err != nil {
			return traj.Image{}, err
		}
	}
	im, err := album.Open(file, f.Path, c.Limits)
	if err == nil {
		// The header alone does not say whether a model can be shown the rest.
		err = album.Use(ctx, &im, func(*media.Image) error { return nil })
	}
	return im, err
}

// readRegular reads a regular file of at most that many bytes; of a longer one it gives one
// byte more.
func readRegular(path string, most int) ([]byte, error) {
	info, err := os.Stat(path) // before it is opened: to open a pipe may take for ever
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, int64(most)+1))
}

// check refuses images that no model takes, or that take too many tokens.
func (c *ImageConfig) check(images []traj.Image) error {
	tokens := c.Tokens
	if tokens == nil {
		p := processor.New(qwen.DefaultConfig())
		tokens = func(w, h int) (int, error) { _, n, err := p.Grid(w, h); return n, err }
	}
	for i := range images {
		w, h := images[i].Width, images[i].Height
		n, err := tokens(w, h)
		switch {
		case err != nil:
			return fmt.Errorf("the image of %d × %d pixels cannot be shown: %w", w, h, err)
		case c.MaxTokens > 0 && n > c.MaxTokens:
			return fmt.Errorf("the image of %d × %d pixels takes %d tokens, more than %d: it is not shown; ask for a smaller image or part",
				w, h, n, c.MaxTokens)
		}
	}
	return nil
}

// answer makes a call that is due, and reads the images of its result; inReply: results are
// written into the reply, as text.
func (c *ImageConfig) answer(ctx context.Context, tool Tool, args json.RawMessage, seen []traj.Image, inReply bool) (
	out output, err error) {
	switch t := tool.(type) {
	case Looking:
		out.text, out.images, err = t.Look(ctx, args, seen)
		if err == nil && inReply && len(out.images) > 0 {
			err = errors.New("the result is an image, and results are written into the reply here, as text")
		}
	case Showing:
		if !t.ShowsImages() {
			out.text, err = tool.Call(ctx, args)
			break
		}
		var files []ImageFile
		out.text, files, err = t.Show(ctx, args)
		if err != nil || len(files) == 0 {
			break
		}
		out.hadImages = true
		if c.TextAlone || inReply {
			out.text = WithoutFiles(out.text, files)
			if c.Described != nil {
				c.Described()
			}
			break
		}
		out.images, err = c.open(ctx, files)
	default:
		out.text, err = tool.Call(ctx, args)
	}
	if err == nil {
		err = c.check(out.images)
	}
	if err != nil {
		return output{}, err
	}
	return out, nil
}
