package datasets

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"agentcli/internal/malformed"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/media"
	"agentcli/media/album"
	"agentcli/traj"
)

// imageWord stands in a text where an image belongs: the mark of verl, ms-swift and others.
const imageWord = "<image>"

// DefaultMaxImages is how many images a row may have.
const DefaultMaxImages = 64

// ImageLimits bound the images of a row.
type ImageLimits struct {
	MaxImages      int // 0: DefaultMaxImages
	MaxImageBytes  int // of a file; 0: media.DefaultMaxBytes
	MaxImagePixels int // width times height; 0: media.DefaultMaxPixels
}

// Validate names the first limit that is below 0.
func (l ImageLimits) Validate() error {
	for name, v := range map[setting.Name]int{"MaxImages": l.MaxImages, "MaxImageBytes": l.MaxImageBytes, "MaxImagePixels": l.MaxImagePixels} {
		if v < 0 {
			return setting.Errorf("%s must not be negative, it is %d", name, v)
		}
	}
	return nil
}

// Fetch reads the file at an address of a server.
type Fetch func(address string) ([]byte, error)

// imageReader makes images of the values of a row.
type imageReader struct {
	folder string                            // of the file, where paths begin; "": a text is base64, and paths are refused
	open   func(path string) ([]byte, error) // a file by its path; nil: those of folder
	fetch  Fetch                             // a file of a server; nil: none is fetched
	limits media.Limits
	most   int // images of a row
	// allowed is where the files of paths are, where folder is ""; "": a text is base64.
	allowed string
}

func newImageReader(l ImageLimits, folder string) imageReader {
	r := imageReader{folder: folder, limits: media.Limits{Pixels: l.MaxImagePixels, Bytes: l.MaxImageBytes}, most: l.MaxImages}
	if r.most <= 0 {
		r.most = DefaultMaxImages
	}
	return r
}

// list reads a column of images: a list, one image, or nothing.
func (r imageReader) list(v any) ([]traj.Image, error) {
	if v == nil || v == "" {
		return nil, nil
	}
	values, isList := v.([]any)
	if !isList {
		values = []any{v}
	}
	if err := r.count(len(values)); err != nil {
		return nil, err
	}
	var all []traj.Image
	for i, v := range values {
		im, err := r.one(v)
		if err != nil && isList {
			return nil, fmt.Errorf("image %d: %w", i, err)
		} else if err != nil {
			return nil, err
		}
		all = append(all, im)
	}
	return all, nil
}

func (r imageReader) count(n int) error {
	if n > r.most {
		return malformed.Errorf(malformed.Range, "%w", setting.Errorf("%d images, and a row has at most %d; raise %s", n, r.most,
			setting.Name("MaxImages")))
	}
	return nil
}

// one reads an image: the bytes of a file, a path, a data URI, or an object with bytes or path,
// as Hugging Face's datasets have it.
func (r imageReader) one(v any) (traj.Image, error) {
	switch v := v.(type) {
	case []byte:
		return album.Open(v, "", r.limits)
	case string:
		return r.named(v)
	case map[string]any:
		path, _ := v["path"].(string)
		switch b := v["bytes"].(type) {
		case []byte:
			return album.Open(b, path, r.limits)
		case string:
			return r.base64(b, path)
		}
		for _, key := range []string{"path", "url", "image", "image_url"} {
			if s, ok := v[key].(string); ok {
				return r.named(s)
			}
		}
		if s, ok := v["base64"].(string); ok {
			return r.base64(s, "")
		}
		return traj.Image{}, malformed.Errorf(malformed.Missing, "it has neither bytes nor a path (it has %s)", keys(v))
	}
	return traj.Image{}, malformed.Errorf(malformed.Type, "want bytes, a path, a data URI or an object of bytes and path")
}

// named reads a data URI or a path.
func (r imageReader) named(s string) (traj.Image, error) {
	if rest, ok := strings.CutPrefix(s, "data:"); ok {
		kind, body, found := strings.Cut(rest, ",")
		if !found || !strings.HasSuffix(kind, ";base64") {
			return traj.Image{}, malformed.Errorf(malformed.Unsupported, "the data URI %q is not in base64", text.Cut(s, 40))
		}
		return r.base64(body, "")
	}
	if strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://") {
		return r.fetched(s)
	}
	if r.folder == "" {
		return r.pathOrBase64(s)
	}
	return r.file(strings.TrimPrefix(s, "file://"))
}

