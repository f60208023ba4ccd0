//go:build libtorch

package policy

import (
	"context"
	"slices"
	"testing"

	"agentcli/internal/torch"
	"agentcli/traj"
)

// Images on a device and on the CPU without our kernels give the same bits.
func TestADeviceSeesWhatTheCPUDoes(t *testing.T) {
	for _, g := range visionModels(t) {
		dir := g.write(t, g.Config)
		see := func(dev torch.Device, kernels string) (r record) {
			t.Run(g.Title, func(t *testing.T) {
				onDefault(t, dev, kernels)
				p := open(t, dir, Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20})
				q := g.sequence(p.model.Vision, 2)
				lps, err := p.LogprobsSequence(context.Background(), q)
				if err != nil {
					t.Fatal(err)
				}
				out, err := p.SampleSequence(context.Background(), q, traj.Sampling{MaxTokens: 8}, 3)
				if err != nil {
					t.Fatal(err)
				}
				r.add("log-probs", bits(lps), out.IDs)
				b := Batch{Sequences: [][]int32{q.IDs}, Images: [][]Image{q.Images}, Want: wanted(q.IDs)}
				for name, v := range learnImages(t, dir, Config{Vision: VisionAll}, b) {
					r.add(name, bits(v))
				}
			})
			slices.Sort(r)
			return r
		}
		cpu, device := see(torch.CPU, "none"), see(torch.TestDevice, "")
		if !slices.Equal(cpu, device) {
			t.Errorf("%s: the device gives other bits than the CPU", g.Title)
		}
	}
}
