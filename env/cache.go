package env

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"agentcli/internal/workclock"
)

// Versioned is a Tool that knows what its results depend on beside its
// arguments. Two calls with the same arguments of tools with the same version
// give the same result, if deterministic.
type Versioned interface {
	CacheVersion() (version string, deterministic bool)
}

// Lasting marks a tool's error as one that the same call would give again: a
// Cache keeps it like a result. An error without the mark (a time-out, a program
// that has ended) is never kept.
func Lasting(err error) error { return lasting{err} }

type lasting struct{ error }

func (l lasting) Unwrap() error { return l.error }

// maxCached is the longest result that is kept.
const maxCached = 1 << 20

// Cache keeps results of tools in a folder, one file a call, which several runs
// may share. It is safe for concurrent use.
type Cache struct {
	dir         string
	also        map[string]bool
	hits, calls atomic.Int64
	failed      atomic.Bool // to write

	mu      sync.Mutex
	flights map[string]*flight
}

// flight is a call that runs; others with the same key wait for it.
type flight struct {
	done  chan struct{}
	entry *cacheEntry // nil: it gave nothing to keep
}

// cacheEntry is a file of the folder.
type cacheEntry struct {
	Tool      string          `json:"tool"`
	Version   string          `json:"version"`
	Arguments json.RawMessage `json:"arguments"`
	Result    string          `json:"result"`
	Error     *string         `json:"error,omitempty"`
}

func (e *cacheEntry) answer() (output, error) {
	if e.Error != nil {
		return output{}, Lasting(errors.New(*e.Error))
	}
	return output{text: e.Result}, nil
}

// OpenCache makes the folder. It serves the tools that say of themselves that
// they are deterministic, and those named in also.
func OpenCache(dir string, also ...string) (*Cache, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the folder of the tool cache: %w", err)
	}
	c := &Cache{dir: dir, also: map[string]bool{}, flights: map[string]*flight{}}
	for _, name := range also {
		c.also[name] = true
	}
	return c, nil
}

// Dir is the folder.
func (c *Cache) Dir() string { return c.dir }

// Counts are the calls of tools that may be kept, and how many of them were
// answered without the tool.
func (c *Cache) Counts() (hits, calls int64) { return c.hits.Load(), c.calls.Load() }

// Failed says that a result could not be written.
func (c *Cache) Failed() bool { return c.failed.Load() }

// Serves says whether results of the tool are kept.
func (c *Cache) Serves(t Tool) bool {
	_, ok := c.version(t)
	return ok
}

// Cacheable reports whether a tool's results may depend on the arguments alone: those of one
// that keeps something from call to call, or looks at the conversation's images, do not.
func Cacheable(t Tool) bool {
	_, keeps := t.(PerTrajectory)
	_, looks := t.(Looking)
	return !keeps && !looks
}

// version is everything that a tool's results depend on beside the arguments.
func (c *Cache) version(t Tool) (string, bool) {
	if c == nil {
		return "", false
	}
	if !Cacheable(t) {
		return "", false
	}
	spec := t.Spec()
	version, sure := "", c.also[spec.Name]
	if v, ok := t.(Versioned); ok {
		said, deterministic := v.CacheVersion()
		version, sure = said, sure || deterministic
	}
	sum := sha256.Sum256([]byte(spec.Description + "\x00" + string(spec.Parameters)))
	return version + " " + hex.EncodeToString(sum[:8]), sure
}

// call answers from the folder, or runs the call and keeps what it gives. Calls
// that are the same and come together run once; where that one gives nothing to
// keep, the others run by themselves, all at once. A result with images is not kept.
func (c *Cache) call(ctx context.Context, tool, version string, args json.RawMessage, run func() (output, error)) (output, error) {
	canonical, err := canonicalJSON(args)
	if err != nil {
		return run()
	}
	c.calls.Add(1)
	e := cacheEntry{Tool: tool, Version: version, Arguments: canonical}
	key := e.key()
	c.mu.Lock()
	f, waits := c.flights[key]
	if !waits {
		f = &flight{done: make(chan struct{})}
		c.flights[key] = f
	}
	c.mu.Unlock()
	if waits {
		resume := workclock.Wait(ctx) // another trajectory works
		select {
		case <-f.done:
		case <-ctx.Done():
			resume()
			return output{}, ctx.Err()
		}
		resume()
		if f.entry == nil {
			return run()
		}
		c.hits.Add(1)
		return f.entry.answer()
	}
	defer func() {
		c.mu.Lock()
		delete(c.flights, key)
		c.mu.Unlock()
		close(f.done)
	}()
	if kept := c.read(key, e); kept != nil {
		c.hits.Add(1)
		f.entry = kept
		return kept.answer()
	}
	out, err := run()
	var lasts lasting
	switch {
	case err != nil && (!errors.As(err, &lasts) || ctx.Err() != nil), len(out.text) > maxCached, out.hadImages:
		return out, err
	case err != nil:
		text := strings.ToValidUTF8(err.Error(), "�")
		e.Error = &text
	default:
		out.text = strings.ToValidUTF8(out.text, "�") // as it will be read again
		e.Result = out.text
	}
	f.entry = &e
	if c.write(key, e) != nil {
		c.failed.Store(true)
	}
	return out, err
}

func (e *cacheEntry) key() string {
	b, _ := json.Marshal([]any{1, e.Tool, e.Version, e.Arguments}) // strings and valid JSON
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func (c *Cache) path(key string) string { return filepath.Join(c.dir, key[:2], key[2:]+".json") }

// read gives what the folder holds of a call; a file that is cut off or of
// something else counts for nothing.
func (c *Cache) read(key string, want cacheEntry) *cacheEntry {
	b, err := os.ReadFile(c.path(key))
	if err != nil {
		return nil
	}
	var e cacheEntry
	if json.Unmarshal(b, &e) != nil || e.Tool != want.Tool || e.Version != want.Version || !bytes.Equal(e.Arguments, want.Arguments) {
		return nil
	}
	return &e
}

// write puts a file in its place in one step.
func (c *Cache) write(key string, e cacheEntry) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	path := c.path(key)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// canonicalJSON writes an object with sorted names and without space.
func canonicalJSON(b json.RawMessage) (json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}
