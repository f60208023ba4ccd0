//go:build libtorch

package serve

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agentcli/app/console"
	"agentcli/app/models"
	"agentcli/llm"
	"agentcli/model/weights"
	"agentcli/traj"

	openai "github.com/sashabaranov/go-openai"
)

const tiny = "../../policy/testdata/tiny-qwen3"

// running is a server of a tiny model.
type running struct {
	testing.TB
	url    string
	engine models.Engine
	source models.Source
	said   *bytes.Buffer
}

func start(t testing.TB, change func(*Options)) *running {
	t.Helper()
	o := Options{Path: tiny, Backend: models.NewBackend(), Name: "tiny", Model: models.LocalOptions{DType: "float32",
		Device: "cpu", Temperature: 1}}
	if change != nil {
		change(&o)
	}
	engine, source, err := o.Backend.OpenEngine(o.Path, o.Model)
	if err != nil {
		t.Fatal(err)
	}
	said := &bytes.Buffer{}
	h := newServer(engine, source, o, console.Streams{Out: io.Discard, Err: said})
	if err := loadAdapters(h); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(h.handler())
	t.Cleanup(func() { web.Close(); engine.Close() })
	return &running{t, web.URL, engine, source, said}
}

func (x *running) post(path string, body any, headers ...string) (int, []byte) {
	x.Helper()
	var raw []byte
	switch b := body.(type) {
	case string:
		raw = []byte(b)
	case []byte:
		raw = b
	default:
		var err error
		if raw, err = json.Marshal(body); err != nil {
			x.Fatal(err)
		}
	}
	req, err := http.NewRequest(http.MethodPost, x.url+path, bytes.NewReader(raw))
	if err != nil {
		x.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		x.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		x.Fatal(err)
	}
	return resp.StatusCode, out
}

// ask posts a request that must succeed.
func (x *running) ask(path string, body any, into any) {
	x.Helper()
	status, raw := x.post(path, body)
	if status != http.StatusOK {
		x.Fatalf("%s: %d %s", path, status, raw)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		x.Fatalf("%s: %v: %s", path, err, raw)
	}
}

// said is what a reply or the pieces of one have in common.
type chatReply struct {
	Prompt  []int32 `json:"prompt_token_ids"`
	Version *int64  `json:"policy_version"`
	Choices []struct {
		Index   int     `json:"index"`
		IDs     []int32 `json:"token_ids"`
		Finish  *string `json:"finish_reason"`
		Message struct{ Content string }
		Delta   struct{ Content string }
		Text    string
		LPs     *struct {
			Content []struct{ Logprob float64 }
			Token   []float64 `json:"token_logprobs"`
		} `json:"logprobs"`
	}
	Usage *struct {
		Prompt int `json:"prompt_tokens"`
		Drawn  int `json:"completion_tokens"`
	}
}

func (x *running) stream(path string, body map[string]any) (out []chatReply) {
	x.Helper()
	body["stream"] = true
	status, raw := x.post(path, body)
	if status != http.StatusOK {
		x.Fatalf("%s: %d %s", path, status, raw)
	}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	ended := false
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			ended = true
			continue
		}
		var r chatReply
		if err := json.Unmarshal([]byte(data), &r); err != nil {
			x.Fatalf("%v: %s", err, data)
		}
		out = append(out, r)
	}
	if !ended {
		x.Error("the stream has no end")
	}
	return out
}

func hello(more map[string]any) map[string]any {
	body := map[string]any{"messages": []any{map[string]string{"role": "user", "content": "What is 12 * 7?"}}, "max_tokens": 24, "seed": 7,
		"logprobs": true, "return_token_ids": true}
	for k, v := range more {
		body[k] = v
	}
	return body
}

