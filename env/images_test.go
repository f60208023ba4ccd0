package env

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/media"
	"agentcli/media/album"
	"agentcli/traj"
)

// fakeShowing gives always the same.
type fakeShowing struct {
	text  string
	files []ImageFile
	err   error
	calls *int
}

func (f fakeShowing) Spec() traj.ToolSpec { return traj.ToolSpec{Name: "camera"} }
func (f fakeShowing) ShowsImages() bool   { return true }
func (f fakeShowing) Call(context.Context, json.RawMessage) (string, error) {
	return WithoutFiles(f.text, f.files), f.err
}
func (f fakeShowing) Show(context.Context, json.RawMessage) (string, []ImageFile, error) {
	if f.calls != nil {
		*f.calls++
	}
	return f.text, f.files, f.err
}

// pngFile is a black image as a file.
func pngFile(t *testing.T, w, h int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, w, h))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// photo calls a tool that gives these images.
func photo(t *testing.T, c Config, text string, files ...ImageFile) (traj.Message, Result) {
	t.Helper()
	c.Tools = []Tool{fakeShowing{text: text, files: files}}
	r := step(t, c, calls("camera", "{}"))
	if len(r.Observation.Messages) == 0 {
		return traj.Message{}, r
	}
	return r.Observation.Messages[0], r
}

func TestTheImagesOfAToolAreShownInTheirPlaces(t *testing.T) {
	const mark = traj.ImageMark
	small, large := pngFile(t, 40, 30), pngFile(t, 300, 200)
	path := filepath.Join(t.TempDir(), "a.png")
	if err := os.WriteFile(path, large, 0o600); err != nil {
		t.Fatal(err)
	}
	m, r := photo(t, Config{}, "before "+mark+" and "+mark+" after", ImageFile{Type: "image/png", Bytes: small}, ImageFile{Path: path})
	if r.ToolErrors != 0 || m.Content != "before "+mark+" and "+mark+" after" || len(m.Images) != 2 {
		t.Fatalf("%+v", r)
	}
	for i, want := range []traj.Image{{Hash: album.Hash(small), Bytes: small, Width: 40, Height: 30},
		{Hash: album.Hash(large), Bytes: large, Width: 300, Height: 200, Path: path}} {
		got := m.Images[i]
		if got.Hash != want.Hash || !bytes.Equal(got.Bytes, want.Bytes) || got.Width != want.Width || got.Height != want.Height ||
			got.Path != want.Path {
			t.Errorf("%d: %s, %q, %d × %d", i, got.Hash, got.Path, got.Width, got.Height)
		}
	}
	// A text that is cut, or has another number of places, has its images behind it.
	for _, text := range []string{"no place", mark, strings.Repeat("x", 500) + mark + mark} {
		m, _ := photo(t, Config{MaxObservation: 100}, text, ImageFile{Bytes: small}, ImageFile{Bytes: large})
		if parts, err := m.Parts(); err != nil || len(m.Images) != 2 || parts[len(parts)-1].Image == nil {
			t.Errorf("%q: %q with %d images, %v", text, m.Content, len(m.Images), err)
		}
	}
}

