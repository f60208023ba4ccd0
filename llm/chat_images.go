package llm

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"agentcli/internal/setting"
	"agentcli/traj"
)

// ImagePlaces says how a model's prompts show images: each is a run of Token between Start and
// End. With it the ids of a prompt that a server rendered are read (Client.PlaceImages).
type ImagePlaces struct {
	Start, Token, End int32
	// Grid is the patches of an image of that size in pixels, and how many tokens it takes.
	Grid func(width, height int) (grid [3]int, tokens int, err error)
	// Words gives the text of ids, with special tokens; Ordinary the ids of a text in which none
	// is special.
	Words    func(ids []int32) string
	Ordinary func(text string) []int32
}

// What makes the ids of a prompt useless that a server made of a conversation with images,
// beside ErrOtherImageSize.
var (
	errOtherImages = errors.New("another number of images")
	errImageOrder  = errors.New("an image among other text")
)

// differingImage is how a server shows image number of a conversation otherwise; it begins with
// what the server does.
func differingImage(theirs, number, ours int) error {
	return traj.Mark(setting.Errorf("makes %d tokens of image %d of a conversation, here they are %d: it resizes otherwise; "+
		"give its bounds by %s and %s", theirs, number, ours, setting.Name("MinPixels"), setting.Name("MaxPixels")), ErrOtherImageSize)
}

// placeImages puts the images of a request into a reply with ids; without ids where they are not known.
func placeImages(rd *replyReader, b *body, ids *tokenIDs, r *traj.Response) {
	if len(ids.sampled) == 0 || b.images == nil {
		return
	}
	const left = "such replies are kept without ids, and cannot be trained on"
	tell := rd.tell
	if b.quiet {
		tell = func(string, string) {}
	}
	if rd.places == nil {
		tell("images", fmt.Sprintf("returns ids, and not which of them stand for images: %s (%s names the model's folder, "+
			"by which they are found)", left, setting.Name("Tokenizer")))
		*ids = tokenIDs{}
		return
	}
	spans, err := rd.places.spans(ids.prompt, b.images)
	if err != nil {
		tell("images", fmt.Sprintf("%v; %s", err, left))
		*ids, r.ImagesDiffer = tokenIDs{}, true
		return
	}
	r.Images = spans
}

// spans finds the images of a request in the prompt that a server made of it. What is known of
// the turn before is not looked for again: an id that the model has drawn stands for no image.
func (p *ImagePlaces) spans(prompt []int32, req *traj.Request) ([]traj.ImageSpan, error) {
	var images []shownImage
	for i := range req.Messages {
		parts, err := req.Messages[i].Parts()
		if err != nil {
			return nil, err
		}
		images = append(images, p.shown(parts)...)
	}
	var spans []traj.ImageSpan
	from := 0
	if n := len(req.PrefixIDs); n > 0 && len(prompt) >= n && slices.Equal(prompt[:n], req.PrefixIDs) && p.fit(req.PrefixImages, images) {
		from, spans = n, slices.Clone(req.PrefixImages)
	}
	known := len(spans)
	for at := from; at < len(prompt); {
		if prompt[at] != p.Token {
			at++
			continue
		}
		end := at
		for end < len(prompt) && prompt[end] == p.Token {
			end++
		}
		if at == 0 || prompt[at-1] != p.Start || end == len(prompt) || prompt[end] != p.End {
			return nil, traj.Mark(errors.New("has ids of images in a prompt that stand for none"), errOtherImages)
		}
		spans = append(spans, traj.ImageSpan{Image: len(spans), Start: at, Tokens: end - at})
		at = end
	}
	if len(spans) != len(images) {
		return nil, traj.Mark(fmt.Errorf("shows %d images of a conversation with %d", len(spans), len(images)), errOtherImages)
	}
	for k := known; k < len(spans); k++ {
		s := &spans[k]
		grid, tokens, err := p.Grid(images[k].Width, images[k].Height)
		switch {
		case err != nil:
			return nil, fmt.Errorf("shows image %d of a conversation, which cannot be placed: %w", k+1, err)
		case tokens != s.Tokens:
			return nil, differingImage(s.Tokens, k+1, tokens)
		}
		s.Grid = grid
		next := len(prompt)
		if k+1 < len(spans) {
			next = spans[k+1].Start - 1
		}
		if !p.among(prompt, from, s, next, &images[k]) {
			return nil, traj.Mark(fmt.Errorf("puts image %d of a conversation among other text than its message does "+
				"(vLLM keeps the order with the chat template content format openai)", k+1), errImageOrder)
		}
		from = s.Start + s.Tokens + 1
	}
	return spans, nil
}

// shownImage is an image with the texts of its message that it stands between.
type shownImage struct {
	*traj.Image
	before, after string
}

func (p *ImagePlaces) shown(parts []traj.ContentPart) (all []shownImage) {
	for i := range parts {
		if parts[i].Image == nil {
			continue
		}
		x := shownImage{Image: parts[i].Image}
		if i > 0 {
			x.before = p.asWritten(parts[i-1].Text)
		}
		if i+1 < len(parts) {
			x.after = p.asWritten(parts[i+1].Text)
		}
		all = append(all, x)
	}
	return all
}

// asWritten is a text as the model's tokens write it. Templates drop the blanks around a text.
func (p *ImagePlaces) asWritten(text string) string {
	if text = strings.TrimSpace(text); text == "" {
		return ""
	}
	return strings.TrimSpace(p.Words(p.Ordinary(strings.ToValidUTF8(text, "\uFFFD"))))
}

// among reports whether the texts around a span are those around the image. from is where the
// text before it begins, next where that behind it ends.
func (p *ImagePlaces) among(prompt []int32, from int, s *traj.ImageSpan, next int, im *shownImage) bool {
	if im.before != "" && !strings.HasSuffix(strings.TrimSpace(p.Words(prompt[from:s.Start-1])), im.before) {
		return false
	}
	return im.after == "" || strings.HasPrefix(strings.TrimSpace(p.Words(prompt[s.Start+s.Tokens+1:next])), im.after)
}

// fit reports whether spans are those of the first images.
func (p *ImagePlaces) fit(spans []traj.ImageSpan, images []shownImage) bool {
	for i, s := range spans {
		if s.Image != i || i >= len(images) {
			return false
		}
		grid, tokens, err := p.Grid(images[i].Width, images[i].Height)
		if err != nil || grid != s.Grid || tokens != s.Tokens {
			return false
		}
	}
	return true
}