func TestPiecesOfAStreamAreTheWholeReply(t *testing.T) {
	x := start(t, nil)
	for name, more := range map[string]map[string]any{"plain": {}, "choices": {"n": 3}, "greedy": {"temperature": 0},
		"tools": {"tools": []any{map[string]any{"type": "function", "function": map[string]any{"name": "f",
			"parameters": map[string]any{"type": "object"}}}}}} {
		t.Run(name, func(t *testing.T) {
			x := &running{t, x.url, x.engine, x.source, x.said}
			var whole chatReply
			x.ask("/v1/chat/completions", hello(more), &whole)
			texts, ids, lps := map[int]string{}, map[int][]int32{}, map[int][]float64{}
			finish := map[int]string{}
			body := hello(more)
			body["stream_options"] = map[string]bool{"include_usage": true}
			events := x.stream("/v1/chat/completions", body)
			for _, e := range events {
				for _, c := range e.Choices {
					texts[c.Index] += c.Delta.Content
					ids[c.Index] = append(ids[c.Index], c.IDs...)
					if c.LPs != nil {
						for _, lp := range c.LPs.Content {
							lps[c.Index] = append(lps[c.Index], lp.Logprob)
						}
					}
					if c.Finish != nil {
						finish[c.Index] = *c.Finish
					}
				}
			}
			if !slices.Equal(events[0].Prompt, whole.Prompt) || len(whole.Prompt) == 0 {
				t.Errorf("the stream's prompt is %v, the reply's %v", events[0].Prompt, whole.Prompt)
			}
			if u := events[len(events)-1].Usage; u == nil || *u != *whole.Usage {
				t.Errorf("usage %+v, %+v", u, whole.Usage)
			}
			for _, c := range whole.Choices {
				if len(c.IDs) == 0 || !slices.Equal(ids[c.Index], c.IDs) || texts[c.Index] != c.Message.Content || finish[c.Index] != *c.Finish {
					t.Errorf("choice %d: %q %v %s, in pieces %q %v %s", c.Index, c.Message.Content, c.IDs, *c.Finish, texts[c.Index],
						ids[c.Index], finish[c.Index])
				}
				for i, lp := range c.LPs.Content {
					if math.Abs(lp.Logprob-lps[c.Index][i]) > 1e-4 {
						t.Errorf("choice %d, token %d: %v, in pieces %v", c.Index, i, lp.Logprob, lps[c.Index][i])
					}
				}
			}
		})
	}
}

// A stop string may end within a token and begin in an earlier one.
func TestNothingOfAStopStringIsSent(t *testing.T) {
	x := start(t, nil)
	body := func() map[string]any {
		return map[string]any{"prompt": "What is", "max_tokens": 40, "temperature": 0, "return_token_ids": true}
	}
	var free chatReply
	x.ask("/v1/completions", body(), &free)
	text := []rune(free.Choices[0].Text)
	if len(text) < 12 {
		t.Fatalf("the reply is %q: too short for the test", string(text))
	}
	for _, at := range []int{1, 4, 7} {
		stop := string(text[at : at+2])
		want, _, _ := strings.Cut(string(text), stop)
		stopped := body()
		stopped["stop"] = stop
		var whole chatReply
		x.ask("/v1/completions", stopped, &whole)
		got := ""
		for _, e := range x.stream("/v1/completions", stopped) {
			for _, c := range e.Choices {
				got += c.Text
			}
		}
		if whole.Choices[0].Text != want || got != want || *whole.Choices[0].Finish != "stop" {
			t.Errorf("stop %q: %q, in pieces %q; want %q", stop, whole.Choices[0].Text, got, want)
		}
		stopped["stream"], stopped["include_stop_str_in_output"] = false, true
		x.ask("/v1/completions", stopped, &whole)
		if whole.Choices[0].Text != want+stop {
			t.Errorf("with its stop string: %q, want %q", whole.Choices[0].Text, want+stop)
		}
	}
}

func TestEveryProtocolDrawsTheSameTokens(t *testing.T) {
	x := start(t, nil)
	prompt := []int32{5, 9, 22, 31, 7}
	var completion, generated, inferred struct {
		Choices []struct {
			IDs []int32 `json:"token_ids"`
		}
		IDs []int32 `json:"output_ids"`
	}
	x.ask("/v1/completions", map[string]any{"prompt": prompt, "max_tokens": 9, "seed": 3, "return_token_ids": true}, &completion)
	x.ask("/generate", map[string]any{"input_ids": prompt, "sampling_params": map[string]any{"max_new_tokens": 9,
		"sampling_seed": 3}}, &generated)
	x.ask("/inference/v1/generate", map[string]any{"token_ids": prompt, "sampling_params": map[string]any{"max_tokens": 9,
		"seed": 3}}, &inferred)
	want := completion.Choices[0].IDs
	if len(want) == 0 || !slices.Equal(want, generated.IDs) || !slices.Equal(want, inferred.Choices[0].IDs) {
		t.Errorf("completions %v, generate %v, inference %v", want, generated.IDs, inferred.Choices[0].IDs)
	}
}

