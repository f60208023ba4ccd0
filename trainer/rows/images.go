package rows

import (
	"bytes"
	"encoding/json"
	"fmt"

	"agentcli/internal/malformed"
	"agentcli/media/processor"
	"agentcli/policy"
	"agentcli/trainer/episode"
	"agentcli/traj"
)

// ImageProcessor gives the image processor of the model that is trained on rows with images, by
// the name that a file has for the model that sampled it, and with the bounds in pixels that its
// images were shown at. It is asked once a file.
type ImageProcessor func(sampler string, minPixels, maxPixels int) (*processor.Processor, error)

// readImages gives an episode the images that its sequences show. Errors are of kind malformed:
// images that were prepared in another way than the model's are, and files that are not there.
func (l *loading) readImages(e *episode.Episode, t *traj.Trajectory, f *trajectoryFile) error {
	shown := map[int]bool{}
	for i := range e.Sequences {
		for _, s := range e.Sequences[i].Images {
			shown[s.Image] = true
		}
	}
	if len(shown) == 0 {
		return nil
	}
	p, err := l.processor(f)
	if err != nil {
		return err
	}
	for i := range e.Sequences {
		if _, err := policy.ImagesOf(p, t.Images, e.Sequences[i].Images); err != nil {
			return malformed.Field(fmt.Sprintf("sequence %d", i), "", "%w", err)
		}
	}
	e.Images = make([]episode.Image, len(t.Images))
	for i := range t.Images {
		im := t.Images[i]
		if shown[i] && im.Bytes == nil && (im.Crop == nil || im.Crop.File == nil) {
			return malformed.Field("images", malformed.Missing, "the file of image %d, %.12s, is not in the row", i, im.Hash)
		}
		e.Images[i] = episode.Image{Image: im, Patches: func() ([]float32, error) { return p.Patches(&im) }}
	}
	return nil
}

// processor prepares the images of a file as they were when it was sampled. That the model's
// own processor cannot is an error.
func (l *loading) processor(f *trajectoryFile) (*processor.Processor, error) {
	if f.images != nil {
		return f.images, nil
	}
	if l.o.Images == nil {
		return nil, malformed.Field("images", malformed.Unsupported, "rows with images are not trained on here")
	}
	var was struct {
		Min int `json:"min_pixels"`
		Max int `json:"max_pixels"`
	}
	rule := f.run.Model.ImageRule
	if rule != nil {
		if err := json.Unmarshal(rule, &was); err != nil {
			return nil, malformed.Field("image_rule", malformed.Syntax, "of the file's metadata: %w", err)
		}
	}
	p, err := l.o.Images(f.run.Model.Name, was.Min, was.Max)
	if err != nil {
		return nil, err
	}
	if rule != nil && !sameJSON(rule, []byte(p.Rule())) {
		return nil, malformed.Field("image_rule", malformed.Mismatch,
			"the images of the file were prepared by %s, the model's image processor has %s; sample the rows with this model", rule, p.Rule())
	}
	f.images = p
	if l.Spill != nil {
		l.Spill.Prepare = p.Patches
	}
	return p, nil
}

// sameJSON reports whether two objects say the same.
func sameJSON(a, b []byte) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	one, err1 := json.Marshal(x)
	two, err2 := json.Marshal(y)
	return err1 == nil && err2 == nil && bytes.Equal(one, two)
}
