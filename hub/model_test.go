package hub_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agentcli/hub"
	"agentcli/hub/hubtest"
)

func fromEnv() *hub.Hub {
	h := hub.FromEnv()
	h.Retries, h.Wait = 1, time.Millisecond
	return h
}

func sharded() map[string]string {
	return map[string]string{
		"config.json": "{}", "generation_config.json": "{}", "tokenizer.json": "{}", "tokenizer_config.json": "{}", "chat_template.jinja": "x",
		"model.safetensors.index.json":     `{"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}`,
		"model-00001-of-00002.safetensors": strings.Repeat("one", 5000), "model-00002-of-00002.safetensors": strings.Repeat("two", 5000),
		"consolidated.safetensors": "other", "pytorch_model.bin": "other", "README.md": "other", "onnx/config.json": "other",
	}
}

func TestModelIsFetchedOnceAndOnlyWhatIsRead(t *testing.T) {
	ctx := context.Background()
	srv := hubtest.Start(t, map[string]map[string]string{"org/m": sharded()})
	dir, err := fromEnv().Model(ctx, "org/m", false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "model.safetensors.index.json")); err == nil {
		t.Error("weights were fetched for the tokenizer alone")
	}
	again, err := fromEnv().Model(ctx, "org/m", true)
	if err != nil || again != dir {
		t.Fatal(again, err)
	}
	got := hubtest.Folder(t, dir)
	for name, data := range sharded() {
		want := !slices.Contains([]string{"consolidated.safetensors", "pytorch_model.bin", "README.md", "onnx/config.json"}, name)
		if _, have := got[name]; have != want || have && got[name] != data {
			t.Errorf("%s: in the folder: %v", name, have)
		}
	}
	srv.Requests()
	for _, weights := range []bool{false, true} {
		if d, err := fromEnv().Model(ctx, "org/m", weights); err != nil || d != dir {
			t.Error(d, err)
		}
	}
	if r := srv.Requests(); len(r) != 0 {
		t.Errorf("the cache is whole, but the hub was asked: %v", r)
	}
	// One of its shards lost, and the hub away.
	if err := os.Remove(filepath.Join(dir, "model-00002-of-00002.safetensors")); err != nil {
		t.Fatal(err)
	}
	srv.Close()
	if _, err := fromEnv().Model(ctx, "org/m", true); !errors.Is(err, hub.ErrUnreachable) || !strings.Contains(err.Error(), srv.URL) {
		t.Error(err)
	}
	h := fromEnv()
	h.Offline = true
	if _, err := h.Model(ctx, "org/m", true); !errors.Is(err, hub.ErrOffline) {
		t.Error(err)
	}
}

func TestInterruptedModelGoesOn(t *testing.T) {
	ctx := context.Background()
	srv := hubtest.Start(t, map[string]map[string]string{"org/m": sharded()})
	srv.CutAfter(6000)
	var interrupted *hub.InterruptedError
	if _, err := fromEnv().Model(ctx, "org/m", true); !errors.As(err, &interrupted) {
		t.Fatal(err)
	}
	srv.CutAfter(0)
	srv.Requests()
	if _, err := fromEnv().Model(ctx, "org/m", true); err != nil {
		t.Fatal(err)
	}
	// Both shards are fetched at once. The one that was given up had two pieces of 6000 bytes.
	if r := srv.Requests(); !slices.ContainsFunc(r, func(s string) bool {
		return s == "GET /org/m/resolve/main/model-00001-of-00002.safetensors bytes=12000-" ||
			s == "GET /org/m/resolve/main/model-00002-of-00002.safetensors bytes=12000-"
	}) {
		t.Errorf("neither shard went on at byte 12000: %v", r)
	}
}

func TestModelErrors(t *testing.T) {
	ctx := context.Background()
	srv := hubtest.Start(t, map[string]map[string]string{
		"org/gguf": {"README.md": "", "m.Q4.gguf": ""}, "org/bin": {"config.json": "{}", "pytorch_model.bin": ""}, "org/m": sharded(),
	})
	for id, want := range map[string]error{"org/none": hub.ErrNotFound, "a/../b": hub.ErrName,
		"org/gguf": &hub.LayoutError{Missing: "config.json", GGUF: "m.Q4.gguf"}, "org/bin": &hub.LayoutError{Missing: "model.safetensors"}} {
		_, err := fromEnv().Model(ctx, id, true)
		if !errors.Is(err, want) || !strings.Contains(err.Error(), id) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %v", id, err, want)
		}
	}
	srv.Require("secret")
	var access *hub.AccessError
	if _, err := fromEnv().Model(ctx, "org/m", true); !errors.As(err, &access) || access.TokenSent || !errors.Is(err, hub.ErrGated) {
		t.Error(err)
	}
	t.Setenv("HF_TOKEN", "wrong")
	if _, err := fromEnv().Model(ctx, "org/m", true); !errors.As(err, &access) || !access.TokenSent {
		t.Error(err)
	}
	t.Setenv("HF_TOKEN", "secret")
	if _, err := fromEnv().Model(ctx, "org/m", true); err != nil {
		t.Error(err)
	}
}
