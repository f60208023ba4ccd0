package engine

import (
	"errors"
	"testing"

	"agentcli/traj"
)

func TestASchedulerNamesImagesByTheirHash(t *testing.T) {
	cat := traj.Image{Hash: "cat", Bytes: []byte{1}, Width: 3, Height: 4}
	crop := traj.Image{Hash: "crop", Width: 1, Height: 1, Crop: &traj.Crop{Source: "cat", Box: [4]int{0, 0, 1, 1}, File: cat.Bytes}}
	asked := []traj.Message{{Role: traj.RoleUser, Content: traj.ImageMark + traj.ImageMark + "?", Images: []traj.Image{cat, crop}}}
	bare := traj.WithoutFiles(asked)
	bare[0].Images[1].Crop = &traj.Crop{Source: "cat", Box: crop.Crop.Box}
	got, err := fillImages(bare, []traj.Image{cat, crop})
	if err != nil || got[0].Images[0].Bytes == nil || got[0].Images[1].Crop.File == nil {
		t.Errorf("%+v, %v", got, err)
	}
	if bare[0].Images[0].Bytes != nil || asked[0].Images[0].Bytes == nil {
		t.Error("the scheduler's own messages were changed")
	}
	bare[0].Images[0].Hash = "dog"
	if _, err := fillImages(bare, []traj.Image{cat, crop}); !errors.Is(err, ErrNext) {
		t.Errorf("an image that nobody has: %v", err)
	}
	bare[0].Content += traj.ImageMark
	if _, err := fillImages(bare, []traj.Image{cat, crop}); !errors.Is(err, traj.ErrImagePlaces) {
		t.Errorf("a place without an image: %v", err)
	}
}