// The log-probs of an echoed prompt are those that sampling it would report.
func TestAnEchoedPromptHasTheLogprobsOfItsDraw(t *testing.T) {
	x := start(t, nil)
	var drawn, echoed struct {
		Choices []struct {
			IDs      []int32 `json:"token_ids"`
			Logprobs struct {
				Token []*float64 `json:"token_logprobs"`
				Top   []map[string]float64
			}
		}
	}
	prompt := []int32{5, 9, 22, 31, 7}
	x.ask("/v1/completions", map[string]any{"prompt": prompt, "max_tokens": 12, "seed": 5, "return_token_ids": true, "logprobs": 0}, &drawn)
	all := append(slices.Clone(prompt), drawn.Choices[0].IDs...)
	x.ask("/v1/completions", map[string]any{"prompt": all, "max_tokens": 0, "echo": true, "logprobs": 2}, &echoed)
	got := echoed.Choices[0].Logprobs.Token
	if len(got) != len(all) || got[0] != nil {
		t.Fatalf("%d log-probs of %d tokens, the first %v", len(got), len(all), got[0])
	}
	for i, lp := range drawn.Choices[0].Logprobs.Token {
		if e := got[len(prompt)+i]; e == nil || math.Abs(*e-*lp) > 1e-4 {
			t.Errorf("token %d was drawn with %v, echoed with %v", i, *lp, e)
		}
	}
}

func TestABadRequestGetsAnErrorInOpenAIsFormAndTheServerGoesOn(t *testing.T) {
	x := start(t, func(o *Options) { o.Admin = true; o.AllowPath = []string{t.TempDir()} })
	long := make([]int32, 100_000)
	for path, bodies := range map[string][]any{
		"/v1/chat/completions": {`{"mess`, `[]`, `{"messages":[]}`, `{"messages":[{"content":"x"}]}`, `{"messages":"x"}`,
			hello(map[string]any{"temperature": -1}),
			hello(map[string]any{"top_p": 0}), hello(map[string]any{"n": 0}), hello(map[string]any{"n": 1 << 20}),
			hello(map[string]any{"model": "other"}),
			hello(map[string]any{"tool_choice": "required"}), hello(map[string]any{"presence_penalty": 1}),
			hello(map[string]any{"top_logprobs": -3}),
			hello(map[string]any{"response_format": map[string]string{"type": "grammar"}}),
			`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://127.0.0.1/x.png"}}]}]}`,
			`{"messages":[{"role":"user","content":7}]}`},
		"/v1/completions": {`{}`, `{"prompt":[]}`, `{"prompt":[-1]}`, `{"prompt":[99999999]}`, map[string]any{"prompt": long},
			`{"prompt":"a","max_tokens":0}`, `{"prompt":"a","logprobs":-1}`, `{"prompt":"a","logit_bias":{"5":1}}`,
			`{"prompt":"a","seed":1.5}`, `{"prompt":[5,99999999],"echo":true,"logprobs":2,"max_tokens":0}`,
			`{"prompt":[99999999],"echo":true,"logprobs":0,"max_tokens":0}`},
		"/generate": {`{}`, `{"input_ids":[5],"sampling_params":{"logit_bias":{"7":-100}}}`,
			`{"input_ids":[]}`, `{"input_ids":["a"]}`, `{"input_ids":[5],"sampling_params":{"n":2}}`,
			`{"input_ids":[5,-1],"return_logprob":true,"logprob_start_len":0,"sampling_params":{"max_new_tokens":0}}`},
		"/inference/v1/generate": {`{}`,
			`{"token_ids":[1],"content_parts":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}`},
		"/tokenize":                 {`{}`},
		"/detokenize":               {`{"tokens":[-5]}`},
		"/nowhere":                  {`{}`},
		"/update_weights":           {`{}`, `{"path":"/etc"}`},
		"/pause?mode=sometimes":     {`{}`},
		"/v1/load_lora_adapter":     {`{}`},
		"/update_weights_from_disk": {`{"model_path":"../../../etc"}`},
	} {
		for _, body := range bodies {
			status, raw := x.post(path, body)
			var e struct {
				Error struct {
					Message, Type string
					Code          int
				}
			}
			if err := json.Unmarshal(raw, &e); err != nil || status < 400 || status >= 600 || e.Error.Code != status ||
				e.Error.Message == "" || e.Error.Type == "" {
				t.Errorf("%s %.60v: %d %s", path, body, status, raw)
			}
			if strings.Contains(string(raw), "panic") {
				t.Errorf("%s %.60v: %s", path, body, raw)
			}
		}
	}
	var r chatReply
	x.ask("/v1/chat/completions", hello(nil), &r)
}

