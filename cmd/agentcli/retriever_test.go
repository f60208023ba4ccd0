package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"agentcli/app/console"
	"agentcli/app/models/modelstest"
	"agentcli/retriever/bert"
)

// indexed builds an index of two passages.
func indexed(t *testing.T, flags ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	corpus := filepath.Join(dir, "corpus.jsonl")
	rows := `{"id":"0","contents":"\"Go\"\na language"}` + "\n" + `{"id":"1","contents":"\"Unix\"\nan operating system"}`
	if err := os.WriteFile(corpus, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	index := filepath.Join(dir, "index")
	if code, said := runRetriever(t.Context(), append([]string{"index", corpus, "-o", index}, flags...)...); code != exitDone {
		t.Fatal(code, said)
	}
	return index
}

func runRetriever(ctx context.Context, args ...string) (code int, said string) {
	var out, errs bytes.Buffer
	code = executeWith(ctx, append([]string{"agentcli", "retriever"}, args...),
		console.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, modelstest.Backend{})
	return code, errs.String()
}

// askOnce serves an index on a free port, sends one request and interrupts the server.
func askOnce(t *testing.T, request string, args ...string) (reply string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	said, write := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- executeWith(ctx, append([]string{"agentcli", "retriever", "serve", "--port", "0"}, args...),
			console.Streams{In: strings.NewReader(""), Out: io.Discard, Err: write}, modelstest.Backend{})
		write.Close()
	}()
	line := make([]byte, 1000)
	n, err := said.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, said)
	url := regexp.MustCompile(`http://127\.0\.0\.1:\d+/retrieve`).FindString(string(line[:n]))
	if url == "" {
		t.Fatalf("%s", line[:n])
	}
	resp, err := http.Post(url, "application/json", strings.NewReader(request))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if code := <-ended; code != exitInterrupted {
		t.Errorf("exit code %d", code)
	}
	return string(b)
}

const bothPassages = `{"result":[[{"id":"1","contents":"\"Unix\"\nan operating system"}],[{"id":"0","contents":"\"Go\"\na language"}]]}`

// TestServeAnswersUntilItIsInterrupted: index, then serve on a free port.
func TestServeAnswersUntilItIsInterrupted(t *testing.T) {
	if got := askOnce(t, `{"queries":["operating systems","language"]}`, indexed(t), "-k", "1"); got != bothPassages {
		t.Errorf("%s, want %s", got, bothPassages)
	}
}

// TestVectorsComeFromAServer: dense and hybrid, with a server of embeddings that counts
// letters.
func TestVectorsComeFromAServer(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Model string
			Input []string
		}
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil || q.Model != "letters-e5" {
			t.Error(q, err)
		}
		var data []map[string]any
		for i, text := range q.Input {
			prefix, text, _ := strings.Cut(text, ": ")
			if prefix != "query" && prefix != "passage" {
				t.Error(prefix)
			}
			v := make([]int, 26)
			for _, c := range strings.ToLower(text) {
				if c >= 'a' && c <= 'z' {
					v[c-'a']++
				}
			}
			data = append(data, map[string]any{"index": i, "embedding": v})
		}
		if err := json.NewEncoder(w).Encode(map[string]any{"data": data}); err != nil {
			t.Error(err)
		}
	}))
	defer s.Close()
	for _, flags := range [][]string{{"--kind", "dense"}, {"--kind", "dense", "--search", "hnsw"}, {"--kind", "hybrid"}} {
		dir := indexed(t, append(flags, "--base-url", s.URL, "--model", "letters-e5")...)
		if got := askOnce(t, `{"queries":["systems pirating","language"]}`, dir, "-k", "1", "--base-url", s.URL); got != bothPassages {
			t.Errorf("%v: %s, want %s", flags, got, bothPassages)
		}
		if code, said := runRetriever(t.Context(), "serve", dir); code != exitUsage || !strings.Contains(said, "letters-e5") {
			t.Errorf("%v, without a server: %d %s", flags, code, said)
		}
	}
}

