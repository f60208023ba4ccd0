//go:build libtorch

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"agentcli/app/loop"
	"agentcli/app/rundir"
	"agentcli/app/train/traintest"
	"agentcli/internal/remote/remotetest"
	"agentcli/parquet"
	"agentcli/traj"
)

// Keys of the servers below; nothing that is written may have them.
const (
	askingKey = canary + "asking"
	adminKey  = canary + "admin"
)

// shortLoop is a loop of two steps in the folder out.
func shortLoop(t *testing.T, out string, more ...string) []string {
	t.Helper()
	return loopArgs(t, append([]string{"--steps", "2", "--eval-every", "1", "--output", out}, more...)...)
}

// looped runs a loop that must end well, and gives what it says.
func looped(t *testing.T, args []string) string {
	t.Helper()
	_, log, code := run(t, args[1:]...)
	if code != exitDone {
		t.Fatalf("exit %d: %s", code, log)
	}
	return log
}

func rolloutsOf(t *testing.T, dir string, step int) []*traj.Trajectory {
	t.Helper()
	rows, _ := rowsOf(t, filepath.Join(dir, loop.RolloutsFolder, fmt.Sprintf("%06d.parquet", step)))
	return rows
}

// sameLoop holds a loop through servers to that of the model here: the tokens, rewards and versions
// of each step, and the weights at the end, bit for bit.
func sameLoop(t *testing.T, here, served string) {
	t.Helper()
	for step := 1; step <= 2; step++ {
		want, got := rolloutsOf(t, here, step), rolloutsOf(t, served, step)
		if len(want) == 0 || len(got) != len(want) {
			t.Fatalf("step %d: %d rows, want %d", step, len(got), len(want))
		}
		for i, w := range want {
			g := got[i]
			if d := apart(g.Sequences, w.Sequences); d > mostApart {
				t.Errorf("step %d, row %d: log-probs are up to %v apart", step, i, d)
			}
			if g.ID != w.ID || *g.Reward != *w.Reward || g.Termination != w.Termination || g.PolicyVersion != w.PolicyVersion {
				t.Errorf("step %d, row %d: %s %v %s of version %d, want %s %v %s of %d", step, i, g.ID, *g.Reward, g.Termination,
					g.PolicyVersion, w.ID, *w.Reward, w.Termination, w.PolicyVersion)
			}
		}
	}
	if !bytes.Equal(read(t, filepath.Join(here, "model.safetensors")), read(t, filepath.Join(served, "model.safetensors"))) {
		t.Error("the trained weights are others")
	}
	if _, err := os.Stat(filepath.Join(served, loop.ServedFolder)); err == nil {
		t.Error("the weights of the servers are left in the run's folder")
	}
}

