package episode

import "agentcli/policy"

// TokenStream is what is trained on of one sequence. Want is [tokens of the sequence]:
// which of them a model is asked for. Every other slice is [wanted tokens], in order, or
// nil where it is not computed. Log-probs are in nats, of the logits divided by the
// episode's temperature.
type TokenStream struct {
	Want            []bool
	ActionWeight    []float64 // weight in the policy loss; 0: in neither the loss nor its counts
	EchoWeight      []float64 // weight in the cross-entropy of observations (--echo); nil: none
	Rewards         []float64
	Advantages      []float64
	OldLogprobs     []float64 // of the policy before the update
	RefLogprobs     []float64 // of the reference
	TeacherLogprobs []float64 // of the teacher (opd)
	RolloutLogprobs []float64 // as recorded at sampling; nil where the file lacks some
	Values          []float64 // of the critic before the update
	Returns         []float64 // what the critic is fitted to

	ValueIncludesToken bool // a value is of the text with the wanted token (policy.Batch.Own), else of the text before it

	// What the model says in this step and the gradient of the step's loss with respect
	// to it: of losses over several sequences only.
	Outputs   policy.Outputs
	Gradients policy.Gradients
}

// TokenCounts count what is wanted of an episode.
type TokenCounts struct {
	Actions, Observations int32 // tokens trained on as the policy's; tokens in the cross-entropy
	Wanted                int32 // the sum of both
	Sequences             int32 // of which anything is wanted
}

// CountWanted sets Counts from Streams, where every wanted token is an action.
func (e *Episode) CountWanted() {
	var n TokenCounts
	for i := range e.Streams {
		if wanted := int32(len(e.Streams[i].ActionWeight)); wanted > 0 {
			n.Sequences++
			n.Wanted += wanted
		}
	}
	n.Actions = n.Wanted
	e.Counts = n
}

// Actions is the number of tokens that are trained on as the policy's.
func (e *Episode) Actions() int { return int(e.Counts.Actions) }

// Observations is the number of tokens in the cross-entropy.
func (e *Episode) Observations() int { return int(e.Counts.Observations) }

// EachAction calls f for every action token, in order, with its number.
func (e *Episode) EachAction(f func(n int, s *TokenStream, t int)) {
	n := 0
	for i := range e.Streams {
		s := &e.Streams[i]
		for t, w := range s.ActionWeight {
			if w > 0 {
				f(n, s, t)
				n++
			}
		}
	}
}

// MeanAdvantage is the mean over the actions; some reports whether any is not 0.
func (e *Episode) MeanAdvantage() (mean float64, some bool) {
	n := 0
	e.EachAction(func(i int, s *TokenStream, t int) {
		mean += s.Advantages[t]
		some = some || s.Advantages[t] != 0
		n = i + 1
	})
	return mean / float64(max(n, 1)), some
}

// PlaceRewards puts the score on the episode's tokens: what the environment gave for
// a step on the last token of that step, the rest on the last token of all, so
// that they sum up to score. A token that is no action hands its reward to the
// last action before it, else to the first after.
func (e *Episode) PlaceRewards(score float64) {
	last, n := -1, 0
	// Of a sequence with a step's reward: by token, the action at or before it.
	where := make([][]int, len(e.Streams))
	for _, r := range e.StepRewards {
		where[r.Sequence] = make([]int, len(e.Streams[r.Sequence].Want))
	}
	for i := range e.Streams {
		s := &e.Streams[i]
		s.Rewards = make([]float64, len(s.ActionWeight))
		k := 0
		for t, want := range s.Want {
			if want {
				if s.ActionWeight[k] > 0 {
					last = n
					n++
				}
				k++
			}
			if where[i] != nil {
				where[i][t] = last
			}
		}
	}
	at := make([]float64, n)
	if n == 0 {
		return
	}
	for _, r := range e.StepRewards {
		at[max(where[r.Sequence][r.Token], 0)] += r.Reward
		score -= r.Reward
	}
	at[n-1] += score
	e.EachAction(func(i int, s *TokenStream, t int) { s.Rewards[t] = at[i] })
}

// SetAdvantages gives each action its advantage and its return; both are [actions], and
// return_T may be nil.
func (e *Episode) SetAdvantages(adv_T, return_T []float64) {
	for k := range e.Streams {
		n := len(e.Streams[k].ActionWeight)
		e.Streams[k].Advantages = make([]float64, n)
		if return_T != nil {
			e.Streams[k].Returns = make([]float64, n)
		}
	}
	e.EachAction(func(n int, x *TokenStream, t int) {
		x.Advantages[t] = adv_T[n]
		if return_T != nil {
			x.Returns[t] = return_T[n]
		}
	})
	_, e.HasAdvantage = e.MeanAdvantage()
}
