package models

import (
	"context"
	"io"

	"agentcli/model/chat"
	"agentcli/policy"
	"agentcli/traj"
)

// Engine is a local model that serves many requests at once. It is safe for concurrent use.
type Engine interface {
	io.Closer
	Answerer
	Changer
	Observed
}

// Answerer draws replies.
type Answerer interface {
	// Ask draws a continuation of ids; see policy.Request.
	Ask(ctx context.Context, r *policy.Request) (*policy.Reply, error)
	// Score is the log-prob of each id of a request's prompt but the first, at temperature 1, with the
	// PromptTop most probable ids in its place.
	Score(ctx context.Context, r *policy.Request) ([]policy.Token, error)
	// Exact makes ids of conversations and messages of ids, and says why where the model has no
	// chat format. Its sampler is the engine.
	Exact() (chat.Exact, error)
	// Place is a prompt with its images as the encoder takes them. release lets them go.
	Place(prompt []int32, images []traj.Image, spans []traj.ImageSpan) (s policy.Sequence, release func(), err error)
}

// Changer pauses a model and exchanges its weights.
type Changer interface {
	// Pause has nothing computed until Resume.
	Pause(how policy.Exchange) error
	Resume()
	Weights
}

// Weights are exchanged, and have adapters beside them, while replies are drawn.
type Weights interface {
	// LoadWeights exchanges the weights for those of a model's folder, between two steps.
	LoadWeights(folder string, version int64, how policy.Exchange) error
	// UpdateWeights exchanges some of the tensors for those of a safetensors file.
	UpdateWeights(file string, version int64, how policy.Exchange) error
	Adapting
}

// Adapting has LoRA adapters beside the weights of a model.
type Adapting interface {
	// LoadAdapter has requests draw with the adapter in a folder, by a name; one of that name is exchanged.
	LoadAdapter(name, folder string, version int64) error
	DropAdapter(name string) error
	Adapters() []policy.Adapter
}

// Observed says what a model is and does.
type Observed interface {
	Facts() policy.Facts
	Load() policy.Load
	Version() int64 // of the weights
	// ForgetPrefixes has no later prompt find anything in the cache that is there now.
	ForgetPrefixes()
}