// otherWeights is a model of the same shape whose last tensor is not the same.
func otherWeights(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), filepath.Base(traintest.Model))
	if err := os.CopyFS(dir, os.DirFS(traintest.Model)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "model.safetensors")
	data := read(t, path)
	for at := len(data) - 256; at < len(data); at += 4 {
		binary.LittleEndian.PutUint32(data[at:], math.Float32bits(.5))
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// front is a server before another one, which may be exchanged for a third.
type front struct {
	*httptest.Server
	to atomic.Pointer[httputil.ReverseProxy]
}

// frontOf is one of a server; look sees each request, and may answer it itself.
func frontOf(t *testing.T, address string, look func(f *front, w http.ResponseWriter, r *http.Request) bool) *front {
	t.Helper()
	f := &front{}
	f.pointAt(t, address)
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !look(f, w, r) {
			f.to.Load().ServeHTTP(w, r)
		}
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *front) pointAt(t *testing.T, address string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	f.to.Store(httputil.NewSingleHostReverseProxy(u))
}

// A loop whose rollouts servers draw is that of the model here with the same seed: weights go through
// files or requests, one server or two, started with the same weights or with others.
func TestALoopThroughServersIsThatOfTheModelHere(t *testing.T) {
	dir := t.TempDir()
	here := filepath.Join(dir, "here")
	looped(t, shortLoop(t, here))
	serve := func(model string, more ...string) string {
		return serveModel(t, append([]string{"--model", model, "--dtype", "float32", "--threads", "1", "--admin"}, more...)...)
	}
	t.Run("one that opens the folder", func(t *testing.T) {
		out := filepath.Join(dir, "disk")
		log := looped(t, shortLoop(t, out, "--base-url", serve(traintest.Model, "--allow-path", dir)+"/v1"))
		sameLoop(t, here, out)
		if strings.Contains(log, "given") || strings.Contains(log, "sent to it") {
			t.Errorf("it has the weights, and opens the folder:\n%s", log)
		}
	})
	t.Run("two with keys, one of which opens no folder and has other weights", func(t *testing.T) {
		t.Setenv("OPENAI_API_KEY", askingKey)
		t.Setenv("AGENTCLI_ADMIN_KEY", adminKey)
		keys := []string{"--api-key", askingKey, "--admin-key", adminKey}
		out := filepath.Join(dir, "two")
		log := looped(t, shortLoop(t, out, "--stream", "--base-url",
			serve(traintest.Model, append(keys, "--allow-path", dir)...)+"/v1,"+serve(otherWeights(t), keys...)+"/v1"))
		sameLoop(t, here, out)
		if !strings.Contains(log, "given") || strings.Count(log, "sent to it") != 1 {
			t.Errorf("one has other weights, and opens no folder:\n%s", log)
		}
		hasNoKey(t, out, log)
	})
	t.Run("one that was started again", func(t *testing.T) {
		first, again := serve(traintest.Model), serve(otherWeights(t))
		drawn := 0
		f := frontOf(t, first, func(f *front, _ http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/update_weights" {
				drawn = 1
			}
			if drawn > 0 && r.URL.Path == "/generate" {
				if drawn++; drawn == 6 { // amid the second step's rollouts
					f.pointAt(t, again)
				}
			}
			return false
		})
		out := filepath.Join(dir, "again")
		log := looped(t, shortLoop(t, out, "--parallel", "1", "--weights-through", "wire", "--base-url", f.URL+"/v1"))
		sameLoop(t, here, out)
		if !strings.Contains(log, "version 0, not ") {
			t.Errorf("it was not seen that the server has its first weights:\n%s", log)
		}
	})
	t.Run("two, one of which is away when the weights come", func(t *testing.T) {
		var failed atomic.Int64
		f := frontOf(t, serve(traintest.Model), func(_ *front, w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/update_weights" || failed.Add(1) > 3 {
				return false
			}
			w.WriteHeader(http.StatusBadGateway)
			return true
		})
		out := filepath.Join(dir, "away")
		log := looped(t, shortLoop(t, out, "--weights-through", "wire", "--base-url", serve(traintest.Model)+"/v1,"+f.URL+"/v1"))
		sameLoop(t, here, out)
		if !strings.Contains(log, "left") || !strings.Contains(log, "version 0, not ") {
			t.Errorf("it was not given the weights later:\n%s", log)
		}
	})
	t.Run("one that speaks SGLang's protocol", func(t *testing.T) {
		version, sent := "default", 0
		f := frontOf(t, serve(traintest.Model, "--allow-path", dir), func(_ *front, w http.ResponseWriter, r *http.Request) bool {
			switch r.URL.Path {
			case "/server_info":
				_, _ = io.WriteString(w, `{"model_path":"tiny"}`)
			case "/model_info":
				_, _ = io.WriteString(w, `{"model_path":"tiny","weight_version":"`+version+`"}`)
			case "/update_weights":
				w.WriteHeader(http.StatusNotFound)
			case "/update_weights_from_disk":
				body, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(body))
				var fields struct {
					Version string `json:"weight_version"`
				}
				_ = json.Unmarshal(body, &fields)
				version, sent = fields.Version, sent+1
				return false
			default:
				return false
			}
			return true
		})
		out := filepath.Join(dir, "sglang")
		looped(t, shortLoop(t, out, "--base-url", f.URL+"/v1"))
		sameLoop(t, here, out)
		if version != "3" || sent != 3 {
			t.Errorf("it was sent weights %d times, the last as version %s", sent, version)
		}
		_, log, code := run(t, shortLoop(t, filepath.Join(dir, "no"), "--weights-through", "wire", "--base-url", f.URL+"/v1")[1:]...)
		if code != exitUsage || !strings.Contains(log, "--weights-through disk") {
			t.Errorf("exit %d: %s", code, log)
		}
	})
	t.Run("adapters are merged", func(t *testing.T) {
		lora := []string{"--lora-rank", "2", "--lr", "1e-2"}
		alone, out := filepath.Join(dir, "lora-here"), filepath.Join(dir, "lora")
		looped(t, shortLoop(t, alone, lora...))
		looped(t, shortLoop(t, out, append(lora, "--base-url", serve(traintest.Model, "--allow-path", dir)+"/v1")...))
		for step := 1; step <= 2; step++ {
			want, got := rolloutsOf(t, alone, step), rolloutsOf(t, out, step)
			for i, w := range want {
				if d := apart(got[i].Sequences, w.Sequences); d > mostApart {
					t.Errorf("step %d, row %d: log-probs are up to %v apart", step, i, d)
				}
			}
		}
	})
	t.Run("asynchronous", func(t *testing.T) {
		alone, out := filepath.Join(dir, "async-here"), filepath.Join(dir, "async")
		looped(t, shortLoop(t, alone, "--async", "1", "--steps", "3"))
		looped(t, shortLoop(t, out, "--async", "1", "--steps", "3", "--base-url", serve(traintest.Model)+"/v1"))
		for step, want := range []int64{0, 0, 1} {
			a, _ := sampled(t, alone, step+1)
			b, versions := sampled(t, out, step+1)
			if strings.Join(a, "\n") != strings.Join(b, "\n") || len(versions) != 1 || !versions[want] {
				t.Errorf("step %d: other tokens than here, or not of version %d alone: %v", step+1, want, versions)
			}
		}
	})
}

