package rolloutserver

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"agentcli/llm/llmtest"
	"agentcli/media"
	"agentcli/media/album"
	"agentcli/parquet"
)

// picture is the file of a grey image.
func picture(t *testing.T, w, h int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, w, h))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func inBase64(file []byte) string { return base64.StdEncoding.EncodeToString(file) }

// sizes are those of the images of a message, between its texts.
func sizes(m llmtest.Message) string {
	parts, isList := m.Content.([]any)
	if !isList {
		return m.Text()
	}
	out := ""
	for _, p := range parts {
		part := p.(map[string]any)
		if part["type"] == "text" {
			out += part["text"].(string)
			continue
		}
		_, body, _ := strings.Cut(part["image_url"].(map[string]any)["url"].(string), ",")
		file, err := base64.StdEncoding.DecodeString(body)
		m, derr := media.Decode(file, media.Limits{})
		if err != nil || derr != nil {
			return "no image"
		}
		out += fmt.Sprintf("[%dx%d]", m.Width, m.Height)
	}
	return out
}

// looker zooms into the first image, and answers with what it has seen.
func looker(r *llmtest.Request) llmtest.Reply {
	if last := r.Messages[len(r.Messages)-1]; last.Role == "tool" {
		return llmtest.Text(sizes(r.Messages[0]) + sizes(last))
	}
	if !r.Has("tools") {
		return llmtest.Text(sizes(r.Messages[len(r.Messages)-1]))
	}
	return llmtest.Reply{Calls: []llmtest.Call{llmtest.NewCall("c", "image_zoom_in_tool", `{"bbox_2d": [500, 500, 1000, 1000]}`)}}
}

func zooming(o *Options) { o.Tools, o.BoxSpace = []string{"image_zoom_in_tool"}, "1000" }

func TestRowsWithImagesArePlayedAndKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	x := serve(t, dir, looker, zooming)
	file := picture(t, 200, 120)
	row := map[string]any{"id": "a", "question": "<image>What?", "images": []any{map[string]any{"bytes": inBase64(file)}}}
	check := func(got map[string]any) {
		t.Helper()
		var line struct {
			Messages []struct {
				Content string
				Images  json.RawMessage
				Refs    []struct{ Image, At int } `json:"image_refs"`
			}
			Images []struct {
				Hash, Source  string
				Bytes         []byte
				Width, Height int
				Box           []int
			}
			Termination string
		}
		if b, err := json.Marshal(got); err != nil || json.Unmarshal(b, &line) != nil {
			t.Fatalf("%v: %s", err, b)
		}
		last := line.Messages[len(line.Messages)-1].Content
		if line.Termination != "answered" || !strings.Contains(last, "[200x120]What?") || !strings.Contains(last, "[100x60]") {
			t.Errorf("the model saw %q (%s)", last, line.Termination)
		}
		if len(line.Images) != 2 || !bytes.Equal(line.Images[0].Bytes, file) || line.Images[1].Bytes != nil ||
			line.Images[1].Source != album.Hash(file) || fmt.Sprint(line.Images[1].Box) != "[100 60 200 120]" {
			t.Errorf("images %+v", line.Images)
		}
		m := line.Messages[0]
		if !strings.HasPrefix(m.Content, "<image>What?") || m.Images != nil || fmt.Sprint(m.Refs) != "[{0 0}]" {
			t.Errorf("%+v", m)
		}
	}
	x.rows(map[string]any{"id": "text", "question": "Nothing to see"}) // the file began without images
	check(x.rows(row)["a"])
	check(x.rows(row)["a"]) // as it was
	x.end()
	x = serve(t, dir, func(*llmtest.Request) llmtest.Reply { return llmtest.Text("played anew") }, func(o *Options) {
		zooming(o)
		o.Resume, o.Output = dir, ""
	})
	check(x.rows(row)["a"]) // from the journal
	x.end()
	f, err := parquet.Open(filepath.Join(dir, "traj.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for got, err := range f.Rows(t.Context()) {
		n++
		if err == nil && got.Task.ID == "requests/text" && got.Images == nil && got.Termination == "answered" {
			continue
		}
		if err != nil || len(got.Images) != 2 || !bytes.Equal(got.Images[0].Bytes, file) {
			t.Errorf("row %d: %d images, %v", n, len(got.Images), err)
		}
	}
	if n != 2 {
		t.Errorf("%d rows", n)
	}
}

