package files

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"agentcli/internal/text"
	"agentcli/traj"
)

// withImages is a message's text with a line for each image in its place.
func withImages(t *traj.Trajectory, m *traj.Message) string {
	parts, err := m.Parts()
	if err != nil {
		return m.WithoutImages("[image]")
	}
	var lines []string
	for _, p := range parts {
		if p.Image != nil {
			lines = append(lines, imageLine(t, p.Image))
		} else {
			lines = append(lines, p.Text)
		}
	}
	return strings.Join(lines, "\n")
}

// imageLine names an image: its number in the trajectory, what it is, and its tokens where
// the file knows them.
func imageLine(t *traj.Trajectory, im *traj.Image) string {
	n := slices.IndexFunc(t.Images, func(have traj.Image) bool { return have.Same(im) })
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
