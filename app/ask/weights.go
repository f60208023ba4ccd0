package ask

import (
	"context"
	"io"

	"agentcli/app/models"
	"agentcli/internal/exit"
	"agentcli/internal/malformed"
	"agentcli/internal/setting"
	"agentcli/policy"
	"agentcli/traj"
)

// GenerateOptions say how replies are sampled.
type GenerateOptions struct {
	Temperature   float64
	TopP, MinP    float64
	TopK          int
	MaxTokens     int
	Seed          int64
	Stop          []string
	DType, Device string
	ChatTemplate  string
}

// Validate names the first setting that is out of range.
func (o *GenerateOptions) Validate() error {
	switch {
	case !(o.Temperature >= 0 && o.Temperature <= 100):
		return exit.Usagef("%s is %v; it must be from 0 (greedy) to 100", setting.Name("Temperature"), o.Temperature)
	case !(o.TopP > 0 && o.TopP <= 1):
		return exit.Usagef("%s is %v; it must be above 0 and at most 1 (off)", setting.Name("TopP"), o.TopP)
	case !(o.MinP >= 0 && o.MinP <= 1):
		return exit.Usagef("%s is %v; it must be from 0 (off) to 1", setting.Name("MinP"), o.MinP)
	case o.TopK < -1:
		return exit.Usagef("%s is %d; it must be positive, or -1 (off)", setting.Name("TopK"), o.TopK)
	case o.MaxTokens < 1:
		return exit.Usagef("%s is %d; it must be at least 1", setting.Name("MaxTokens"), o.MaxTokens)
	}
	return nil
}

// Logprobs answers {"token_ids", "images"?} with {"logprobs"}: those of the ids after the first.
// images are files, whose places are runs of the model's image token.
func Logprobs(ctx context.Context, b models.Backend, path, dtype, device string, in io.Reader, out io.Writer) error {
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
	type answer struct {
		Logprobs []float32 `json:"logprobs"`
	}
	seen := sight{path: path}
	return EachLine(ctx, in, out, func(q question) (answer, error) {
		if len(q.TokenIDs) == 0 {
			return answer{}, malformed.Field("token_ids", malformed.Missing, "there are none")
		}
		// The model looks up all but the last, and would not notice that one.
		for i, id := range q.TokenIDs {
			if id < 0 || int(id) >= vocab {
				return answer{}, malformed.Field("token_ids", malformed.Range, "id %d at position %d is outside the vocabulary of %d", id, i, vocab)
			}
		}
		text, err := seen.text(q.TokenIDs, q.Images)
		if err != nil {
			return answer{}, err
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
	looker, err := lookerOf(p)
	if err != nil {
		return nil, err
	}
	return looker.LogprobsSequence(ctx, text)
}

func lookerOf(p models.Sampler) (models.Looker, error) {
	if looker, ok := p.(models.Looker); ok {
		return looker, nil
	}
	return nil, malformed.Field("images", malformed.Unsupported, "the model takes text alone; open one with an encoder of images")
}

// Generate answers {"messages"} or {"token_ids", "images"?} with new tokens.
func Generate(ctx context.Context, b models.Backend, path string, o GenerateOptions, in io.Reader, out io.Writer) error {
	p, err := b.OpenSampler(path, o.DType, o.Device, true)
	if err != nil {
		return err
	}
	defer p.Close()
	type question struct {
		TokenIDs []int32  `json:"token_ids"`
		Images   []string `json:"images"`
		conversation
	}
	type answer struct {
		TokenIDs     []int32        `json:"token_ids"`
		Text         string         `json:"text"`
		Logprobs     []traj.Logprob `json:"logprobs"`
		FinishReason string         `json:"finish_reason"`
	}
	seen := sight{path: path}
	prompt := func(q question) (policy.Sequence, error) {
		if len(q.TokenIDs) > 0 {
			return seen.text(q.TokenIDs, q.Images)
		}
		if len(q.Messages) == 0 {
			return policy.Sequence{}, malformed.Errorf(malformed.Missing, "neither messages nor token_ids is given")
		}
		q.Generation = true
		r, err := p.Renderer()
		if o.ChatTemplate != "" {
			r, err = models.OpenRenderer(path, o.ChatTemplate)
		}
		if err != nil {
			return policy.Sequence{}, err
		}
		x, err := q.render(r, &seen)
		if err != nil {
			return policy.Sequence{}, err
		}
		return x.sequence(&seen)
	}
	sampling := traj.Sampling{Temperature: &o.Temperature, TopP: o.TopP, TopK: o.TopK, MinP: o.MinP, MaxTokens: o.MaxTokens, Stop: o.Stop}
	return EachLine(ctx, in, out, func(q question) (answer, error) {
		text, err := prompt(q)
		if err != nil {
			return answer{}, err
		}
		r, err := sample(ctx, p, text, sampling, o.Seed)
		if err != nil {
			return answer{}, err
		}
		return answer{r.IDs, r.Text, r.Logprobs, r.FinishReason}, nil
	})
}

func sample(ctx context.Context, p models.Sampler, text policy.Sequence, s traj.Sampling, seed int64) (*traj.Completion, error) {
	if len(text.Images) == 0 {
		return p.Sample(ctx, text.IDs, s, seed)
	}
	looker, err := lookerOf(p)
	if err != nil {
		return nil, err
	}
	return looker.SampleSequence(ctx, text, s, seed)
}