// maxPath is how long a text may be that is taken for a path, in bytes.
const maxPath = 4096

// pathOrBase64 reads a text that is either. A JPEG file's base64 begins as a path does.
func (r imageReader) pathOrBase64(s string) (traj.Image, error) {
	if r.allowed == "" || len(s) > maxPath {
		return r.base64(s, "")
	}
	files := r
	files.folder = r.allowed
	im, err := files.file(strings.TrimPrefix(s, "file://"))
	if err == nil {
		return im, nil
	}
	if im, noText := r.base64(s, ""); noText == nil {
		return im, nil
	}
	return traj.Image{}, err
}

// fetched reads a file of a server. Its address is not kept: it may have a key in it.
func (r imageReader) fetched(address string) (traj.Image, error) {
	shown := text.Name(text.Address(address), 80)
	if r.fetch == nil {
		return traj.Image{}, malformed.Errorf(malformed.Unsupported,
			"%s is on a server; images are files beside the rows, or stand in them: fetch it", shown)
	}
	b, err := r.fetch(address)
	if err != nil {
		return traj.Image{}, fmt.Errorf("%s: %w", shown, err)
	}
	return album.Open(b, "", r.limits)
}

func (r imageReader) base64(s, path string) (traj.Image, error) {
	if base64.StdEncoding.DecodedLen(len(s)) > r.limits.MaxBytes()+3 {
		return traj.Image{}, r.tooLong()
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return traj.Image{}, malformed.Errorf(malformed.Syntax, "%q is no base64: %w", text.Cut(s, 40), err)
	}
	return album.Open(b, path, r.limits)
}

func (r imageReader) tooLong() error {
	return malformed.Errorf(malformed.Range, "%w",
		setting.Errorf("the file has more than %d bytes; raise %s", r.limits.MaxBytes(), setting.Name("MaxImageBytes")))
}

// file reads a file of the folder or below it. Nothing leads out of there: no .., no link.
func (r imageReader) file(path string) (traj.Image, error) {
	fail := func(kind malformed.Kind, format string, args ...any) (traj.Image, error) {
		return traj.Image{}, malformed.At(path, "", kind, format, args...)
	}
	if r.open != nil {
		b, err := r.open(path)
		if err != nil {
			return traj.Image{}, err
		}
		return r.opened(b, path)
	}
	inside := path
	if filepath.IsAbs(path) {
		folder, err := filepath.Abs(r.folder)
		if err == nil {
			inside, err = filepath.Rel(folder, path)
		}
		if err != nil {
			return fail(malformed.Unsupported, "it is not below %s", r.folder)
		}
	}
	root, err := os.OpenRoot(r.folder)
	if err != nil {
		return traj.Image{}, err
	}
	defer root.Close()
	info, err := root.Stat(inside)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fail(malformed.Missing, "there is no such file in %s", r.folder)
	case err != nil:
		return fail(malformed.Unsupported, "it cannot be read (%v); an image must be below %s", cause(err), r.folder)
	case !info.Mode().IsRegular():
		return fail(malformed.Type, "it is not a regular file")
	}
	f, err := root.Open(inside)
	if err != nil {
		return traj.Image{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, int64(r.limits.MaxBytes())+1))
	if err != nil {
		return traj.Image{}, fmt.Errorf("%s: %w", path, err)
	}
	return r.opened(b, path)
}

func (r imageReader) opened(file []byte, path string) (traj.Image, error) {
	im, err := album.Open(file, path, r.limits)
	if err != nil {
		return traj.Image{}, &malformed.Error{Path: path, Err: err}
	}
	return im, nil
}

// ReadParts reads a message's content that is a list of parts, OpenAI's and Hugging Face's
// forms, into text with a traj.ImageMark for each image. read gives the files that parts name.
func ReadParts(parts []any, read func(path string) ([]byte, error)) (content string, images []traj.Image, err error) {
	r := newImageReader(ImageLimits{}, ".")
	r.open = read
	content, images, err = r.contentParts(parts)
	if err == nil && slices.ContainsFunc(images, func(im traj.Image) bool { return isEmpty(&im) }) {
		return "", nil, malformed.Errorf(malformed.Missing, "a part of an image names none")
	}
	return content, images, err
}

