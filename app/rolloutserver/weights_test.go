package rolloutserver

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestNewWeightsAreOfNewTrajectories(t *testing.T) {
	x := serve(t, filepath.Join(t.TempDir(), "run"), nil, func(o *Options) {
		o.Scheduler, o.MaxTurns = "exec:"+heldScheduler(t), 2
		o.Sampling.MaxTokens, o.Sampling.Stop = 60, []string{"e", "a", "i", "o"}
	})
	fifo := os.Getenv("HELD")
	results := make(chan map[string]map[string]any, 1)
	begin := func(id string) { // returns when the first turn is over
		t.Helper()
		go func() { results <- x.rows(row(id)) }()
		begun := make(chan error, 1)
		go func() { _, err := os.ReadFile(fifo + ".begun"); begun <- err }()
		select {
		case err := <-begun:
			if err != nil {
				t.Fatal(err)
			}
		case early := <-results:
			t.Fatalf("it ended early: %v", early[id]["termination"])
		}
	}
	begin("old")
	if status, answer := x.post(t.Context(), "/update_weights_from_disk", map[string]any{"model_path": "/nowhere/model"}); status != 422 ||
		answer != `{"detail":"model_path \"/nowhere/model\": there is no such folder on this machine"}` {
		t.Errorf("a folder that is not there: %d %s", status, answer)
	}
	if status, answer := x.post(t.Context(), "/update_weights_from_disk", map[string]any{"model_path": "org/name"}); status != 422 ||
		!strings.Contains(answer, "there is no such folder on this machine; if it is a name of the hub") {
		t.Errorf("a name of the hub: %d %s", status, answer)
	}
	if status, answer := x.post(t.Context(), "/update_weights_from_disk", `{}`); status != 422 {
		t.Errorf("no folder: %d %s", status, answer)
	}
	other := map[string]any{"model_path": withAnotherTokenizer(t)}
	if status, answer := x.post(t.Context(), "/update_weights_from_disk", other); status != 422 {
		t.Errorf("another model: %d %s", status, answer)
	}
	if status, answer := x.post(t.Context(), "/update_weights_from_disk", map[string]any{"model_path": copied(t, tiny)}); status != 200 {
		t.Fatalf("%d %s", status, answer)
	}
	if err := os.WriteFile(fifo, []byte("go on\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if old := (<-results)["old"]; old["policy_version"] != 0. || old["turns"] != 2. {
		t.Errorf("the one under way: version %v, %v turns", old["policy_version"], old["turns"])
	}
	begin("young")
	if err := os.WriteFile(fifo, []byte("go on\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if young := (<-results)["young"]; young["policy_version"] != 1. {
		t.Errorf("the one after it: version %v", young["policy_version"])
	}
}

func heldScheduler(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	fifo := filepath.Join(dir, "held")
	for _, name := range []string{fifo, fifo + ".begun"} {
		if err := syscall.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HELD", fifo)
	script := filepath.Join(dir, "held.py")
	const program = `import json, sys
for line in sys.stdin:
    ask = json.loads(line)
    if ask["method"] == "start":
        print(json.dumps({"id": ask["id"]}), flush=True)
    elif ask["method"] == "next" and ask["turn"] == 1:
        open(sys.argv[1] + ".begun", "w").close()
        open(sys.argv[1]).read()
        print(json.dumps({"id": ask["id"], "messages": [{"role": "user", "content": "again"}]}), flush=True)
    elif ask["method"] == "next":
        print(json.dumps({"id": ask["id"], "done": True}), flush=True)
`
	if err := os.WriteFile(script, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	return "python3 " + script + " " + fifo
}

func copied(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(filepath.Join(to, "model"), os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(to, "model")
}

func withAnotherTokenizer(t *testing.T) string {
	t.Helper()
	dir := copied(t, tiny)
	path := filepath.Join(dir, "tokenizer.json")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	model := all["model"].(map[string]any)
	merges := model["merges"].([]any)
	model["merges"] = merges[:len(merges)-1]
	if b, err = json.Marshal(all); err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
