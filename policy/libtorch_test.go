//go:build libtorch

package policy

import (
	"errors"
	"strings"
	"testing"

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
