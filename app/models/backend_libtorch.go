//go:build libtorch

package models

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"agentcli/agent"
	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/policy"
	"agentcli/trainer"
)

// NewBackend gives the backend that is built in: libtorch.
func NewBackend() Backend { return libtorch{} }

// DeviceNote is policy.DeviceNote of a device's name, or of the default.
func DeviceNote(named string) string { return policy.DeviceNote(cmp.Or(named, policy.AutoDevice)) }

// libtorch is the Backend of the full build.
type libtorch struct{}

var (
	_ trainer.Actor = trainablePolicy{}
	_ trainer.Saver = trainablePolicy{}
)

func (libtorch) Available() error { return nil }

func (libtorch) Info() (policy.LibtorchInfo, error) { return policy.Libtorch(), nil }

func (libtorch) Memory(device string) (policy.Memory, error) {
	return policy.MemoryOf(cmp.Or(device, policy.AutoDevice))
}

func (libtorch) OpenSampler(path, dtype, device string, cached bool) (Sampler, error) {
	c := policy.Config{DType: dtype, Device: device}
	if !cached {
		c.CacheBytes = 1
	}
	return policy.Open(path, c)
}

func (libtorch) OpenPolicy(_ context.Context, path string, o LocalOptions) (agent.Model, Source, io.Closer, error) {
	text, family := "", ""
	if o.ChatTemplate != "" {
		var err error
		if text, family, err = NamedTemplate(o.ChatTemplate); err != nil {
			return nil, Source{}, nil, err
		}
	}
	cache, host, err := o.cacheSizes()
	if err != nil {
		return nil, Source{}, nil, err
	}
	p, err := policy.Open(path, policy.Config{MaxContext: o.MaxContext, Cache: cache, HostCache: host, DType: o.DType,
		Device:  cmp.Or(o.Device, policy.AutoDevice),
		Threads: o.Threads, MaxBatch: o.Parallel, MinPixels: o.MinPixels, MaxPixels: o.MaxPixels,
		BarImageTokens: true, AsStored: o.AsStored, KeepExperts: o.RouterReplay,
		SampledLogprobs: true, ChatTemplate: text, ChatFormat: family})
	if err != nil {
		return nil, Source{}, nil, err
	}
	if o.AsStored && !policy.HasStoredMatrices(p) {
		p.Close()
		return nil, Source{}, nil, exit.Usagef("%s: no matrix of it can be multiplied as it is stored; that needs a .gguf in Q4_0 to Q8_0, "+
			"Q2_K to Q6_K, IQ4_NL or IQ4_XS, not of Gemma 4, gpt-oss or Ministral 3, in bfloat16 on a processor with AVX2 (%s cpu); leave out %s",
			path, setting.Name("Device"), setting.Name("AsStored"))
	}
	if o.RouterReplay && !policy.HasExperts(p) {
		p.Close()
		return nil, Source{}, nil, exit.Usagef("%s has no experts whose choice could be kept; leave out %s", path, setting.Name("RouterReplay"))
	}
	print, err := Fingerprint(path)
	if err != nil {
		p.Close()
		return nil, Source{}, nil, err
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		abs = path
	}
	source := Source{Name: abs, Kind: "local", Fingerprint: print, DType: p.DType(), TokenizerHash: p.Tokenizer().Hash(),
		TemplateHash: HashText(p.ChatTemplate()), Logprobs: policy.LogprobKind(true, o.Temperature), Multimodal: p.Multimodal(),
		BarredIDs: policy.EngineOf(p).Facts().Barred}
	for _, note := range []string{DeviceNote(o.Device), policy.ContextNote(p)} {
		if note != "" {
			source.Notes = append(source.Notes, note)
		}
	}
	if source.Multimodal != "" {
		source.Notes = append(source.Notes, fmt.Sprintf("%s is a multimodal model (%s): its language model alone is opened", path,
			source.Multimodal))
	}
	source.Images, source.noImages = ImageProcessor(path, o.MinPixels, o.MaxPixels)
	if r, err := p.Renderer(); err == nil {
		source.Describe(r)
	}
	return p, source, p, nil
}

func (b libtorch) OpenEngine(path string, o LocalOptions) (Engine, Source, error) {
	m, source, _, err := b.OpenPolicy(context.Background(), path, o)
	if err != nil {
		return nil, Source{}, err
	}
	p, ok := m.(*policy.Policy)
	if !ok {
		return nil, Source{}, errors.New("not a local policy")
	}
	return policy.EngineOf(p), source, nil
}

func (libtorch) OpenTrainable(path string, o TrainableOptions) (Trainable, error) {
	template := ""
	if o.ChatTemplate != "" {
		var err error
		if template, _, err = NamedTemplate(o.ChatTemplate); err != nil {
			return nil, err
		}
	}
	t, err := policy.OpenTrainable(path, policy.Config{MaxContext: o.MaxContext, DType: o.DType, ChatTemplate: template,
		Device: cmp.Or(o.Device, policy.AutoDevice), Threads: o.Threads,
		Head: policy.Head(o.Head),
		LoRA: o.LoRA, Vision: o.Vision, Frozen: o.Frozen, BarImageTokens: true, GradCheckpoint: o.Checkpoint, Deterministic: o.Deterministic})
	if err != nil {
		return nil, err
	}
	vocab, err := VocabSize(path)
	if err != nil {
		t.Close()
		return nil, err
	}
	return trainablePolicy{t, vocab}, nil
}

func (libtorch) Adopt(m agent.Model, from Trainable, version int64) error {
	p, ok := m.(*policy.Policy)
	t, trains := from.(trainablePolicy)
	if !ok || !trains {
		return errors.New("only a local policy takes the weights of a local model")
	}
	return p.Adopt(t.Trainable, version)
}

// trainablePolicy adds to a policy.Trainable what a training run asks about.
type trainablePolicy struct {
	*policy.Trainable
	vocab int
}

func (t trainablePolicy) Base() trainer.Scorer {
	if b := t.Trainable.Base(); b != nil {
		return b
	}
	return nil
}

func (t trainablePolicy) VocabSize() int { return t.vocab }

func (t trainablePolicy) TokenizerHash() string { return t.Tokenizer().Hash() }
