package hub

import (
	"bytes"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// hostile answers every request with the same bytes and headers.
type hostile struct {
	body               []byte
	link, etag, commit string
	status             int
	n                  int
}

func (h *hostile) RoundTrip(r *http.Request) (*http.Response, error) {
	h.n++
	header := http.Header{"Link": {h.link}, "Etag": {h.etag}, "X-Linked-Etag": {h.etag}, "X-Repo-Commit": {h.commit}, "Location": {h.link}}
	status := h.status
	if h.n > 50 {
		status, header = 500, http.Header{} // a page that names itself as the next one ends
	}
	return &http.Response{StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: header,
		Request: r, ContentLength: int64(len(h.body)), Body: io.NopCloser(bytes.NewReader(h.body))}, nil
}

// FuzzResponses takes any answer for the hub's: nothing is written outside the cache
// folder, nothing panics, an error is one line.
func FuzzResponses(f *testing.F) {
	const commit = "0123456789abcdef0123456789abcdef01234567"
	f.Add([]byte(`[{"type":"file","path":"config.json","size":2}]`), "", `"abc"`, commit, 200, "config.json")
	f.Add([]byte(`[{"type":"file","path":"../../../etc/passwd","size":2}]`), "<http://hub/next>; rel=\"next\"", "", "../..", 200, "../../x")
	f.Add([]byte(`{"error":"no"}`), "", `W/"../../x"`, commit, 404, "a/b")
	f.Add([]byte(`{}`), "http://elsewhere/file", `"e"`, commit, 302, "model.safetensors")
	f.Fuzz(func(t *testing.T, body []byte, link, etag, commit string, status int, file string) {
		root := t.TempDir()
		cache := filepath.Join(root, "deep", "down", "hub")
		h := &Hub{Endpoint: "http://hub", Token: "hf_secret", CacheDir: cache, Retries: 1, Wait: time.Nanosecond,
			Client: &http.Client{Transport: &hostile{body: body, link: link, etag: etag, commit: commit, status: 100 + (status%500+500)%500}}}
		r := Repo{ID: "org/name"}
		oneLine := func(err error) {
			if err != nil && (strings.ContainsAny(err.Error(), "\n\r") || strings.Contains(err.Error(), "hf_secret")) {
				t.Errorf("the error is %q", err)
			}
		}
		_, err := h.List(t.Context(), r)
		oneLine(err)
		_, err = h.Download(t.Context(), r, file)
		oneLine(err)
		_, err = h.Model(t.Context(), "org/name", true)
		oneLine(err)
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && !strings.HasPrefix(path, cache+string(os.PathSeparator)) {
				t.Errorf("%s is outside of the cache folder", path)
			}
			return nil
		})
	})
}
