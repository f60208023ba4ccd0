//go:build libtorch

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"agentcli/agent"
	"agentcli/model/weights"
	"agentcli/policy"
	"agentcli/trainer"
	"agentcli/traj"
)

// This file is what the build with libtorch adds to the commands.
func init() {
	openLocal = openLocalPolicy
	modelLocal = localQuestions{}
	openTrainable = openPolicyForTraining
	adopt = adoptWeights
	libtorchReport = reportLibtorch
}

func openLocalPolicy(_ context.Context, path string, o localOptions) (agent.Model, modelSource, io.Closer, error) {
	p, err := policy.Open(path, policy.Config{DType: o.DType, Device: o.Device, Threads: o.Threads, MaxBatch: o.Parallel, Parser: o.Parser,
		SampledLogprobs: true})
	if err != nil {
		return nil, modelSource{}, nil, err
	}
	print, err := fingerprint(path)
	if err != nil {
		p.Close()
		return nil, modelSource{}, nil, err
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		abs = path
	}
	return p, modelSource{Name: abs, Kind: "local", Fingerprint: print, DType: p.DType(), TokenizerHash: p.Tokenizer().Hash(),
		TemplateHash: hashText(p.ChatTemplate()), Logprobs: policy.LogprobKind(true, o.Temperature)}, p, nil
}

// fingerprint tells a model's weights from others': a hash of each weight
// file's name and size and of its first and last megabyte.
func fingerprint(path string) (string, error) {
	files := []string{path}
	if st, err := os.Stat(path); err != nil {
		return "", err
	} else if st.IsDir() {
		if files, err = filepath.Glob(filepath.Join(path, "*.safetensors")); err != nil {
			return "", err
		}
		if weights.IsAdapter(path) {
			m, err := weights.Open(path)
			if err != nil {
				return "", err
			}
			files = m.Files() // of its base too
			if err := m.Close(); err != nil {
				return "", err
			}
		}
	}
	h := sha256.New()
	for _, name := range files {
		if err := hashEnds(h, name); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

func hashEnds(h io.Writer, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	fmt.Fprintf(h, "%s %d\n", filepath.Base(name), st.Size())
	const end = 1 << 20
	if _, err := io.CopyN(h, f, min(end, st.Size())); err != nil {
		return err
	}
	if _, err := f.Seek(-min(end, st.Size()), io.SeekEnd); err != nil {
		return err
	}
	_, err = io.CopyN(h, f, min(end, st.Size()))
	return err
}

func openPolicyForTraining(path string, o trainableOptions) (trainable, error) {
	t, err := policy.OpenTrainable(path, policy.Config{DType: o.DType, Device: o.Device, Threads: o.Threads, Head: policy.Head(o.Head),
		LoRA: o.LoRA, Frozen: o.Frozen, GradCheckpoint: o.Checkpoint, Deterministic: o.Deterministic})
	if err != nil {
		return nil, err
	}
	vocab, err := vocabSize(path)
	if err != nil {
		t.Close()
		return nil, err
	}
	return trainablePolicy{t, vocab}, nil
}

func adoptWeights(m agent.Model, from trainable, version int64) error {
	p, ok := m.(*policy.Policy)
	t, trains := from.(trainablePolicy)
	if !ok || !trains {
		return errors.New("only a local policy takes the weights of a local model")
	}
	return p.Adopt(t.Trainable, version)
}

// vocabSize is the number of the model's logits; the tokenizer may have fewer
// tokens.
func vocabSize(path string) (int, error) {
	m, err := weights.Open(path)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	return m.Config().VocabSize, nil
}

// trainablePolicy adds to a policy.Trainable what the train command asks about.
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

var (
	_ trainer.Actor = trainablePolicy{}
	_ trainer.Saver = trainablePolicy{}
)

// localQuestions answers the model commands that need weights.
type localQuestions struct{}

func (localQuestions) Logprobs(ctx context.Context, path, dtype, device string, in io.Reader, out io.Writer) error {
	p, err := policy.Open(path, policy.Config{DType: dtype, Device: device, CacheBytes: 1})
	if err != nil {
		return err
	}
	defer p.Close()
	vocab, err := vocabSize(path)
	if err != nil {
		return err
	}
	type question struct {
		TokenIDs []int32 `json:"token_ids"`
	}
	type answer struct {
		Logprobs []float32 `json:"logprobs"`
	}
	return eachLine(ctx, in, out, func(q question) (answer, error) {
		if len(q.TokenIDs) == 0 {
			return answer{}, errors.New("token_ids is missing or empty")
		}
		// The model looks up all but the last, and would not notice that one.
		for i, id := range q.TokenIDs {
			if id < 0 || int(id) >= vocab {
				return answer{}, fmt.Errorf("token_ids: id %d at position %d is outside the vocabulary of %d", id, i, vocab)
			}
		}
		lps, err := p.Logprobs(ctx, [][]int32{q.TokenIDs})
		if err != nil {
			return answer{}, err
		}
		if lps[0] == nil {
			lps[0] = []float32{}
		}
		return answer{lps[0]}, nil
	})
}

func (localQuestions) Generate(ctx context.Context, path string, o generateOptions, in io.Reader, out io.Writer) error {
	p, err := policy.Open(path, policy.Config{DType: o.DType, Device: o.Device})
	if err != nil {
		return err
	}
	defer p.Close()
	type question struct {
		TokenIDs []int32 `json:"token_ids"`
		renderLine
	}
	type answer struct {
		TokenIDs     []int32        `json:"token_ids"`
		Text         string         `json:"text"`
		Logprobs     []traj.Logprob `json:"logprobs"`
		FinishReason string         `json:"finish_reason"`
	}
	return eachLine(ctx, in, out, func(q question) (answer, error) {
		ids := q.TokenIDs
		if len(ids) == 0 {
			if len(q.Messages) == 0 {
				return answer{}, errors.New(`neither messages nor token_ids is given`)
			}
			q.Generation = true
			r, err := p.Renderer()
			if err != nil {
				return answer{}, err
			}
			if _, ids, err = q.render(r); err != nil {
				return answer{}, err
			}
		}
		r, err := p.Sample(ctx, ids, traj.Sampling{Temperature: &o.Temperature, TopP: o.TopP, TopK: o.TopK, MinP: o.MinP,
			MaxTokens: o.MaxTokens, Stop: o.Stop}, o.Seed)
		if err != nil {
			return answer{}, err
		}
		return answer{r.IDs, r.Text, r.Logprobs, r.FinishReason}, nil
	})
}
