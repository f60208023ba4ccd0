package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

// fakeHub speaks the hub's protocol: the API's list in pages, resolve with the
// headers of the real thing, large files on a CDN with another host, ranges.
type fakeHub struct {
	*httptest.Server
	cdn *httptest.Server

	mu       sync.Mutex
	files    map[string]string // "large/" in front of what is on the CDN
	requests []string
	stalls   int    // transfers that send half of what they should, and then nothing
	cut      int    // bytes after which each transfer breaks; 0: never
	noRange  bool   // answer 200 to a range
	corrupt  bool   // change the bytes
	token    string // wanted in Authorization
	status   int    // answer everything so
	code     string // X-Error-Code
	leaked   bool   // the token reached the CDN
}

func start(t *testing.T) (*fakeHub, *Hub) {
	f := &fakeHub{files: map[string]string{"data/test-00000-of-00001.parquet": strings.Repeat("large file ", 5000),
		"README.md": "hello", "a b/ü.jsonl": "{}\n"}}
	f.Server = httptest.NewServer(http.HandlerFunc(f.hub))
	f.cdn = httptest.NewServer(http.HandlerFunc(f.blob))
	t.Cleanup(f.Close)
	t.Cleanup(f.cdn.Close)
	return f, &Hub{Endpoint: f.URL, CacheDir: t.TempDir(), Wait: time.Millisecond}
}

func large(name string) bool { return strings.HasSuffix(name, ".parquet") }

func etag(name, data string) string {
	if large(name) {
		h := sha256.Sum256([]byte(data))
		return hex.EncodeToString(h[:])
	}
	h := sha1.Sum([]byte(fmt.Sprintf("blob %d\x00%s", len(data), data)))
	return hex.EncodeToString(h[:])
}

func (f *fakeHub) hub(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, r.Method+" "+r.URL.Path)
	if f.token != "" && r.Header.Get("Authorization") != "Bearer "+f.token {
		w.Header().Set("X-Error-Code", "GatedRepo")
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if f.status != 0 {
		w.Header().Set("X-Error-Code", f.code)
		w.WriteHeader(f.status)
		return
	}
	if r.URL.Path == "/api/datasets/org/set/tree/main" {
		if r.URL.Query().Get("cursor") == "" { // the second page holds the rest
			w.Header().Set("Link", fmt.Sprintf(`<%s/api/datasets/org/set/tree/main?recursive=true&cursor=x>; rel="next"`, f.URL))
			fmt.Fprint(w, `[{"type":"directory","path":"data"},{"type":"file","path":"README.md","size":5}]`)
			return
		}
		fmt.Fprintf(w, `[{"type":"file","path":"data/test-00000-of-00001.parquet","size":%d}]`, len(f.files["data/test-00000-of-00001.parquet"]))
		return
	}
	if strings.HasPrefix(r.URL.Path, "/datasets/old/") { // renamed
		http.Redirect(w, r, strings.Replace(r.URL.Path, "/datasets/old/", "/datasets/org/", 1), http.StatusTemporaryRedirect)
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, "/datasets/org/set/resolve/main/")
	data, have := f.files[name]
	if !ok || !have {
		w.Header().Set("X-Error-Code", "EntryNotFound")
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("X-Repo-Commit", commit)
	if large(name) {
		w.Header().Set("X-Linked-Etag", `"`+etag(name, data)+`"`)
		w.Header().Set("X-Linked-Size", strconv.Itoa(len(data)))
		w.Header().Set("ETag", `"other"`)
		w.Header().Set("Location", f.cdn.URL+"/"+name+"?signature=1")
		w.WriteHeader(http.StatusFound)
		return
	}
	w.Header().Set("ETag", `"`+etag(name, data)+`"`)
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	if r.Method == http.MethodGet {
		if f.corrupt {
			data = strings.ToUpper(data)
		}
		_, _ = w.Write([]byte(data))
	}
}

func (f *fakeHub) blob(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, "CDN "+r.Header.Get("Range"))
	f.leaked = f.leaked || r.Header.Get("Authorization") != ""
	data := f.files[strings.TrimPrefix(r.URL.Path, "/")]
	if f.corrupt {
		data = strings.ToUpper(data)
	}
	from := 0
	if rg := r.Header.Get("Range"); rg != "" && !f.noRange {
		from, _ = strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(rg, "bytes="), "-"))
		if from > len(data) {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(data)-1, len(data)))
		w.Header().Set("Content-Length", strconv.Itoa(len(data)-from))
		w.WriteHeader(http.StatusPartialContent)
	} else {
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	}
	rest := data[from:]
	if f.stalls > 0 {
		f.stalls--
		_, _ = w.Write([]byte(rest[:len(rest)/2]))
		w.(http.Flusher).Flush()
		f.mu.Unlock()
		<-r.Context().Done()
		f.mu.Lock()
		return
	}
	if f.cut > 0 && len(rest) > f.cut {
		_, _ = w.Write([]byte(rest[:f.cut]))
		if c, ok := w.(http.Flusher); ok {
			c.Flush()
		}
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write([]byte(rest))
}

