package models

import (
	"context"
	"fmt"
	"io"

	"agentcli/agent"
	"agentcli/model/chat"
	"agentcli/policy"
	"agentcli/traj"
)

// Backend runs local models. NewBackend gives the one that is built in; a program
// passes it to what opens models. It is safe for concurrent use. Without one, every
// method but Available fails with an error that wraps policy.ErrNoLibtorch.
type Backend interface {
	Opener
	// Available is nil, or says why no local model can be opened: policy.ErrNoLibtorch.
	Available() error
	// Adopt gives a model of OpenPolicy the weights of one of OpenTrainable.
	Adopt(m agent.Model, from Trainable, version int64) error
	// Memory is that of a device; device is as in TrainableOptions.
	Memory(device string) (policy.Memory, error)
	// Info is what there is of libtorch and of its devices.
	Info() (policy.LibtorchInfo, error)
}

// Opener opens a local model for one kind of work.
type Opener interface {
	// OpenPolicy opens a model folder or a .gguf to be sampled. The caller closes it.
	OpenPolicy(ctx context.Context, path string, o LocalOptions) (agent.Model, Source, io.Closer, error)
	// OpenEngine opens a model folder or a .gguf to serve requests.
	OpenEngine(path string, o LocalOptions) (Engine, Source, error)
	// OpenTrainable opens a model folder to be trained, or, Frozen, to be asked.
	OpenTrainable(path string, o TrainableOptions) (Trainable, error)
	// OpenSampler opens a model to be asked in token ids. cached: replies share the
	// computation of what they have in common.
	OpenSampler(path, dtype, device string, cached bool) (Sampler, error)
}

// Sampler is a local model that is asked in token ids.
type Sampler interface {
	// Logprobs are those of each sequence's ids after the first.
	Logprobs(ctx context.Context, sequences [][]int32) ([][]float32, error)
	// Sample draws one continuation of ids.
	Sample(ctx context.Context, ids []int32, s traj.Sampling, seed int64) (*traj.Completion, error)
	// Renderer is the model's chat format.
	Renderer() (chat.Renderer, error)
	Close() error
}

// Looker is a Sampler of a model that may take images.
type Looker interface {
	Sampler
	// LogprobsSequence are those of the ids after the first of a text with images.
	LogprobsSequence(ctx context.Context, q policy.Sequence) ([]float32, error)
	// SampleSequence is Sample of a text with images.
	SampleSequence(ctx context.Context, q policy.Sequence, s traj.Sampling, seed int64) (*traj.Completion, error)
}

// NoBackend is the Backend of a program without libtorch.
type NoBackend struct{}

// Available implements Backend.
func (NoBackend) Available() error { return policy.ErrNoLibtorch }

// OpenPolicy implements Backend.
func (NoBackend) OpenPolicy(_ context.Context, path string, _ LocalOptions) (agent.Model, Source, io.Closer, error) {
	return nil, Source{}, nil, cannotOpen(path)
}

// OpenEngine implements Backend.
func (NoBackend) OpenEngine(path string, _ LocalOptions) (Engine, Source, error) {
	return nil, Source{}, cannotOpen(path)
}

// OpenTrainable implements Backend.
func (NoBackend) OpenTrainable(path string, _ TrainableOptions) (Trainable, error) {
	return nil, cannotOpen(path)
}

// OpenSampler implements Backend.
func (NoBackend) OpenSampler(path, _, _ string, _ bool) (Sampler, error) {
	return nil, cannotOpen(path)
}

// Adopt implements Backend.
func (NoBackend) Adopt(agent.Model, Trainable, int64) error { return policy.ErrNoLibtorch }

// Memory implements Backend.
func (NoBackend) Memory(string) (policy.Memory, error) { return policy.Memory{}, policy.ErrNoLibtorch }

// Info implements Backend.
func (NoBackend) Info() (policy.LibtorchInfo, error) {
	return policy.LibtorchInfo{}, policy.ErrNoLibtorch
}

func cannotOpen(path string) error {
	return fmt.Errorf("cannot open %s: %w", path, policy.ErrNoLibtorch)
}
