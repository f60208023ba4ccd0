package env

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"agentcli/media"
	"agentcli/media/album"
	"agentcli/traj"
)

// turning is an environment with both tools on images.
func turning(t *testing.T, limits media.Limits, images ...traj.Image) *ToolEnvironment {
	t.Helper()
	e, err := New(Config{Tools: []Tool{Zoom{Space: BoxOriginal}, Rotate{Limits: limits}}})
	if err != nil {
		t.Fatal(err)
	}
	m := traj.Message{Role: traj.RoleUser, Content: strings.Repeat(traj.ImageMark, len(images)) + "?", Images: images}
	if _, err := e.Reset(context.Background(), traj.Task{ID: "t", Messages: []traj.Message{m}}); err != nil {
		t.Fatal(err)
	}
	return e
}

// look makes one call and gives its message.
func look(t *testing.T, e *ToolEnvironment, name, args string) traj.Message {
	t.Helper()
	res, err := e.Step(context.Background(), traj.Action{ToolCalls: []traj.ToolCall{{ID: "1", Name: name, Arguments: args}}})
	if err != nil {
		t.Fatal(err)
	}
	return res.Observation.Messages[0]
}

func TestATurnedImageIsAFileOfItsOwn(t *testing.T) {
	im := gradient(t, 120, 80)
	pixels, err := album.Pixels(&im)
	if err != nil {
		t.Fatal(err)
	}
	for _, angle := range []float64{0, 90, 180, -90, 30, 725.5} {
		m := look(t, turning(t, media.Limits{}, im), "image_rotate_tool", fmt.Sprintf(`{"angle": %v, "label": "it"}`, angle))
		if len(m.Images) != 1 || m.Content != traj.ImageMark {
			t.Errorf("%v: %+v", angle, m)
			continue
		}
		got, want := &m.Images[0], pixels.Rotated(angle)
		if got.Crop != nil || got.Hash != album.Hash(got.Bytes) || got.Width != want.Width || got.Height != want.Height {
			t.Errorf("%v: %d × %d, want %d × %d; %s of %d bytes", angle, got.Width, got.Height, want.Width, want.Height, got.Hash, len(got.Bytes))
		}
		if read, err := album.Pixels(got); err != nil || read.Hash() != want.Hash() {
			t.Errorf("%v: its file has other pixels: %v", angle, err)
		}
	}
}

func TestATurnedImageIsCutAndACropIsTurned(t *testing.T) {
	e := turning(t, media.Limits{}, gradient(t, 120, 80))
	turned := look(t, e, "image_rotate_tool", `{"angle": 90}`).Images[0]
	crop := look(t, e, "image_zoom_in_tool", `{"bbox_2d": [0, 0, 40, 50], "image": 1}`).Images[0]
	if crop.Crop == nil || crop.Crop.Source != turned.Hash || crop.Crop.Box != [4]int{0, 0, 40, 50} {
		t.Fatalf("%+v of %s", crop.Crop, turned.Hash)
	}
	again := look(t, e, "image_rotate_tool", `{"angle": -90, "image": 2}`).Images[0]
	got, err := album.Pixels(&again)
	if err != nil {
		t.Fatal(err)
	}
	of, err := album.Pixels(&crop)
	if err != nil || got.Hash() != of.Rotated(270).Hash() || got.Width != 50 {
		t.Errorf("%d × %d, %v", got.Width, got.Height, err)
	}
}

func TestAnAngleThatIsNoneIsAMessageForTheModel(t *testing.T) {
	small := media.Limits{Pixels: 120 * 80}
	for name, c := range map[string]struct {
		limits media.Limits
		args   string
	}{
		"none":             {media.Limits{}, `{}`},
		"null":             {media.Limits{}, `{"angle": null}`},
		"text":             {media.Limits{}, `{"angle": "90"}`},
		"a huge number":    {media.Limits{}, `{"angle": 1e999}`},
		"another argument": {media.Limits{}, `{"angle": 90, "degrees": 3}`},
		"no such image":    {media.Limits{}, `{"angle": 90, "image": 1}`},
		"too many pixels":  {small, `{"angle": 45}`},
		"too many bytes":   {media.Limits{Bytes: 100}, `{"angle": 90}`},
	} {
		m := look(t, turning(t, c.limits, gradient(t, 120, 80)), "image_rotate_tool", c.args)
		if len(m.Images) != 0 || !strings.HasPrefix(m.Content, "error: ") || strings.Contains(m.Content, "\n") {
			t.Errorf("%s: %+v", name, m)
		}
	}
	if m := look(t, turning(t, small, gradient(t, 120, 80)), "image_rotate_tool", `{"angle": 90}`); len(m.Images) != 1 {
		t.Errorf("a quarter turn has as many pixels: %+v", m)
	}
	if m := look(t, turning(t, media.Limits{}), "image_rotate_tool", `{"angle": 90}`); !strings.HasPrefix(m.Content, "error: ") {
		t.Errorf("without images: %+v", m)
	}
}

// Which angle is asked for is the model's: no JSON may break the environment.
func FuzzRotate(f *testing.F) {
	for _, s := range []string{`{"angle":45}`, `{"angle":-1e308,"image":1}`, `{"angle":1e-320}`, `{"angle":90,"label":"x"}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, args string) {
		if !json.Valid([]byte(args)) {
			return
		}
		m := look(t, turning(t, media.Limits{Pixels: 10_000}, gradient(t, 30, 20)), "image_rotate_tool", args)
		switch {
		case len(m.Images) == 0 && strings.HasPrefix(m.Content, "error: "):
		case len(m.Images) == 1 && m.Images[0].Width*m.Images[0].Height <= 10_000 && m.Images[0].Bytes != nil:
		default:
			t.Errorf("%s: %+v", args, m)
		}
	})
}