var (
	repo = Repo{Type: Dataset, ID: "org/set"}
	ctx  = context.Background()
)

const shard = "data/test-00000-of-00001.parquet"

func fetchOK(t *testing.T, f *fakeHub, h *Hub, file string) string {
	t.Helper()
	p, err := h.Download(ctx, repo, file)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(p)
	if err != nil || string(b) != f.files[file] {
		t.Fatalf("%s: %d bytes, %v", file, len(b), err)
	}
	return p
}

func TestDownloadLaysOutTheCache(t *testing.T) {
	f, h := start(t)
	for name := range f.files {
		p := fetchOK(t, f, h, name)
		dir := filepath.Join(h.CacheDir, "datasets--org--set")
		if want := filepath.Join(dir, "snapshots", commit, filepath.FromSlash(name)); p != want {
			t.Errorf("%s, want %s", p, want)
		}
		target, err := filepath.EvalSymlinks(p)
		if blob, _ := filepath.EvalSymlinks(filepath.Join(dir, "blobs", etag(name, f.files[name]))); err != nil || target != blob {
			t.Errorf("%s leads to %s: %v", p, target, err)
		}
		if l, err := os.Readlink(p); err != nil || filepath.IsAbs(l) {
			t.Errorf("link %q: %v", l, err)
		}
		if b, _ := os.ReadFile(filepath.Join(dir, "refs", "main")); string(b) != commit {
			t.Errorf("ref %q", b)
		}
	}
	before := len(f.requests)
	fetchOK(t, f, h, shard)
	if got := f.requests[before:]; len(got) != 1 || !strings.HasPrefix(got[0], "HEAD") {
		t.Errorf("a second time: %v", got)
	}
	// Without the hub the cache still answers; HF_HUB_OFFLINE asks nobody.
	f.Close()
	fetchOK(t, f, h, shard)
	off := *h
	off.Offline = true
	fetchOK(t, f, &off, shard)
	if _, err := off.Download(ctx, repo, "none"); !errors.Is(err, ErrOffline) {
		t.Error(err)
	}
	files, err := off.List(ctx, repo)
	if err != nil || len(files) != 3 {
		t.Error(files, err)
	}
}

func TestListInPages(t *testing.T) {
	f, h := start(t)
	files, err := h.List(ctx, repo)
	if d := cmp.Diff([]File{{"README.md", 5}, {shard, int64(len(f.files[shard]))}}, files); err != nil || d != "" {
		t.Error(err, d)
	}
	if p, err := h.Download(ctx, Repo{Type: Dataset, ID: "old/set"}, "README.md"); err != nil {
		t.Error(p, err)
	}
}

func TestInterruptedDownloadGoesOn(t *testing.T) {
	f, h := start(t)
	f.cut, h.Retries = 20000, 1
	_, err := h.Download(ctx, repo, shard)
	var interrupted *InterruptedError
	if !errors.As(err, &interrupted) || interrupted.Tries != 2 {
		t.Fatal(err)
	}
	f.requests = nil
	fetchOK(t, f, h, shard) // a later run starts where this one stopped
	if got := f.requests[1]; got != "CDN bytes=40000-" {
		t.Errorf("went on with %v", f.requests)
	}
}

func TestServerWithoutRanges(t *testing.T) {
	f, h := start(t)
	f.cut, h.Retries = 20000, 1
	_, _ = h.Download(ctx, repo, shard)
	f.cut, f.noRange = 0, true
	fetchOK(t, f, h, shard)
}

