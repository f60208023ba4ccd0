package store

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"agentcli/trainer/episode"
	"agentcli/traj"
)

// The files of images are on disk, each once whoever shows it, and are read while its patches are made:
// what is in memory does not grow with the rows.
func TestFilesOfImagesAreInMemoryWhileTheirPatchesAreMade(t *testing.T) {
	const side, rows = 1000, 20
	file := bytes.Repeat([]byte("agentcli"), 1<<17) // 1 MiB
	spans := []traj.ImageSpan{{Image: 0, Start: 1, Tokens: 1, Grid: [3]int{1, 2, 2}}, {Image: 1, Start: 3, Tokens: 1, Grid: [3]int{1, 2, 2}}}
	var episodes []*episode.Episode
	for i := range rows {
		e := sampled(i, 8)
		e.Images = []episode.Image{
			{Image: traj.Image{Hash: "whole", Bytes: file, Width: side, Height: side}},
			{Image: traj.Image{Hash: fmt.Sprint("crop ", i), Width: 28, Height: 28,
				Crop: &traj.Crop{Source: "whole", Box: [4]int{0, i, 28, i + 28}, File: file}}},
		}
		e.Sequences[0].Images = spans
		episodes = append(episodes, e)
	}
	s := spilled(t, episodes)
	if most := int64(len(file) + 1<<10*rows); s.end > most {
		t.Errorf("%d bytes are on disk, with one file of %d", s.end, len(file))
	}
	var prepared []traj.Image
	s.Prepare = func(im *traj.Image) ([]float32, error) {
		prepared = append(prepared, *im)
		return []float32{float32(len(prepared))}, nil
	}
	for i, e := range episodes {
		if e.Body != nil {
			t.Fatalf("row %d is in memory", i)
		}
		body, err := s.ReadBody(e)
		if err != nil {
			t.Fatal(err)
		}
		for k := range body.Images {
			im := &body.Images[k]
			if im.Bytes != nil || im.Crop != nil && im.Crop.File != nil {
				t.Errorf("row %d: the file of image %d is in memory before its patches are made", i, k)
			}
			if _, err := im.Patches(); err != nil {
				t.Fatal(err)
			}
			if im.Bytes != nil || im.Crop != nil && im.Crop.File != nil {
				t.Errorf("row %d: the file of image %d stays in memory", i, k)
			}
		}
		whole, crop := prepared[2*i], prepared[2*i+1]
		if !bytes.Equal(whole.Bytes, file) || !bytes.Equal(crop.Crop.File, file) || crop.Crop.Box[1] != i || crop.Width != 28 ||
			!slices.Equal(body.Sequences[0].Images, spans) {
			t.Errorf("row %d: patches are made of %+v and %+v", i, whole.Hash, crop.Crop)
		}
	}
}
