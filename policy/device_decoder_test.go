//go:build libtorch

package policy

import (
	"slices"
	"testing"

	"agentcli/internal/torch"
	"agentcli/internal/torch/testdevice"
)

// Steps of the decoder on a device give what the operations give: the tokens of a seed and their
// log-probs, for one sequence, for few and for many, in short contexts and in long ones.
func TestTheDecoderOnADeviceGivesWhatTheOperationsGive(t *testing.T) {
	dev := torch.TestDevice
	if !torch.HasTestDevice() {
		dev = torch.DefaultDevice // a GPU
	}
	onDefault(t, dev, "")
	testdevice.Kernels(true)
	defer testdevice.Kernels(false)
	titles := []string{"llama biases", "mistral with a window", "phi3 partial", "smollm3", "seed_oss with other biases", "granite", "qwen3", "olmo3"}
	for _, g := range families(t) {
		i := slices.Index(titles, g.Title)
		if i < 0 {
			continue
		}
		titles = slices.Delete(titles, i, i+1)
		t.Run(g.Title, func(t *testing.T) {
			dir := g.write(t)
			for dtype, most := range map[string]float64{"float32": 1e-5, "bfloat16": .04} {
				p := open(t, dir, Config{DType: dtype, Threads: 1, CacheBytes: 4 << 20})
				other := open(t, dir, Config{DType: dtype, Threads: 1, CacheBytes: 4 << 20})
				if p.sched.device == nil {
					if g.Title == "olmo3" { // its norms over all heads are not in our kernels
						return
					}
					t.Fatal("there is no decoder")
				}
				other.sched.device.Close()
				other.sched.device = nil
				for _, numbers := range [][]int{{1}, {1, 2}, {1, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9}} {
					alike(t, "short", dtype, most, drawSome(t, p, numbers...), drawSome(t, other, numbers...))
				}
				if p.cfg.MaxContext > 1000 {
					alike(t, "long", dtype, most, drawAll(t, p, longPrompt, []int{0, 5, 6}), drawAll(t, other, longPrompt, []int{0, 5, 6}))
				}
			}
		})
	}
	if len(titles) > 0 {
		t.Errorf("there is no family %q", titles)
	}
}
