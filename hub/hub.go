// Package hub fetches files of models and datasets from the Hugging Face hub,
// or from a server that speaks its protocol, into the cache that the Python
// libraries share: what they fetched is found here, and the other way round.
//
// HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN (or the token file) and
// HF_HUB_OFFLINE are honoured. It imports the standard library, a back-off and packages of
// internal only.
package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"time"
	"unicode"

	"agentcli/internal/text"
)

// Types of repository.
const (
	Dataset = "dataset"
	Model   = "model"
)

// DefaultEndpoint is where the hub is, unless HF_ENDPOINT says otherwise.
const DefaultEndpoint = "https://huggingface.co"

// Errors that a caller may tell apart; the text around them names the remedy.
var (
	ErrNotFound = errors.New("not found on the hub")
	ErrGated    = errors.New("access refused by the hub")
	ErrOffline  = errors.New("not in the local cache, and the hub is switched off")
	ErrDamaged  = errors.New("download is damaged")
	// ErrUnreachable: nothing answers at the address of the hub.
	ErrUnreachable = errors.New("cannot reach the hub")
	// ErrNotHub: what answers there is no hub.
	ErrNotHub = errors.New("does not speak the hub's protocol")
	// ErrName: what was asked for cannot be the name of a repository.
	ErrName = errors.New("not a repository name")
	// ErrNoRevision is an ErrNotFound of the revision.
	ErrNoRevision = fmt.Errorf("%w: no revision", ErrNotFound)
)

// AccessError is an ErrGated.
type AccessError struct {
	Status    int
	TokenSent bool   // a token was sent, which is wrong or may not
	Page      string // of the repository, where its terms are accepted; "": not known
}

func (e *AccessError) Error() string {
	page := e.Page
	if page == "" {
		page = "its page"
	}
	remedy := "it is gated or private: accept its terms on " + page + " and set HF_TOKEN"
	if e.TokenSent {
		remedy = "the token that was sent (HF_TOKEN, or the token file) is wrong, or has no access yet: accept the terms on " + page
	}
	return fmt.Sprintf("%v (%d): %s", ErrGated, e.Status, remedy)
}

// Unwrap gives ErrGated.
func (e *AccessError) Unwrap() error { return ErrGated }

// StatusError is another status than those that the errors here are of.
type StatusError struct{ Status int }

// Is compares the statuses.
func (e *StatusError) Is(other error) bool {
	o, ok := other.(*StatusError)
	return ok && *o == *e
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("the hub answered %d %s", e.Status, http.StatusText(e.Status))
}

// Repo names a repository at a revision.
type Repo struct {
	Type     string // Dataset or Model; "" is Model
	ID       string // org/name
	Revision string // branch, tag or commit; "" is main
}

func (r Repo) revision() string {
	if r.Revision == "" {
		return "main"
	}
	return r.Revision
}

func (r Repo) kind() string {
	if r.Type == "" {
		return Model
	}
	return r.Type
}

// urlPrefix is the part of a resolve URL before the id.
func (r Repo) urlPrefix() string {
	if r.kind() == Dataset {
		return "/datasets/"
	}
	return "/"
}

func (r Repo) folder() string {
	return r.kind() + "s--" + strings.ReplaceAll(r.ID, "/", "--")
}

func (r Repo) String() string { return r.kind() + " " + r.ID }

// Validate checks the names: they become parts of a URL and of a path.
func (r Repo) Validate() error {
	if r.kind() != Dataset && r.kind() != Model {
		return fmt.Errorf("hub: unknown repository type %q", r.Type)
	}
	parts := strings.Split(r.ID, "/")
	ok := len(parts) <= 2
	for _, p := range parts {
		if p == "" || strings.Trim(p, ".") == "" || strings.ContainsAny(p, "\\:?#% \t\n") {
			ok = false
		}
	}
	if !ok {
		return fmt.Errorf("hub: %q is %w, want org/name", r.ID, ErrName)
	}
	if !filepath.IsLocal(r.revision()) {
		return fmt.Errorf("hub: %q is not a revision", r.Revision)
	}
	return nil
}

// Hub is a client. Its methods are safe for concurrent use.
type Hub struct {
	Endpoint string
	Token    string
	CacheDir string // the folder with models--… and datasets--…
	Offline  bool
	Client   *http.Client  // nil: one with sensible time-outs
	Retries  int           // further tries after an interruption; 0: 4
	Wait     time.Duration // before a further try; 0: half a second, doubling
	Stall    time.Duration // without a byte, after which a transfer is interrupted; 0: one minute
	// Piece is the size of the pieces in which a file of at least two is fetched, some at
	// once; 0: 8 MiB. So many bytes of memory are needed for each of four.
	Piece int64
	// Notice gets what people should know; may be nil.
	Notice func(string)
	// Progress gets how far a file is; total is 0 where it is not known.
	Progress func(file string, done, total int64)
}