// hasNoKey looks for the servers' keys in a run's folder and in what it said.
func hasNoKey(t *testing.T, dir, log string) {
	t.Helper()
	if strings.Contains(log, canary) {
		t.Errorf("a key is in what was said:\n%s", log)
	}
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		if bytes.Contains(read(t, path), []byte(canary)) {
			t.Errorf("%s has a key", path)
		}
		if filepath.Ext(path) != ".parquet" {
			return nil
		}
		table, err := parquet.OpenTable(path)
		if err != nil {
			return err
		}
		defer table.Close()
		if value, ok := table.Value(parquet.KeyRun); !ok || strings.Contains(value, canary) {
			t.Errorf("%s: the metadata have a key, or are not there", path)
		}
		return nil
	})
	if err != nil || files < 5 {
		t.Errorf("%d files, which shows nothing (%v)", files, err)
	}
}

// What a server does wrong ends a loop in one line that names it, before a step is taken.
func TestALoopNamesTheServerThatItCannotUse(t *testing.T) {
	t.Setenv("AGENTCLI_ADMIN_KEY", "")
	t.Setenv("OPENAI_API_KEY", "")
	tiny := []string{"--model", traintest.Model, "--dtype", "float32", "--threads", "1"}
	keyed := serveModel(t, append(tiny, "--admin", "--admin-key", adminKey)...)
	lying := frontOf(t, keyed, func(_ *front, w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, "/update_weights") {
			_, _ = w.Write([]byte(`{"success":true}`))
			return true
		}
		return false
	})
	gone := remotetest.Nobody(t)
	for name, x := range map[string]struct {
		server string
		args   []string
		code   int
		words  []string
	}{
		"wrong key":  {keyed, []string{"--admin-key", adminKey + "-not"}, exitFailed, []string{"--admin-key", "AGENTCLI_ADMIN_KEY"}},
		"no key":     {keyed, nil, exitFailed, []string{"--admin-key"}},
		"no --admin": {serveModel(t, tiny...), nil, exitFailed, []string{"--admin"}},
		"old weights": {lying.URL, []string{"--admin-key", adminKey, "--weights-through", "wire"}, exitFailed,
			[]string{"version 1", "version 0"}},
		"down":             {gone, []string{"--retries", "0"}, exitFailed, []string{"refused"}},
		"no folder opened": {keyed, []string{"--admin-key", adminKey, "--weights-through", "disk"}, exitFailed, []string{"--allow-path", "wire"}},
		"another model":    {serveModel(t, "--model", tinyQwen3, "--dtype", "float32", "--admin"), nil, exitFailed, []string{"shape", "--model"}},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "run")
			args := shortLoop(t, out, append(x.args, "--eval-every", "0", "--patience", "1s", "--base-url", x.server+"/v1")...)
			_, log, code := run(t, args[1:]...)
			last := log[strings.LastIndex(strings.TrimSpace(log), "\n")+1:]
			for _, word := range append(x.words, strings.TrimPrefix(x.server, "http://")) {
				if !strings.Contains(last, word) {
					t.Errorf("%q is not in the last line", word)
				}
			}
			if code != x.code || strings.Contains(log, canary) {
				t.Errorf("exit %d, want %d", code, x.code)
			}
			if t.Failed() {
				t.Log(log)
			}
			if config, err := os.ReadFile(filepath.Join(out, rundir.ConfigFile)); err == nil && bytes.Contains(config, []byte(canary)) {
				t.Error("config.yaml has the key")
			}
		})
	}
}