// TestVectorsComeFromAFolder: a model of its own, which serve must be given too.
func TestVectorsComeFromAFolder(t *testing.T) {
	const model = "../../retriever/bert/testdata/tiny"
	dir := indexed(t, "--kind", "dense", "--model", model)
	request := `{"queries":["\"Unix\"\nan operating system","\"Go\"\na language"]}`
	if got := askOnce(t, request, dir, "-k", "1", "--model", model); got != bothPassages {
		t.Errorf("%s, want %s", got, bothPassages)
	}
	if code, said := runRetriever(t.Context(), "serve", dir); code != exitUsage || !strings.Contains(said, "--model") {
		t.Errorf("without the model: %d %s", code, said)
	}
	if code, said := runRetriever(t.Context(), "serve", dir, "--model", t.TempDir()); code != exitUsage {
		t.Errorf("with an empty folder: %d %s", code, said)
	}
}

// TestACrossEncoderOrdersWhatIsServed: with its scores, by the keys of Search-R1's server.
func TestACrossEncoderOrdersWhatIsServed(t *testing.T) {
	const model = "../../retriever/bert/testdata/cross"
	dir := indexed(t)
	m, err := bert.OpenCrossEncoder(model)
	if err != nil {
		t.Fatal(err)
	}
	const query = "system language"
	texts := []string{"(Title: \"Unix\") an operating system", "(Title: \"Go\") a language"}
	scores, err := m.Score(t.Context(), query, texts)
	if err != nil {
		t.Fatal(err)
	}
	best := "Unix"
	if scores[1] > scores[0] {
		best = "Go"
	}
	got := askOnce(t, `{"queries":["`+query+`"],"topk_rerank":1,"return_scores":true}`, dir, "--rerank", model, "--topk-retrieval", "2")
	if want := strconv.FormatFloat(slices.Max(scores), 'g', -1, 64); !strings.Contains(got, best) || !strings.Contains(got, want) ||
		strings.Count(got, "contents") != 1 {
		t.Errorf("%s, want %s with %s", got, best, want)
	}
	for name, args := range map[string][]string{
		"no cross-encoder":          {dir, "--rerank", "../../retriever/bert/testdata/tiny"},
		"a number without":          {dir, "--topk-rerank", "2"},
		"a service without its key": {"--web", "serpapi"},
		"no such service":           {"--web", "serp"},
		"an index and the web":      {dir, "--web", "searxng", "--web-url", "http://127.0.0.1:1/search"},
	} {
		t.Setenv("SERPAPI_API_KEY", "")
		code, said := runRetriever(t.Context(), append([]string{"serve", "--port", "0"}, args...)...)
		if code == exitDone || strings.Count(said, "\n") != 1 {
			t.Errorf("%s: exit %d %s", name, code, said)
		}
	}
}

// TestTheWebIsServed: pages of a search service by the protocol of an index.
func TestTheWebIsServed(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("format") == "json" {
			_, _ = io.WriteString(w, `{"results": [{"title": "`+r.URL.Query().Get("q")+`", "content": "found"}]}`)
		}
	}))
	defer s.Close()
	got := askOnce(t, `{"queries":["Faust?"]}`, "--web", "searxng", "--web-url", s.URL+"/search")
	if got != `{"result":[[{"contents":"\"Faust\"\nfound"}]]}` {
		t.Error(got)
	}
}

// A setting of the retriever that changes nothing is refused, and nothing is served.
func TestASettingOfTheRetrieverWithoutEffectIsRefused(t *testing.T) {
	index := indexed(t)
	corpus := filepath.Join(filepath.Dir(index), "corpus.jsonl")
	for _, args := range [][]string{
		{"serve", index, "--web-url", "http://127.0.0.1:1/"}, {"serve", index, "--web-timeout", "3s"}, {"serve", index, "--topk-rerank", "3"},
		{"serve", index, "--model", "bert"}, {"serve", "--web", "searxng"},
		{"index", corpus, "-o", index + "2", "--model", "bert"}, {"index", corpus, "-o", index + "2", "--search", "hnsw"},
	} {
		if code, said := runRetriever(t.Context(), args...); code != exitUsage {
			t.Errorf("%v: %d %s", args, code, said)
		}
	}
}

// An address that is not of this machine is another fault than a port that is taken.
func TestAHostThatIsNotHereIsNamed(t *testing.T) {
	if code, said := runRetriever(t.Context(), "serve", indexed(t), "--host", "192.0.2.1", "--port", "0"); code != exitFailed ||
		!strings.Contains(said, "--host") || strings.Contains(said, "--port") {
		t.Error(code, said)
	}
}
