package train

import (
	"maps"
	"math"
	"slices"
	"testing"

	"agentcli/app/models"
	"agentcli/app/models/modelstest"
	"agentcli/model/arch"
	"agentcli/model/weights"
	"agentcli/policy"
)

// Largest resident sizes of two-step runs of SFT on 2 cores, less weights, gradients
// and moments: what the estimate was fitted to.
func TestActivationsAreAboutWhatWasMeasured(t *testing.T) {
	model := func(hidden, layers, ffn, heads, kv int) weights.Config {
		l := arch.Layer{Attention: arch.Attention{Heads: heads, KVHeads: kv, HeadDim: 64}, MLP: arch.MLP{Size: ffn}}
		return weights.Config{Decoder: arch.Decoder{HiddenSize: hidden, Layers: slices.Repeat([]arch.Layer{l}, layers)}}
	}
	smol, wide := model(576, 30, 1536, 9, 3), model(1024, 10, 4096, 16, 16)
	for _, c := range []struct {
		of         weights.Config
		size       int64
		tokens     int64
		checkpoint bool
		gb         float64
	}{
		{smol, 2, 3108, false, 4.591 - 2.957}, // of 3996 tokens less those of 888
		{wide, 2, 1998, false, 5.561 - 4.704},
		{smol, 4, 1998, false, 4.349 - 2.152 - .1},
		{smol, 2, 3108, true, 2.985 - 2.889},
	} {
		got := float64(c.tokens*activationBytes(c.of, c.size, c.checkpoint)) / 1e9
		if off := math.Abs(got - c.gb); off > .1*c.gb && off > .1 {
			t.Errorf("%d tokens of %d layers, checkpointed %v: %.2f GB, measured %.2f", c.tokens, len(c.of.Layers), c.checkpoint, got, c.gb)
		}
	}
}

// accelerator is a backend whose models are on a device with memory of its own.
type accelerator struct{ modelstest.Backend }

func (accelerator) Memory(string) (policy.Memory, error) {
	return policy.Memory{Free: 1e9, Allocated: 2e9, Reserved: 3e9}, nil
}

func TestPeakMemoryOfAnAcceleratorIsAmongTheMetrics(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		on   models.Backend
		want map[string]float64
	}{
		{modelstest.Backend{}, map[string]float64{}},
		{models.NoBackend{}, map[string]float64{}},
		{accelerator{}, map[string]float64{"perf/max_memory_allocated_gb": 2, "perf/max_memory_reserved_gb": 3}},
	} {
		got := map[string]float64{}
		AddPeakMemory(got, Options{Backend: c.on})
		delete(got, "perf/max_memory_gb")
		if !maps.Equal(got, c.want) {
			t.Errorf("%T: %v, want %v", c.on, got, c.want)
		}
	}
}

func TestMicroTokensFillTheMemoryThatIsFree(t *testing.T) {
	n := memoryNeed{trained: 2e9, frozen: 2e8, work: 5e8, perToken: 1e5, step: 3e8}
	for _, c := range []struct {
		free int64
		want int
	}{
		{10e9, 54784}, // (8e9 - 2.5e9)/1e5 = 55000, less what is no whole step
		{1e12, maxMicroTokens},
		{35e8, 2816},
		{3e9, 0}, // not even one step: 2.4e9 hold 2.5e9 of no token at all
	} {
		got := n.microTokens(c.free)
		if got != c.want {
			t.Errorf("%d bytes are free: %d tokens, want %d", c.free, got, c.want)
		}
		if got > 0 && float64(n.total(got)) > usedShare*float64(c.free) {
			t.Errorf("%d tokens are estimated to take %d of %d bytes", got, n.total(got), c.free)
		}
	}
	n.frozen = 9e9 // takes more than computing does
	if got := n.microTokens(10e9); got != 0 {
		t.Errorf("%d tokens, and the frozen models alone do not fit", got)
	}
}