func TestDamagedDownloadIsRefused(t *testing.T) {
	f, h := start(t)
	f.corrupt = true
	for _, name := range []string{shard, "README.md"} {
		if _, err := h.Download(ctx, repo, name); !errors.Is(err, ErrDamaged) || !errors.Is(err, errHash) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.corrupt = false
	fetchOK(t, f, h, shard) // nothing of the damaged one was kept
	// Rubbish left by another program does not end in the cache either.
	blob := filepath.Join(h.CacheDir, "datasets--org--set", "blobs", etag("README.md", "hello")+".incomplete")
	if err := os.WriteFile(blob, []byte("XXXXXXXXXX"), 0o600); err != nil {
		t.Fatal(err)
	}
	fetchOK(t, f, h, "README.md")
}

func TestToken(t *testing.T) {
	f, h := start(t)
	f.token = "secret"
	var access *AccessError
	if _, err := h.Download(ctx, repo, shard); !errors.Is(err, ErrGated) || !errors.As(err, &access) || access.TokenSent {
		t.Error(err)
	}
	h.Token = "secret"
	fetchOK(t, f, h, shard)
	if f.leaked {
		t.Error("the token was sent to another host")
	}
}

func TestErrorsNameTheRemedy(t *testing.T) {
	f, h := start(t)
	for _, tc := range []struct {
		status int
		code   string
		is     error
		want   string // a name in the error
	}{
		{404, "RepoNotFound", ErrNotFound, "dataset org/set"},
		{401, "RepoNotFound", ErrNotFound, "HF_TOKEN"},
		{403, "", ErrGated, "HF_TOKEN"},
		{404, "RevisionNotFound", ErrNoRevision, `"main"`},
		{500, "", &StatusError{500}, "500"},
	} {
		f.status, f.code = tc.status, tc.code
		_, err := h.Download(ctx, repo, shard)
		if !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%d %s: %v", tc.status, tc.code, err)
		}
		if _, err := h.List(ctx, repo); err == nil {
			t.Errorf("%d: List is silent", tc.status)
		}
	}
	f.status = 0
	if _, err := h.Download(ctx, repo, "none.json"); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "none.json") {
		t.Error(err)
	}
	for _, bad := range []Repo{{ID: ""}, {ID: "../x"}, {ID: "a/b/c"}, {ID: "a/../b"}, {Type: "space", ID: "a/b"},
		{ID: "a/b", Revision: "../../x"}} {
		if _, err := h.Download(ctx, bad, "f"); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
	if _, err := h.Download(ctx, repo, "../../etc/passwd"); err == nil {
		t.Error("a path out of the repository was accepted")
	}
	f.Close()
	fresh := *h
	fresh.CacheDir = t.TempDir()
	if _, err := fresh.Download(ctx, repo, shard); !errors.Is(err, ErrUnreachable) {
		t.Error(err)
	}
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer other.Close()
	fresh.Endpoint = other.URL
	if _, err := fresh.Download(ctx, repo, shard); !errors.Is(err, ErrNotHub) {
		t.Error(err)
	}
}

func TestFromEnv(t *testing.T) {
	home := t.TempDir()
	for _, k := range []string{"HF_ENDPOINT", "HF_TOKEN", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN_PATH", "HF_HUB_OFFLINE"} {
		t.Setenv(k, "")
	}
	t.Setenv("HF_HOME", home)
	if err := os.WriteFile(filepath.Join(home, "token"), []byte("abc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if h := FromEnv(); h.Endpoint != DefaultEndpoint || h.Token != "abc" || h.CacheDir != filepath.Join(home, "hub") || h.Offline {
		t.Errorf("%+v", h)
	}
	t.Setenv("HF_ENDPOINT", "http://mirror/")
	t.Setenv("HF_TOKEN", "xyz")
	t.Setenv("HF_HUB_OFFLINE", "1")
	t.Setenv("HF_HUB_CACHE", "/c")
	if h := FromEnv(); h.endpoint() != "http://mirror" || h.Token != "xyz" || !h.Offline || h.CacheDir != "/c" {
		t.Errorf("%+v", h)
	}
}

func TestFilesAreFetchedAtOnce(t *testing.T) {
	f, h := start(t)
	var names []string
	for i := range 9 {
		name := fmt.Sprintf("data/part-%d.parquet", i)
		f.files[name] = strings.Repeat(fmt.Sprint("bytes of ", i, " "), 3000)
		names = append(names, name)
	}
	told := map[string]int64{} // without a lock: DownloadAll has one
	h.Progress = func(file string, done, _ int64) { told[file] = done }
	paths, err := h.DownloadAll(ctx, repo, names)
	if err != nil || len(paths) != len(names) || len(told) != len(names) {
		t.Fatal(paths, err, told)
	}
	for i, p := range paths {
		if b, err := os.ReadFile(p); err != nil || string(b) != f.files[names[i]] {
			t.Errorf("%s: %d bytes, %v", p, len(b), err)
		}
		if compared, err := CheckCached(ctx, p); err != nil || !compared {
			t.Error(err)
		}
	}
	if _, err := h.DownloadAll(ctx, repo, append(names, "none")); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	blob, err := filepath.EvalSymlinks(paths[3])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(blob, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := CheckCached(ctx, paths[3]); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
	if in, ok := InRepository(paths[0]); !ok || in != names[0] {
		t.Error(in, ok)
	}
}

func TestAGatedRepositorysErrorNamesItsPage(t *testing.T) {
	f, h := start(t)
	f.token = "other"
	_, err := h.Download(ctx, repo, shard)
	var access *AccessError
	if !errors.As(err, &access) || access.Page != f.URL+"/datasets/org/set" || strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
}