func TestOnlyWhoHasTheKeyIsServed(t *testing.T) {
	x := start(t, func(o *Options) { o.Key, o.AdminKey, o.Admin = "s3cr3t-one", "s3cr3t-two", true })
	for _, c := range []struct {
		path, key string
		want      int
	}{{"/tokenize", "", 401}, {"/tokenize", "wrong", 401}, {"/tokenize", "s3cr3t-one", 200}, {"/resume", "s3cr3t-one", 401},
		{"/resume", "s3cr3t-two", 200}, {"/v1/completions", "s3cr3t-onE", 401}} {
		if status, raw := x.post(c.path, `{"prompt":"a"}`, "Authorization", "Bearer "+c.key); status != c.want {
			t.Errorf("%s with %q: %d %s", c.path, c.key, status, raw)
		}
	}
	if resp, err := http.Get(x.url + "/health"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("/health has no secret: %v %v", resp, err)
	}
	if strings.Contains(x.said.String(), "s3cr3t") {
		t.Error("a key is in the log")
	}
	plain := start(t, nil)
	if status, _ := plain.post("/resume", `{}`); status != http.StatusForbidden {
		t.Errorf("without --admin: %d", status)
	}
	if status, _ := plain.post("/tokenize", `{"prompt":"a"}`, "Origin", "http://evil.example"); status != http.StatusForbidden {
		t.Errorf("a web page is served: %d", status)
	}
}

