package episode

import (
	"agentcli/policy"
	"agentcli/traj"
)

// Image is an image of an episode. Its file may be on disk only.
type Image struct {
	traj.Image
	Patches func() ([]float32, error) // as policy.Image.Patches
}

// PolicyImages are the images of sequence i as a model takes them.
func (b *Body) PolicyImages(i int) []policy.Image {
	spans := b.Sequences[i].Images
	if len(spans) == 0 {
		return nil
	}
	out := make([]policy.Image, len(spans))
	for k, s := range spans {
		im := &b.Images[s.Image]
		out[k] = policy.Image{Start: s.Start, Tokens: s.Tokens, Grid: s.Grid, Key: policy.KeyOf(&im.Image), Patches: im.Patches}
	}
	return out
}
