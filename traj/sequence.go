package traj

import (
	"fmt"
	"slices"
)

// Sequence is one run of tokens as the model saw them. The three slices have
// equal length: LossMask is true where the policy sampled the token, Logprobs
// holds the log-probability recorded when it was sampled (NaN where there is
// none: prompt and observation tokens, or a server that returned no number).
type Sequence struct {
	TokenIDs []int32   `json:"token_ids"`
	LossMask []bool    `json:"loss_mask"`
	Logprobs []Logprob `json:"logprobs"`
	// Weights are those of the tokens in the loss, 0 or more; nil: all are 1. What weighs
	// nothing was sampled and is not trained on.
	Weights []float64 `json:"weights,omitempty"`
	// Images are the tokens that stand for images, in order.
	Images []ImageSpan `json:"images,omitempty"`
	// Experts are those that the model chose for the tokens; nil: it has none, or they are not known.
	Experts *Experts `json:"experts,omitempty"`
}

// Validate checks that the slices agree in length, and the images' tokens.
func (s *Sequence) Validate() error {
	if len(s.TokenIDs) != len(s.LossMask) || len(s.TokenIDs) != len(s.Logprobs) {
		return fmt.Errorf("sequence has %d token_ids, %d loss_mask and %d logprobs; the three must be of one length",
			len(s.TokenIDs), len(s.LossMask), len(s.Logprobs))
	}
	if s.Weights != nil && len(s.Weights) != len(s.TokenIDs) {
		return fmt.Errorf("sequence has %d weights for %d tokens", len(s.Weights), len(s.TokenIDs))
	}
	if s.Experts != nil {
		if err := s.Experts.Validate(len(s.TokenIDs)); err != nil {
			return err
		}
	}
	return s.validateImages()
}

// Weighed reports whether any sequence has weights of its own.
func (t *Trajectory) Weighed() bool {
	return slices.ContainsFunc(t.Sequences, func(s Sequence) bool { return s.Weights != nil })
}

// HasExperts reports whether experts of any sequence are known.
func (t *Trajectory) HasExperts() bool {
	for i := range t.Sequences {
		if t.Sequences[i].Experts.Tokens() > 0 {
			return true
		}
	}
	return false
}

// Sampled is the number of tokens that the policy sampled.
func (s *Sequence) Sampled() int {
	n := 0
	for _, m := range s.LossMask {
		if m {
			n++
		}
	}
	return n
}

// Trained is the number of sampled tokens whose weight in the loss is above 0.
func (s *Sequence) Trained() int {
	n := 0
	for i, m := range s.LossMask {
		if m && (s.Weights == nil || s.Weights[i] > 0) {
			n++
		}
	}
	return n
}

// ImageMask says of each token of a sequence whether it stands for an image, or is a mark beside
// one; nil: none does. No loss has such tokens: a policy never draws them.
func (s *Sequence) ImageMask() []bool {
	if len(s.Images) == 0 {
		return nil
	}
	is := make([]bool, len(s.TokenIDs))
	for _, x := range s.Images {
		for t := max(x.Start-1, 0); t < min(x.Start+x.Tokens+1, len(is)); t++ {
			is[t] = !s.LossMask[t]
		}
	}
	return is
}

