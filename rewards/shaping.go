package rewards

import (
	"context"
	"errors"
	"fmt"
	"math"

	"agentcli/internal/setting"
	"agentcli/traj"
)

// shape is the score of a shaping reward: it has a value and says nothing of correctness.
func shape(name string, value float64) Score {
	return Score{Value: &value, Parts: []traj.Part{{Name: name, Value: value}}}
}

// ErrNoLength is in the error of a trajectory that does not say how many tokens were
// sampled.
var ErrNoLength = errors.New("the number of sampled tokens is not known")

// sampledTokens is how many tokens the model has sampled in a trajectory, over all of its
// replies: those of its sequences, else those that the server has counted.
func sampledTokens(t *traj.Trajectory) (int, error) {
	n := 0
	for i := range t.Sequences {
		n += t.Sequences[i].Sampled()
	}
	if n > 0 {
		return n, nil
	}
	if t.CompletionTokens > 0 {
		return t.CompletionTokens, nil
	}
	for i := range t.Steps {
		n += t.Steps[i].CompletionTokens
	}
	if n == 0 && t.FinalReply() != nil {
		return 0, taskError(t, fmt.Errorf("%w: completion_tokens is missing, or 0 beside a reply", ErrNoLength))
	}
	return n, nil
}

// LengthSettings are the settings of length, in tokens.
type LengthSettings struct {
	// Max is the longest length; from there on the penalty is full.
	Max int `json:"max,omitempty"`
	// Buffer is how many tokens before Max the penalty starts.
	Buffer int `json:"buffer,omitempty"`
}

// Validate checks the settings.
func (s LengthSettings) Validate() error {
	switch {
	case s.Max < 0:
		return fmt.Errorf("max is %d, want more than 0", s.Max)
	case s.Buffer < 0 || s.Max > 0 && s.Buffer > s.Max:
		return fmt.Errorf("buffer is %d, want 1 to max, which is %d", s.Buffer, s.Max)
	}
	return nil
}

// lengthReward is DAPO's soft overlong punishment (arXiv 2503.14476, eq. 13) over the
// sampled tokens of a trajectory: 0 to Max − Buffer, then falling to −1 at Max.
type lengthReward struct{ s LengthSettings }

func newLength(o Options) (Reward, error) {
	if o.Length.Max == 0 || o.Length.Buffer == 0 {
		return nil, setting.Errorf(`it needs two options, in tokens: %s '{"length": {"max": 4096, "buffer": 512}}'`,
			setting.Name("Grader"))
	}
	return lengthReward{o.Length}, nil
}

func (lengthReward) Name() string { return "length" }

func (r lengthReward) Score(_ context.Context, t *traj.Trajectory) (Score, error) {
	if t.Termination.Infrastructure() {
		return Score{}, nil
	}
	n, err := sampledTokens(t)
	if err != nil {
		return Score{}, err
	}
	return shape("length", r.s.penalty(n)), nil
}

func (s LengthSettings) penalty(tokens int) float64 {
	free := s.Max - s.Buffer
	switch {
	case tokens <= free:
		return 0
	case tokens <= s.Max:
		return float64(free-tokens) / float64(s.Buffer)
	}
	return -1
}

// CosineSettings are the settings of cosine. The values that are nil are the defaults of
// Open-R1: a right answer is worth 1 at length 0 and 0.5 at Max, a wrong one −1 and −0.5.
type CosineSettings struct {
	Max       int      `json:"max,omitempty"`        // tokens
	R0Correct *float64 `json:"r0_correct,omitempty"` // of a right answer at length 0
	RLCorrect *float64 `json:"rl_correct,omitempty"` // of a right answer at Max
	R0Wrong   *float64 `json:"r0_wrong,omitempty"`
	RLWrong   *float64 `json:"rl_wrong,omitempty"`
	// Exceed is the value at Max and beyond, right or wrong; nil: RLCorrect or RLWrong.
	Exceed *float64 `json:"exceed,omitempty"`
}

// Validate checks the settings.
func (s CosineSettings) Validate() error {
	if s.Max < 0 {
		return fmt.Errorf("max is %d, want more than 0", s.Max)
	}
	return nil
}

// cosineReward is the cosine reward of arXiv 2502.03373 (eq. 1 and section 4.2): between
// two values along half a cosine over the sampled tokens. Which two depends on whether the
// answer is correct, which the deciding reward of the sum says.
type cosineReward struct{ s CosineSettings }

func newCosine(o Options) (Reward, error) {
	if o.Cosine.Max == 0 {
		return nil, setting.Errorf(`it needs an option, in tokens: %s '{"cosine": {"max": 4096}}'`, setting.Name("Grader"))
	}
	return cosineReward{o.Cosine}, nil
}

func (cosineReward) Name() string { return "cosine" }

// errNotDecided is of a trajectory of which nobody says whether it is correct.
var errNotDecided = errors.New("no reward says whether the answer is correct")

func (cosineReward) Score(context.Context, *traj.Trajectory) (Score, error) {
	return Score{}, errNotDecided
}

func (r cosineReward) scoreAfter(_ context.Context, t *traj.Trajectory, decided Score) (Score, error) {
	if t.Termination.Infrastructure() {
		return Score{}, nil
	}
	if decided.Correct == nil {
		return Score{}, errNotDecided
	}
	n, err := sampledTokens(t)
	if err != nil {
		return Score{}, err
	}
	return shape("cosine", r.s.value(n, *decided.Correct)), nil
}

func (s CosineSettings) value(tokens int, correct bool) float64 {
	or := func(p *float64, usual float64) float64 {
		if p == nil {
			return usual
		}
		return *p
	}
	r0, rl := or(s.R0Wrong, -1), or(s.RLWrong, -.5)
	if correct {
		r0, rl = or(s.R0Correct, 1), or(s.RLCorrect, .5)
	}
	if tokens >= s.Max {
		return or(s.Exceed, rl)
	}
	return rl + (r0-rl)*(1+math.Cos(math.Pi*float64(tokens)/float64(s.Max)))/2
}