// cause is an error of package os without the operation and the path.
func cause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// placeImages gives the images of a row's column the places that the messages have: parts
// without an image of their own, and the word <image> in texts of the user and of tools. Where
// they have none, the images stand in front of the last text of the user.
func placeImages(messages []traj.Message, images []traj.Image) ([]traj.Message, error) {
	messages = slices.Clone(messages)
	places := 0
	take := func() (im traj.Image) {
		if places < len(images) {
			im = images[places]
		}
		places++
		return im
	}
	question := -1
	for i := range messages {
		m := &messages[i]
		if m.Role == traj.RoleUser {
			question = i
		}
		if len(m.Images) > 0 {
			m.Images = slices.Clone(m.Images)
			for k := range m.Images {
				if isEmpty(&m.Images[k]) {
					m.Images[k] = take()
				}
			}
		} else if n := strings.Count(m.Content, imageWord); n > 0 && (m.Role == traj.RoleUser || m.Role == traj.RoleTool) {
			m.Content = strings.ReplaceAll(traj.PlainText(m.Content), imageWord, traj.ImageMark)
			for range n {
				m.Images = append(m.Images, take())
			}
		}
	}
	switch {
	case places == 0 && len(images) > 0 && question >= 0:
		m := &messages[question]
		if len(m.Images) == 0 {
			m.Content = traj.PlainText(m.Content)
		}
		m.Content = strings.Repeat(traj.ImageMark, len(images)) + m.Content
		m.Images = slices.Concat(images, m.Images)
	case places != len(images):
		return nil, malformed.Errorf(malformed.Mismatch, "has %d places for images (%s) and %d images", places, imageWord, len(images))
	}
	return messages, nil
}

// isEmpty reports whether an image is a place that waits for one.
func isEmpty(im *traj.Image) bool {
	return im.Bytes == nil && im.Crop == nil && im.Path == "" && im.Hash == ""
}

// namedImages reads images as this program writes them for others: named by their hash, their
// places in the message's text. Other values are no images of a message.
func (r imageReader) namedImages(v any) (images []traj.Image, err error) {
	list, _ := v.([]any)
	for _, e := range list {
		object, _ := e.(map[string]any)
		if hash, _ := object["hash"].(string); hash == "" {
			return nil, nil
		}
		var im traj.Image
		if object["bytes"] != nil {
			if im, err = r.one(object); err != nil {
				return nil, err
			}
		} else if b, err := json.Marshal(object); err != nil || json.Unmarshal(b, &im) != nil {
			return nil, malformed.Errorf(malformed.Type, "want images as they were given")
		}
		images = append(images, im)
	}
	return images, nil
}

// contentParts reads a message's content that is a list of parts: OpenAI's and Hugging Face's
// forms. A part for an image without one becomes an empty image.
func (r imageReader) contentParts(parts []any) (content string, images []traj.Image, err error) {
	texts := []string{""} // images stand between them
	for i, part := range parts {
		p, isObject := part.(map[string]any)
		if s, ok := part.(string); ok {
			texts[len(texts)-1] += s
		}
		if !isObject {
			continue
		}
		kind, _ := p["type"].(string)
		s, isText := p["text"].(string)
		switch {
		case strings.Contains(kind, "image"):
			im, err := r.part(p)
			if err != nil {
				return "", nil, fmt.Errorf("part %d: %w", i, err)
			}
			if images = append(images, im); len(images) > r.most {
				return "", nil, r.count(len(images))
			}
			texts = append(texts, "")
		case isText:
			texts[len(texts)-1] += s
		case strings.Contains(kind, "video") || strings.Contains(kind, "audio"):
			return "", nil, malformed.Errorf(malformed.Unsupported, "part %d is of type %q; text and images are read", i, text.Name(kind, 20))
		}
	}
	for i := range texts {
		if images != nil {
			texts[i] = traj.PlainText(texts[i])
		}
	}
	return strings.Join(texts, traj.ImageMark), images, nil
}

// part reads the image of a part.
func (r imageReader) part(p map[string]any) (traj.Image, error) {
	switch v := p["image_url"].(type) {
	case string:
		return r.named(v)
	case map[string]any:
		return r.one(v)
	}
	if v, ok := p["image"]; ok && v != nil {
		return r.one(v)
	}
	for _, key := range []string{"path", "url", "base64", "bytes"} {
		if p[key] != nil {
			return r.one(p)
		}
	}
	return traj.Image{}, nil
}