// save writes tensors of the tiny model, each number times a factor.
func save(t *testing.T, names []string, factor float32, stretch bool) []byte {
	t.Helper()
	m, err := weights.Open(tiny)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	path := filepath.Join(t.TempDir(), "w.safetensors")
	var infos []weights.TensorInfo
	var data [][]byte
	for _, name := range names {
		x, err := m.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		if x.DType != weights.F32 {
			t.Fatalf("%s is %s", name, x.DType)
		}
		numbers := make([]float32, len(x.Data)/4)
		for i := range numbers {
			numbers[i] = math.Float32frombits(binary.LittleEndian.Uint32(x.Data[4*i:]))
		}
		shape := slices.Clone(x.Shape)
		if stretch {
			shape[0]++
			numbers = append(numbers, make([]float32, len(numbers)/int(x.Shape[0]))...)
		}
		var b []byte
		for _, v := range numbers {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v*factor))
		}
		infos, data = append(infos, weights.TensorInfo{Name: name, DType: weights.F32, Shape: shape}), append(data, b)
	}
	w, err := weights.CreateSafetensors(path, infos, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range data {
		if err := w.Write(infos[i].Name, b); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

const octets = "application/octet-stream"

func TestPushedTensorsAreTheModelFromThenOn(t *testing.T) {
	x := start(t, func(o *Options) { o.Admin = true; o.AllowPath = []string{filepath.Dir(tiny)} })
	score := func() (lps []*float64, version int64) {
		var r struct {
			Version int64 `json:"policy_version"`
			Choices []struct {
				Logprobs struct {
					Token []*float64 `json:"token_logprobs"`
				}
			}
		}
		x.ask("/v1/completions", map[string]any{"prompt": []int32{5, 9, 22, 31, 7}, "max_tokens": 1, "temperature": 0, "echo": true,
			"logprobs": 0}, &r)
		return r.Choices[0].Logprobs.Token[1:], r.Version
	}
	before, _ := score()
	name := "model.layers.0.mlp.down_proj.weight"
	if status, raw := x.post("/update_weights", save(t, []string{name}, 3, true), "Content-Type", octets); status != http.StatusBadRequest {
		t.Errorf("tensors of another shape: %d %s", status, raw)
	}
	if status, raw := x.post("/update_weights", []byte("no file"), "Content-Type", octets); status != http.StatusBadRequest {
		t.Errorf("no safetensors: %d %s", status, raw)
	}
	if same, version := score(); version != 0 || *same[0] != *before[0] {
		t.Error("refused weights changed the model")
	}
	if status, raw := x.post("/update_weights", save(t, []string{name}, 3, false), "Content-Type", octets); status != http.StatusOK {
		t.Fatalf("%d %s", status, raw)
	}
	changed, version := score()
	if version != 1 || math.Abs(*changed[0]-*before[0]) < 1e-6 {
		t.Errorf("version %d; log-prob %v was %v", version, *changed[0], *before[0])
	}
	if status, raw := x.post("/update_weights_from_disk", map[string]string{"model_path": tiny}); status != http.StatusOK {
		t.Fatalf("%d %s", status, raw)
	}
	if back, version := score(); version != 2 || *back[0] != *before[0] {
		t.Errorf("version %d; log-prob %v was %v", version, *back[0], *before[0])
	}
}

// A trainer counts the versions itself: a number that it gives is the one that replies carry. The
// folder of the weights before may be gone when all tensors come.
func TestWeightsWithANumberOfTheTrainers(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "model")
	if err := os.CopyFS(folder, os.DirFS(tiny)); err != nil {
		t.Fatal(err)
	}
	x := start(t, func(o *Options) { o.Admin = true; o.AllowPath = []string{dir} })
	pushed := func(path string, body any, want int64, headers ...string) {
		t.Helper()
		status, raw := x.post(path, body, headers...)
		var r struct {
			Version int64 `json:"weight_version"`
		}
		if err := json.Unmarshal(raw, &r); err != nil || status != http.StatusOK || r.Version != want || x.engine.Version() != want {
			t.Errorf("%s: %d %s, the engine has version %d, want %d", path, status, raw, x.engine.Version(), want)
		}
	}
	pushed("/update_weights_from_disk", map[string]string{"model_path": folder, "weight_version": "7"}, 7)
	pushed("/update_weights?version=3", map[string]string{"path": folder}, 3)
	pushed("/update_weights_from_disk", map[string]any{"model_path": folder, "weight_version": nil}, 4)
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadFile(filepath.Join(tiny, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	pushed("/update_weights?version=9", all, 9, "Content-Type", octets)
	for path, body := range map[string]any{"/update_weights?version=-1": all, "/update_weights?version=new": all,
		"/update_weights_from_disk": map[string]string{"model_path": tiny, "weight_version": "step 3"}} {
		kind := "application/json"
		if _, ok := body.([]byte); ok {
			kind = octets
		}
		if status, raw := x.post(path, body, "Content-Type", kind); status != http.StatusBadRequest || x.engine.Version() != 9 {
			t.Errorf("%s: %d %s, the engine has version %d", path, status, raw, x.engine.Version())
		}
	}
}

// While a reply is drawn the weights are exchanged: by abort it ends with what there is, by keep
// it goes on, and each token says its version.
func TestRepliesUnderWayWhenWeightsAreExchanged(t *testing.T) {
	for _, how := range []string{"abort", "keep"} {
		t.Run(how, func(t *testing.T) {
			x := start(t, func(o *Options) { o.Admin = true; o.AllowPath = []string{filepath.Dir(tiny)} })
			type answer struct {
				Versions []int64 `json:"token_versions"`
				Choices  []struct {
					IDs    []int32 `json:"token_ids"`
					Finish string  `json:"finish_reason"`
				}
			}
			done := make(chan answer, 1)
			const most = 200
			go func() {
				var r answer
				defer func() { done <- r }()
				x.ask("/v1/completions", map[string]any{"prompt": []int32{5, 9, 22}, "max_tokens": most, "ignore_eos": true,
					"return_token_ids": true, "seed": 1}, &r)
			}()
			for x.engine.Load().SampledTokens < 5 {
				time.Sleep(time.Millisecond)
			}
			if status, raw := x.post("/update_weights_from_disk?mode="+how, map[string]string{"model_path": tiny}); status != http.StatusOK {
				t.Fatalf("%d %s", status, raw)
			}
			r := <-done
			if len(r.Choices) == 0 {
				t.Fatal("no reply")
			}
			c := r.Choices[0]
			if how == "abort" && (c.Finish != "abort" || len(c.IDs) >= most || len(c.IDs) == 0) {
				t.Errorf("aborted: %s after %d tokens", c.Finish, len(c.IDs))
			}
			if how == "keep" && (c.Finish != "length" || len(c.IDs) != most || len(r.Versions) != most || r.Versions[0] != 0 ||
				r.Versions[most-1] != 1) {
				t.Errorf("kept: %s after %d tokens, versions %v", c.Finish, len(c.IDs), r.Versions)
			}
		})
	}
}

// A client that asks in ids learns which weights drew each token of a reply amid which they were
// exchanged, in one piece or in many, over each protocol.
func TestAClientLearnsWhichWeightsDrewEachToken(t *testing.T) {
	for _, way := range []struct{ stream, sglang bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		x := start(t, func(o *Options) { o.Admin = true; o.AllowPath = []string{filepath.Dir(tiny)} })
		c, err := llm.New(llm.Config{BaseURL: x.url + "/v1", Model: "tiny", WantIDs: true, Stream: way.stream})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan *traj.Completion, 1)
		const most = 200
		go func() {
			var r *traj.Completion
			defer func() { done <- r }()
			ask := llm.Tokens{Client: c, SGLang: way.sglang}
			if r, err = ask.Sample(t.Context(), []int32{5, 9, 22}, traj.Sampling{MaxTokens: most}, 1); err != nil {
				t.Error(err)
			}
		}()
		for x.engine.Load().SampledTokens < 5 {
			time.Sleep(time.Millisecond)
		}
		if status, raw := x.post("/update_weights_from_disk?mode=keep", map[string]string{"model_path": tiny}); status != http.StatusOK {
			t.Fatalf("%d %s", status, raw)
		}
		r := <-done
		if r == nil {
			t.Fatal("no reply")
		}
		n := len(r.IDs)
		if len(r.Versions) != n || r.Versions[0] != 0 || r.Versions[n-1] != 1 || !slices.IsSorted(r.Versions) {
			t.Errorf("%+v: %d tokens, versions %v", way, n, r.Versions)
		}
	}
}

func TestAPauseHoldsEverythingUp(t *testing.T) {
	x := start(t, func(o *Options) { o.Admin = true })
	if status, raw := x.post("/pause?mode=keep", `{}`); status != http.StatusOK {
		t.Fatalf("%d %s", status, raw)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var r chatReply
		x.ask("/v1/chat/completions", hello(nil), &r)
	}()
	for x.engine.Load().Waiting == 0 {
		time.Sleep(time.Millisecond)
	}
	select {
	case <-done:
		t.Error("it answers while it is paused")
	default:
	}
	if status, _ := x.post("/resume", `{}`); status != http.StatusOK {
		t.Error("it does not go on")
	}
	<-done
}

func TestAClientThatGoesAwayFreesItsRequest(t *testing.T) {
	x := start(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.url+"/v1/completions",
		strings.NewReader(`{"prompt":[5,9],"max_tokens":480,"ignore_eos":true,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = resp.Body.Read(make([]byte, 64))
	cancel()
	resp.Body.Close()
	for x.engine.Load().Running > 0 || x.engine.Load().UsedBlocks > 0 {
		time.Sleep(time.Millisecond)
	}
}

// A random model writes what it is made to write.
func TestARepliesFormIsKept(t *testing.T) {
	x := start(t, nil)
	tool := func(name string) map[string]any {
		return map[string]any{"type": "function", "function": map[string]any{"name": name, "parameters": map[string]any{"type": "object",
			"properties": map[string]any{"n": map[string]string{"type": "boolean"}}, "required": []string{"n"}}}}
	}
	schema := map[string]any{"type": "object", "properties": map[string]any{"ok": map[string]string{"type": "boolean"},
		"k": map[string]any{"enum": []int{1, 2}}},
		"required": []string{"ok", "k"}}
	text := func(more map[string]any) string {
		t.Helper()
		more["chat_template_kwargs"] = map[string]bool{"enable_thinking": false}
		var r chatReply
		x.ask("/v1/chat/completions", hello(more), &r)
		if *r.Choices[0].Finish != "stop" {
			t.Errorf("%v: ended by %s: %q", more, *r.Choices[0].Finish, r.Choices[0].Message.Content)
		}
		return r.Choices[0].Message.Content
	}
	for seed := range 8 {
		var v struct {
			OK *bool
			K  int
		}
		got := text(map[string]any{"seed": seed, "max_tokens": 150, "response_format": map[string]any{"type": "json_schema",
			"json_schema": map[string]any{"name": "v", "schema": schema}}})
		if err := json.Unmarshal([]byte(got), &v); err != nil || v.OK == nil || v.K < 1 || v.K > 2 {
			t.Errorf("%q does not meet the schema: %v", got, err)
		}
		if got := text(map[string]any{"seed": seed, "structured_outputs": map[string]any{"choice": []string{"yes",
			"no"}}}); got != "yes" && got != "no" {
			t.Errorf("%q is no choice", got)
		}
		if got := text(map[string]any{"seed": seed, "guided_regex": "[ab]{3}"}); len(got) != 3 || strings.Trim(got, "ab") != "" {
			t.Errorf("%q is not of the pattern", got)
		}
		var r struct {
			Choices []struct {
				Finish  string `json:"finish_reason"`
				Message struct {
					Calls []openai.ToolCall `json:"tool_calls"`
				}
			}
		}
		x.ask("/v1/chat/completions", hello(map[string]any{"seed": seed, "max_tokens": 170, "tools": []any{tool("f"), tool("g")},
			"tool_choice":          map[string]any{"type": "function", "function": map[string]string{"name": "g"}},
			"chat_template_kwargs": map[string]bool{"enable_thinking": false}}), &r)
		c := r.Choices[0]
		var args struct{ N *bool }
		if c.Finish != "tool_calls" || len(c.Message.Calls) != 1 || c.Message.Calls[0].Function.Name != "g" ||
			json.Unmarshal([]byte(c.Message.Calls[0].Function.Arguments), &args) != nil || args.N == nil {
			t.Errorf("%+v is not one call of g", c)
		}
	}
	for _, more := range []map[string]any{{"response_format": map[string]string{"type": "json_schema"}}, {"guided_regex": "("},
		{"structured_outputs": map[string]any{"choice": []string{}}},
		{"response_format": map[string]any{"type": "json_schema",
			"json_schema": map[string]any{"schema": map[string]any{"not": map[string]any{}}}}},
		{"tool_choice": "required"}, {"guided_regex": "a", "guided_choice": []string{"b"}}} {
		if status, raw := x.post("/v1/chat/completions", hello(more)); status != http.StatusBadRequest {
			t.Errorf("%v: %d %s", more, status, raw)
		}
	}
}

func TestGoOpenAIsClientReadsTheAnswers(t *testing.T) {
	x := start(t, func(o *Options) { o.Key = "k" })
	c := openai.DefaultConfig("k")
	c.BaseURL = x.url + "/v1"
	client := openai.NewClientWithConfig(c)
	list, err := client.ListModels(t.Context())
	if err != nil || len(list.Models) != 1 || list.Models[0].ID != "tiny" {
		t.Fatalf("%+v %v", list, err)
	}
	ask := openai.ChatCompletionRequest{Model: "tiny", MaxCompletionTokens: 12, LogProbs: true, TopLogProbs: 3,
		Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "What is 12 * 7?"}}}
	r, err := client.CreateChatCompletion(t.Context(), ask)
	if err != nil || len(r.Choices) != 1 || r.Usage.CompletionTokens == 0 || len(r.Choices[0].LogProbs.Content[0].TopLogProbs) != 3 {
		t.Fatalf("%+v %v", r, err)
	}
	s, err := client.CreateChatCompletionStream(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for n := 0; ; n++ {
		_, err := s.Recv()
		if errors.Is(err, io.EOF) && n > 2 {
			return
		}
		if err != nil {
			t.Fatal(fmt.Errorf("after %d pieces: %w", n, err))
		}
	}
}