// TestImagesOfMsSwift: base64 without more in, the images of the whole conversation out.
func TestImagesOfMsSwift(t *testing.T) {
	x := serve(t, filepath.Join(t.TempDir(), "run"), looker, zooming)
	file := picture(t, 200, 120)
	status, text := x.post(t.Context(), "/infer/", map[string]any{"infer_requests": []any{
		map[string]any{"uuid": "a", "messages": []any{map[string]any{"role": "user", "content": "a <image> b"}}, "images": []any{inBase64(file)},
			"data_dict": map[string]any{"images": []any{"/somewhere/else.png"}}},
		map[string]any{"uuid": "b", "messages": []any{map[string]any{"role": "user", "content": []any{
			map[string]any{"type": "image", "image": "data:image/png;base64," + inBase64(file)}, map[string]any{"type": "text", "text": "c"}}}}},
	}})
	var out []struct {
		Messages []struct{ Role, Content string }
		Infos    struct{ Images []string } `json:"rollout_infos"`
	}
	if err := json.Unmarshal([]byte(text), &out); status != http.StatusOK || err != nil || len(out) != 2 {
		t.Fatalf("%d %.300s %v", status, text, err)
	}
	for i, asked := range []string{"a <image> b", "<image>c"} {
		marks := 0
		for _, m := range out[i].Messages {
			marks += strings.Count(m.Content, "<image>")
		}
		if out[i].Messages[0].Content != asked || marks != 2 || len(out[i].Infos.Images) != 2 {
			t.Fatalf("%d: %+v, %d images", i, out[i].Messages, len(out[i].Infos.Images))
		}
		for k, want := range []image.Point{{200, 120}, {100, 60}} {
			b, err := base64.StdEncoding.DecodeString(out[i].Infos.Images[k])
			m, derr := media.Decode(b, media.Limits{})
			if err != nil || derr != nil || m.Width != want.X || m.Height != want.Y {
				t.Errorf("%d: image %d is %+v, %v, %v", i, k, m, err, derr)
			}
		}
	}
}

// TestAWordThatIsNoImageIsToldApart: ms-swift's form cannot, and would give the word an image.
func TestAWordThatIsNoImageIsToldApart(t *testing.T) {
	x := serve(t, filepath.Join(t.TempDir(), "run"), func(*llmtest.Request) llmtest.Reply { return llmtest.Text("an <image>") }, nil)
	ask := func(images ...any) int {
		content := strings.Repeat("<image>", len(images)) + "?"
		status, _ := x.post(t.Context(), "/infer/", map[string]any{"infer_requests": []any{
			map[string]any{"messages": []any{map[string]any{"role": "user", "content": content}}, "images": images}}})
		return status
	}
	if with, without := ask(inBase64(picture(t, 60, 60))), ask(); with != http.StatusUnprocessableEntity || without != http.StatusOK {
		t.Errorf("%d with an image, %d without", with, without)
	}
}

