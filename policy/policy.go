//go:build libtorch

package policy

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"agentcli/internal/setting"
	"agentcli/internal/torch"
	"agentcli/media/processor"
	"agentcli/model/chat"
	"agentcli/model/tokenizer"
	"agentcli/model/weights"
	"agentcli/traj"
)

// Policy is a model that samples. Safe for concurrent use: requests are decoded
// together.
type Policy struct {
	cfg      Config
	path     string
	tok      *tokenizer.Tokenizer
	renderer chat.Renderer // nil where noChat says why
	exact    chat.Exact
	noChat   error
	model    weights.Config
	window   int // tokens of the longest text that was asked for; cfg.MaxContext: of the longest that the cache holds
	template string
	worker   *torch.Worker
	keep     *torch.Scope // the cache; touched on the worker only
	weights  *torch.Scope // the parameters: Adopt exchanges them
	net      *network
	features *featureCache // of images
	patches  patchStore
	images   *processor.Processor // nil where noImages says why
	noImages error
	sched    *scheduler
	grammars grammars
	version  atomic.Int64    // of the weights
	base     string          // whose files they are from
	newer    []*weights.File // and the tensors that have replaced some, the newest first
}

// Open reads a model: a folder in Hugging Face's layout, or a GGUF file.
func Open(path string, cfg Config) (*Policy, error) {
	dtype, dev, err := resolve(cfg.DType, cfg.Device)
	if err != nil {
		return nil, err
	}
	m, err := weights.Open(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	ahead := readAhead(m) // while the tokenizer is read, too
	defer ahead.Close()
	tok, err := tokenizer.Open(m.TokenizerPath())
	if err != nil {
		return nil, err
	}
	p := &Policy{cfg: cfg, path: path, base: path, tok: tok, model: m.Config(), template: m.ChatTemplate(),
		keep: torch.NewScope(), weights: torch.NewScope()}
	p.version.Store(cfg.Version)
	p.model.Barred = cfg.barred(p.model)
	if p.model.Score {
		return nil, fmt.Errorf("%s is a reward model or a critic: it scores texts and cannot write them", path)
	}
	// A base model has no chat format: it answers about ids all the same.
	if err := p.chooseChat(); err != nil {
		return nil, err
	}
	p.exact = chat.Exact{Renderer: p.renderer, Tokenizer: tok, Sampler: p, Policy: path, Version: cfg.Version}
	p.images, p.noImages = OpenProcessor(path, p.model.Vision, cfg.MinPixels, cfg.MaxPixels)
	if v := p.model.Vision; v != nil {
		p.exact.Images = &chat.ImagePlaces{Token: v.ImageToken, Grid: p.ImageGrid}
	}
	if p.cfg.MaxBatch <= 0 {
		p.cfg.MaxBatch = DefaultMaxBatch
	}
	p.window = p.model.Window(p.cfg.MaxContext)
	p.cfg.MaxContext = p.window
	p.worker = torch.NewWorker(cfg.Threads)
	err = p.worker.Do(func(s *torch.Scope) error {
		n, err := describe(p.model, false)
		if err != nil {
			return err
		}
		n.dtype, n.device = dtype, dev
		n.rotary(s, p.keep, p.cfg.MaxContext) // they stay where the weights are exchanged
		from := source{Model: m, tensor: tensorsFor(m, dtype), asStored: cfg.AsStored, sampled: true, ahead: ahead}
		if p.net, err = load(s, p.weights, from, n, dtype, dtype, dev, p.cfg.MaxContext); err != nil {
			return err
		}
		p.features = newFeatureCache(p.keep)
		p.sched = newScheduler(s, p)
		return s.Err()
	})
	if err != nil {
		p.shut()
		return nil, err
	}
	go p.sched.loop()
	return p, nil
}

// chooseChat makes the renderer. A format that the configuration names must fit.
func (p *Policy) chooseChat() (err error) {
	if p.cfg.ChatFormat != "" {
		p.template = p.cfg.ChatFormat
		p.renderer, err = chat.For(p.cfg.ChatFormat, p.tok)
		return err
	}
	if p.cfg.ChatTemplate != "" {
		p.template = p.cfg.ChatTemplate
		p.renderer, err = chat.Choose(p.template, "", p.tok)
		return err
	}
	p.renderer, p.noChat = chat.Choose(p.template, p.model.Architecture, p.tok)
	return nil
}

// resolve reads the names of an element type and a device.
func resolve(dtype, device string) (torch.DType, torch.Device, error) {
	dev := torch.DefaultDevice
	if device != "" {
		dev = torch.CPU
	}
	if rest, ok := strings.CutPrefix(device, "cuda"); ok {
		i := 0
		if rest != "" {
			var err error
			if i, err = strconv.Atoi(strings.TrimPrefix(rest, ":")); err != nil || rest[0] != ':' {
				return 0, 0, setting.Errorf("%s %s: want cpu, cuda or cuda:N", setting.Name("Device"), device)
			}
		}
		n, why := torch.CUDADevices()
		if i >= n {
			if why == "" {
				why = fmt.Sprintf("there are %d CUDA devices", n)
			} else if fix := torch.CUDAFix(); fix != "" {
				why += "; " + fix
			}
			return 0, 0, traj.Mark(setting.Errorf("%[1]s %[2]s: %[3]s; use %[1]s cpu", setting.Name("Device"), device, why), ErrNoDevice)
		}
		dev = torch.Device(i)
	} else if device == AutoDevice {
		dev, _ = torch.AutoDevice()
	} else if device == torch.TestDevice.String() && torch.HasTestDevice() {
		dev = torch.TestDevice
	} else if device != "" && device != "cpu" {
		return 0, 0, setting.Errorf("%s %s: want auto, cpu, cuda or cuda:N", setting.Name("Device"), device)
	}
	if dev >= 0 {
		// Without them libtorch computes the same, slower; doctor says why.
		_ = torch.UseGPUKernels(dev)
	}
	switch dtype {
	case "float32", "f32", "fp32":
		return torch.Float32, dev, nil
	case "bfloat16", "bf16":
		return torch.BFloat16, dev, nil
	case "float64":
		return torch.Float64, dev, nil
	case "", "auto":
		if dev != torch.CPU || hasBF16() {
			return torch.BFloat16, dev, nil
		}
		return torch.Float32, dev, nil
	}
	return 0, 0, setting.Errorf("%s %s: want float32 or bfloat16", setting.Name("DType"), dtype)
}

// Close ends the policy; requests that wait get an error.
func (p *Policy) Close() error {
	p.sched.close()
	p.shut()
	return nil
}

func (p *Policy) shut() {
	_ = p.worker.Do(func(*torch.Scope) error {
		if p.sched != nil {
			closeDecoders(p.sched)
			freeAdapters(p.sched)
		}
		p.keep.Close()
		p.weights.Close()
		return nil
	})
	p.worker.Close()
}

// Name is the path that the policy was opened from.
func (p *Policy) Name() string { return p.path }

// Tokenizer is the model's tokenizer.
func (p *Policy) Tokenizer() *tokenizer.Tokenizer { return p.tok }

// Renderer is the model's chat format, or an error that says why it has none.
func (p *Policy) Renderer() (chat.Renderer, error) {
	if p.noChat != nil {
		return nil, fmt.Errorf("%s: %w", p.path, p.noChat)
	}
	return p.renderer, nil
}

// ChatTemplate is the text of the model's template, or the name of the chat format
// that was given, for its hash.
func (p *Policy) ChatTemplate() string { return p.template }

// Multimodal is the kind of a multimodal model whose language model this is; "" for one of
// text alone.
func (p *Policy) Multimodal() string { return p.model.Multimodal }

// DType names the element type that the policy computes in.
func (p *Policy) DType() string { return p.net.dtype.String() }

// CountTokens is the number of tokens of a text; the engine asks before it
// appends an observation.
func (p *Policy) CountTokens(text string) int { return len(p.tok.EncodeOrdinary(text)) }

// SplitTokens implements agent.TokenSplitter.
func (p *Policy) SplitTokens(ids []int32, text string, at int) (tokens, bytes int) {
	return chat.SplitTokens(p.tok, ids, text, at)
}

// Generate renders the conversation, samples one reply and reads it. Where the
// request carries the ids of its earlier messages, they are continued verbatim.
// It implements agent.Model.
func (p *Policy) Generate(ctx context.Context, req *traj.Request) (*traj.Response, error) {
	if _, err := p.Renderer(); err != nil {
		return nil, traj.Mark(err, traj.ErrFatal)
	}
	e := p.exact
	e.Version = p.version.Load()
	return e.Generate(ctx, req)
}

// Sample draws one continuation of ids.
func (p *Policy) Sample(ctx context.Context, ids []int32, s traj.Sampling, seed int64) (*Output, error) {
	return p.SampleSequence(ctx, Sequence{IDs: ids}, s, seed)
}

// ImageGrid implements agent.ImageProcessor.
func (p *Policy) ImageGrid(width, height int) (grid [3]int, tokens int, err error) {
	if p.images == nil {
		return grid, 0, p.noImages
	}
	return p.images.Grid(width, height)
}

// SampleImages implements chat.ImageSampler.
func (p *Policy) SampleImages(ctx context.Context, prompt []int32, images []traj.Image, spans []traj.ImageSpan,
	s traj.Sampling, seed int64) (*Output, error) {
	placed, release, err := EngineOf(p).Place(prompt, images, spans)
	if err != nil {
		return nil, err
	}
	defer release()
	return p.SampleSequence(ctx, placed, s, seed)
}

// SampleSequence is Sample of a prompt with images.
func (p *Policy) SampleSequence(ctx context.Context, prompt Sequence, s traj.Sampling, seed int64) (*Output, error) {
	g, err := p.grammars.matcher(p, s.Grammar)
	if err != nil {
		return nil, err
	}
	r, err := EngineOf(p).Ask(ctx, &Request{Prompt: prompt, Sampling: s, Seed: seed, Grammar: g})
	if err != nil {
		return nil, err
	}
	return &r.Output, nil
}

// Logprobs gives for each sequence the log-probs of its tokens from the second
// on under the model at temperature 1: len(seq)−1 numbers, none for a single id.
func (p *Policy) Logprobs(ctx context.Context, seqs [][]int32) ([][]float32, error) {
	return p.logprobs(ctx, seqs, nil)
}

// LogprobsSequence is Logprobs of one sequence with images.
func (p *Policy) LogprobsSequence(ctx context.Context, q Sequence) ([]float32, error) {
	if err := checkImages(q.IDs, q.Images, p.model.Vision); err != nil {
		return nil, err
	}
	if len(q.Images) > 0 && len(q.IDs) > p.net.maxSeen { // positions are fewer than tokens
		return nil, fmt.Errorf("%w: %d tokens, the model's window is %d", traj.ErrPromptTooLong, len(q.IDs), p.net.maxSeen)
	}
	out, err := p.logprobs(ctx, [][]int32{q.IDs}, [][]Image{q.Images})
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

func (p *Policy) logprobs(ctx context.Context, seqs [][]int32, images [][]Image) ([][]float32, error) {
	out := make([][]float32, len(seqs))
	err := p.worker.Do(func(s *torch.Scope) error {
		for _, batch := range splitBySize(seqs, 4096) {
			if err := ctx.Err(); err != nil {
				return err
			}
			part := make([][]int32, len(batch))
			var seen [][]Image
			for i, k := range batch {
				part[i] = seqs[k]
				if images != nil {
					seen = append(seen, images[k])
				}
			}
			pack := newPack(part, seen, p.model.Vision.MergeSide())
			c := s.Child()
			f, err := p.features.all(c, p.net, pack.images)
			if err != nil {
				c.Close()
				return err
			}
			lps, _ := packedLogprobs(c, p.net, part, pack, f)
			c.Close()
			if s.Err() != nil {
				return s.Err()
			}
			for i, k := range batch {
				out[k] = lps[i]
			}
		}
		return nil
	})
	return out, err
}

// packedLogprobs is Logprobs of one pack, with each token's entropy.
func packedLogprobs(s *torch.Scope, n *network, seqs [][]int32, pack *Pack, f []features) (lps, entropies [][]float32) {
	var rows, targets []int32
	for i, q := range seqs {
		if len(q) > 1 {
			rows = append(rows, pack.Rows(i, 0, len(q)-1)...)
			targets = append(targets, q[1:]...)
		}
	}
	lps, entropies = make([][]float32, len(seqs)), make([][]float32, len(seqs))
	if len(rows) == 0 {
		return lps, entropies
	}
	h := n.hidden(s, inputOf(pack, f), n.tree(s, pack), rows)
	var scales []float64
	if n.cfg.LogitScale != 1 {
		scales = slices.Repeat([]float64{n.cfg.LogitScale}, len(rows))
	}
	lp, ent := n.headLogprobs(s, h, targets, scales)
	flat, fe := s.Float32s(lp), s.Float32s(ent)
	if s.Err() != nil {
		return lps, entropies
	}
	for i, q := range seqs {
		if len(q) > 1 {
			k := len(q) - 1
			lps[i], flat = flat[:k:k], flat[k:]
			entropies[i], fe = fe[:k:k], fe[k:]
		}
	}
	return lps, entropies
}

// splitBySize groups sequence numbers so that no group holds more than max
// tokens, a longer sequence alone.
func splitBySize(seqs [][]int32, max int) [][]int {
	var out [][]int
	size := 0
	for i, q := range seqs {
		if len(out) == 0 || size+len(q) > max {
			out = append(out, nil)
			size = 0
		}
		out[len(out)-1] = append(out[len(out)-1], i)
		size += len(q)
	}
	return out
}