// A server that is gone for good amid a step ends the loop with what was sampled; it goes on with
// another server, which is given the weights first, and ends as the model here does.
func TestALoopGoesOnWithAnotherServer(t *testing.T) {
	dir := t.TempDir()
	here, out := filepath.Join(dir, "here"), filepath.Join(dir, "out")
	looped(t, shortLoop(t, here))
	serve := func() string {
		return serveModel(t, "--model", traintest.Model, "--dtype", "float32", "--threads", "1", "--admin")
	}
	var pushed, drawn atomic.Int64
	f := frontOf(t, serve(), func(_ *front, w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/update_weights" {
			pushed.Add(1)
		}
		if r.URL.Path == "/generate" && pushed.Load() == 1 {
			drawn.Add(1)
		}
		if drawn.Load() > 9 { // three of the evaluation, then amid the second step
			w.WriteHeader(http.StatusBadGateway)
			return true
		}
		return false
	})
	args := shortLoop(t, out, "--parallel", "2", "--retries", "1", "--patience", "1s", "--base-url", f.URL+"/v1")
	_, log, code := run(t, args[1:]...)
	if code != exitPartial || !strings.Contains(log, "loop --resume "+out) {
		t.Fatalf("exit %d: %s", code, log)
	}
	if _, err := os.Stat(filepath.Join(out, loop.ServedFolder)); err == nil {
		t.Error("the weights of the servers are left in the run's folder")
	}
	gone := remotetest.Nobody(t)
	if _, log, code = run(t, "loop", "--resume", out, "--base-url", gone+"/v1"); code != exitPartial ||
		!strings.Contains(log, "loop --resume "+out) {
		t.Fatalf("exit %d: %s", code, log)
	}
	_, log, code = run(t, "loop", "--resume", out, "--base-url", serve()+"/v1")
	if code != exitDone {
		t.Fatalf("exit %d: %s", code, log)
	}
	sameLoop(t, here, out)
}

// An interrupted loop gives its server the weights of the checkpoint before it goes on.
func TestAnInterruptedLoopGivesItsServerTheWeightsAgain(t *testing.T) {
	dir := t.TempDir()
	here, out := filepath.Join(dir, "here"), filepath.Join(dir, "out")
	looped(t, shortLoop(t, here))
	address := serveModel(t, "--model", traintest.Model, "--dtype", "float32", "--threads", "1", "--admin") + "/v1"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	left := 1
	if _, err := runApp(t, ctx, traintest.StopAfter{Left: &left, Stop: cancel}, shortLoop(t, out, "--base-url", address)...); err == nil {
		t.Fatal("it was not interrupted")
	}
	if _, log, code := run(t, "loop", "--resume", out); code != exitDone {
		t.Fatalf("exit %d: %s", code, log)
	}
	sameLoop(t, here, out)
}
