// Package hubtest is a small hub for tests: models in memory, behind the
// protocol of the real thing.
package hubtest

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Commit is what every repository's main is.
const Commit = "0123456789abcdef0123456789abcdef01234567"

// Hub serves repositories.
type Hub struct {
	*httptest.Server
	models map[string]map[string]string // by org/name, file

	mu       sync.Mutex // a client that gave up leaves requests under way
	token    string
	cut      int
	requests []string
}

// Start serves models until the test ends, with HF_ENDPOINT naming it and an
// empty cache.
func Start(t *testing.T, models map[string]map[string]string) *Hub {
	t.Helper()
	h := &Hub{models: models}
	h.Server = httptest.NewServer(http.HandlerFunc(h.serve))
	t.Cleanup(h.Close)
	t.Setenv("HF_ENDPOINT", h.URL)
	t.Setenv("HF_HOME", t.TempDir())
	for _, k := range []string{"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE"} {
		t.Setenv(k, "")
	}
	return h
}

// Require has every request from now on bring a token; "": none.
func (h *Hub) Require(token string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.token = token
}

// CutAfter breaks each transfer that begins from now on after so many bytes; 0: none.
func (h *Hub) CutAfter(bytes int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut = bytes
}

// Folder reads a model folder's files.
func Folder(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = string(b)
	}
	return out
}

// Requests are the methods and paths asked for since the last call.
func (h *Hub) Requests() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.requests
	h.requests = nil
	return out
}

func (h *Hub) serve(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.requests = append(h.requests, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+r.Header.Get("Range")))
	token, cut := h.token, h.cut
	h.mu.Unlock()
	if token != "" && r.Header.Get("Authorization") != "Bearer "+token {
		w.Header().Set("X-Error-Code", "GatedRepo")
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	for id, files := range h.models {
		if r.URL.Path == "/api/models/"+id+"/tree/main" {
			var list []string
			for name, data := range files {
				list = append(list, fmt.Sprintf(`{"type":"file","path":%q,"size":%d}`, name, len(data)))
			}
			fmt.Fprintf(w, "[%s]", strings.Join(list, ","))
			return
		}
		name, ok := strings.CutPrefix(r.URL.Path, "/"+id+"/resolve/main/")
		if data, have := files[name]; ok && have {
			sendFile(w, r, data, cut)
			return
		}
	}
	w.Header().Set("X-Error-Code", "RepoNotFound")
	w.WriteHeader(http.StatusNotFound)
}

func sendFile(w http.ResponseWriter, r *http.Request, data string, cut int) {
	sum := sha1.Sum([]byte(fmt.Sprintf("blob %d\x00%s", len(data), data)))
	w.Header().Set("X-Repo-Commit", Commit)
	w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:])+`"`)
	from := 0
	if rg := r.Header.Get("Range"); rg != "" {
		from, _ = strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(rg, "bytes="), "-"))
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(data)-1, len(data)))
	}
	rest := data[from:]
	w.Header().Set("Content-Length", strconv.Itoa(len(rest)))
	if from > 0 {
		w.WriteHeader(http.StatusPartialContent)
	}
	if r.Method != http.MethodGet {
		return
	}
	if cut > 0 && len(rest) > cut {
		_, _ = w.Write([]byte(rest[:cut]))
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write([]byte(rest))
}
