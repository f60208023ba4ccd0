package engine

import (
	"sync/atomic"

	"agentcli/agent"
	"agentcli/media/processor"
	"agentcli/media/qwen"
	"agentcli/traj"
)

// shown counts the images that models were shown in this process, and their tokens.
type shown struct{ images, tokens atomic.Int64 }

// add counts the images of an observation. It gives the tokens of each.
func (s *shown) add(model agent.Model, o traj.Observation) (tokens []int) {
	for i := range o.Messages {
		for k := range o.Messages[i].Images {
			n := imageTokens(model, &o.Messages[i].Images[k])
			tokens = append(tokens, n)
			s.images.Add(1)
			s.tokens.Add(int64(n))
		}
	}
	return tokens
}

// imageTokens is how many tokens the model has for an image, with those around it; 0 where it
// takes no image of that shape.
func imageTokens(model agent.Model, im *traj.Image) int {
	grid := processor.New(qwen.DefaultConfig()).Grid
	if own, ok := model.(agent.ImageProcessor); ok {
		grid = own.ImageGrid
	}
	_, tokens, err := grid(im.Width, im.Height)
	if err != nil {
		return 0
	}
	return tokens + 2
}
