//go:build libtorch

package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"agentcli/internal/setting"
	"agentcli/internal/torch"
)

// What is said of a device names it, why it was chosen, and what its kernels lack; nothing where a device was named and works.
func TestTheNoteOfADeviceSaysWhatNobodyExpects(t *testing.T) {
	none := errors.New("NVRTC was\nnot found")
	for _, c := range []struct {
		auto     bool
		dev      torch.Device
		why, fix string
		kernels  error
		words    []string // nil: nothing is said
	}{
		{false, torch.CPU, "", "", nil, nil},
		{false, 1, "", "", nil, nil},
		{true, torch.CPU, "", "", nil, nil},
		{true, 0, "", "", nil, []string{"cuda:0"}},
		{true, torch.CPU, "the driver is too old", "take another", nil, []string{"the driver is too old", "take another"}},
		{false, 1, "", "", none, []string{"cuda:1", "NVRTC was not found"}},
		{true, 0, "", "", none, []string{"cuda:0", "NVRTC was not found"}},
	} {
		got := deviceNote(c.auto, c.dev, c.why, c.fix, c.kernels)
		if (got == "") != (c.words == nil) || strings.Contains(got, "\n") {
			t.Errorf("%+v: %q", c, got)
		}
		for _, w := range c.words {
			if !strings.Contains(got, w) {
				t.Errorf("%+v: %q is not in %q", c, w, got)
			}
		}
	}
}

// A cache that has no room for the longest text says how long texts may be; who wants no longer ones is told nothing.
func TestACacheThatShortensTextsSaysSo(t *testing.T) {
	open := func(c Config) *Policy { return open(t, "testdata/tiny-llama", c) }
	cut := open(Config{DType: "float32", Threads: 1, MaxBatch: 2, Cache: CacheSize{Bytes: 32 << 10}})
	room := EngineOf(cut).Facts().MaxContext
	if note := ContextNote(cut); room >= 128 || !strings.Contains(note, fmt.Sprint(room)) || strings.Contains(note, "\n") ||
		!strings.Contains(note, string(setting.Name("KVCache"))) || !strings.Contains(note, string(setting.Name("MaxContext"))) {
		t.Errorf("of texts of %d tokens it says %q", room, note)
	}
	for _, c := range []Config{{CacheBytes: 32 << 10}, {Cache: CacheSize{Bytes: 32 << 10}, MaxContext: room}} {
		c.DType, c.Threads, c.MaxBatch = "float32", 1, 2
		if note := ContextNote(open(c)); note != "" {
			t.Errorf("%+v: %q", c, note)
		}
	}
}
