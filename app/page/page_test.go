package page

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"agentcli/media"
	"agentcli/media/album"
	"agentcli/traj"
)

// aFile is a grey PNG.
func aFile(t testing.TB, width, height int) traj.Image {
	t.Helper()
	m := image.NewGray(image.Rect(0, 0, width, height))
	for i := range m.Pix {
		m.Pix[i] = 100
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	im, err := album.Open(b.Bytes(), "grey.png", media.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return im
}

// looked is a trajectory with a file and two crops of it.
func looked(t testing.TB, id string, im traj.Image) *traj.Trajectory {
	t.Helper()
	reward := 1.0
	x := &traj.Trajectory{ID: id, Reward: &reward, Termination: traj.Answered, Messages: []traj.Message{
		{Role: traj.RoleUser, Content: "before " + traj.ImageMark + " behind", Images: []traj.Image{im}}}}
	for _, box := range [][4]int{{20, 10, 120, 60}, {200, 100, 300, 180}} {
		crop, err := album.Crop(t.Context(), &im, box)
		if err != nil {
			t.Fatal(err)
		}
		x.Messages = append(x.Messages,
			traj.Message{Role: traj.RoleAssistant, ToolCalls: []traj.ToolCall{{ID: "1", Name: "zoom", Arguments: "{}"}}},
			traj.Message{Role: traj.RoleTool, Content: traj.ImageMark, Images: []traj.Image{crop}})
	}
	x.AddImages(x.Messages)
	return x
}

func pageOf(t testing.TB, all ...*traj.Trajectory) string {
	t.Helper()
	var b bytes.Buffer
	w, err := New(&b, "file", "note", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range all {
		if err := w.Add(x); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestAPageHasEachFileOnceAndEachBoxOnItsFile(t *testing.T) {
	im := aFile(t, 400, 200)
	html := pageOf(t, looked(t, "a#0", im), looked(t, "a#1", im))
	if n := strings.Count(html, "data:image/png;base64,"); n != 1 {
		t.Errorf("the file is on the page %d times", n)
	}
	if n := strings.Count(html, "<article"); n != 2 {
		t.Errorf("%d articles", n)
	}
	for _, box := range []string{`x="20" y="10" width="100" height="50"`, `x="200" y="100" width="100" height="80"`} {
		if n := strings.Count(html, box); n != 4 { // a line and its ground, twice
			t.Errorf("box %s is drawn %d times", box, n)
		}
	}
	before, figure, behind := strings.Index(html, "before "), strings.Index(html, "<figure>"), strings.Index(html, " behind")
	if !(before < figure && figure < behind) {
		t.Errorf("the order is lost: %d, %d, %d", before, figure, behind)
	}
	if strings.Contains(html, "http:") || strings.Contains(html, "https:") || !strings.Contains(html, "default-src 'none'") {
		t.Error("the page asks a network")
	}
}

func TestTextsOfModelsAreTextOnAPage(t *testing.T) {
	const bad = `</div><script>alert(1)</script><img src=x onerror=alert(1)>"'\x60\x1b]0;title\a\u202Eevil`
	im := aFile(t, 400, 200)
	im.Path = bad
	x := looked(t, bad, im)
	reason := bad
	x.Termination, x.Error, x.Extracted, x.Task.Answers = traj.Termination(bad), bad, &reason, []string{bad}
	x.RewardParts = []traj.Part{{Name: bad}}
	x.Messages = append(x.Messages, traj.Message{Role: bad, Name: bad, Content: bad, Reasoning: bad,
		ToolCalls: []traj.ToolCall{{Name: bad, Arguments: bad}}})
	x.Images = append(x.Images, traj.Image{Hash: `x;}</style><script>`, Bytes: im.Bytes, Width: 1, Height: 1})
	html := pageOf(t, x)
	tags := regexp.MustCompile(`<[a-zA-Z/][^>]*>`).FindAllString(html, -1)
	for _, tag := range tags {
		name := strings.TrimLeft(strings.Fields(strings.Trim(tag, "<>"))[0], "/")
		if !slices.Contains([]string{"html", "meta", "title", "style", "header", "h1", "p", "article", "h2", "span", "div", "figure",
			"figcaption", "svg", "g", "rect", "text"}, name) || strings.Contains(tag, "onerror=alert(1)>") && !strings.Contains(tag, "&") {
			t.Errorf("a tag of the texts: %s", tag)
		}
	}
	if strings.ContainsAny(html, "\x1b\a\u202e") {
		t.Error("control characters are on the page")
	}
}

func TestAnImageThatCannotBeShownIsNamed(t *testing.T) {
	x := looked(t, "a#0", aFile(t, 400, 200))
	x.Images[0].Bytes = []byte("no image")
	html := pageOf(t, x)
	if n := strings.Count(html, `class="gone"`); n != 3 {
		t.Errorf("%d images are gone, not 3", n)
	}
	text := &traj.Trajectory{ID: "text#0", Messages: []traj.Message{{Role: traj.RoleUser, Content: "q"}}}
	if html := pageOf(t, text); !strings.Contains(html, ">q<") {
		t.Error("a trajectory without images is not shown")
	}
}

func TestBoxesAreDrawnOnTheirFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	x := looked(t, "a#0", aFile(t, 400, 200))
	x.Images = append(x.Images, traj.Image{Hash: strings.Repeat("0", 64), Width: 3, Height: 3})
	names, failed, err := SaveImages(dir, x)
	if err != nil || len(failed) != 1 {
		t.Fatalf("%v, %v", failed, err)
	}
	if want := []string{"image-0.png", "image-0-boxes.png", "image-1-crop-1.png", "image-2-crop-2.png"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
	f, err := os.Open(filepath.Join(dir, "image-0-boxes.png"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	grey := color.NRGBA{100, 100, 100, 255}
	for _, at := range []struct {
		x, y int
		want color.NRGBA
	}{{300, 101, white}, {299, 179, inks[2]}, {119, 30, inks[1]}, {250, 140, grey}, {5, 5, grey}} {
		if got := color.NRGBAModel.Convert(m.At(at.x, at.y)); got != at.want {
			t.Errorf("pixel %d, %d is %v, want %v", at.x, at.y, got, at.want)
		}
	}
	if _, _, err := SaveImages(dir, x); err == nil {
		t.Error("files were overwritten")
	}
}

func BenchmarkPageOfTenImages(b *testing.B) {
	x := looked(b, "a#0", aFile(b, 2000, 1500))
	for range 4 {
		more := looked(b, "a#0", aFile(b, 1500, 1000))
		x.Messages = append(x.Messages, more.Messages...)
	}
	x.Images = nil
	x.AddImages(x.Messages)
	for b.Loop() {
		pageOf(b, x)
	}
}
