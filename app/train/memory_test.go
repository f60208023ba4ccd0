package train

import (
	"math"
	"slices"
	"testing"

	"agentcli/model/arch"
	"agentcli/model/weights"
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
		got := float64(activationBytes(c.of, c.tokens, c.size, c.checkpoint)) / 1e9
		if off := math.Abs(got - c.gb); off > .1*c.gb && off > .1 {
			t.Errorf("%d tokens of %d layers, checkpointed %v: %.2f GB, measured %.2f", c.tokens, len(c.of.Layers), c.checkpoint, got, c.gb)
		}
	}
}
