package traj

// Cut takes back the end of the model's last reply, which then goes on from there.
type Cut struct {
	Bytes int // of the reply's text, as the model wrote it, that stay
	// Tokens are those of the reply's ids whose text is wholly within Bytes; the text of
	// the others within Bytes is Rest. Without ids both are empty.
	Tokens int
	Rest   string
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
	off := Sequence{TokenIDs: append([]int32(nil), live.TokenIDs...), LossMask: make([]bool, n),
		Logprobs: append([]Logprob(nil), live.Logprobs...), Weights: make([]float64, n)}
	for i := range off.TokenIDs {
		if off.LossMask[i] = i >= at; !off.LossMask[i] {
			off.Logprobs[i] = NoLogprob()
		}
	}
	live.TokenIDs, live.LossMask, live.Logprobs = live.TokenIDs[:at:at], live.LossMask[:at:at], live.Logprobs[:at:at]
	if live.Weights != nil {
		live.Weights = live.Weights[:at:at]
	}
	step.End = at
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
