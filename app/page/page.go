// Package page writes trajectories as one HTML page that needs no network: inspect --html. Texts
// of models and files are text on it, whatever they hold.
package page

import (
	"bufio"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"agentcli/internal/text"
	"agentcli/media"
	"agentcli/traj"
)

//go:embed page.html
var files embed.FS

var templates = template.Must(template.ParseFS(files, "page.html"))

// Writer writes a page, one trajectory after the other. A file of an image is on the page once.
type Writer struct {
	out   *bufio.Writer
	patch int             // pixels of a patch's side
	files map[string]bool // hashes of those that are on the page
}

// New begins a page. note stands below the title; patch is the side in pixels of the patches
// that the model sees, 0: 14.
func New(out io.Writer, title, note string, patch int) (*Writer, error) {
	if patch <= 0 {
		patch = 14
	}
	w := &Writer{out: bufio.NewWriterSize(out, 1<<16), patch: patch, files: map[string]bool{}}
	title = text.Harmless(title)
	return w, w.write([]string{"head", "title"}, []any{title, struct{ Title, Note string }{title, text.Harmless(note)}})
}

func (w *Writer) write(names []string, data []any) error {
	for i, name := range names {
		if err := templates.ExecuteTemplate(w.out, name, data[i]); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the page.
func (w *Writer) Close() error {
	if err := w.write([]string{"foot"}, []any{nil}); err != nil {
		return err
	}
	return w.out.Flush()
}

// trajectory is what the template shows of one.
type trajectory struct {
	ID, Reward, Verdict, Ended, Facts, Error string
	Messages                                 []message
}

type message struct {
	Kind, Role, Thought string
	Parts               []part
	Calls               []string
}

type part struct {
	Text  string
	Image *picture
}

// picture is an image in its place: a file with the boxes that were cut out of it, or a crop.
type picture struct {
	Caption, Gone string
	Style         template.CSS
	Width, Height int // of the image in pixels
	Boxes         []box
	Number, Color int // of a crop
	Stroke, Font  float64
	Halo          float64
}

// box is a crop on its file.
type box struct {
	X, Y, W, H     int
	Number, Color  int
	LabelX, LabelY float64
}

const (
	colors    = 6
	mostWidth = 448 // of an image on the page, in pixels
	leastCrop = 112
)

// Add writes a trajectory.
func (w *Writer) Add(t *traj.Trajectory) error {
	if err := w.addFiles(t); err != nil {
		return err
	}
	v := trajectory{ID: text.Harmless(text.OneLine(t.ID)), Ended: text.Harmless(string(t.Termination)), Error: text.Harmless(t.Error),
		Reward: "no reward"}
	if t.Reward != nil {
		v.Reward, v.Verdict = fmt.Sprintf("reward %.6g", *t.Reward), "bad"
		if *t.Reward > 0 {
			v.Verdict = "good"
		}
	}
	v.Facts = facts(t)
	numbers := cropNumbers(t)
	for i := range t.Messages {
		v.Messages = append(v.Messages, w.message(t, &t.Messages[i], numbers))
	}
	return w.write([]string{"trajectory"}, []any{v})
}

// facts are a trajectory's numbers in a line.
func facts(t *traj.Trajectory) string {
	all := []string{fmt.Sprintf("gold %q", t.Task.Answers)}
	if t.Extracted != nil {
		all = append(all, fmt.Sprintf("found %q", *t.Extracted))
	}
	for _, p := range t.RewardParts {
		all = append(all, fmt.Sprintf("%s %.6g", p.Name, p.Value))
	}
	calls, failed := 0, 0
	for _, s := range t.Steps {
		calls += s.ToolCalls
		failed += s.ToolErrors
	}
	all = append(all, text.Plural(len(t.Steps), "turn"), text.Plural(calls, "tool call"))
	if failed > 0 {
		all = append(all, fmt.Sprintf("%d refused", failed))
	}
	all = append(all, text.Plural(t.CompletionTokens, "sampled token"))
	return text.Harmless(text.OneLine(strings.Join(all, " · ")))
}

// cropNumbers counts the crops of a trajectory, in the order of the calls, from 1.
func cropNumbers(t *traj.Trajectory) map[int]int {
	out := map[int]int{}
	for i := range t.Images {
		if t.Images[i].Crop != nil {
			out[i] = len(out) + 1
		}
	}
	return out
}

func (w *Writer) message(t *traj.Trajectory, m *traj.Message, numbers map[int]int) message {
	v := message{Kind: "other", Thought: text.Harmless(m.Reasoning),
		Role: text.Harmless(text.OneLine(strings.TrimSpace(m.Role + " " + m.Name)))}
	if slices.Contains([]string{traj.RoleUser, traj.RoleAssistant, traj.RoleTool}, m.Role) {
		v.Kind = m.Role
	}
	parts, err := m.Parts()
	if err != nil {
		parts = []traj.ContentPart{{Text: m.WithoutImages("[image]")}}
	}
	for _, p := range parts {
		switch {
		case p.Image != nil:
			v.Parts = append(v.Parts, part{Image: w.picture(t, p.Image, numbers)})
		case p.Text != "":
			v.Parts = append(v.Parts, part{Text: text.Harmless(p.Text)})
		}
	}
	for _, c := range m.ToolCalls {
		v.Calls = append(v.Calls, text.Harmless(fmt.Sprintf("→ %s(%s)", c.Name, c.Arguments)))
	}
	return v
}

// picture lays out an image where a message shows it.
func (w *Writer) picture(t *traj.Trajectory, im *traj.Image, numbers map[int]int) *picture {
	n := slices.IndexFunc(t.Images, func(have traj.Image) bool { return have.Same(im) })
	v := &picture{Width: im.Width, Height: im.Height}
	seenWidth, tokens := w.seen(t, n)
	if im.Crop == nil {
		v.Caption = fmt.Sprintf("image %d, %d × %d pixels%s", n, im.Width, im.Height, tokens)
		if im.Path != "" {
			v.Caption = text.Harmless(text.Name(im.Path, 60)) + ": " + v.Caption
		}
		for i := range t.Images {
			if c := t.Images[i].Crop; c != nil && c.Source == im.Hash {
				v.Boxes = append(v.Boxes, box{X: c.Box[0], Y: c.Box[1], W: c.Box[2] - c.Box[0], H: c.Box[3] - c.Box[1], Number: numbers[i],
					Color: numbers[i] % colors})
			}
		}
	} else {
		source := slices.IndexFunc(t.Images, func(s traj.Image) bool { return s.Crop == nil && s.Hash == im.Crop.Source })
		v.Number, v.Color = numbers[n], numbers[n]%colors
		v.Caption = fmt.Sprintf("crop %v of image %d, %d × %d pixels%s", im.Crop.Box, source, im.Width, im.Height, tokens)
	}
	hash := im.Hash
	whole := [4]int{0, 0, im.Width, im.Height}
	if im.Crop != nil {
		hash, whole = im.Crop.Source, im.Crop.Box
	}
	width, height := im.Width, im.Height // of the file
	if im.Crop != nil {
		width, height = 0, 0
		for i := range t.Images {
			if s := &t.Images[i]; s.Crop == nil && s.Hash == hash {
				width, height = s.Width, s.Height
			}
		}
	}
	if !w.files[hash] || im.Width < 1 || im.Height < 1 || width < 1 || height < 1 {
		v.Gone = "its file is not there, or cannot be read"
		return v
	}
	shown := min(im.Width, mostWidth)
	if im.Crop != nil { // as the model saw it
		shown = min(max(seenWidth, min(leastCrop, mostWidth)), mostWidth)
	}
	scale := float64(shown) / float64(im.Width)
	// Lengths are shares of the box, so that a narrow window shrinks all of it.
	position := func(from, size, all int) float64 {
		if all == size {
			return 0
		}
		return 100 * float64(from) / float64(all-size)
	}
	v.Style = template.CSS(fmt.Sprintf("width:%dpx;aspect-ratio:%d/%d;background-image:var(--f%s);background-size:%.4f%% %.4f%%;"+
		"background-position:%.4f%% %.4f%%", shown, im.Width, im.Height, hash, 100*float64(width)/float64(im.Width),
		100*float64(height)/float64(im.Height), position(whole[0], im.Width, width), position(whole[1], im.Height, height)))
	v.Stroke, v.Font = 3/scale, 15/scale
	v.Halo = 5 / scale
	for i := range v.Boxes {
		b := &v.Boxes[i]
		b.LabelX, b.LabelY = float64(b.X)+4/scale, float64(b.Y)+16/scale
	}
	return v
}

// seen is the width at which the model saw image n, 0: not known, and its tokens in words.
func (w *Writer) seen(t *traj.Trajectory, n int) (width int, tokens string) {
	for i := range t.Sequences {
		for _, s := range t.Sequences[i].Images {
			if s.Image == n {
				return s.Grid[2] * w.patch, fmt.Sprintf(", seen at %d × %d, %s", s.Grid[2]*w.patch, s.Grid[1]*w.patch, text.Plural(s.Tokens, "token"))
			}
		}
	}
	return 0, ""
}

// addFiles puts the files of a trajectory's images on the page: each is a property of style, so
// that it is there once, whoever shows it.
func (w *Writer) addFiles(t *traj.Trajectory) error {
	for i := range t.Images {
		im := &t.Images[i]
		if im.Crop != nil || im.Bytes == nil || w.files[im.Hash] || !isHash(im.Hash) {
			continue
		}
		h, err := media.ReadHeader(im.Bytes, media.Limits{Bytes: len(im.Bytes)})
		if err != nil {
			continue // it is named in its place
		}
		w.files[im.Hash] = true
		if _, err := fmt.Fprintf(w.out, "<style>:root{--f%s:url(data:image/%s;base64,%s)}</style>\n", im.Hash, strings.ToLower(string(h.Format)),
			base64.StdEncoding.EncodeToString(im.Bytes)); err != nil {
			return err
		}
	}
	return nil
}

func isHash(s string) bool {
	return len(s) == 64 && !strings.ContainsFunc(s, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'f') })
}
