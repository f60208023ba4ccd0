package datasets

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"agentcli/hub"
)

// A benchmark is fetched from the hub, whatever its files are called, and read
// with its fields; afterwards it needs no network.
func TestBenchmarkFromTheHub(t *testing.T) {
	offline(t)
	repos := map[string]map[string]string{
		"HuggingFaceH4/aime_2024": {"README.md": "x",
			"data/train-00000.jsonl": `{"id":60,"problem":"Q?","solution":"long","answer":"204","year":"2024"}` + "\n"},
		"openai/gsm8k": {"main/test-00000.jsonl": `{"question":"Q?","answer":"so\n#### 1,018"}`,
			"socratic/test-00000.jsonl": `{"question":"no","answer":"no"}`, "main/train-0.jsonl": `{"question":"no","answer":"no"}`},
		"gorilla-llm/Berkeley-Function-Calling-Leaderboard": {
			"BFCL_v3_simple.json": `{"id":"simple_0","question":[[{"role":"user","content":"Q?"}]],` +
				`"function":[{"name":"f"}]}`,
			"BFCL_v3_multiple.json":                          `{"id":"multiple_0","question":[[{"role":"user","content":"Q?"}]],"function":[]}`,
			"BFCL_v3_parallel.json":                          `{"id":"parallel_0","question":[[{"role":"user","content":"Q?"}]],"function":[]}`,
			"BFCL_v3_parallel_multiple.json":                 `{"id":"pm_0","question":[[{"role":"user","content":"Q?"}]],"function":[]}`,
			"BFCL_v3_live_simple.json":                       `{}`,
			"possible_answer/BFCL_v3_simple.json":            `{"id":"simple_0","ground_truth":[{"f":{"x":[1,"1"]}}]}`,
			"possible_answer/BFCL_v3_multiple.json":          `{"id":"multiple_0","ground_truth":[{"g":{}}]}`,
			"possible_answer/BFCL_v3_parallel.json":          `{"id":"parallel_0","ground_truth":[]}`,
			"possible_answer/BFCL_v3_parallel_multiple.json": `{"id":"pm_0","ground_truth":[]}`,
		},
		"zwhe99/amc23": {"test.jsonl": `{"question":"Q?","answer":27.0}`},
		"HuggingFaceH4/MATH-500": {"data/test-00000-of-00002.jsonl": `{"problem":"Q?","answer":"1"}`,
			"data/test-00001-of-00002.jsonl": `{"problem":"R?","answer":"2"}`},
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for id, files := range repos {
			if strings.HasPrefix(r.URL.Path, "/api/datasets/"+id+"/tree/") {
				var list []string
				for name, data := range files {
					list = append(list, fmt.Sprintf(`{"type":"file","path":%q,"size":%d}`, name, len(data)))
				}
				fmt.Fprintf(w, "[%s]", strings.Join(list, ","))
				return
			}
			for name, data := range files {
				rest, isFile := strings.CutPrefix(r.URL.Path, "/datasets/"+id+"/resolve/")
				if commit, file, _ := strings.Cut(rest, "/"); isFile && file == name {
					sum := sha1.Sum([]byte(fmt.Sprintf("blob %d\x00%s", len(data), data)))
					if len(commit) != 40 {
						commit = strings.Repeat("a", 40)
					}
					w.Header().Set("X-Repo-Commit", commit)
					w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:])+`"`)
					w.Header().Set("Content-Length", strconv.Itoa(len(data)))
					if r.Method == http.MethodGet {
						fmt.Fprint(w, data)
					}
					return
				}
			}
		}
		w.Header().Set("X-Error-Code", "RepoNotFound")
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer srv.Close()
	h := &hub.Hub{Endpoint: srv.URL, CacheDir: t.TempDir()}
	for _, tc := range []struct {
		name, id, answer, split string
		n                       int
	}{
		{"aime2024", "aime2024/60", "204", "train", 1}, {"gsm8k", "gsm8k/0", "1,018", "test", 1},
		{"amc23", "amc23/0", "27.0", "test", 1}, {"math500", "math500/0-0", "1", "test", 2},
	} {
		for range 2 { // the second time from the cache alone
			got := tasks(t, tc.name, Options{Hub: h})
			if len(got) != tc.n || got[0].ID != tc.id || got[0].Answers[0] != tc.answer || got[0].Split != tc.split ||
				got[0].Messages[0].Content != boxed {
				t.Errorf("%s: %+v", tc.name, got)
			}
			off := *h
			off.Offline = true
			h = &off
		}
		h = &hub.Hub{Endpoint: srv.URL, CacheDir: h.CacheDir}
	}
	for ids, n := range map[string]int{"math500/1-0": 1, "0-0": 1} {
		if got := tasks(t, "math500", Options{Hub: h, Select: Selection{IDs: []string{ids}}}); len(got) != n || !strings.HasSuffix(got[0].ID,
			ids) {
			t.Errorf("%s: %+v", ids, got)
		}
	}
	for _, id := range []string{"math500/7-0", "math500/x", "math500/1-9"} {
		if _, err := Open(context.Background(), "math500", Options{Hub: h, Select: Selection{IDs: []string{id}}}); !errors.Is(err, ErrNotThere) {
			t.Errorf("%s: %v", id, err)
		}
	}
	calls := tasks(t, "bfcl", Options{Hub: h})
	if len(calls) != 4 || calls[0].ID != "bfcl/0-simple_0" || calls[0].Answers[0] != `[{"f":{"x":[1,"1"]}}]` || len(calls[0].Messages) != 1 ||
		string(calls[0].Meta) != `{"tools":[{"name":"f"}]}` {
		t.Errorf("%+v", calls)
	}
	if _, err := Open(context.Background(), "aime2025", Options{Hub: h}); !errors.Is(err, ErrNotHere) || !errors.Is(err, hub.ErrNotFound) {
		t.Error(err)
	}
	if _, err := Open(context.Background(), "gsm8k", Options{Hub: h, Split: "dev"}); !errors.Is(err, hub.ErrNotFound) ||
		!strings.Contains(err.Error(), `"dev"`) {
		t.Error(err)
	}
}