func TestAnImageThatCannotBeShownIsAMessageForTheModel(t *testing.T) {
	good := pngFile(t, 40, 30)
	dir := t.TempDir()
	for name, c := range map[string]struct {
		config ImageConfig
		file   ImageFile
	}{
		"empty":              {file: ImageFile{}},
		"no image":           {file: ImageFile{Type: "image/png", Bytes: []byte("123")}},
		"cut off":            {file: ImageFile{Bytes: pngFile(t, 400, 300)[:60]}},
		"a folder":           {file: ImageFile{Path: dir}},
		"a device":           {file: ImageFile{Path: "/dev/zero"}},
		"no file":            {file: ImageFile{Path: filepath.Join(dir, "a.png")}},
		"no path":            {file: ImageFile{Path: "a\x00b"}},
		"too long":           {ImageConfig{Limits: media.Limits{Bytes: len(good) - 1}}, ImageFile{Bytes: good}},
		"too many pixels":    {ImageConfig{Limits: media.Limits{Pixels: 40*30 - 1}}, ImageFile{Bytes: good}},
		"sides of 201 to 1":  {file: ImageFile{Bytes: pngFile(t, 2010, 10)}},
		"too many tokens":    {ImageConfig{MaxTokens: 3}, ImageFile{Bytes: pngFile(t, 56, 56)}},
		"a model's own rule": {ImageConfig{Tokens: func(int, int) (int, error) { return 0, errors.New("no") }}, ImageFile{Bytes: good}},
	} {
		m, r := photo(t, Config{Images: c.config}, traj.ImageMark, c.file)
		if len(m.Images) != 0 || r.ToolErrors != 1 || !strings.HasPrefix(m.Content, "error: ") || strings.Contains(m.Content, "\n") {
			t.Errorf("%s: %+v", name, r)
		}
	}
	long := filepath.Join(dir, "long.png")
	if err := os.WriteFile(long, append(good, make([]byte, 100)...), 0o600); err != nil {
		t.Fatal(err)
	}
	bounded := Config{Images: ImageConfig{Limits: media.Limits{Bytes: len(good)}}}
	if m, _ := photo(t, bounded, traj.ImageMark, ImageFile{Path: long}); len(m.Images) != 0 {
		t.Error("a file of more bytes than the limit is shown")
	}
	two := []ImageFile{{Bytes: good}, {Bytes: good}}
	for most, want := range map[int]int{0: 2, 1: 0, 2: 2} {
		if m, _ := photo(t, Config{Images: ImageConfig{MaxImages: most}}, strings.Repeat(traj.ImageMark, 2), two...); len(m.Images) != want {
			t.Errorf("of 2 images %d are shown where %d may be", len(m.Images), most)
		}
	}
}

// The images of results are counted in the order of their calls; those of the row are not.
func TestToolsShowNoMoreImagesThanTheyMay(t *testing.T) {
	e, err := New(Config{Tools: []Tool{Zoom{Space: BoxOriginal}}, Images: ImageConfig{MaxImages: 2}})
	if err != nil {
		t.Fatal(err)
	}
	open := traj.Message{Role: traj.RoleUser, Content: traj.ImageMark, Images: []traj.Image{gradient(t, 300, 56)}}
	if _, err := e.Reset(t.Context(), traj.Task{ID: "t", Messages: []traj.Message{open}}); err != nil {
		t.Fatal(err)
	}
	shown := func(calls ...string) (n []int) {
		for _, m := range zoom(t, e, calls...) {
			n = append(n, len(m.Images))
			if isError := strings.HasPrefix(m.Content, "error: "); isError != (len(m.Images) == 0) {
				t.Errorf("%d images with %q", len(m.Images), m.Content)
			}
		}
		return n
	}
	const good, bad = `{"bbox_2d": [0, 0, 56, 56]}`, `{"bbox_2d": [0, 0, 56]}`
	if got := shown(bad, good); !slices.Equal(got, []int{0, 1}) {
		t.Errorf("images of the first reply: %v", got)
	}
	if got := shown(good, good); !slices.Equal(got, []int{1, 0}) {
		t.Errorf("images of the second: %v", got)
	}
	if got := shown(good); !slices.Equal(got, []int{0}) {
		t.Errorf("images of the third: %v", got)
	}
}

