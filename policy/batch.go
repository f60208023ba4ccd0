package policy

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"agentcli/internal/malformed"
	"agentcli/model/arch"
	"agentcli/traj"
)

// ErrNotFinite is wrapped by the errors of a step whose gradient or loss is NaN or
// infinite: the parameters are as they were.
var ErrNotFinite = errors.New("not finite")

// ErrTemperature is the error of a batch that has temperatures that no tokens can have been sampled at, or another number of them.
var ErrTemperature = errors.New("the temperatures of a batch")

// Batch is a set of sequences and, for each, which of its tokens are wanted:
// Want[i][j] asks for the log-prob of token j of sequence i given those before
// it, or for the value of the state before it. Token 0 has none.
//
// With Own the value of a model with a value head is that of the text up to and
// with the wanted token, as a reward model's is; no log-probs are computed.
//
// Temperature has one entry for each wanted token, in order: the log-prob and the
// entropy are those of softmax(logits/T), as the token was drawn. Nil is 1
// everywhere.
type Batch struct {
	Sequences   [][]int32
	Want        [][]bool
	Temperature []float64
	Own         bool
	Images      [][]Image // of each sequence, in order of Start; nil: there are none
	// Experts are those that were chosen when the sequences were sampled, one entry for each
	// sequence, nil where they are not known; nil: of none. With Replay they are chosen again
	// (Ma et al. 2025, "Stabilizing MoE reinforcement learning by aligning training and
	// inference routers"): a token's experts are those, weighed by the router as it is now.
	Experts []*traj.Experts
	Replay  bool
}

// check holds the images to the sequences and to the model.
func (b Batch) check(v *arch.Vision) error {
	if b.Images != nil && len(b.Images) != len(b.Sequences) {
		return malformed.Field("images", malformed.Mismatch, "images of %d sequences for %d", len(b.Images), len(b.Sequences))
	}
	for i, images := range b.Images {
		if err := checkImages(b.Sequences[i], images, v); err != nil {
			return fmt.Errorf("sequence %d: %w", i, err)
		}
	}
	return nil
}

// scales are what each wanted token's logits are multiplied by, nil where that is 1
// everywhere. model is what the model itself multiplies them by.
func (b Batch) scales(wanted int, model float64) ([]float64, error) {
	if b.Temperature == nil {
		if model == 1 {
			return nil, nil
		}
		return slices.Repeat([]float64{model}, wanted), nil
	}
	if len(b.Temperature) != wanted {
		return nil, fmt.Errorf("%w: %d for %d tokens", ErrTemperature, len(b.Temperature), wanted)
	}
	out, other := make([]float64, wanted), model != 1
	for i, t := range b.Temperature {
		if !(t > 0) || math.IsInf(t, 0) || math.IsInf(1/t, 0) {
			return nil, fmt.Errorf("%w: token %d was sampled at %v: there is no distribution to speak of", ErrTemperature, i, t)
		}
		out[i] = model / t
		other = other || t != 1
	}
	if !other {
		return nil, nil
	}
	return out, nil
}

// Outputs are what a model says of a batch's wanted tokens, in their order.
// Slices of heads that the model lacks are nil.
type Outputs struct {
	Logprobs []float64 // natural, at the batch's temperatures
	Entropy  []float64 // of the distribution that the token was drawn from, nats
	Values   []float64 // of the value head
	Routing  Routing
}

// Routing counts, over the tokens of a batch whose experts are known and all layers that have
// any, the experts that were chosen when the tokens were sampled.
type Routing struct {
	Known  float64
	Missed float64 // of these, those that the model would not choose now
}

// Gradients are the derivatives of a loss with respect to the Outputs of the same names; nil is
// zero.
type Gradients struct{ Logprobs, Entropy, Values []float64 }

// rows lists, for the pack of the batch, the row that predicts each wanted
// token, and the token. Merge is as in newPack.
func (b Batch) rows(merge int) (pack *Pack, rows, targets []int32) {
	pack = newPack(b.Sequences, b.Images, merge)
	for i, q := range b.Sequences {
		all := pack.Rows(i, 0, len(q))
		if b.Own {
			for j := range q {
				if b.Want[i][j] {
					rows = append(rows, all[j])
				}
			}
			continue
		}
		for j := 1; j < len(q); j++ {
			if b.Want[i][j] {
				rows, targets = append(rows, all[j-1]), append(targets, q[j])
			}
		}
	}
	return pack, rows, targets
}

// StepConfig are the settings of one optimiser step.
type StepConfig struct {
	LR, Beta1, Beta2, Eps, WeightDecay float64
	MaxGradNorm                        float64 // 0: no clipping
	// EMA is the share of the running mean that stays, if one is kept
	// (Trainable.KeepAverage). 0: it does not move.
	EMA    float64
	Number int // of the step, from 1: for Adam's bias correction
}