// A benchmark is measured on its own split; what is for training is another.
func TestABenchmarksTestSplitIsKnown(t *testing.T) {
	for _, x := range []struct {
		name, split string
		test        bool
	}{{"gsm8k", "", true}, {"gsm8k", "test", true}, {"gsm8k", "train", false}, {"aime2024", "train", true},
		{"aime2024", "test", true}, {"math500", "", true}, {"arith", "test", false}, {"d.jsonl", "", false}} {
		if got := IsTestSplit(x.name, x.split); got != x.test {
			t.Errorf("%s, split %q: %v", x.name, x.split, got)
		}
	}
	if TrainSplit("gsm8k") != "train" || TrainSplit("aime2024") != "" || TrainSplit("arith") != "" ||
		TestSplit("gsm8k") != "test" || TestSplit("arith") != "" {
		t.Error("the splits of the benchmarks are others")
	}
}

// hasSplits reports whether an error is of a split that is none of those that a dataset has,
// and names the setting that takes one.
func hasSplits(err error, want ...string) bool {
	var option *OptionError
	return errors.Is(err, ErrOptions) && strings.Contains(err.Error(), "Split "+strings.Join(want, " or Split ")) && errors.As(err, &option) &&
		option.Option == "Split" && slices.Equal(option.Has, want)
}

// Where another split of a benchmark is on this machine, the error for one that is not names
// the setting that takes it.
func TestAMissingSplitNamesTheOneThatIsHere(t *testing.T) {
	const rows = `{"question":"Q?","answer":"so\n#### 3"}` + "\n"
	check := func(what string, o Options, want ...string) {
		t.Helper()
		o.Split = "train"
		_, err := Open(t.Context(), "gsm8k", o)
		if !hasSplits(err, want...) || strings.Contains(fmt.Sprint(err), "\n") {
			t.Errorf("%s: %v", what, err)
		}
	}
	offline(t)
	file := filepath.Join(t.TempDir(), "f.jsonl")
	if err := os.WriteFile(file, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	if _, _, err := Import(t.Context(), "gsm8k", file, Options{Split: "test", Cache: cache}); err != nil {
		t.Fatal(err)
	}
	check("imported", Options{Cache: cache}, "test")
	if _, _, err := Import(t.Context(), "gsm8k", file, Options{Split: "easy", Cache: cache}); err != nil {
		t.Fatal(err)
	}
	check("two imported", Options{Cache: cache}, "easy", "test")
	if _, _, err := Import(t.Context(), "mine", file, Options{Split: "test", Cache: cache}); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), "mine", Options{Split: "train", Cache: cache}); !hasSplits(err, "test") {
		t.Errorf("a dataset that was imported: %v", err)
	}

	// In the hub's cache, as `datasets pull` leaves it.
	repo := filepath.Join(t.TempDir(), "datasets--openai--gsm8k")
	commit := strings.Repeat("a", 40)
	for name, data := range map[string]string{"refs/main": commit, "snapshots/" + commit + "/main/test-00000.jsonl": rows} {
		path := filepath.Join(repo, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check("pulled", Options{Cache: t.TempDir(), Hub: &hub.Hub{CacheDir: filepath.Dir(repo), Offline: true}}, "test")
}

// A split of several large files is opened by its first rows, and checked beside.
func TestLargeShardsAreCheckedLater(t *testing.T) {
	offline(t)
	dir := writeFiles(t, map[string]string{"mine.yaml": "name: mine\nsplits: {test: {files: ['part-*.jsonl']}}\n",
		"part-0.jsonl": manyRows(400), "part-1.jsonl": manyRows(300)})
	o := Options{Registry: []string{dir}, Ahead: true}
	d, err := Open(t.Context(), "mine", o)
	if err != nil || d.IsChecked() {
		t.Fatal(d, err)
	}
	if n, err := d.Check(t.Context(), nil); err != nil || n != 700 {
		t.Error(n, err)
	}
	if _, known := d.Len(); known {
		t.Error("the number of rows is known before they are read")
	}
	if err := os.WriteFile(filepath.Join(dir, "part-1.jsonl"), []byte(manyRows(299)+"{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if d, err = Open(t.Context(), "mine", o); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Check(t.Context(), nil); err == nil {
		t.Error("a row that is cut off was not found")
	}
}