func TestTheBoundOnTokensHoldsForEveryTool(t *testing.T) {
	for most, want := range map[int]int{0: 1, 3: 0, 4: 1} { // 56 × 56 pixels take 4 of Qwen2.5-VL's
		c := Config{Images: ImageConfig{MaxTokens: most}}
		if m, _ := photo(t, c, traj.ImageMark, ImageFile{Bytes: pngFile(t, 56, 56)}); len(m.Images) != want {
			t.Errorf("%d at most: %+v", most, m)
		}
		e, err := New(Config{Tools: []Tool{Zoom{Space: BoxOriginal}, Rotate{}}, Images: ImageConfig{MaxTokens: most}})
		if err != nil {
			t.Fatal(err)
		}
		open := traj.Message{Role: traj.RoleUser, Content: traj.ImageMark, Images: []traj.Image{gradient(t, 300, 56)}}
		if _, err := e.Reset(t.Context(), traj.Task{ID: "t", Messages: []traj.Message{open}}); err != nil {
			t.Fatal(err)
		}
		if m := look(t, e, "image_zoom_in_tool", `{"bbox_2d": [0, 0, 56, 56]}`); len(m.Images) != want {
			t.Errorf("zoom, %d at most: %+v", most, m)
		}
		if m := look(t, e, "image_rotate_tool", `{"angle": 0}`); (len(m.Images) == 1) != (most == 0) {
			t.Errorf("rotate, %d at most: %+v", most, m)
		}
	}
}

func TestAModelOfTextAloneIsGivenDescriptions(t *testing.T) {
	told := 0
	c := Config{Images: ImageConfig{TextAlone: true, Described: func() { told++ }}}
	m, r := photo(t, c, "a"+traj.ImageMark+"b"+traj.ImageMark+"c", ImageFile{Type: "image/svg+xml", Bytes: []byte("<svg/>")},
		ImageFile{Path: "/nowhere/map.png"})
	if r.ToolErrors != 0 || len(m.Images) != 0 || m.Content != "a[an image, image/svg+xml, 6 bytes]b[an image, map.png]c" || told != 1 {
		t.Errorf("%+v, told %d times", r, told)
	}
	c = Config{InReply: func(results []string, _ bool) string { return strings.Join(results, "|") }}
	if _, r := photo(t, c, traj.ImageMark, ImageFile{Bytes: []byte("1")}); r.Observation.Continue != "[an image, 1 bytes]" {
		t.Errorf("written into the reply: %+v", r)
	}
}

func TestWithoutFilesKeepsTextThatHasNoPlaces(t *testing.T) {
	f := []ImageFile{{Bytes: []byte("1")}, {Type: "x\ny"}}
	for text, want := range map[string]string{
		"":                      "[an image, 1 bytes][an image, x y, 0 bytes]",
		"a":                     "a[an image, 1 bytes][an image, x y, 0 bytes]",
		traj.ImageMark + "a":    "[an image, 1 bytes]a[an image, x y, 0 bytes]",
		"\uFFFCa\uFFFCb\uFFFCc": "[an image, 1 bytes]a[an image, x y, 0 bytes]b\uFFFCc",
	} {
		if got := WithoutFiles(text, f); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestTheCacheKeepsNoResultWithAnImage(t *testing.T) {
	cache, err := OpenCache(t.TempDir(), "camera", "image_zoom_in_tool", "image_rotate_tool")
	if err != nil {
		t.Fatal(err)
	}
	for _, textAlone := range []bool{false, true, false} { // what one model is told another is shown
		n := 0
		tool := fakeShowing{text: traj.ImageMark, files: []ImageFile{{Bytes: pngFile(t, 40, 30)}}, calls: &n}
		r := step(t, Config{Tools: []Tool{tool}, Cache: cache, Images: ImageConfig{TextAlone: textAlone}}, calls("camera", "{}"))
		if n != 1 || (len(r.Observation.Messages[0].Images) == 1) == textAlone {
			t.Errorf("text alone %v: %d calls, %+v", textAlone, n, r)
		}
	}
	n := 0
	tool := fakeShowing{text: "no image", calls: &n}
	for range 2 {
		if r := step(t, Config{Tools: []Tool{tool}, Cache: cache}, calls("camera", "{}")); r.Observation.Messages[0].Content != "no image" {
			t.Errorf("%+v", r)
		}
	}
	if n != 1 {
		t.Errorf("a result without an image is asked for %d times", n)
	}
	for _, tool := range []Tool{Zoom{}, Rotate{}} {
		if cache.Serves(tool) {
			t.Errorf("results of %s depend on the conversation's images", tool.Spec().Name)
		}
	}
}
