package trainer

import (
	"agentcli/model/weights"
	"agentcli/policy"
)

// Actor is a model that is trained: a policy, a critic, or both on one backbone
// (then its outputs have values beside log-probs). One goroutine uses it at a
// time.
//
// Outputs come in the order of the batch's wanted tokens. Accumulate adds the
// gradient of the loss whose derivatives the callback returns; Step applies and
// drops the gradients and returns their norm before clipping. Finite is Step's
// first part alone: policy.ErrNotFinite where Step would refuse them.
type Actor interface {
	Scorer
	Accumulate(b policy.Batch, loss func(policy.Outputs) policy.Gradients) error
	Step(policy.StepConfig) (gradNorm float64, err error)
	Finite() error
	Drop() error // forgets the gradients so far
	Window() int
}

// Rehearser is an Actor whose updates drop something at random, which Forward does not.
// Rehearse is the forward pass that the nth call of Accumulate from now makes of the
// batch, counted from 0.
type Rehearser interface {
	Rehearse(b policy.Batch, n int) (policy.Outputs, error)
}

// Scorer says what a model makes of a batch, without gradients.
type Scorer interface {
	Forward(policy.Batch) (policy.Outputs, error)
}

// Saver writes the model as a Hugging Face folder.
type Saver interface {
	Save(dir string, dtype weights.DType) error
}

// Stater writes and reads everything that a resumed run needs of the model:
// masters and optimiser moments, bit for bit.
type Stater interface {
	SaveState(path string) error
	LoadState(path string) error
}
