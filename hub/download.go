package hub

import (
	"cmp"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"agentcli/internal/safego"

	"github.com/cenkalti/backoff/v5"
)

// meta is what the hub says of a file before it is fetched.
type meta struct {
	commit string
	etag   string // sha256 of a large file, git blob sha1 of a small one
	size   int64  // -1: not known
	url    string // where the bytes are: the hub, or its CDN
}

// Download returns the path of a file of the repository in the local cache,
// fetching it if it is not there. An interrupted download goes on where it
// stopped, in this run or a later one, and is checked by size and hash.
func (h *Hub) Download(ctx context.Context, r Repo, file string) (string, error) {
	if err := r.Validate(); err != nil {
		return "", err
	}
	if !inside(file) {
		return "", fmt.Errorf("%s: %q is not a path inside a repository", r, file)
	}
	if h.Offline {
		return h.cached(r, file, fmt.Errorf("%w by HF_HUB_OFFLINE", ErrOffline))
	}
	m, err := h.head(ctx, r, file)
	if err != nil {
		// A hub that cannot be reached does not take away what is there.
		if netError(err) && ctx.Err() == nil {
			if p, cerr := h.cached(r, file, err); cerr == nil {
				return p, nil
			}
		}
		return "", err
	}
	dir := filepath.Join(h.CacheDir, r.folder())
	if r.revision() != m.commit {
		if err := writeRef(filepath.Join(dir, "refs", filepath.FromSlash(r.revision())), m.commit); err != nil {
			return "", fmt.Errorf("%s: %w", r, err)
		}
	}
	snap := filepath.Join(dir, "snapshots", m.commit, filepath.FromSlash(file))
	if st, err := os.Stat(snap); err == nil && (m.size < 0 || st.Size() == m.size) {
		return snap, nil
	}
	blob := filepath.Join(dir, "blobs", m.etag)
	if err := h.fetch(ctx, r, file, m, blob); err != nil {
		return "", err
	}
	if err := link(blob, snap); err != nil {
		return "", fmt.Errorf("%s, file %s: %w", r, file, err)
	}
	return snap, nil
}

// parallelFiles is how many files are fetched at once.
const parallelFiles = 4

