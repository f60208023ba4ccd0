package train

import (
	"cmp"
	"fmt"

	"agentcli/app/models"
	"agentcli/internal/setting"
	"agentcli/model/arch"
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

// activationBytes estimates what forward and backward over a token keep beside the
// weights: of each layer the numbers that backward asks for again, and the layer's input
// alone where the rest is computed again, layer by layer.
// The factors are fitted to the largest resident sizes of training runs on a CPU, of
// SmolLM2-135M and a model with wider and fewer layers, in bfloat16 and float32.
func activationBytes(c weights.Config, size int64, checkpoint bool) int64 {
	h, all, largest := int64(c.HiddenSize), int64(0), int64(0)
	for i := range c.Layers {
		n := layerNumbers(h, &c.Layers[i])
		all, largest = all+n, max(largest, n)
	}
	if checkpoint {
		all = int64(len(c.Layers))*h + largest
	}
	return size * all
}

// layerNumbers are those that backward asks for of a token in a layer of hidden size h.
func layerNumbers(h int64, l *arch.Layer) int64 {
	mixed := (l.Attention.Heads + 2*l.Attention.KVHeads) * l.Attention.HeadDim
	switch {
	case l.Conv.Kernel > 0:
		mixed = 3 * int(h)
	case l.Delta.Kernel > 0:
		mixed = l.Delta.Channels() + l.Delta.ValueHeads*l.Delta.ValueDim
	}
	return 5*h + int64(13*mixed/10+3*l.Width())
}

var sizeOf = map[string]int64{"bfloat16": 2, "float16": 2, "float64": 8}

// memoryNeed is an estimate, in bytes, of what a run takes.
type memoryNeed struct {
	trained  int64 // weights, gradients and moments
	frozen   int64 // models that are asked before the first update
	work     int64 // what computing takes however few the tokens are, and the program
	perToken int64 // of those that are computed at once
	step     int64 // the least that an optimiser's step takes beside the models, and the program
}

// need estimates what a run of the model in path takes.
func (m *Models) need(path string, o Options) (memoryNeed, error) {
	w, err := weights.Open(path)
	if err != nil {
		return memoryNeed{}, err
	}
	defer w.Close()
	n := memoryNeed{trained: m.Actor.Bytes(), frozen: modelBytes(m.ref) + modelBytes(m.teacher) + modelBytes(m.reward)}
	if m.critic != nil {
		n.trained += m.critic.Bytes()
	}
	c, size, parameters := w.Config(), cmp.Or(sizeOf[m.Actor.DType()], 4), m.Parameters()
	n.perToken = activationBytes(c, size, o.Open.Checkpoint)
	n.work = programBytes + 3*4*logitRows*int64(c.VocabSize) // logits, their softmax and gradient
	if size < 4 {
		n.work += size * parameters // gradients before they are added to the float32 ones
	}
	n.step = programBytes + 4*parameters // AdamW's step works on a copy of the masters' size
	return n, nil
}

// computing is what is taken beside the models while so many tokens are computed at once.
func (n memoryNeed) computing(tokens int) int64 {
	return max(n.work+int64(tokens)*n.perToken, n.step)
}

// total is what a run takes at its largest.
func (n memoryNeed) total(tokens int) int64 { return n.trained + max(n.computing(tokens), n.frozen) }

// text is what total counts, for people.
func (n memoryNeed) text(tokens int) string {
	gb := func(n int64) float64 { return float64(n) / 1e9 }
	text := fmt.Sprintf("about %.1f GB: %.1f for weights, gradients and moments, %.1f for what %d tokens at once and the program take "+
		"(estimated)",
		gb(n.total(tokens)), gb(n.trained), gb(n.computing(tokens)), tokens)
	if n.frozen > 0 {
		text += fmt.Sprintf("; before the first update %.1f for the frozen models", gb(n.frozen))
	}
	return text
}

// What MicroTokens are where FitMicroTokens chooses them: as many as usedShare of the free
// memory holds, in steps of microStep, for an estimate is no closer, and at most maxMicroTokens,
// behind which a pass gets no faster.
const (
	usedShare      = .8
	microStep      = 256
	maxMicroTokens = 1 << 16
)

// microTokens is how many tokens can be computed at once in so many bytes; 0: not even
// microStep.
func (n memoryNeed) microTokens(bytes int64) int {
	left := int64(usedShare*float64(bytes)) - n.trained - n.work
	if n.total(microStep) > int64(usedShare*float64(bytes)) {
		return 0
	}
	return int(min(left/max(n.perToken, 1), maxMicroTokens)) / microStep * microStep
}

// freeMemory is what a run may take of its device.
func freeMemory(o Options) (int64, error) {
	m, err := o.Backend.Memory(o.Open.Device)
	if m.Host {
		m.Free = max(0, m.Free-o.Reserved)
	}
	return m.Free, err
}

// fitMicroTokens chooses how many tokens are computed at once, where o leaves that to the
// memory: free is what nobody used before the models were opened.
func (m *Models) fitMicroTokens(path string, o Options, free int64, note func(string, ...any)) error {
	n, err := m.need(path, o)
	if err != nil {
		return err
	}
	if m.micro = n.microTokens(free); m.micro == 0 {
		m.micro = microStep
		note("warning: the run is estimated to take %.1f GB with %d tokens at once, and %.1f GB are free; it may run out of memory: "+
			"take a smaller model, %s or %s", float64(n.total(microStep))/1e9, microStep, float64(free)/1e9,
			setting.Name("LoRA.Rank"), setting.Name("GradCheckpoint"))
		return nil
	}
	note("up to %d tokens are computed at once: an estimated %.1f of the %.1f GB that are free (%s)",
		m.micro, float64(n.total(m.micro))/1e9, float64(free)/1e9, setting.Name("MicroTokens"))
	return nil
}
