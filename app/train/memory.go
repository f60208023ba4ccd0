package train

import (
	"cmp"
	"fmt"

	"agentcli/app/models"
	"agentcli/model/weights"
)

// modelBytes is what a model takes; 0 of one that is not here, but on a server.
func modelBytes(m models.FrozenModel) int64 {
	if x, here := m.(interface{ Bytes() int64 }); here {
		return x.Bytes()
	}
	return 0
}

// What a process takes beside its tensors (libtorch, tokenizer, files), and how many
// rows of logits the policy has at a time.
const (
	programBytes = 300e6
	logitRows    = 512
)

// activationBytes estimates what forward and backward over so many tokens keep beside
// the weights: of each layer, for each token, the numbers that backward asks for
// again, and the layer's input alone where the rest is computed again, layer by layer.
// The factors are fitted to the largest resident sizes of training runs on a CPU, of
// SmolLM2-135M and a model with wider and fewer layers, in bfloat16 and float32.
func activationBytes(c weights.Config, tokens, size int64, checkpoint bool) int64 {
	l := c.First()
	h, heads, ffn := int64(c.HiddenSize), int64((l.Attention.Heads+2*l.Attention.KVHeads)*l.Attention.HeadDim), int64(l.Width())
	layer, layers := 5*h+13*heads/10+3*ffn, int64(len(c.Layers))
	if checkpoint {
		return tokens * size * (layers*h + layer)
	}
	return tokens * size * layers * layer
}

var sizeOf = map[string]int64{"bfloat16": 2, "float16": 2, "float64": 8}

// memoryNeed says what a run takes: models that are trained, frozen ones, and what
// tokens take that are computed at once.
func (m *Models) memoryNeed(path string, tokens int, o Options) (string, error) {
	w, err := weights.Open(path)
	if err != nil {
		return "", err
	}
	defer w.Close()
	trained := m.Actor.Bytes()
	if m.critic != nil {
		trained += m.critic.Bytes()
	}
	c, size, parameters := w.Config(), cmp.Or(sizeOf[m.Actor.DType()], 4), m.Parameters()
	work := activationBytes(c, int64(tokens), size, o.Open.Checkpoint) + 3*4*logitRows*int64(c.VocabSize) // logits, their softmax and gradient
	if size < 4 {
		work += size * parameters // gradients before they are added to the float32 ones
	}
	work = programBytes + max(work, 4*parameters) // AdamW's step works on a copy of the masters' size
	frozen := modelBytes(m.ref) + modelBytes(m.teacher) + modelBytes(m.reward)
	gb := func(n int64) float64 { return float64(n) / 1e9 }
	text := fmt.Sprintf("about %.1f GB: %.1f for weights, gradients and moments, %.1f for what %d tokens at once and the program take "+
		"(estimated)",
		gb(trained+max(work, frozen)), gb(trained), gb(work), tokens)
	if frozen > 0 {
		text += fmt.Sprintf("; before the first update %.1f for the frozen models", gb(frozen))
	}
	return text, nil
}