// Record joins one model call to the trajectory's sequences: the prompt's ids
// as the model saw them, then what it sampled. The current sequence grows when
// the prompt starts with everything in it; otherwise (a template that drops
// earlier thinking, a server that tokenises afresh) a new one begins, so that
// no token is lost or trained twice. It returns the sequence's number and the
// span of the sampled tokens. Without ids it records nothing and returns -1.
//
// images are the prompt's, by their numbers in t.Images: tokens of one image are no others'.
// logprobs is empty or as long as sampled.
func (t *Trajectory) Record(prompt []int32, images []ImageSpan, sampled []int32, logprobs []Logprob) (seq, start, end int, err error) {
	if len(prompt) == 0 || len(sampled) == 0 {
		return -1, 0, 0, nil
	}
	if len(logprobs) != 0 && len(logprobs) != len(sampled) {
		return -1, 0, 0, fmt.Errorf("the model returned %d log-probs for %d sampled tokens", len(logprobs), len(sampled))
	}
	n := len(t.Sequences)
	if n == 0 || !hasPrefix(prompt, t.Sequences[n-1].TokenIDs) || !shows(images, t.Sequences[n-1].Images) {
		t.Sequences = append(t.Sequences, Sequence{})
	}
	seq = len(t.Sequences) - 1
	s := &t.Sequences[seq]
	for _, id := range prompt[len(s.TokenIDs):] {
		s.TokenIDs = append(s.TokenIDs, id)
		s.LossMask = append(s.LossMask, false)
		s.Logprobs = append(s.Logprobs, NoLogprob())
	}
	s.Images = append(s.Images, images[len(s.Images):]...)
	start = len(s.TokenIDs)
	for i, id := range sampled {
		s.TokenIDs = append(s.TokenIDs, id)
		s.LossMask = append(s.LossMask, true)
		if len(logprobs) == 0 {
			s.Logprobs = append(s.Logprobs, NoLogprob())
		} else {
			s.Logprobs = append(s.Logprobs, logprobs[i])
		}
	}
	for s.Weights != nil && len(s.Weights) < len(s.TokenIDs) {
		s.Weights = append(s.Weights, 1)
	}
	return seq, start, len(s.TokenIDs), nil
}

func hasPrefix(ids, prefix []int32) bool {
	if len(ids) < len(prefix) {
		return false
	}
	// A mismatch is almost always near the end, where a re-rendered turn starts.
	for i := len(prefix) - 1; i >= 0; i-- {
		if ids[i] != prefix[i] {
			return false
		}
	}
	return true
}

// Cut takes back the end of the last reply's tokens in the trajectory: the step has only
// those that stay. What was cut off is kept with the tokens before it, as a sequence of
// weight 0 in front of the reply's own.
func (t *Trajectory) Cut(c Cut) {
	step := &t.Steps[len(t.Steps)-1]
	if step.Sequence < 0 {
		return
	}
	live, at := &t.Sequences[step.Sequence], step.Start+c.Tokens
	n := len(live.TokenIDs)
	if at >= n {
		return
	}
	off := Sequence{TokenIDs: append([]int32(nil), live.TokenIDs...), LossMask: make([]bool, n), Images: slices.Clone(live.Images),
		Logprobs: append([]Logprob(nil), live.Logprobs...), Weights: make([]float64, n), Experts: live.Experts}
	for i := range off.TokenIDs {
		if off.LossMask[i] = i >= at; !off.LossMask[i] {
			off.Logprobs[i] = NoLogprob()
		}
	}
	live.TokenIDs, live.LossMask, live.Logprobs = live.TokenIDs[:at:at], live.LossMask[:at:at], live.Logprobs[:at:at]
	if live.Weights != nil {
		live.Weights = live.Weights[:at:at]
	}
	live.Experts = live.Experts.Head(at)
	step.End = at
	if len(step.PolicyVersions) > 1 { // one for each token
		step.PolicyVersions = step.PolicyVersions[:c.Tokens:c.Tokens]
	}
	number := step.Sequence
	t.Sequences = append(t.Sequences, Sequence{})
	copy(t.Sequences[number+1:], t.Sequences[number:])
	t.Sequences[number] = off
	for i := range t.Steps {
		if t.Steps[i].Sequence >= number {
			t.Steps[i].Sequence++
		}
	}
}

// ForgetTokens leaves the trajectory without ids: it can be evaluated, and not trained on.
func (t *Trajectory) ForgetTokens() {
	t.Sequences = nil
	for i := range t.Steps {
		s := &t.Steps[i]
		s.Sequence, s.Start, s.End = -1, 0, 0
		if len(s.PolicyVersions) > 1 { // one for each token
			s.PolicyVersions = []int64{slices.Min(s.PolicyVersions)}
		}
	}
}

// Weigh gives the tokens of the last step that are in the file their weights: one for
// all, or one for each.
func (t *Trajectory) Weigh(weights []float64) {
	step := t.Steps[len(t.Steps)-1]
	if step.Sequence < 0 || len(weights) == 0 {
		return
	}
	s := &t.Sequences[step.Sequence]
	if s.Weights == nil {
		s.Weights = make([]float64, len(s.TokenIDs))
		for i := range s.Weights {
			s.Weights[i] = 1
		}
	}
	for i := step.Start; i < step.End; i++ {
		s.Weights[i] = weights[min(i-step.Start, len(weights)-1)]
	}
}