func TestAModelOfTextAloneIsGivenNoImages(t *testing.T) {
	blind := func(r *llmtest.Request) llmtest.Reply {
		if r.Messages[len(r.Messages)-1].Text() == "" {
			return llmtest.Reply{Status: http.StatusBadRequest, Error: "m is not a multimodal model"}
		}
		return seven()
	}
	dir := filepath.Join(t.TempDir(), "run")
	x := serve(t, dir, blind, nil)
	file := inBase64(picture(t, 60, 60))
	status, _ := x.post(t.Context(), "/v1/rollouts",
		map[string]any{"rows": []any{map[string]any{"id": "a", "question": "<image>?", "image": file}}})
	infer, _ := x.post(t.Context(), "/infer/", map[string]any{"infer_requests": []any{
		map[string]any{"messages": []any{map[string]any{"role": "user", "content": "<image>"}}, "images": []any{file}}}})
	if status != http.StatusUnprocessableEntity || infer != http.StatusUnprocessableEntity {
		t.Errorf("%d, %d", status, infer)
	}
	x.rows(row("b"))
	x.end()
	f, err := parquet.Open(filepath.Join(dir, "traj.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Metadata().Schema != 1 {
		t.Errorf("a file without images is of version %d", f.Metadata().Schema)
	}
}

func TestBadImagesOfRowsAreRefused(t *testing.T) {
	var asked atomic.Int64
	x := serve(t, filepath.Join(t.TempDir(), "run"), func(r *llmtest.Request) llmtest.Reply {
		if strings.HasPrefix(sizes(r.Messages[0]), "row") {
			asked.Add(1)
		}
		return seven()
	}, func(o *Options) { o.Images.MaxImages, o.Images.MaxImageBytes = 2, 4096 })
	good := inBase64(picture(t, 60, 60))
	for name, images := range map[string][]any{
		"broken base64":      {"!!!"},
		"no image":           {inBase64([]byte("text"))},
		"a cut file":         {inBase64(picture(t, 60, 60)[:30])},
		"of another host":    {"http://127.0.0.1:1/a.png"},
		"a file here":        {map[string]any{"path": "/etc/passwd"}},
		"more than marks":    {good, good},
		"too many":           {good, good, good},
		"too long":           {inBase64(bytes.Repeat([]byte{1}, 5000))},
		"of no kind":         {17},
		"none where one was": {},
	} {
		body := map[string]any{"rows": []any{map[string]any{"question": "row <image>", "images": images}}}
		status, text := x.post(t.Context(), "/v1/rollouts", body)
		if status != http.StatusUnprocessableEntity || !strings.Contains(text, "row 1") {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	for _, part := range []map[string]any{{"type": "video", "video": good}, {"type": "input_audio"}} {
		body := map[string]any{"rows": []any{map[string]any{"messages": []any{map[string]any{"role": "user", "content": []any{part}}}}}}
		if status, text := x.post(t.Context(), "/v1/rollouts", body); status != http.StatusUnprocessableEntity {
			t.Errorf("%v: %d %s", part["type"], status, text)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("%d bad rows were played", n)
	}
}

// TestAPathIsReadBelowTheNamedFolderOnly: ms-swift's client sends paths as they are in its rows.
func TestAPathIsReadBelowTheNamedFolderOnly(t *testing.T) {
	inside, outside := t.TempDir(), t.TempDir()
	for _, path := range []string{filepath.Join(inside, "a.png"), filepath.Join(outside, "b.png")} {
		if err := os.WriteFile(path, picture(t, 60, 60), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(outside, "b.png"), filepath.Join(inside, "link.png")); err != nil {
		t.Fatal(err)
	}
	x := serve(t, filepath.Join(t.TempDir(), "run"), func(r *llmtest.Request) llmtest.Reply { return llmtest.Text(sizes(r.Messages[0])) },
		func(o *Options) { o.AllowMediaPath = inside })
	ask := func(named any) int {
		status, text := x.post(t.Context(), "/infer/", map[string]any{"infer_requests": []any{
			map[string]any{"messages": []any{map[string]any{"role": "user", "content": "<image>"}}, "images": []any{named}}}})
		if status == http.StatusOK && !strings.Contains(text, "[60x60]") {
			t.Errorf("%v: %.200s", named, text)
		}
		return status
	}
	whole := filepath.Join(inside, "a.png")
	for _, named := range []any{"a.png", whole, "file://" + whole, inBase64(picture(t, 60, 60))} {
		if status := ask(named); status != http.StatusOK {
			t.Errorf("%.60v: %d", named, status)
		}
	}
	for _, named := range []string{"../" + filepath.Base(outside) + "/b.png", filepath.Join(outside, "b.png"), "link.png", "none.png", "."} {
		if status := ask(named); status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d", named, status)
		}
	}
}

func TestImagesAreFetchedFromNamedHostsOnly(t *testing.T) {
	var fetched, strange atomic.Int64
	file := picture(t, 60, 60)
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { strange.Add(1) }))
	defer other.Close()
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fetched.Add(1)
		switch r.URL.Path {
		case "/a.png":
			_, _ = w.Write(file)
		case "/away":
			http.Redirect(w, r, other.URL+"/a.png", http.StatusFound)
		case "/long":
			_, _ = w.Write(make([]byte, 8192))
		default:
			http.NotFound(w, r)
		}
	}))
	defer host.Close()
	x := serve(t, filepath.Join(t.TempDir(), "run"), func(r *llmtest.Request) llmtest.Reply { return llmtest.Text(sizes(r.Messages[0])) },
		func(o *Options) {
			o.AllowMediaHosts, o.Images.MaxImageBytes = []string{strings.TrimPrefix(host.URL, "http://")}, 4096
		})
	ask := func(address string) (int, string) {
		row := map[string]any{"question": "<image>", "image": address}
		return x.post(t.Context(), "/v1/rollouts", map[string]any{"rows": []any{row, row}})
	}
	const key = "Zk93kfhwQQ02"
	status, text := ask(host.URL + "/a.png?key=" + key)
	if status != http.StatusOK || strings.Count(text, "[60x60]") != 2 || fetched.Load() != 1 {
		t.Errorf("%d, fetched %d times: %.200s", status, fetched.Load(), text)
	}
	if strings.Contains(text, key) {
		t.Error("the address is in the trajectory")
	}
	for _, address := range []string{host.URL + "/none.png?key=" + key, host.URL + "/away", host.URL + "/long", other.URL + "/a.png",
		"http://127.0.0.1:1/a.png?key=" + key, "http://%zz/"} {
		status, text := ask(address)
		if status != http.StatusUnprocessableEntity || strings.Contains(text, key) {
			t.Errorf("%s: %d %s", address, status, text)
		}
	}
	if n := strange.Load(); n != 0 {
		t.Errorf("another host was asked %d times", n)
	}
}
