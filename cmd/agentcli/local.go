//go:build libtorch

package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"agentcli/app/models"
	"agentcli/policy"
	"agentcli/trainer"
	"agentcli/traj"
)

// This file is what the build with libtorch adds to the commands.
func init() {
	models.OpenLocal = models.OpenPolicy
	modelLocal = localQuestions{}
	models.OpenTrainable = models.OpenTrainablePolicy
	adopt = models.AdoptWeights
	libtorchReport = reportLibtorch
}

var (
	_ trainer.Actor = models.TrainablePolicy{}
	_ trainer.Saver = models.TrainablePolicy{}
)

// localQuestions answers the model commands that need weights.
type localQuestions struct{}

func (localQuestions) Logprobs(ctx context.Context, path, dtype, device string, in io.Reader, out io.Writer) error {
	p, err := policy.Open(path, policy.Config{DType: dtype, Device: device, CacheBytes: 1})
	if err != nil {
		return err
	}
	defer p.Close()
	vocab, err := models.VocabSize(path)
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
