package env

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"strings"
	"testing"

	"agentcli/media"
	"agentcli/media/album"
	"agentcli/media/processor"
	"agentcli/media/qwen"
	"agentcli/traj"
)

// gradient is an image whose pixel (x, y) has the colour (x, y, x+y), each modulo 256.
func gradient(t *testing.T, w, h int) traj.Image {
	t.Helper()
	m := image.NewNRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			m.Set(x, y, color.NRGBA{R: uint8(x), G: uint8(y), B: uint8(x + y), A: 255})
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	im, err := album.Open(b.Bytes(), "a.png", media.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return im
}

func looking(t *testing.T, z Zoom, images ...traj.Image) *ToolEnvironment {
	t.Helper()
	e, err := New(Config{Tools: []Tool{z}})
	if err != nil {
		t.Fatal(err)
	}
	m := traj.Message{Role: traj.RoleUser, Content: strings.Repeat(traj.ImageMark, len(images)) + "?", Images: images}
	if _, err := e.Reset(context.Background(), traj.Task{ID: "t", Messages: []traj.Message{m}}); err != nil {
		t.Fatal(err)
	}
	return e
}

func zoom(t *testing.T, e *ToolEnvironment, args ...string) []traj.Message {
	t.Helper()
	var a traj.Action
	for i, s := range args {
		a.ToolCalls = append(a.ToolCalls, traj.ToolCall{ID: fmt.Sprint(i), Name: "image_zoom_in_tool", Arguments: s})
	}
	res, err := e.Step(context.Background(), a)
	if err != nil {
		t.Fatal(err)
	}
	return res.Observation.Messages
}

func TestACropIsOfTheOriginalImageInEachSpace(t *testing.T) {
	c := qwen.DefaultConfig()
	c.MaxPixels = 28 * 28 * 16 // 448 × 224 is shown as 140 × 56
	for _, tc := range []struct {
		space, box string
		want       [4]int
	}{
		{BoxOriginal, "[10, 20, 110, 120]", [4]int{10, 20, 110, 120}},
		{BoxOriginal, "[10.5, 20.5, 110.4, 120.6]", [4]int{10, 20, 110, 121}}, // half to even, as PIL's crop
		{Box1000, "[500, 0, 1000, 500]", [4]int{224, 0, 448, 112}},
		{BoxSeen, "[70, 28, 140, 56]", [4]int{224, 112, 448, 224}},
		{"", "[0, 0, 70, 28]", [4]int{0, 0, 224, 112}},
		{BoxOriginal, "[-50, -50, 100, 9999]", [4]int{0, 0, 100, 224}},    // clamped
		{BoxOriginal, "[0, 0, 1, 1]", [4]int{0, 0, 28, 28}},               // grown, kept inside
		{BoxOriginal, "[447, 223, 448, 224]", [4]int{420, 196, 448, 224}}, // likewise
		{BoxOriginal, "[100, 100, 102, 200]", [4]int{87, 100, 115, 200}},  // about its centre
		{BoxOriginal, "[1e300, 0, 1e301, 9]", [4]int{}},
	} {
		e := looking(t, Zoom{Space: tc.space, Seen: processor.New(c).Size}, gradient(t, 448, 224))
		m := zoom(t, e, `{"bbox_2d": `+tc.box+`, "label": "it"}`)[0]
		if tc.want == [4]int{} {
			if len(m.Images) != 0 || !strings.HasPrefix(m.Content, "error: ") {
				t.Errorf("%s %s: %+v", tc.space, tc.box, m)
			}
			continue
		}
		if len(m.Images) != 1 || m.Content != traj.ImageMark || m.Images[0].Crop.Box != tc.want || m.Images[0].Bytes != nil {
			t.Errorf("%s %s: %q, %v, want %v", tc.space, tc.box, m.Content, m.Images, tc.want)
			continue
		}
		pixels, err := album.Pixels(&m.Images[0])
		if err != nil {
			t.Fatal(err)
		}
		if pixels.Width != tc.want[2]-tc.want[0] || pixels.Pix[0] != byte(tc.want[0]) || pixels.Pix[1] != byte(tc.want[1]) {
			t.Errorf("%s %s: the crop has other pixels", tc.space, tc.box)
		}
		file, err := album.File(&m.Images[0])
		if err != nil {
			t.Fatal(err)
		}
		again, err := media.Decode(file, media.Limits{})
		if err != nil || again.Hash() != m.Images[0].Hash {
			t.Errorf("the crop's file has other pixels: %v", err)
		}
	}
}

func TestACropOfACropIsOfTheSameFile(t *testing.T) {
	im := gradient(t, 400, 300)
	e := looking(t, Zoom{Space: BoxOriginal}, im)
	first := zoom(t, e, `{"bbox_2d": [100, 50, 300, 250]}`)[0].Images[0]
	second := zoom(t, e, `{"bbox_2d": [10, 20, 60, 80], "image": 1}`)[0].Images[0]
	if second.Crop.Box != [4]int{110, 70, 160, 130} || second.Crop.Source != im.Hash || first.Crop.Source != im.Hash {
		t.Errorf("%+v of %s", second.Crop, im.Hash)
	}
	// Calls of one reply see the same images, and each has its answer.
	both := zoom(t, e, `{"bbox_2d": [0, 0, 50, 50], "image": 2}`, `{"bbox_2d": [0, 0, 50, 50], "image": 3}`)
	if len(both[0].Images) != 1 || len(both[1].Images) != 0 {
		t.Errorf("%+v", both)
	}
	third := zoom(t, e, `{"bbox_2d": [0, 0, 50, 50], "image": 3}`)[0]
	if len(third.Images) != 1 || third.Images[0].Crop.Box != [4]int{110, 70, 160, 120} {
		t.Errorf("%+v", third)
	}
}

func TestABadBoxIsAMessageForTheModel(t *testing.T) {
	e := looking(t, Zoom{Space: BoxOriginal}, gradient(t, 400, 300), gradient(t, 5000, 20))
	for name, args := range map[string]string{
		"three numbers":      `{"bbox_2d": [1, 2, 3]}`,
		"text":               `{"bbox_2d": "1,2,3,4"}`,
		"text in it":         `{"bbox_2d": [1, 2, 3, "x"]}`,
		"NaN":                `{"bbox_2d": [NaN, 2, 3, 4]}`,
		"a huge number":      `{"bbox_2d": [1, 2, 3, 1e999]}`,
		"null":               `{"bbox_2d": null}`,
		"the schema's name":  `{"bbox": [1, 2, 3, 4]}`,
		"reversed":           `{"bbox_2d": [200, 200, 100, 250]}`,
		"empty":              `{"bbox_2d": [100, 100, 100, 250]}`,
		"outside":            `{"bbox_2d": [500, 0, 600, 100]}`,
		"outside, above":     `{"bbox_2d": [0, -100, 100, -10]}`,
		"200:1":              `{"bbox_2d": [0, 0, 4500, 20], "image": 1}`,
		"no such image":      `{"bbox_2d": [1, 2, 100, 100], "image": 2}`,
		"an image before it": `{"bbox_2d": [1, 2, 100, 100], "image": -1}`,
	} {
		m := zoom(t, e, args)[0]
		if len(m.Images) != 0 || !strings.HasPrefix(m.Content, "error: ") || strings.Contains(m.Content, "\n") {
			t.Errorf("%s: %+v", name, m)
		}
	}
	hundred := make([]string, 100)
	for i := range hundred {
		hundred[i] = `{"bbox_2d": [1, 2, 100, 100]}`
	}
	shown := 0
	for _, m := range zoom(t, e, hundred...) {
		shown += len(m.Images)
	}
	if shown != maxCalls {
		t.Errorf("%d of 100 calls have an image", shown)
	}
	none := looking(t, Zoom{})
	if m := zoom(t, none, `{"bbox_2d": [1, 2, 100, 100]}`)[0]; len(m.Images) != 0 || !strings.HasPrefix(m.Content, "error: ") {
		t.Errorf("without images: %+v", m)
	}
}

// What a box does is the model's: no JSON may break the environment.
func FuzzZoom(f *testing.F) {
	for _, s := range []string{`{"bbox_2d":[1,2,3,4]}`, `{"bbox_2d":[1e308,-1e308,0,0.5],"image":1}`, `{"bbox_2d":[0,0,400,1]}`} {
		f.Add(s, uint8(0))
	}
	f.Fuzz(func(t *testing.T, args string, space uint8) {
		if !json.Valid([]byte(args)) {
			return
		}
		e := looking(t, Zoom{Space: BoxSpaces[int(space)%len(BoxSpaces)]}, traj.Image{Width: 300, Height: 200, Hash: "x"})
		res, err := e.Step(context.Background(), traj.Action{ToolCalls: []traj.ToolCall{{ID: "1", Name: "image_zoom_in_tool", Arguments: args}}})
		if err == nil && len(res.Observation.Messages[0].Images) != 0 {
			t.Errorf("a crop of an image without a file: %+v", res)
		}
	})
}
