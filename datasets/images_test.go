package datasets

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentcli/internal/malformed"
	"agentcli/internal/setting"
	"agentcli/internal/setting/settingtest"
	"agentcli/media"
	"agentcli/media/album"
	"agentcli/traj"
)

// square is a PNG file of n × n+1 pixels.
func square(t testing.TB, n int) []byte {
	m := image.NewNRGBA(image.Rect(0, 0, n, n+1))
	m.Set(0, 0, color.White)
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// looks writes a conversation with the widths of its images in their places.
func looks(t testing.TB, messages []traj.Message) string {
	var b strings.Builder
	for i := range messages {
		fmt.Fprintf(&b, "%s:", messages[i].Role[:1])
		parts, err := messages[i].Parts()
		if err != nil {
			t.Errorf("message %d: %v", i, err)
		}
		for _, p := range parts {
			if p.Image == nil {
				b.WriteString(p.Text)
			} else {
				fmt.Fprintf(&b, "[%d×%d]", p.Image.Width, p.Image.Height)
			}
		}
		b.WriteString("\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func TestImagesOfEachFormAreReadIntoTheirPlaces(t *testing.T) {
	b64 := func(n int) string { return base64.StdEncoding.EncodeToString(square(t, n)) }
	uri := func(n int) string { return "data:image/png;base64," + b64(n) }
	for _, tc := range []struct{ name, row, want string }{
		{"a path", `{"prompt":"a <image> b","image":"pics/3.png"}`, "u:a [3×4] b"},
		{"a path of file://", `{"prompt":"<image>","images":["file://pics/3.png"]}`, "u:[3×4]"},
		{"paths in order", `{"prompt":"<image><image>?","images":["pics/4.png","pics/3.png"]}`, "u:[4×5][3×4]?"},
		{"the same image twice", `{"prompt":"<image> or <image>","images":["pics/3.png","pics/3.png"]}`, "u:[3×4] or [3×4]"},
		{"no mark: in front of the question", `{"prompt":"Which?","images":["pics/3.png"]}`, "u:[3×4]Which?"},
		{"a data URI", `{"prompt":"<image>","images":"` + uri(5) + `"}`, "u:[5×6]"},
		{"Hugging Face's struct", `{"prompt":"<image>","images":[{"path":"x.png","bytes":"` + b64(5) + `"}]}`, "u:[5×6]"},
		{"Hugging Face's struct without bytes", `{"prompt":"<image>","image":{"path":"pics/4.png","bytes":null}}`, "u:[4×5]"},
		{"a null column", `{"prompt":"none","images":null}`, "u:none"},
		{"no column: the word is text", `{"prompt":"write <image> in HTML"}`, "u:write <image> in HTML"},
		{"the prompt around the question", `{"question":"<image> what?","image":"pics/3.png"}`,
			"u:[3×4] what?\n\nPlease reason step by step, and put your final answer within \\boxed{}."},
		{"messages with marks", `{"messages":[{"role":"system","content":"<image> is a mark"},{"role":"user","content":"x <image>"},
			{"role":"assistant","content":"ok"},{"role":"user","content":"<image>y"}],"images":["pics/3.png","pics/4.png"]}`,
			"s:<image> is a mark\nu:x [3×4]\na:ok\nu:[4×5]y"},
		{"OpenAI's parts", `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"` +
			uri(6) + `"}},{"type":"text","text":"b <image>"}]}]}`, "u:a[6×7]b <image>"},
		{"Hugging Face's parts", `{"messages":[{"role":"user","content":[{"type":"image"},{"type":"text","text":"a"},
			{"type":"image","path":"pics/4.png"}]}],"images":["pics/3.png"]}`, "u:[3×4]a[4×5]"},
		{"a place's character in a text", `{"prompt":"x\ufffcy <image>","image":"pics/3.png"}`, "u:x\uFFFDy [3×4]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := writeFiles(t, map[string]string{"a.jsonl": oneLine(tc.row), "pics/3.png": string(square(t, 3)),
				"pics/4.png": string(square(t, 4))})
			path := filepath.Join(dir, "a.jsonl")
			d, err := Open(context.Background(), path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			for task, err := range d.Tasks(context.Background()) {
				if err != nil {
					t.Fatal(err)
				}
				if got := looks(t, task.Messages); got != tc.want {
					t.Errorf("got %q, want %q", got, tc.want)
				}
				for _, m := range task.Messages {
					for _, im := range m.Images {
						if im.Hash != album.Hash(im.Bytes) {
							t.Errorf("hash %s is not that of the bytes", im.Hash)
						}
					}
				}
				if bytes.Contains(task.Meta, []byte("pics")) || bytes.Contains(task.Meta, []byte("base64")) {
					t.Errorf("the images are in the row's other columns: %s", task.Meta)
				}
			}
			// What is imported gives the same tasks, without the files.
			cache := t.TempDir()
			if _, _, err := Import(context.Background(), "mine", path, Options{Cache: cache}); err != nil {
				t.Fatal(err)
			}
			imported, err := Open(context.Background(), "mine", Options{Cache: cache})
			if err != nil {
				t.Fatal(err)
			}
			for task, err := range imported.Tasks(context.Background()) {
				if err != nil || looks(t, task.Messages) != tc.want {
					t.Errorf("imported: %q, %v", looks(t, task.Messages), err)
				}
			}
		})
	}
}

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", "") }

func TestBadImagesAreOneLineThatNamesTheRow(t *testing.T) {
	many, _ := json.Marshal(strings.Split(strings.Repeat("pics/3.png,", 1000)+"pics/3.png", ","))
	for _, tc := range []struct {
		name, row string
		kind      malformed.Kind
		setting   string
	}{
		{"more marks than images", `{"prompt":"<image><image>","image":"pics/3.png"}`, malformed.Mismatch, ""},
		{"fewer marks than images", `{"prompt":"<image>","images":["pics/3.png","pics/4.png"]}`, malformed.Mismatch, ""},
		{"a mark and a null column", `{"prompt":"<image>","images":null}`, malformed.Mismatch, ""},
		{"a missing file", `{"prompt":"<image>","image":"pics/5.png"}`, malformed.Missing, ""},
		{"a path out of the folder", `{"prompt":"<image>","image":"../secret.png"}`, malformed.Unsupported, ""},
		{"an absolute path out of the folder", `{"prompt":"<image>","image":"/etc/passwd"}`, malformed.Unsupported, ""},
		{"a link out of the folder", `{"prompt":"<image>","image":"out.png"}`, malformed.Unsupported, ""},
		{"a folder", `{"prompt":"<image>","image":"pics"}`, malformed.Type, ""},
		{"an empty file", `{"prompt":"<image>","image":"empty.png"}`, malformed.Truncated, ""},
		{"no image", `{"prompt":"<image>","image":"a.jsonl"}`, malformed.Unsupported, ""},
		{"a large file", `{"prompt":"<image>","image":"large.png"}`, malformed.Range, "MaxImageBytes"},
		{"a large data URI", `{"prompt":"<image>","image":"data:image/png;base64,` + strings.Repeat("A", 3000) + `"}`, malformed.Range,
			"MaxImageBytes"},
		{"a large image", `{"prompt":"<image>","image":"wide.png"}`, malformed.Range, "MaxImagePixels"},
		{"1,000 images", `{"prompt":"x","images":` + string(many) + `}`, malformed.Range, "MaxImages"},
		{"1,000 parts", `{"messages":[{"role":"user","content":[` + strings.Repeat(`{"type":"image","path":"pics/3.png"},`, 1000) + `""]}]}`,
			malformed.Range, "MaxImages"},
		{"a server's address", `{"prompt":"<image>","image":"https://example.org/a.png"}`, malformed.Unsupported, ""},
		{"no base64", `{"prompt":"<image>","image":"data:image/png;base64,!!"}`, malformed.Syntax, ""},
		{"a number", `{"prompt":"<image>","image":7}`, malformed.Type, ""},
		{"an object of neither", `{"prompt":"<image>","image":{"height":3}}`, malformed.Missing, ""},
		{"a video", `{"messages":[{"role":"user","content":[{"type":"video","video":"a.mp4"}]}]}`, malformed.Unsupported, ""},
		{"a part without its image", `{"messages":[{"role":"user","content":[{"type":"image"}]}]}`, malformed.Mismatch, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := writeFiles(t, map[string]string{"rows/a.jsonl": `{"prompt":"fine"}` + "\n" + tc.row, "rows/pics/3.png": string(square(t, 3)),
				"rows/pics/4.png": string(square(t, 4)), "rows/empty.png": "", "secret.png": string(square(t, 3)),
				"rows/large.png": string(square(t, 3)) + strings.Repeat("x", 2000), "rows/wide.png": string(square(t, 99))})
			if err := os.Symlink(filepath.Join(dir, "secret.png"), filepath.Join(dir, "rows/out.png")); err != nil {
				t.Fatal(err)
			}
			limits := ImageLimits{MaxImageBytes: 2000, MaxImagePixels: 9000}
			_, err := Open(context.Background(), filepath.Join(dir, "rows/a.jsonl"), Options{Images: limits})
			facts := malformed.Facts(err)
			if err == nil || facts.Kind != tc.kind || strings.Contains(err.Error(), "\n") || facts.Row != 2 {
				t.Fatalf("%v (%+v), want %s in row 2", err, facts, tc.kind)
			}
			if tc.setting != "" && !settingtest.Names(err, setting.Name(tc.setting)) {
				t.Errorf("%v does not name %s", err, tc.setting)
			}
			// The bad row is left out where that is asked for.
			var told []error
			d, err := Open(context.Background(), filepath.Join(dir, "rows/a.jsonl"), Options{Images: limits,
				BadRow: func(err error) { told = append(told, err) }})
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for range d.Tasks(context.Background()) {
				n++
			}
			if n != 1 || len(told) != 1 {
				t.Errorf("%d tasks, %v", n, told)
			}
		})
	}
}

