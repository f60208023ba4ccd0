//go:build libtorch

package policy

import (
	"context"
	"slices"
	"testing"

	"agentcli/internal/torch"
	"agentcli/traj"
)

// Images on a device give what they give on the CPU without our kernels; LayerNorm's gradient
// is summed in another order there.
func TestADeviceSeesWhatTheCPUDoes(t *testing.T) {
	needsTestDevice(t)
	for _, g := range visionModels(t) {
		dir := g.write(t, g.Config)
		see := func(dev torch.Device, kernels string) (out map[string][]float64, sampled []int32) {
			t.Run(g.Title, func(t *testing.T) {
				onDefault(t, dev, kernels)
				p := open(t, dir, Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20})
				q := g.sequence(p.model.Vision, 2)
				lps, err := p.LogprobsSequence(context.Background(), q)
				if err != nil {
					t.Fatal(err)
				}
				reply, err := p.SampleSequence(context.Background(), q, traj.Sampling{MaxTokens: 8}, 3)
				if err != nil {
					t.Fatal(err)
				}
				b := Batch{Sequences: [][]int32{q.IDs}, Images: [][]Image{q.Images}, Want: wanted(q.IDs)}
				out, sampled = learnImages(t, dir, Config{DType: "float32", Vision: VisionAll}, b), reply.IDs
				for _, x := range lps {
					out["log-probs"] = append(out["log-probs"], float64(x))
				}
			})
			return out, sampled
		}
		cpu, ids := see(torch.CPU, "none")
		device, same := see(torch.TestDevice, "")
		if !slices.Equal(ids, same) || len(cpu) != len(device) {
			t.Errorf("%s: the device samples %v, the CPU %v", g.Title, same, ids)
		}
		for name, want := range cpu {
			most := 1e-4
			if name == "log-probs" {
				most = 1e-6
			}
			if e := relativeError(device[name], want); e > most {
				t.Errorf("%s, %s: off by %.2g of the largest", g.Title, name, e)
			}
		}
	}
}
