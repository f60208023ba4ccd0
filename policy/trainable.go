//go:build libtorch

package policy

import (
	"cmp"
	"fmt"
	"slices"

	"agentcli/internal/setting"
	"agentcli/internal/torch"
	"agentcli/model/tokenizer"
	"agentcli/model/weights"
)

// Trainable is a model that is being trained: float32 masters (float64 where
// Config.DType says so), computed in Config.DType. Pure bfloat16 weights would
// stall: an update of 1e-5 is below their resolution. With Config.LoRA the masters
// are those of the adapters (and of a value head); the weights are held once, in
// the type of the computation. Use it from one goroutine.
type Trainable struct {
	computation
	cfg      Config
	path     string
	tok      *tokenizer.Tokenizer
	template string
	worker   *torch.Worker
	keep     *torch.Scope
	basePath string
	opt      *optimizer
	steps    int64 // that were taken, and
	passes   int64 // micro-batches since: what is dropped follows from them
}

// OpenTrainable reads a model for training. Config.DType is the type of the
// computation: float32, bfloat16, or float64 for tests.
func OpenTrainable(path string, cfg Config) (*Trainable, error) {
	if cfg.Deterministic {
		torch.Deterministic(true)
	}
	compute, dev, err := resolve(cfg.DType, cfg.Device)
	if err != nil {
		return nil, err
	}
	master := torch.Float32
	if compute == torch.Float64 {
		master = torch.Float64
	}
	m, err := weights.Open(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	tok, err := tokenizer.Open(m.TokenizerPath())
	if err != nil {
		return nil, err
	}
	if cfg.Head == HeadLM && m.Config().Score {
		return nil, fmt.Errorf("%s is a reward model or a critic: it scores texts and cannot write them", path)
	}
	_, adapted := m.Adapter()
	if l := cfg.LoRA; !adapted && l.Rank == 0 && (l.Alpha != 0 || l.Dropout != 0 || len(l.Targets) > 0) {
		return nil, setting.Errorf("%s, %s and %s have no effect without %s",
			setting.Name("LoRA.Alpha"), setting.Name("LoRA.Targets"), setting.Name("LoRA.Dropout"), setting.Name("LoRA.Rank"))
	}
	adapted = !cfg.Frozen && (adapted || cfg.LoRA.Rank > 0)
	var low weights.AdapterConfig
	if adapted {
		if low, err = cfg.LoRA.over(m); err != nil {
			return nil, err
		}
	}
	t := &Trainable{cfg: cfg, path: path, tok: tok, template: cmp.Or(cfg.ChatTemplate, m.ChatTemplate()), keep: torch.NewScope(),
		basePath:    m.BasePath(),
		computation: computation{model: m.Config(), head: cfg.Head, checkpoint: cfg.GradCheckpoint, compute: compute, master: master}}
	t.model.Barred = cfg.barred(t.model)
	t.features = newFeatureCache(t.keep)
	if t.vision, err = cfg.visionOf(t.model, adapted); err != nil {
		return nil, err
	}
	if cfg.Head == HeadScore {
		t.model.Score = true
	}
	n, err := describe(t.model, cfg.Head == HeadBoth)
	if err != nil {
		return nil, err
	}
	var head *weights.Tensor
	if cfg.Head == HeadBoth {
		file, err := openValueHead(path)
		if err != nil {
			return nil, err
		}
		if file != nil {
			defer file.Close()
			if x, ok := file.Tensor(scoreName); ok {
				head = &x
			}
		}
	}
	window := t.model.Window(cfg.MaxContext)
	t.worker = torch.NewWorker(cfg.Threads)
	err = t.worker.Do(func(s *torch.Scope) error {
		dtype := master
		if n.frozen = adapted || cfg.Frozen; n.frozen {
			dtype = compute
		}
		from := source{Model: m, tensor: tensorsFor(m, dtype), head: head, ahead: readAhead(m)}
		if adapted {
			from.tensor = unmergedFor(m, dtype)
		}
		if t.net, err = load(s, t.keep, from, n, dtype, master, dev, window); err != nil {
			return err
		}
		t.opt = &optimizer{embed: &t.net.embed, master: master, device: n.device, keep: t.keep}
		switch {
		case adapted:
			if t.lora, err = adapt(s, t.keep, n, low, cfg.LoRA.Seed, m, master); err != nil {
				return err
			}
			t.opt.trained = t.lora.params()
			if n.score.Defined() {
				t.opt.trained = append(t.opt.trained, n.params[len(n.params)-1]) // PEFT's modules_to_save
			}
			t.opt.images = !slices.ContainsFunc(low.Targets, func(t string) bool { return !weights.IsVisionTarget(t) })
		case !cfg.Frozen:
			t.opt.trained = trainedParams(n, t.vision)
		}
		for _, p := range t.opt.trained {
			s.RequiresGrad(*p.tensor, true)
		}
		return s.Err()
	})
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// Close frees the model.
func (t *Trainable) Close() {
	_ = t.worker.Do(func(*torch.Scope) error { t.keep.Close(); return nil })
	t.worker.Close()
}

// Tokenizer is the model's tokenizer.
func (t *Trainable) Tokenizer() *tokenizer.Tokenizer { return t.tok }

// ChatTemplate is the text of the template that is saved with the model: Config.ChatTemplate, or
// the model's own.
func (t *Trainable) ChatTemplate() string { return t.template }

// DType names the element type of the computation.
func (t *Trainable) DType() string { return t.compute.String() }

// Window is the longest sequence in tokens.
func (t *Trainable) Window() int { return t.net.maxSeen }

// Parameters is the number of trained numbers.
func (t *Trainable) Parameters() int64 {
	var n int64
	for _, p := range t.opt.trained {
		n += elements(p.shape())
	}
	return n
}

// Bytes is what weights, masters, gradients and AdamW's moments take.
func (t *Trainable) Bytes() int64 {
	n := t.Parameters() * 4 * int64(t.master.Size())
	if t.compute == t.net.dtype && !t.net.frozen {
		return n
	}
	for _, p := range t.net.params {
		n += elements(p.shape()) * int64(t.compute.Size())
	}
	return n
}

func elements(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

// Forward gives what the model says of every wanted token, without gradients.
func (t *Trainable) Forward(b Batch) (out Outputs, err error) {
	err = t.worker.Do(func(s *torch.Scope) error {
		out, _ = t.forward(s, t.cast(s, nil), b, nil)
		return s.Err()
	})
	return out, err
}

// Rehearse is the forward pass that the nth call of Accumulate from now, counted from 0,
// makes of the batch: it drops the same inputs of adapters.
func (t *Trainable) Rehearse(b Batch, n int) (out Outputs, err error) {
	err = t.worker.Do(func(s *torch.Scope) error {
		call := t.lora.call(t.steps, t.passes+int64(n))
		out, _ = t.forward(s, t.cast(s, call), b, nil)
		return s.Err()
	})
	return out, err
}

// Accumulate runs the batch forward, hands what the model says of the wanted
// tokens to loss, which returns the derivatives of L, and adds the gradient of L
// to the parameters. The loss itself thus lives in plain float64 Go: every loss
// here is a function of these numbers alone. Where all derivatives are nil there
// is no backward pass.
func (t *Trainable) Accumulate(b Batch, loss func(Outputs) Gradients) error {
	return t.worker.Do(func(s *torch.Scope) error {
		call := t.lora.call(t.steps, t.passes)
		t.passes++
		s.WithGrad(func() {
			if _, backed := t.forward(s, t.cast(s, call), b, loss); backed {
				t.opt.grads = true
			}
		})
		return s.Err()
	})
}

// Step clips the gradients by their global norm, takes one AdamW step and drops
// the gradients. It returns the norm before clipping. A norm that is not finite
// leaves the parameters as they were and is an error.
func (t *Trainable) Step(c StepConfig) (norm float64, err error) {
	err = t.worker.Do(func(s *torch.Scope) (err error) {
		norm, err = t.opt.step(s, c)
		return err
	})
	t.opt.grads = false
	t.steps, t.passes = t.steps+1, 0
	return norm, err
}

// Finite says whether Step can take the gradients so far: ErrNotFinite where their
// norm is NaN or infinite.
func (t *Trainable) Finite() error {
	return t.worker.Do(t.opt.finite)
}

// Drop forgets the gradients that Accumulate has added up.
func (t *Trainable) Drop() error {
	t.opt.grads, t.passes = false, 0
	return t.worker.Do(func(s *torch.Scope) error {
		t.opt.clear(s)
		return s.Err()
	})
}

// KeepAverage makes Step keep a running mean of the parameters, from where they
// are now; SaveAverage writes it.
func (t *Trainable) KeepAverage() error {
	return t.worker.Do(func(s *torch.Scope) error {
		t.opt.keepAverage(s)
		return s.Err()
	})
}

// Gradients copies out the gradient of every parameter that has one, for tests.
func (t *Trainable) Gradients() (map[string][]float64, error) {
	out := map[string][]float64{}
	err := t.worker.Do(func(s *torch.Scope) error {
		for _, p := range t.opt.trained {
			if s.HasGrad(*p.tensor) {
				out[p.parts[0].name] = s.Float64s(s.Grad(*p.tensor))
			}
		}
		return s.Err()
	})
	return out, err
}