// DownloadAll is Download for several files, some at once. It returns their paths in the
// order of the files. The first error ends the other transfers; what they have brought is
// kept, and another call goes on there.
func (h *Hub) DownloadAll(ctx context.Context, r Repo, files []string) ([]string, error) {
	one := *h
	var mu sync.Mutex // Progress is called for one file at a time
	if report := h.Progress; report != nil {
		one.Progress = func(file string, done, total int64) {
			mu.Lock()
			defer mu.Unlock()
			report(file, done, total)
		}
	}
	if notice := h.Notice; notice != nil {
		one.Notice = func(s string) {
			mu.Lock()
			defer mu.Unlock()
			notice(s)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	paths := make([]string, len(files))
	next := make(chan int, len(files))
	for i := range files {
		next <- i
	}
	close(next)
	var wg sync.WaitGroup
	for range min(parallelFiles, len(files)) {
		wg.Go(func() {
			defer safego.Catch(func(err error) { cancel(err) })
			for i := range next {
				if ctx.Err() != nil {
					return
				}
				p, err := one.Download(ctx, r, files[i])
				if err != nil {
					cancel(err)
					return
				}
				paths[i] = p
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return paths, nil
}

func (h *Hub) cached(r Repo, file string, cause error) (string, error) {
	if c := h.commit(r); c != "" && filepath.IsLocal(c) {
		p := filepath.Join(h.CacheDir, r.folder(), "snapshots", c, filepath.FromSlash(file))
		if _, err := os.Stat(p); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s, file %s: %w", r, file, cause)
}

// head asks for a file's commit, hash and size, and where its bytes are.
func (h *Hub) head(ctx context.Context, r Repo, file string) (meta, error) {
	u := h.endpoint() + r.urlPrefix() + r.ID + "/resolve/" + url.PathEscape(r.revision()) + "/" + escape(file)
	for hop := 0; hop < 6; hop++ {
		req, err := h.request(ctx, http.MethodHead, u)
		if err != nil {
			return meta{}, err
		}
		resp, err := h.client().Do(req)
		if err != nil {
			return meta{}, h.unreachable(r, err)
		}
		resp.Body.Close()
		if err := statusError(r, file, resp, pageOf(h, r)); err != nil {
			return meta{}, err
		}
		m := meta{commit: resp.Header.Get("X-Repo-Commit"), etag: tag(resp.Header), size: size(resp), url: u}
		if loc, err := resp.Location(); err == nil {
			if m.commit == "" && m.etag == "" || h.sameHost(loc) && resp.Header.Get("X-Linked-Etag") == "" {
				u = loc.String() // the repository was renamed: ask there
				continue
			}
			m.url = loc.String()
		}
		if !isHex(m.commit, 40) {
			return meta{}, fmt.Errorf("%s, file %s: the server at %s %w (no X-Repo-Commit)", r, file, h.endpoint(), ErrNotHub)
		}
		if !tagName.MatchString(m.etag) || !filepath.IsLocal(m.etag) {
			return meta{}, fmt.Errorf("%s, file %s: the server at %s gives no usable ETag", r, file, h.endpoint())
		}
		return m, nil
	}
	return meta{}, fmt.Errorf("%s, file %s: the hub redirects without end", r, file)
}

// tagName is what an ETag may be that names a file of the cache.
var tagName = regexp.MustCompile(`^[0-9A-Za-z._-]{1,128}$`)

func tag(hd http.Header) string {
	t := hd.Get("X-Linked-Etag")
	if t == "" {
		t = hd.Get("ETag")
	}
	return strings.Trim(strings.TrimPrefix(t, "W/"), `"`)
}

func size(resp *http.Response) int64 {
	if v := resp.Header.Get("X-Linked-Size"); v != "" {
		if n, err := strconv.ParseInt(v, 10, 64); err == nil && n >= 0 {
			return n
		}
	}
	if resp.StatusCode == http.StatusOK {
		return resp.ContentLength
	}
	return -1
}

// fetch brings the blob, unless it is there. The lock on the incomplete file
// keeps two processes from writing it at once.
func (h *Hub) fetch(ctx context.Context, r Repo, file string, m meta, blob string) error {
	if _, err := os.Stat(blob); err == nil {
		return nil
	}
	wrap := func(err error) error { return fmt.Errorf("%s, file %s: %w", r, file, err) }
	if err := os.MkdirAll(filepath.Dir(blob), 0o755); err != nil {
		return wrap(err)
	}
	f, err := openIncomplete(ctx, blob, h.warnNoLocks)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return wrap(err)
	}
	if f == nil {
		return nil // another process was quicker
	}
	defer f.Close()
	if f.Name() != blob+".incomplete" {
		defer os.Remove(f.Name()) // nobody goes on with it
	}
	if err := h.transferAll(ctx, r, file, m, f); err != nil {
		return err
	}
	if err := check(ctx, f, m); err != nil {
		_ = os.Remove(f.Name()) // what is damaged must not be resumed
		return wrap(err)
	}
	if err := f.Sync(); err != nil {
		return wrap(err)
	}
	if err := os.Rename(f.Name(), blob); err != nil {
		return wrap(err)
	}
	return nil
}

// warnNoLocks says what a file system without locks means for downloads.
func (h *Hub) warnNoLocks() {
	if h.Notice != nil {
		h.Notice(fmt.Sprintf("the file system of %s has no locks: an interrupted download begins again, and two runs may fetch the same file",
			h.CacheDir))
	}
}

// defaultStall is how long a server may send nothing in the middle of a file.
const defaultStall = time.Minute

// What shows that a file is damaged.
var (
	errSize = errors.New("its size")
	errHash = errors.New("its hash")
)

// InterruptedError is a download that was cut off at each try. Another call goes on where
// the last one stopped.
type InterruptedError struct {
	Tries int
	err   error // of the last
}

func (e *InterruptedError) Error() string {
	return fmt.Sprintf("the download was interrupted %d times (run it again to go on where it stopped): %v", e.Tries, e.err)
}

// Unwrap gives the last try's error.
func (e *InterruptedError) Unwrap() error { return e.err }

var errSilent = errors.New("the server sent nothing")

// transferAll brings what is missing of f, in several tries if need be.
func (h *Hub) transferAll(ctx context.Context, r Repo, file string, m meta, f *os.File) error {
	waits := &backoff.ExponentialBackOff{InitialInterval: cmp.Or(h.Wait, 500*time.Millisecond), Multiplier: 2, MaxInterval: math.MaxInt64}
	tries, last := 0, error(nil)
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		tries++
		last = h.transfer(ctx, r, file, m, f)
		return struct{}{}, last
	}, backoff.WithBackOff(waits), backoff.WithMaxTries(1+uint(max(0, cmp.Or(h.Retries, 4)))), backoff.WithMaxElapsedTime(0))
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var permanent *backoff.PermanentError
	if errors.As(last, &permanent) {
		return permanent.Unwrap()
	}
	return fmt.Errorf("%s, file %s: %w", r, file, &InterruptedError{Tries: tries, err: last})
}

// transfer appends what is missing to f. Its error is permanent where no further
// try will help.
func (h *Hub) transfer(ctx context.Context, r Repo, file string, m meta, f *os.File) error {
	have, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return backoff.Permanent(err)
	}
	if m.size >= 0 && have > m.size {
		if have, err = 0, f.Truncate(0); err != nil {
			return backoff.Permanent(err)
		}
	}
	if m.size >= 0 && have == m.size {
		return nil
	}
	if m.size-have >= 2*cmp.Or(h.Piece, defaultPiece) {
		x := &pieces{h: h, r: r, file: file, m: m, f: f}
		if err := x.transfer(ctx, have); !errors.Is(err, errNoRanges) {
			return err
		}
		if have, err = f.Seek(0, io.SeekEnd); err != nil {
			return backoff.Permanent(err)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := cmp.Or(h.Stall, defaultStall)
	byteRange := ""
	if have > 0 {
		byteRange = fmt.Sprintf("bytes=%d-", have)
	}
	resp, err := get(ctx, h, m.url, byteRange)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusPartialContent:
		if !strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", have)) {
			if err := f.Truncate(0); err != nil {
				return backoff.Permanent(err)
			}
			return fmt.Errorf("the server sent another range than was asked for")
		}
	case resp.StatusCode == http.StatusOK:
		have = 0 // the server does not know ranges: from the start
		if err := f.Truncate(0); err != nil {
			return backoff.Permanent(err)
		}
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		if err := f.Truncate(0); err != nil {
			return backoff.Permanent(err)
		}
		return fmt.Errorf("the server refuses to go on at byte %d", have)
	case resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests:
		return fmt.Errorf("the server answered %s", resp.Status)
	default:
		if err := statusError(r, file, resp, pageOf(h, r)); err != nil {
			return backoff.Permanent(err)
		}
		return backoff.Permanent(fmt.Errorf("%s, file %s: the server answered %s", r, file, resp.Status))
	}
	if _, err := f.Seek(have, io.SeekStart); err != nil {
		return backoff.Permanent(err)
	}
	silent := time.AfterFunc(limit, func() { cancel(errSilent) })
	defer silent.Stop()
	body := &counter{r: resp.Body, n: have, report: func(n int64) {
		silent.Reset(limit)
		if h.Progress != nil {
			h.Progress(file, n, max(m.size, 0))
		}
	}}
	if _, err := io.Copy(onlyWriter{f}, body); err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) { // the disk, not the line
			return backoff.Permanent(fmt.Errorf("%s, file %s: %w", r, file, err))
		}
		if errors.Is(context.Cause(ctx), errSilent) {
			return fmt.Errorf("%w for %v", errSilent, limit)
		}
		return err
	}
	if m.size >= 0 && body.n < m.size {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// onlyWriter hides ReadFrom, so that read and write errors stay apart.
type onlyWriter struct{ io.Writer }

type counter struct {
	r      io.Reader
	n      int64
	report func(int64)
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if n > 0 {
		c.n += int64(n)
		c.report(c.n)
	}
	return n, err
}

// check compares the file with what the hub said of it: its size, and its hash
// where the tag is one.
func check(ctx context.Context, f *os.File, m meta) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if m.size >= 0 && st.Size() != m.size {
		return fmt.Errorf("%w: %w is %d bytes, the hub says %d; run it again", ErrDamaged, errSize, st.Size(), m.size)
	}
	var sum hash.Hash
	switch {
	case isHex(m.etag, 64):
		sum = sha256.New()
	case isHex(m.etag, 40):
		sum = sha1.New()
		fmt.Fprintf(sum, "blob %d\x00", st.Size())
	default:
		return nil // a tag of another kind says nothing of the bytes
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if _, err := io.Copy(sum, stoppable{ctx, f}); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != m.etag {
		return fmt.Errorf("%w: %w is %s, the hub says %s; run it again", ErrDamaged, errHash, got, m.etag)
	}
	return nil
}

func writeRef(path, commit string) error {
	if b, err := os.ReadFile(path); err == nil && string(b) == commit {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".ref-*")
	if err != nil {
		return err
	}
	_, err = tmp.WriteString(commit)
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return err
}

// link puts the blob into the snapshot: a relative symbolic link as the Python
// library makes them, a copy where the file system has none.
func link(blob, snap string) error {
	if err := os.MkdirAll(filepath.Dir(snap), 0o755); err != nil {
		return err
	}
	rel, err := filepath.Rel(filepath.Dir(snap), blob)
	if err != nil {
		return err
	}
	_ = os.Remove(snap)
	if err := os.Symlink(rel, snap); err == nil {
		return nil
	} else if errors.Is(err, os.ErrExist) {
		if _, err := os.Stat(snap); err == nil {
			return nil // another process made it
		}
	}
	in, err := os.Open(blob)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(snap)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	return err
}
