package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"image"
	"image/png"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"agentcli/app/console"
	"agentcli/app/models"
	"agentcli/internal/exit"
	"agentcli/internal/malformed"
	"agentcli/model/gguf/testmodel"
	"agentcli/model/tokenizer"
	"agentcli/model/weights"
	"agentcli/policy"

	"github.com/urfave/cli/v2"
)

// askModel runs one model command and gives its stdout.
func askModel(t *testing.T, in string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	s := console.Streams{In: strings.NewReader(in), Out: &out, Err: &bytes.Buffer{}}
	app := &cli.App{Commands: []*cli.Command{modelCommand()}, Metadata: map[string]any{streamsKey: s, backendKey: models.NewBackend()},
		Writer: &out, ErrWriter: s.Err,
		ExitErrHandler: func(*cli.Context, error) {}}
	err := app.RunContext(context.Background(), append([]string{"agentcli", "model"}, args...))
	return out.String(), err
}

func TestModelTokenize(t *testing.T) {
	path := testmodel.Path(t)
	long := strings.Repeat("word ", 60000)
	in := `{"text": "Hello, world! 123"}` + "\n\n" + `{"text": "<|im_end|>", "add_special_tokens": false}` +
		"\n" + `{"text": ""}` + "\n" + `{"text": "` + long + `"}`
	out, err := askModel(t, in, "tokenize", path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 4 || lines[1] != `{"token_ids":[2]}` || lines[2] != `{"token_ids":[]}` {
		t.Fatalf("%d lines, %.200s", len(lines), out)
	}
	back, err := askModel(t, out, "tokenize", "--decode", path)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"Hello, world! 123", "<|im_end|>", "", long} {
		var got struct{ Text string }
		if err := json.Unmarshal([]byte(strings.Split(back, "\n")[i]), &got); err != nil || got.Text != want {
			t.Errorf("line %d: %.100q, %v", i, got.Text, err)
		}
	}
}

func TestModelRender(t *testing.T) {
	path := testmodel.Path(t)
	in := `{"messages": [{"role": "user", "content": "What is 12 * 7?"}, {"role": "assistant", "content": null,` +
		` "tool_calls": [{"type": "function", "id": "x", "function": {"name": "calculator", "arguments": "{\"expression\":\"12*7\"}"}}]},` +
		` {"role": "tool", "content": [{"type": "text", "text": "84"}]}], "add_generation_prompt": true}`
	out, err := askModel(t, in, "render", path)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Text     string
		TokenIDs []int32 `json:"token_ids"`
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	want := "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n<|im_start|>user\nWhat " +
		"is 12 * 7?<|im_end|>\n" +
		"<|im_start|>assistant\n<tool_call>{\"name\": \"calculator\", \"arguments\": {\"expression\": " +
		"\"12*7\"}}</tool_call><|im_end|>\n<|im_start|>tool\n84<|im_end|>\n<|im_start|>assistant\n"
	if got.Text != want {
		t.Errorf("text %q", got.Text)
	}
	tok, err := tokenizer.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.TokenIDs, tok.Encode(want, false)) {
		t.Error("the ids are not those of the text")
	}
}

