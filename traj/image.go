package traj

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ImageMark is the character that stands in a message's text where an image is: U+FFFC,
// OBJECT REPLACEMENT CHARACTER. A message with images has as many as images, in their
// order; in a message without images it is text.
const ImageMark = "\uFFFC"

// Image is an image of a conversation: a file, or a crop of one. Files are named by the
// hash of their bytes, crops by the hash of their pixels.
type Image struct {
	Hash   string `json:"hash,omitempty"`  // SHA-256, hexadecimal: of the file, or of a crop's RGB bytes; "": not known
	Path   string `json:"path,omitempty"`  // of the file, as its dataset or its tool named it; "": none
	Bytes  []byte `json:"bytes,omitempty"` // of the file; nil for a crop
	Width  int    `json:"width,omitempty"` // in pixels, as a viewer shows the image; 0: not known
	Height int    `json:"height,omitempty"`
	Crop   *Crop  `json:"crop,omitempty"` // nil: it is a whole file
}

// Crop says which part of which file an image is. It is cut out again where it is needed,
// and never stored.
type Crop struct {
	Source string `json:"source"` // hash of the file
	Box    [4]int `json:"box"`    // left, upper, right and lower edge in pixels of the file's image
	File   []byte `json:"-"`      // bytes of the file; nil: not at hand
}

// ImageSpan says which tokens of a sequence, or of a prompt, stand for an image.
type ImageSpan struct {
	Image  int    `json:"image"` // its number in Trajectory.Images; in a Response: among the images of the request's messages
	Start  int    `json:"start"` // its first token
	Tokens int    `json:"tokens"`
	Grid   [3]int `json:"grid"` // patches: frames, rows, columns
}

// ContentPart is a piece of a message: text, or an image.
type ContentPart struct {
	Text  string
	Image *Image // nil: it is text
}

// ErrImagePlaces says that the text of a message has not as many places as the message has images.
var ErrImagePlaces = errors.New("the text has not one place for each image")

// Parts are the message's text and images in order; no text is empty, but for a message that
// has nothing else. It fails with ErrImagePlaces.
func (m *Message) Parts() ([]ContentPart, error) {
	if len(m.Images) == 0 {
		return []ContentPart{{Text: m.Content}}, nil
	}
	texts := strings.Split(m.Content, ImageMark)
	if places := len(texts) - 1; places != len(m.Images) {
		return nil, fmt.Errorf("%w: %d places, %d images", ErrImagePlaces, places, len(m.Images))
	}
	var parts []ContentPart
	for i, text := range texts {
		if text != "" {
			parts = append(parts, ContentPart{Text: text})
		}
		if i < len(m.Images) {
			parts = append(parts, ContentPart{Image: &m.Images[i]})
		}
	}
	return parts, nil
}

// WithoutFiles are messages whose images are named and not sent: they have no bytes.
func WithoutFiles(messages []Message) []Message {
	if !slices.ContainsFunc(messages, func(m Message) bool { return len(m.Images) > 0 }) {
		return messages
	}
	messages = slices.Clone(messages)
	for i := range messages {
		m := &messages[i]
		m.Images = slices.Clone(m.Images)
		for k := range m.Images {
			m.Images[k].Bytes = nil
		}
	}
	return messages
}

// PlainText is text without places for images: an ImageMark in it becomes U+FFFD.
func PlainText(s string) string { return strings.ReplaceAll(s, ImageMark, "\uFFFD") }

// WithoutImages is the message's text with a word in each image's place.
func (m *Message) WithoutImages(word string) string {
	if len(m.Images) == 0 {
		return m.Content
	}
	return strings.ReplaceAll(m.Content, ImageMark, word)
}

// Same reports whether two images are one: of one hash and, where they are crops, one box.
func (im *Image) Same(other *Image) bool {
	if im.Hash == "" || im.Hash != other.Hash || (im.Crop == nil) != (other.Crop == nil) {
		return false
	}
	return im.Crop == nil || im.Crop.Source == other.Crop.Source && im.Crop.Box == other.Crop.Box
}

// validateImages checks that the spans are in order, within the sequence, and of one image
// each of the list.
func (s *Sequence) validateImages() error {
	end := 0
	for i, span := range s.Images {
		switch {
		case span.Start < end || span.Tokens <= 0 || span.Start+span.Tokens > len(s.TokenIDs):
			return fmt.Errorf("image span %d has tokens %d to %d; spans must be in order and within the %d tokens", i, span.Start,
				span.Start+span.Tokens, len(s.TokenIDs))
		case span.Image < 0:
			return fmt.Errorf("image span %d is of image %d", i, span.Image)
		}
		end = span.Start + span.Tokens
		for k := span.Start; k < end; k++ {
			if s.LossMask[k] {
				return fmt.Errorf("image span %d holds token %d, which was sampled", i, k)
			}
		}
	}
	return nil
}

// shows reports whether a prompt begins with a sequence's images, where it begins with
// its tokens.
func shows(prompt, images []ImageSpan) bool {
	return len(prompt) >= len(images) && slices.Equal(prompt[:len(images)], images)
}
