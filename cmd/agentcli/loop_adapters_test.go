//go:build libtorch

package main

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"agentcli/app/train/traintest"
)

// vllmLike is a server before agentcli serve that has of it what vLLM has: no request for weights, no /generate, and
// adapters where it was started with them. look sees each request.
func vllmLike(t *testing.T, address string, adapters bool, look func(f *front, r *http.Request)) *front {
	t.Helper()
	return frontOf(t, address, func(f *front, w http.ResponseWriter, r *http.Request) bool {
		look(f, r)
		if strings.HasPrefix(r.URL.Path, "/v1/") && (adapters || !strings.Contains(r.URL.Path, "lora")) {
			return false
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"detail":"Not Found"}`)
		return true
	})
}

// modelsAt are the models that a server lists.
func modelsAt(t *testing.T, address string) string {
	t.Helper()
	resp, err := http.Get(address + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// A loop that trains an adapter draws the rollouts of the model here, where its servers load the adapter after each step:
// agentcli serve, or one that takes nothing else, as vLLM, also when it is started again amid a step.
func TestALoopsAdapterIsLoadedByItsServers(t *testing.T) {
	dir := t.TempDir()
	lora := []string{"--lora-rank", "2", "--lr", "1e-2"}
	here := filepath.Join(dir, "here")
	looped(t, shortLoop(t, here, lora...))
	serve := func(more ...string) string {
		return serveModel(t, append([]string{"--model", traintest.Model, "--dtype", "float32", "--threads", "1", "--admin"}, more...)...)
	}
	same := func(out string) {
		t.Helper()
		for step := 1; step <= 2; step++ {
			want, got := rolloutsOf(t, here, step), rolloutsOf(t, out, step)
			for i, w := range want {
				if d := apart(got[i].Sequences, w.Sequences); d > mostApart || got[i].PolicyVersion != w.PolicyVersion {
					t.Errorf("step %d, row %d: log-probs are up to %v apart; version %d, want %d", step, i, d, got[i].PolicyVersion, w.PolicyVersion)
				}
			}
		}
	}
	t.Run("agentcli serve", func(t *testing.T) {
		out, address := filepath.Join(dir, "serve"), serve("--allow-path", dir)
		loads := atomic.Int64{}
		f := frontOf(t, address, func(_ *front, _ http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "/load_lora_adapter") {
				loads.Add(1)
			}
			return false
		})
		looped(t, shortLoop(t, out, append(lora, "--weights-through", "adapter", "--base-url", f.URL+"/v1")...))
		same(out)
		if loads.Load() != 3 {
			t.Errorf("it has loaded %d adapters, not one before the first step and one after each", loads.Load())
		}
		if models := modelsAt(t, address); strings.Contains(models, "agentcli-") {
			t.Errorf("adapters of a run that has ended are still there: %s", models)
		}
	})
	t.Run("one that is like vLLM and is started again", func(t *testing.T) {
		first, again := serve("--allow-path", dir), serve("--allow-path", dir)
		loads, drawn := atomic.Int64{}, atomic.Int64{}
		f := vllmLike(t, first, true, func(f *front, r *http.Request) {
			switch {
			case strings.HasSuffix(r.URL.Path, "/load_lora_adapter"):
				loads.Add(1)
			case r.URL.Path == "/v1/completions" && loads.Load() == 2 && drawn.Add(1) == 5: // amid the second step's rollouts
				f.pointAt(t, again)
			}
		})
		out := filepath.Join(dir, "vllm")
		log := looped(t, shortLoop(t, out, append(lora, "--parallel", "1", "--base-url", f.URL+"/v1")...))
		same(out)
		if loads.Load() != 4 {
			t.Errorf("after %d loads, not one more for the new server, the loop ended:\n%s", loads.Load(), log)
		}
	})
}

func TestALoopNamesTheServerThatLoadsNoAdapter(t *testing.T) {
	tiny := []string{"--model", traintest.Model, "--dtype", "float32", "--threads", "1"}
	admin, plain := serveModel(t, append(tiny, "--admin")...), serveModel(t, tiny...)
	deaf := vllmLike(t, plain, false, func(*front, *http.Request) {})
	for name, x := range map[string]struct {
		server string
		args   []string
		code   int
		words  []string
	}{
		"no adapter is trained": {admin, []string{"--weights-through", "adapter"}, exitUsage, []string{"--lora-rank"}},
		"no folder is opened":   {admin, []string{"--weights-through", "adapter", "--lora-rank", "2"}, exitFailed, []string{"--allow-path"}},
		"no requests for it": {deaf.URL, []string{"--lora-rank", "2"}, exitFailed,
			[]string{"--enable-lora", "VLLM_ALLOW_RUNTIME_LORA_UPDATING"}},
		"whole weights": {deaf.URL, nil, exitFailed, []string{"--lora-rank", "vLLM"}},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "run")
			args := shortLoop(t, out, append(x.args, "--eval-every", "0", "--patience", "1s", "--base-url", x.server+"/v1")...)
			_, log, code := run(t, args[1:]...)
			last := log[strings.LastIndex(strings.TrimSpace(log), "\n")+1:]
			for _, word := range x.words {
				if !strings.Contains(last, word) {
					t.Errorf("%q is not in the last line", word)
				}
			}
			if code != x.code {
				t.Errorf("exit %d, want %d", code, x.code)
			}
			if t.Failed() {
				t.Log(log)
			}
		})
	}
}