// FromEnv is the client that the environment describes.
func FromEnv() *Hub {
	h := &Hub{Endpoint: os.Getenv("HF_ENDPOINT"), Token: os.Getenv("HF_TOKEN")}
	if h.Endpoint == "" {
		h.Endpoint = DefaultEndpoint
	}
	home := os.Getenv("HF_HOME")
	if home == "" {
		cache := os.Getenv("XDG_CACHE_HOME")
		if cache == "" {
			u, _ := os.UserHomeDir()
			cache = filepath.Join(u, ".cache")
		}
		home = filepath.Join(cache, "huggingface")
	}
	for _, k := range []string{"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"} {
		if h.CacheDir == "" {
			h.CacheDir = os.Getenv(k)
		}
	}
	if h.CacheDir == "" {
		h.CacheDir = filepath.Join(home, "hub")
	}
	if h.Token == "" {
		file := os.Getenv("HF_TOKEN_PATH")
		if file == "" {
			file = filepath.Join(home, "token")
		}
		if b, err := os.ReadFile(file); err == nil {
			h.Token = strings.TrimSpace(string(b))
		}
	}
	switch strings.ToLower(os.Getenv("HF_HUB_OFFLINE")) {
	case "1", "true", "yes", "on":
		h.Offline = true
	}
	return h
}

func (h *Hub) endpoint() string { return strings.TrimRight(h.Endpoint, "/") }

// defaultClient has no over-all time-out: a large file takes its time. It
// bounds what should be quick.
var defaultClient = &http.Client{Transport: &http.Transport{
	Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 15 * time.Second}).DialContext, TLSHandshakeTimeout: 15 * time.Second,
	ResponseHeaderTimeout: 30 * time.Second, ForceAttemptHTTP2: true, IdleConnTimeout: 30 * time.Second,
}}

// client follows no redirects: the headers that matter are on the first
// answer, and the token must not travel to another host.
func (h *Hub) client() *http.Client {
	c := *defaultClient
	if h.Client != nil {
		c = *h.Client
	}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &c
}

func (h *Hub) request(ctx context.Context, method, u string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, u, nil)
	if err != nil {
		return nil, fmt.Errorf("hub: %q is no URL (HF_ENDPOINT?): %w", u, err)
	}
	req.Header.Set("User-Agent", "agentcli")
	req.Header.Set("Accept-Encoding", "identity")
	if h.Token != "" && h.sameHost(req.URL) {
		req.Header.Set("Authorization", "Bearer "+h.Token)
	}
	return req, nil
}

// sameHost reports whether the token may be sent to u.
func (h *Hub) sameHost(u *url.URL) bool {
	e, err := url.Parse(h.endpoint())
	return err == nil && e.Host == u.Host && e.Scheme == u.Scheme
}

// pageOf is the address of a repository's page.
func pageOf(h *Hub, r Repo) string {
	return text.Redact(h.endpoint()) + r.urlPrefix() + r.ID
}

// File is an entry of a repository.
type File struct {
	Path string
	Size int64
}

// List names the files of a repository, sorted. Without a network it lists
// those that the cache holds.
func (h *Hub) List(ctx context.Context, r Repo) ([]File, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if h.Offline {
		return h.listCached(r, ErrOffline)
	}
	files, err := h.list(ctx, r)
	if err != nil && netError(err) && ctx.Err() == nil {
		if cached, cerr := h.listCached(r, err); cerr == nil {
			return cached, nil
		}
	}
	return files, err
}

// list asks the hub.
func (h *Hub) list(ctx context.Context, r Repo) ([]File, error) {
	next := fmt.Sprintf("%s/api/%ss/%s/tree/%s?recursive=true", h.endpoint(), r.kind(), r.ID, url.PathEscape(r.revision()))
	var files []File
	for pages := 0; next != "" && pages < 1000; pages++ {
		page, link, err := h.listPage(ctx, r, next)
		if err != nil {
			return nil, err
		}
		files = append(files, page...)
		next = link
	}
	sort.Slice(files, func(i, j int) bool { return files[i].Path < files[j].Path })
	return files, nil
}

