package main

import (
	"cmp"
	"fmt"

	"agentcli/weights"
)

// modelBytes is what a model takes; 0 of one that is not here, but on a server.
func modelBytes(m frozenModel) int64 {
	if x, here := m.(interface{ Bytes() int64 }); here {
		return x.Bytes()
	}
	return 0
}

// activationBytes estimates what forward and backward over so many tokens keep beside
// the weights: of each layer, for each token, the numbers that backward asks for
// again, and the layer's input alone where the rest is computed again, layer by layer.
// The factors are fitted to the largest resident sizes of training runs on a CPU, of
// SmolLM2-135M and a model with wider and fewer layers, in bfloat16 and float32: they
// come out within a tenth (docs/training.md).
func activationBytes(c weights.Config, tokens, size int64, checkpoint bool) int64 {
	h, heads, ffn := int64(c.HiddenSize), int64((c.NumHeads+2*c.NumKVHeads)*c.HeadDim), int64(c.IntermediateSize)
	layer, layers := 5*h+13*heads/10+3*ffn, int64(c.NumLayers)
	if checkpoint {
		return tokens * size * (layers*h + layer)
	}
	return tokens * size * layers * layer
}

var sizeOf = map[string]int64{"bfloat16": 2, "float16": 2, "float64": 8}

// memoryNeed says what a run takes: models that are trained, frozen ones, and what
// tokens take that are computed at once.
func (m *trainModels) memoryNeed(path string, tokens int, o trainOptions) (string, error) {
	w, err := weights.Open(path)
	if err != nil {
		return "", err
	}
	defer w.Close()
	trained := m.actor.Bytes()
	if m.critic != nil {
		trained += m.critic.Bytes()
	}
	// The step of AdamW itself works on a copy of about the size of the masters.
	work := max(activationBytes(w.Config(), int64(tokens), cmp.Or(sizeOf[m.actor.DType()], 4), o.Open.Checkpoint), 4*m.parameters())
	frozen := modelBytes(m.ref) + modelBytes(m.teacher) + modelBytes(m.reward)
	gb := func(n int64) float64 { return float64(n) / 1e9 }
	text := fmt.Sprintf("about %.1f GB: %.1f for weights, gradients and moments, %.1f (an estimate) for what %d tokens at once and the optimiser take",
		gb(trained+max(work, frozen)), gb(trained), gb(work), tokens)
	if frozen > 0 {
		text += fmt.Sprintf("; before the first update %.1f for the frozen models", gb(frozen))
	}
	return text, nil
}