// Wang et al. 2024, section 2.1: text advances all three axes by 1; an image at p has time p, row
// p + i and column p + j; the text behind it goes on after the largest of them.
func TestRenderedPositionsAreThoseOfTextAndImages(t *testing.T) {
	var file bytes.Buffer
	if err := png.Encode(&file, image.NewGray(image.Rect(0, 0, 84, 56))); err != nil {
		t.Fatal(err)
	}
	url := "data:image/png;base64," + base64.StdEncoding.EncodeToString(file.Bytes())
	part := `{"type": "image_url", "image_url": {"url": "` + url + `"}}`
	in := `{"messages": [{"role": "user", "content": "Hello"}]}` + "\n" + `{"messages": [{"role": "user", "content": [` + part +
		`, {"type": "text", "text": "and"}, ` + part + `, {"type": "text", "text": "?"}]}]}`
	out, err := askModel(t, in, "render", "--positions", "../../examples/look")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines", len(lines))
	}
	for i, line := range lines {
		var got struct {
			TokenIDs []int32 `json:"token_ids"`
			Images   []struct {
				Start, Tokens int
				Grid          [3]int
			}
			Positions [3][]int32
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Images) != 2*i {
			t.Fatalf("line %d has %d images", i, len(got.Images))
		}
		var want [3][]int32
		p := int32(0)
		add := func(time, row, column int32) {
			for axis, n := range []int32{time, row, column} {
				want[axis] = append(want[axis], n)
			}
		}
		text := func(to int) {
			for ; len(want[0]) < to; p++ {
				add(p, p, p)
			}
		}
		for _, im := range got.Images {
			if im.Grid != [3]int{1, 4, 6} || im.Tokens != 6 {
				t.Fatalf("grid %v, %d tokens; want 4 × 6 patches and 6 tokens", im.Grid, im.Tokens)
			}
			text(im.Start)
			for k := range int32(6) {
				add(p, p+k/3, p+k%3)
			}
			p += 3
		}
		text(len(got.TokenIDs))
		if got.Positions[0] == nil || !reflect.DeepEqual(got.Positions, want) {
			t.Errorf("line %d: positions %v, want %v", i, got.Positions, want)
		}
	}
	if out, err = askModel(t, in, "render", "../../examples/look"); err != nil || strings.Contains(out, "positions") {
		t.Errorf("without --positions: %.200s, %v", out, err)
	}
}

func TestModelConvert(t *testing.T) {
	t.Parallel()
	path := testmodel.Path(t)
	dst := filepath.Join(t.TempDir(), "out")
	if _, err := askModel(t, "", "convert", "--dtype", "bf16", path, dst); err != nil {
		t.Fatal(err)
	}
	m, err := weights.Open(dst)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Parameters() != 134515008 || !m.Config().Tied || m.Config().Ropes[0].Theta != 100000 {
		t.Errorf("%+v", m.Config())
	}
	if _, err := askModel(t, "", "convert", path, dst); !errors.Is(err, models.ErrNotEmpty) {
		t.Errorf("a second time: %v", err)
	}
	if left, _ := os.ReadDir(filepath.Dir(dst)); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	file := dst + ".gguf"
	if _, err := askModel(t, "", "convert", "--dtype", "q8_0", dst, file); err != nil {
		t.Fatal(err)
	}
	q, err := weights.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if q.Parameters() != m.Parameters() || q.Config().Ropes[0].Theta != 100000 || q.ChatTemplate() != m.ChatTemplate() ||
		!slices.Contains(q.Storage(), "Q8_0 ×211") {
		t.Errorf("%v %+v", q.Storage(), q.Config())
	}
	whole, err := tokenizer.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	if tok.Hash() != whole.Hash() {
		t.Errorf("%s became %s", whole.Describe(), tok.Describe())
	}
	if _, err := askModel(t, "", "convert", "--dtype", "q8_0", dst, file); err == nil {
		t.Error("a file is written over")
	}
	again := dst + "2"
	if _, err := askModel(t, "", "convert", dst, again); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"model.safetensors", "tokenizer.json", "tokenizer_config.json", "config.json", "generation_config.json"} {
		a, _ := os.ReadFile(filepath.Join(dst, name))
		b, _ := os.ReadFile(filepath.Join(again, name))
		if len(a) == 0 || !bytes.Equal(a, b) {
			t.Errorf("%s changed when a folder was converted to itself", name)
		}
	}
	info, err := askModel(t, "", "info", "--json", dst)
	if err != nil {
		t.Fatal(err)
	}
	var i models.Facts
	if err := json.Unmarshal([]byte(info), &i); err != nil || i.Chat != "smollm2" || i.Format != "safetensors" || len(i.Notes) != 0 {
		t.Errorf("%v %s", err, info)
	}
}

