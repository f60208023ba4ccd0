package main

import (
	"context"
	"io"
	"sync"

	"agentcli/app/images"
	"agentcli/app/models"
	"agentcli/internal/malformed"
	"agentcli/policy"
	"agentcli/traj"
)

// runModelLogprobs answers {"token_ids", "images"?} with {"logprobs"}, a JSON line for each of
// the input, in order.
func runModelLogprobs(ctx context.Context, b models.Backend, path, dtype, device string, in io.Reader, out io.Writer) error {
	p, err := b.OpenSampler(path, dtype, device, false)
	if err != nil {
		return err
	}
	defer p.Close()
	vocab, err := models.VocabSize(path)
	if err != nil {
		return err
	}
	type question struct {
		TokenIDs []int32  `json:"token_ids"`
		Images   []string `json:"images"`
	}
	prepare := sync.OnceValues(func() (*images.Preprocessor, error) { return images.Open(path, images.Options{}) })
	type answer struct {
		Logprobs []float32 `json:"logprobs"`
	}
	return eachLine(ctx, in, out, func(q question) (answer, error) {
		if len(q.TokenIDs) == 0 {
			return answer{}, malformed.Field("token_ids", malformed.Missing, "there are none")
		}
		// The model looks up all but the last, and would not notice that one.
		for i, id := range q.TokenIDs {
			if id < 0 || int(id) >= vocab {
				return answer{}, malformed.Field("token_ids", malformed.Range, "id %d at position %d is outside the vocabulary of %d", id, i, vocab)
			}
		}
		text := policy.Sequence{IDs: q.TokenIDs}
		if len(q.Images) > 0 {
			token, err := models.ImageToken(path)
			if err != nil {
				return answer{}, err
			}
			pre, err := prepare()
			if err != nil {
				return answer{}, err
			}
			if text, err = pre.Place(q.TokenIDs, token, q.Images); err != nil {
				return answer{}, err
			}
		}
		lps, err := logprobsOf(ctx, p, text)
		if err != nil {
			return answer{}, err
		}
		if lps == nil {
			lps = []float32{}
		}
		return answer{lps}, nil
	})
}

// logprobsOf are those of the ids after the first of a text that may have images.
func logprobsOf(ctx context.Context, p models.Sampler, text policy.Sequence) ([]float32, error) {
	if len(text.Images) == 0 {
		all, err := p.Logprobs(ctx, [][]int32{text.IDs})
		if err != nil {
			return nil, err
		}
		return all[0], nil
	}
	looker, ok := p.(models.Looker)
	if !ok {
		return nil, malformed.Field("images", malformed.Unsupported, "the model takes text alone; open one with an encoder of images")
	}
	return looker.LogprobsSequence(ctx, text)
}

// runModelGenerate answers {"messages"} or {"token_ids"} with new tokens, likewise.
func runModelGenerate(ctx context.Context, b models.Backend, path string, o generateOptions, in io.Reader, out io.Writer) error {
	p, err := b.OpenSampler(path, o.DType, o.Device, true)
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
				return answer{}, malformed.Errorf(malformed.Missing, "neither messages nor token_ids is given")
			}
			q.Generation = true
			r, err := p.Renderer()
			if o.ChatTemplate != "" {
				r, err = models.OpenRenderer(path, o.ChatTemplate)
			}
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