func (h *Hub) listPage(ctx context.Context, r Repo, u string) ([]File, string, error) {
	var resp *http.Response
	for hop := 0; ; hop++ {
		req, err := h.request(ctx, http.MethodGet, u)
		if err != nil {
			return nil, "", err
		}
		if resp, err = h.client().Do(req); err != nil {
			return nil, "", h.unreachable(r, err)
		}
		if resp.StatusCode < 300 || resp.StatusCode >= 400 {
			break
		}
		resp.Body.Close()
		loc, err := resp.Location()
		if err != nil || hop > 5 {
			return nil, "", fmt.Errorf("%s: the hub redirects without end", r)
		}
		u = loc.String()
	}
	defer resp.Body.Close()
	if err := statusError(r, "", resp, pageOf(h, r)); err != nil {
		return nil, "", err
	}
	var entries []struct {
		Type, Path string
		Size       int64
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 64<<20)).Decode(&entries); err != nil {
		return nil, "", fmt.Errorf("%s: the hub's list of files is unreadable: %w", r, err)
	}
	var files []File
	for _, e := range entries {
		if e.Type != "directory" {
			if !inside(e.Path) {
				return nil, "", fmt.Errorf("%s: the hub lists %q, which is not a path inside a repository", r, e.Path)
			}
			files = append(files, File{e.Path, e.Size})
		}
	}
	return files, nextLink(resp), nil
}

// nextLink reads the address of the next page from the Link header.
func nextLink(resp *http.Response) string {
	for _, part := range strings.Split(resp.Header.Get("Link"), ",") {
		addr, rel, ok := strings.Cut(part, ";")
		if !ok || !strings.Contains(rel, `rel="next"`) {
			continue
		}
		u, err := url.Parse(strings.Trim(strings.TrimSpace(addr), "<>"))
		if err == nil && resp.Request != nil {
			return resp.Request.URL.ResolveReference(u).String()
		}
	}
	return ""
}

// commit is the commit that a revision meant when it was last fetched.
func (h *Hub) commit(r Repo) string {
	b, err := os.ReadFile(filepath.Join(h.CacheDir, r.folder(), "refs", filepath.FromSlash(r.revision())))
	if err == nil {
		return strings.TrimSpace(string(b))
	}
	if isHex(r.revision(), 40) {
		return r.revision()
	}
	return ""
}

func (h *Hub) listCached(r Repo, cause error) ([]File, error) {
	fail := fmt.Errorf("%s: %w", r, cause)
	c := h.commit(r)
	if c == "" || !filepath.IsLocal(c) {
		return nil, fail
	}
	root := filepath.Join(h.CacheDir, r.folder(), "snapshots", c)
	var files []File
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		st, err := os.Stat(p)
		if err != nil {
			return nil //nolint:nilerr // a link whose blob was removed
		}
		rel, _ := filepath.Rel(root, p)
		files = append(files, File{filepath.ToSlash(rel), st.Size()})
		return nil
	})
	if err != nil || len(files) == 0 {
		return nil, fail
	}
	return files, nil
}

// netError reports whether the hub could not be reached at all, so that the
// cache may answer in its stead.
func netError(err error) bool {
	var ue *url.Error
	return errors.As(err, &ue)
}

func (h *Hub) unreachable(r Repo, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%s: %w at %s: %w", r, ErrUnreachable, h.endpoint(), err)
}

// statusError puts an HTTP status into words; nil for a success or a redirect.
func statusError(r Repo, file string, resp *http.Response, page string) error {
	what := r.String()
	if file != "" {
		what += ", file " + file
	}
	code := resp.Header.Get("X-Error-Code")
	switch {
	case resp.StatusCode < 400:
		return nil
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusForbidden:
		if code == "RepoNotFound" {
			return fmt.Errorf("%s: %w (or it is private: then set HF_TOKEN)", what, ErrNotFound)
		}
		sent := resp.Request != nil && resp.Request.Header.Get("Authorization") != ""
		return fmt.Errorf("%s: %w", what, &AccessError{Status: resp.StatusCode, TokenSent: sent, Page: page})
	case resp.StatusCode == http.StatusNotFound:
		if code == "RevisionNotFound" {
			return fmt.Errorf("%s: %w %q", what, ErrNoRevision, r.revision())
		}
		return fmt.Errorf("%s: %w", what, ErrNotFound)
	}
	return fmt.Errorf("%s: %w", what, &StatusError{resp.StatusCode})
}

// inside reports whether a name can be that of a file in a repository: a path that
// does not lead out of it, without control characters, which would reach terminals.
func inside(file string) bool {
	return filepath.IsLocal(filepath.FromSlash(file)) && !strings.ContainsFunc(file, unicode.IsControl)
}

func isHex(s string, n int) bool {
	if len(s) != n {
		return false
	}
	return strings.Trim(s, "0123456789abcdef") == ""
}

// escape writes a file's path for a URL, its slashes kept.
func escape(p string) string {
	parts := strings.Split(path.Clean(p), "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}