func TestModelInfoTable(t *testing.T) {
	out, err := askModel(t, "", "info", testmodel.Path(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"llama, gguf", "134,515,008", "Q4_1 ×210", "smollm2", "49,152, tied", "Digit+GPT2"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestModelErrors(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.gguf")
	os.WriteFile(bad, []byte("GGUF\x03\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), 0o600)
	var usage exit.UsageError
	usageError := func(err error) bool { return errors.As(err, &usage) }
	is := func(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }
	facts := func(want malformed.Error) func(error) bool {
		return func(err error) bool { return malformed.Facts(err) == want }
	}
	tests := []struct {
		want func(error) bool
		args []string
	}{
		{is(fs.ErrNotExist), []string{"info", filepath.Join(dir, "nowhere")}},
		{facts(malformed.Error{Path: dir, Field: "config.json", Kind: malformed.Missing}), []string{"info", dir}},
		{facts(malformed.Error{Path: dir, Field: "tokenizer.json", Kind: malformed.Missing}), []string{"tokenize", dir}},
		{facts(malformed.Error{Path: bad, Field: "metadata count", Kind: malformed.Truncated}), []string{"tokenize", bad}},
		{facts(malformed.Error{Path: bad, Field: "metadata count", Kind: malformed.Truncated}), []string{"info", bad}},
		{usageError, []string{"info"}},
		{usageError, []string{"convert", bad}},
		{func(err error) bool { return usageError(err) && strings.Contains(err.Error(), "--dtype") }, []string{"convert", "--dtype", "int3", bad,
			filepath.Join(dir, "x")}},
		{usageError, []string{"convert", "--dtype", "q8_0", bad, filepath.Join(dir, "x")}}, // no .gguf
		{is(models.ErrNotEmpty), []string{"convert", bad, dir}},
	}
	for _, tt := range tests {
		_, err := askModel(t, "", tt.args...)
		if err == nil || !tt.want(err) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v", tt.args, err)
		}
	}
	if models.NewBackend().Available() != nil {
		if _, err := askModel(t, "", "logprobs", bad); !errors.Is(err, policy.ErrNoLibtorch) {
			t.Errorf("logprobs without libtorch: %v", err)
		}
	}
}

// imageModel is a folder with the settings of Qwen2-VL's image processor alone.
func imageModel(t *testing.T) string {
	dir := t.TempDir()
	const settings = `{"image_processor_type": "Qwen2VLImageProcessor"}`
	if err := os.WriteFile(filepath.Join(dir, "preprocessor_config.json"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestModelPreprocessSaysWhatAModelSees(t *testing.T) {
	const folder = "../../media/testdata"
	b, err := os.ReadFile(filepath.Join(folder, "hashes.json"))
	if err != nil {
		t.Fatal(err)
	}
	var pillow map[string][3]any
	if err := json.Unmarshal(b, &pillow); err != nil {
		t.Fatal(err)
	}
	var in, names []string
	for name := range pillow {
		names = append(names, name)
		line, _ := json.Marshal(map[string]string{"image": filepath.Join(folder, name)})
		in = append(in, string(line))
	}
	out, err := askModel(t, strings.Join(in, "\n"), "preprocess", "--min-pixels", "12544", imageModel(t))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != len(names) {
		t.Fatalf("%d answers to %d images", len(lines), len(names))
	}
	for i, name := range names {
		var got struct {
			Width, Height int
			Pixels        string `json:"pixels_sha256"`
			SeenWidth     int    `json:"resized_width"`
			SeenHeight    int    `json:"resized_height"`
			Grid          [3]int `json:"image_grid_thw"`
			Tokens        int
		}
		if err := json.Unmarshal([]byte(lines[i]), &got); err != nil {
			t.Fatal(err)
		}
		want := pillow[name]
		if float64(got.Width) != want[0] || float64(got.Height) != want[1] || got.Pixels != want[2] {
			t.Errorf("%s: %+v, want %v", name, got, want)
		}
		grid := [3]int{1, got.SeenHeight / 14, got.SeenWidth / 14}
		if got.SeenWidth*got.SeenHeight < 12544 || got.Grid != grid || got.Tokens != grid[1]*grid[2]/4 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestModelPreprocessNamesWhatIsWrong(t *testing.T) {
	dir := imageModel(t)
	bad := filepath.Join(dir, "bad.png")
	if err := os.WriteFile(bad, []byte("\x89PNG\r\n\x1a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bmp := filepath.Join("..", "..", "media", "testdata", "0001-1.bmp")
	ask := func(path string) string { return `{"image": "` + path + `"}` }
	for _, tt := range []struct {
		in   string
		args []string
		want malformed.Error
	}{
		{ask(bad), nil, malformed.Error{Path: bad, Field: "PNG", Kind: malformed.Truncated}},
		{ask(bad + "x"), nil, malformed.Error{Path: bad + "x", Kind: malformed.Missing}},
		{ask(dir), nil, malformed.Error{Path: dir, Kind: malformed.Type}},
		{`{}`, nil, malformed.Error{Field: "image", Kind: malformed.Missing}},
		{`{"image": "` + bmp + `", "box": [0, 0, 1, 500]}`, nil, malformed.Error{Path: bmp, Field: "box", Kind: malformed.Range}},
		{`{"image": "` + bmp + `", "box": "all"}`, nil, malformed.Error{Field: "box", Kind: malformed.Type}},
		{ask(bmp), []string{"--max-image-pixels", "3"}, malformed.Error{Path: bmp, Field: "BMP", Kind: malformed.Range}},
		{ask(bmp), []string{"--max-image-bytes", "3"}, malformed.Error{Path: bmp, Kind: malformed.Range}},
	} {
		_, err := askModel(t, tt.in, append(append([]string{"preprocess"}, tt.args...), dir)...)
		got := malformed.Facts(err)
		if got.Line = 0; tt.want.Path == "" {
			got.Path = ""
		} else if f := (*malformed.Error)(nil); errors.As(err, &f) && f.Path == "stdin" {
			got.Path = malformed.Facts(f.Err).Path
		}
		if got != tt.want {
			t.Errorf("%s %v: %v (%+v), want %+v", tt.in, tt.args, err, got, tt.want)
		}
	}
	var usage exit.UsageError
	for _, args := range [][]string{{"--resize", "lanczos"}, {"--min-pixels", "-1"}, {"--min-pixels", "99999999"}, {"--max-pixels", "9"}} {
		if _, err := askModel(t, "", append(append([]string{"preprocess"}, args...), dir)...); !errors.As(err, &usage) {
			t.Errorf("%v: %v, want a mistake of usage", args, err)
		}
	}
	if _, err := askModel(t, "", "preprocess", t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a model without settings for images: %v", err)
	}
}

func TestModelLineErrors(t *testing.T) {
	t.Parallel()
	path := testmodel.Path(t)
	for _, tt := range []struct {
		cmd, in string
		want    malformed.Error
	}{
		{"tokenize", `{"text": "a"}` + "\nnope\n", malformed.Error{Line: 2, Kind: malformed.Syntax}},
		{"tokenize", "[1]\n", malformed.Error{Line: 1, Kind: malformed.Type}},
		{"tokenize", `{"text": 7}`, malformed.Error{Line: 1, Field: "text", Kind: malformed.Type}},
		{"tokenize", `{}`, malformed.Error{Line: 1, Field: "text", Kind: malformed.Missing}},
		{"render", "\n" + `{"messages": []}`, malformed.Error{Line: 2, Field: "messages", Kind: malformed.Missing}},
		{"render", `{"messages": [{"content": "x"}]}`, malformed.Error{Line: 1, Field: "messages.role", Kind: malformed.Missing}},
		{"render", `{"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]}`,
			malformed.Error{Line: 1, Field: "messages.arguments", Kind: malformed.Syntax}},
	} {
		out, err := askModel(t, tt.in, tt.cmd, path)
		got := malformed.Facts(err)
		if got.Path = ""; got != tt.want {
			t.Errorf("%s %q: %v, want %+v", tt.cmd, tt.in, err, tt.want)
		}
		if tt.want.Line == 2 && tt.cmd == "tokenize" && !strings.HasPrefix(out, `{"token_ids"`) {
			t.Error("the answers before the bad line were lost")
		}
	}
	if _, err := askModel(t, `{"token_ids": [999999]}`, "tokenize", "--decode", path); !errors.Is(err, malformed.Range) ||
		malformed.Facts(err).Field != "token_ids" {
		t.Error(err)
	}
}
