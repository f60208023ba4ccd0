package trainer

import (
	"agentcli/policy"
	"agentcli/weights"
)

// Actor is the model that is trained. One goroutine uses it at a time.
//
// Log-probs are natural, of the model at temperature 1; they come in the order
// of the batch's wanted tokens. Accumulate adds the gradient of the loss whose
// derivative with respect to each log-prob the callback returns; Step applies
// and drops the gradients and returns their norm before clipping.
type Actor interface {
	Logprobs(policy.Batch) (logprobs, entropy []float64, err error)
	Accumulate(b policy.Batch, loss func(logprobs, entropy []float64) (grad []float64)) error
	Step(policy.StepConfig) (gradNorm float64, err error)
	Window() int
}

// Scorer gives the log-probs of a frozen model, the reference.
type Scorer interface {
	Logprobs(policy.Batch) (logprobs, entropy []float64, err error)
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
