package env

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// versioned counts its calls.
type versioned struct {
	fakeTool
	version string
	sure    bool
	calls   *atomic.Int32
}

func (v versioned) CacheVersion() (string, bool) { return v.version, v.sure }
func (v versioned) Call(ctx context.Context, args json.RawMessage) (string, error) {
	v.calls.Add(1)
	return v.fakeTool.Call(ctx, args)
}

func counted(version string, sure bool, do func(context.Context, string) (string, error)) versioned {
	if do == nil {
		do = func(_ context.Context, args string) (string, error) { return "of " + args, nil }
	}
	return versioned{fakeTool{name: "t", do: do}, version, sure, &atomic.Int32{}}
}

func openCache(t *testing.T, dir string, also ...string) *Cache {
	t.Helper()
	c, err := OpenCache(dir, also...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCacheAnswersASecondRunWithoutTheTool(t *testing.T) {
	dir := t.TempDir()
	first := counted("1", true, nil)
	want := step(t, Config{Tools: []Tool{first}, Cache: openCache(t, dir)}, calls("t", `{"a":1,"b":[2]}`))
	second, again := counted("1", true, nil), openCache(t, dir)
	got := step(t, Config{Tools: []Tool{second}, Cache: again}, calls("t", ` {"b": [2], "a": 1}`))
	if second.calls.Load() != 0 || got.Observation.Messages[0].Content != want.Observation.Messages[0].Content {
		t.Errorf("%d calls, %+v; want %+v", second.calls.Load(), got, want)
	}
	if hits, n := again.Counts(); hits != 1 || n != 1 {
		t.Errorf("%d of %d calls are counted as hits", hits, n)
	}
	for name, c := range map[string]struct {
		tool versioned
		args string
	}{
		"another version":     {counted("2", true, nil), `{"a":1,"b":[2]}`},
		"other arguments":     {counted("1", true, nil), `{"a":1,"b":[3]}`},
		"not deterministic":   {counted("1", false, nil), `{"a":1,"b":[2]}`},
		"another description": {versioned{fakeTool{name: "u", do: first.do}, "1", true, &atomic.Int32{}}, `{"a":1,"b":[2]}`},
	} {
		step(t, Config{Tools: []Tool{c.tool}, Cache: openCache(t, dir)}, calls(c.tool.name, c.args))
		if c.tool.calls.Load() != 1 {
			t.Errorf("%s: answered from the cache", name)
		}
	}
}

func TestCacheServesANamedTool(t *testing.T) {
	tool, c := counted("1", false, nil), openCache(t, t.TempDir(), "t")
	for range 2 {
		step(t, Config{Tools: []Tool{tool}, Cache: c}, calls("t", `{}`))
	}
	if n := tool.calls.Load(); n != 1 {
		t.Errorf("called %d times", n)
	}
}

func TestCacheKeepsNoFailureThatMayPass(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want int32
	}{
		"a fault that may pass": {errors.New("the program has ended"), 2},
		"an answer":             {Lasting(errors.New("no luck")), 1},
	} {
		tool := counted("1", true, func(context.Context, string) (string, error) { return "", c.err })
		cache := openCache(t, t.TempDir())
		for range 2 {
			r := step(t, Config{Tools: []Tool{tool}, Cache: cache}, calls("t", `{}`))
			if m := r.Observation.Messages[0].Content; m != "error: "+c.err.Error() || r.ToolErrors != 1 {
				t.Errorf("%s: %q", name, m)
			}
		}
		if n := tool.calls.Load(); n != c.want {
			t.Errorf("%s: called %d times, want %d", name, n, c.want)
		}
	}
}

func TestCacheKeepsNoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tool := counted("1", true, func(ctx context.Context, _ string) (string, error) {
			<-ctx.Done()
			return "", Lasting(ctx.Err())
		})
		c := Config{Tools: []Tool{tool}, Cache: openCache(t, t.TempDir()), ToolTimeout: time.Second}
		for range 2 {
			if r := step(t, c, calls("t", `{}`)); r.ToolErrors != 1 {
				t.Errorf("%+v", r)
			}
		}
		if n := tool.calls.Load(); n != 2 {
			t.Errorf("called %d times", n)
		}
	})
}

func TestCacheRunsCallsThatComeTogetherOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		tool := counted("1", true, func(context.Context, string) (string, error) { <-release; return "slow", nil })
		cache := openCache(t, t.TempDir())
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if r := step(t, Config{Tools: []Tool{tool}, Cache: cache}, calls("t", `{}`)); r.Observation.Messages[0].Content != "slow" {
					t.Errorf("%+v", r)
				}
			})
		}
		synctest.Wait()
		close(release)
		wg.Wait()
		if hits, n := cache.Counts(); tool.calls.Load() != 1 || hits != 9 || n != 10 {
			t.Errorf("%d calls, %d hits of %d", tool.calls.Load(), hits, n)
		}
	})
}

// Where the first of several gives nothing to keep, the others do not wait for
// each other in turn.
func TestCacheLetsTheOthersRunAtOnceWhereTheFirstFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tool := counted("1", true, func(ctx context.Context, _ string) (string, error) { <-ctx.Done(); return "", ctx.Err() })
		c := Config{Tools: []Tool{tool}, Cache: openCache(t, t.TempDir()), ToolTimeout: 10 * time.Second}
		var wg sync.WaitGroup
		start := time.Now() // synctest's clock
		for range 20 {
			wg.Go(func() { step(t, c, calls("t", `{}`)) })
		}
		wg.Wait()
		if d := time.Since(start); d != 20*time.Second {
			t.Errorf("twenty calls that hang took %v", d)
		}
	})
}

func TestCacheTakesADamagedFileForNone(t *testing.T) {
	dir := t.TempDir()
	tool := counted("1", true, nil)
	step(t, Config{Tools: []Tool{tool}, Cache: openCache(t, dir)}, calls("t", `{}`))
	files, err := filepath.Glob(filepath.Join(dir, "*", "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for i, bad := range []string{string(whole[:len(whole)/2]), "", "[]", strings.Replace(string(whole), `"tool":"t"`, `"tool":"u"`, 1)} {
		if err := os.WriteFile(files[0], []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		r := step(t, Config{Tools: []Tool{tool}, Cache: openCache(t, dir)}, calls("t", `{}`))
		if int(tool.calls.Load()) != i+2 || r.Observation.Messages[0].Content != "of {}" {
			t.Errorf("%q was read as %+v", bad, r)
		}
		if got, _ := os.ReadFile(files[0]); string(got) != string(whole) {
			t.Errorf("%q was not replaced", bad)
		}
	}
}

func TestCacheInAPlaceThatCannotBeWrittenLosesNothing(t *testing.T) {
	dir := t.TempDir()
	c := openCache(t, filepath.Join(dir, "c"))
	if err := os.RemoveAll(c.Dir()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.Dir(), nil, 0o600); err != nil { // a file where the folder was
		t.Fatal(err)
	}
	if r := step(t, Config{Tools: []Tool{counted("1", true, nil)}, Cache: c}, calls("t", `{}`)); r.ToolErrors != 0 || !c.Failed() {
		t.Errorf("%+v, failed: %v", r, c.Failed())
	}
	if _, err := OpenCache(c.Dir()); err == nil {
		t.Error("a file was taken for a folder")
	}
}

func TestCacheLeavesSessionsAlone(t *testing.T) {
	p := python(t, 0)
	c := openCache(t, t.TempDir(), "python")
	if !c.Serves(p) {
		t.Error("python without sessions gives the same for the same code")
	}
	if c.Serves(PythonSessions{p}) {
		t.Error("results of a session depend on what came before")
	}
	code, _ := json.Marshal(map[string]string{"code": "import random; random.random()"})
	var got []string
	for range 2 {
		r := step(t, Config{Tools: []Tool{p}, Cache: c}, calls("python", string(code), "python", `{"code":"1/0"}`))
		got = append(got, fmt.Sprint(r.Observation.Messages, r.ToolErrors))
	}
	if hits, n := c.Counts(); hits != 2 || n != 4 || got[0] != got[1] {
		t.Errorf("%d hits of %d: %q", hits, n, got)
	}
}

// BenchmarkCacheHit is a call that the folder answers.
func BenchmarkCacheHit(b *testing.B) {
	c, err := OpenCache(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	benchmarkTool(b, Config{Tools: []Tool{counted("1", true, nil)}, Cache: c}, "t")
}