// The golden file is made by scripts/golden/image_rows.py.
func TestRowsOfDeepEyesAreReadAsTheyAre(t *testing.T) {
	d, err := Open(context.Background(), "testdata/deepeyes.parquet", Options{Envs: []string{"visual_toolbox_v2", ""}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for task, err := range d.Tasks(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %q %q %s", task.ID, task.Env, task.Answers, looks(t, task.Messages[1:])))
	}
	want := []string{`deepeyes/0 "visual_toolbox_v2" ["answer 0"] u:[`, `deepeyes/1 "" ["answer 1"] u:First [`,
		`deepeyes/2 "" ["answer 2"] u:No image here.`}
	for i := range want {
		if i >= len(got) || !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("row %d is %q, want %q…", i, got, want[i])
		}
	}
	if !d.HasImages {
		t.Error("the dataset does not say that it has images")
	}
}

// A scheduler's program gets messages as JSON without the files, and sends them back.
func TestMessagesWithNamedImagesComeBack(t *testing.T) {
	im, err := album.Open(square(t, 3), "a.png", media.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	was := []traj.Message{{Role: "user", Content: "a" + traj.ImageMark + "b", Images: []traj.Image{im}}}
	b, err := json.Marshal(traj.WithoutFiles(was))
	if err != nil || bytes.Contains(b, []byte("bytes")) {
		t.Fatalf("%s, %v", b, err)
	}
	var list any
	if err := json.Unmarshal(b, &list); err != nil {
		t.Fatal(err)
	}
	got, err := ReadMessages(list)
	if err != nil || len(got[0].Images) != 1 || got[0].Images[0].Hash != im.Hash || got[0].Images[0].Width != 3 ||
		got[0].Content != was[0].Content {
		t.Errorf("%+v, %v", got, err)
	}
	path := writeFile(t, "a.jsonl", `{"messages":`+string(b)+`}`)
	if _, err := Open(context.Background(), path, Options{}); malformed.Facts(err).Kind != malformed.Missing {
		t.Errorf("a row whose image has no bytes: %v", err)
	}
}
