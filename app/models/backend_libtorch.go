//go:build libtorch

package models

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
)

func OpenPolicy(_ context.Context, path string, o LocalOptions) (agent.Model, Source, io.Closer, error) {
	p, err := policy.Open(path, policy.Config{DType: o.DType, Device: o.Device, Threads: o.Threads, MaxBatch: o.Parallel, Parser: o.Parser,
		SampledLogprobs: true})
	if err != nil {
		return nil, Source{}, nil, err
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
	return p, Source{Name: abs, Kind: "local", Fingerprint: print, DType: p.DType(), TokenizerHash: p.Tokenizer().Hash(),
		TemplateHash: HashText(p.ChatTemplate()), Logprobs: policy.LogprobKind(true, o.Temperature)}, p, nil
}

// Fingerprint tells a model's weights from others': a hash of each weight
// file's name and size and of its first and last megabyte.
func Fingerprint(path string) (string, error) {
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

func OpenTrainablePolicy(path string, o TrainableOptions) (Trainable, error) {
	t, err := policy.OpenTrainable(path, policy.Config{DType: o.DType, Device: o.Device, Threads: o.Threads, Head: policy.Head(o.Head),
		LoRA: o.LoRA, Frozen: o.Frozen, GradCheckpoint: o.Checkpoint, Deterministic: o.Deterministic})
	if err != nil {
		return nil, err
	}
	vocab, err := VocabSize(path)
	if err != nil {
		t.Close()
		return nil, err
	}
	return TrainablePolicy{t, vocab}, nil
}

func AdoptWeights(m agent.Model, from Trainable, version int64) error {
	p, ok := m.(*policy.Policy)
	t, trains := from.(TrainablePolicy)
	if !ok || !trains {
		return errors.New("only a local policy takes the weights of a local model")
	}
	return p.Adopt(t.Trainable, version)
}

// VocabSize is the number of the model's logits; the tokenizer may have fewer
// tokens.
func VocabSize(path string) (int, error) {
	m, err := weights.Open(path)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	return m.Config().VocabSize, nil
}

// TrainablePolicy adds to a policy.Trainable what the train command asks about.
type TrainablePolicy struct {
	*policy.Trainable
	vocab int
}

func (t TrainablePolicy) Base() trainer.Scorer {
	if b := t.Trainable.Base(); b != nil {
		return b
	}
	return nil
}

func (t TrainablePolicy) VocabSize() int { return t.vocab }

func (t TrainablePolicy) TokenizerHash() string { return t.Tokenizer().Hash() }
