package files

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"agentcli/app/page"
	"agentcli/app/termimage"
	"agentcli/internal/text"
	"agentcli/traj"
)

// pictureSide bounds the sides of an image in a terminal, in pixels.
const pictureSide = 480

// writeContent writes a message's text, with a line for each image in its place, and the image
// itself where the terminal shows it.
func writeContent(b io.Writer, t *traj.Trajectory, m *traj.Message, shows termimage.Protocol, say func(string)) {
	parts, err := m.Parts()
	if err != nil || len(m.Images) == 0 {
		say(m.WithoutImages("[image]"))
		return
	}
	for _, p := range parts {
		if p.Image == nil {
			say(p.Text)
			continue
		}
		say(imageLine(t, p.Image))
		if shows != termimage.None {
			writePicture(b, t, p.Image, shows, say)
		}
	}
}

func writePicture(b io.Writer, t *traj.Trajectory, im *traj.Image, shows termimage.Protocol, say func(string)) {
	m, err := page.Picture(t, imageNumber(t, im), pictureSide)
	if err != nil {
		say("[it cannot be shown: " + text.Line(err) + "]")
		return
	}
	fmt.Fprint(b, "    ")
	_ = termimage.Draw(b, shows, m) // the buffer's Flush gives the error
	fmt.Fprintln(b)
}

func imageNumber(t *traj.Trajectory, im *traj.Image) int {
	return slices.IndexFunc(t.Images, func(have traj.Image) bool { return have.Same(im) })
}

// imageLine names an image: its number in the trajectory, what it is, and its tokens where
// the file knows them.
func imageLine(t *traj.Trajectory, im *traj.Image) string {
	n := imageNumber(t, im)
	what := fmt.Sprintf("file %.12s", im.Hash)
	if im.Path != "" {
		what = text.Name(filepath.Base(im.Path), 60) + ", " + what
	}
	if im.Crop != nil {
		source := slices.IndexFunc(t.Images, func(s traj.Image) bool { return s.Crop == nil && s.Hash == im.Crop.Source })
		what = fmt.Sprintf("crop %v of image %d", im.Crop.Box, source)
	}
	return fmt.Sprintf("[image %d: %s, %d × %d pixels%s]", n, what, im.Width, im.Height, imageTokens(t, n))
}

// imageTokens says how many tokens stand for image n; "": that is not known.
func imageTokens(t *traj.Trajectory, n int) string {
	for i := range t.Sequences {
		for _, s := range t.Sequences[i].Images {
			if s.Image == n {
				return fmt.Sprintf(", %d tokens", s.Tokens)
			}
		}
	}
	return ""
}
