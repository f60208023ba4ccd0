package episode

import (
	"math"
	"slices"
)

// LossScale says which tokens are the policy's actions.
type LossScale string

// The values of --loss-scale.
const (
	ScaleDefault   LossScale = "default"    // every token that the policy sampled
	ScaleLastRound LossScale = "last_round" // those of its last reply only
	ScaleAll       LossScale = "all"        // everything after the prompt, observations too: for showing what that does
)

// TokenSelection says which tokens of a sequence take part in the loss.
type TokenSelection struct {
	Scale LossScale
	Echo  bool // observation tokens are in a cross-entropy
}

// actionsFrom gives the first token of sequence i that was sampled, and from where on
// tokens are actions.
func (a TokenSelection) actionsFrom(e *Episode, i int) (first, from int) {
	mask := e.Sequences[i].LossMask
	first = slices.Index(mask, true)
	if a.Scale != ScaleLastRound {
		return first, first
	}
	if i == len(e.Sequences)-1 {
		return first, max(first, e.LastRound)
	}
	return first, len(mask)
}

// weigh says what token t of sequence i weighs in the policy loss, above 0 if it
// is an action, and whether it is in the cross-entropy.
func (a TokenSelection) weigh(e *Episode, i, t, first, from int) (weight float64, observed bool) {
	sampled := e.Sequences[i].LossMask[t]
	if t >= from && (sampled || a.Scale == ScaleAll) {
		weight = 1
		if e.Weights != nil {
			weight = e.Weights[i][t]
		}
	}
	observed = a.Echo && t > first && !sampled && !(weight > 0) && (e.Content == nil || e.Content[i][t])
	return weight, observed
}

// CountTokens sets Counts to what LayOut would lay out.
func (e *Episode) CountTokens(a TokenSelection) {
	var n TokenCounts
	e.MissingLogprobs = false
	for i := range e.Sequences {
		s := &e.Sequences[i]
		first, from := a.actionsFrom(e, i)
		before := n
		for t := max(first, 0); t < len(s.LossMask); t++ {
			switch weight, observed := a.weigh(e, i, t, first, from); {
			case weight > 0:
				n.Actions++
				e.MissingLogprobs = e.MissingLogprobs || !s.Logprobs[t].Known()
			case observed:
				n.Observations++
			}
		}
		if n != before {
			n.Sequences++
		}
	}
	n.Wanted = n.Actions + n.Observations
	e.Counts = n
}

// LayOut makes the episode's Streams, without anything that is computed, and sets Counts.
func (e *Episode) LayOut(a TokenSelection) {
	e.CountTokens(a)
	e.Streams = make([]TokenStream, len(e.Sequences))
	for i := range e.Sequences {
		s, x := &e.Sequences[i], &e.Streams[i]
		first, from := a.actionsFrom(e, i)
		x.Want = make([]bool, len(s.LossMask))
		n := 0
		for t := max(first, 0); t < len(s.LossMask); t++ {
			if weight, observed := a.weigh(e, i, t, first, from); weight > 0 || observed {
				x.Want[t] = true
				n++
			}
		}
		if n == 0 {
			continue
		}
		x.ActionWeight, x.RolloutLogprobs = make([]float64, 0, n), make([]float64, 0, n)
		if a.Echo {
			x.EchoWeight = make([]float64, 0, n)
		}
		known := true
		for t, want := range x.Want {
			if !want {
				continue
			}
			weight, observed := a.weigh(e, i, t, first, from)
			rl, ce, roll := 0.0, 0.0, math.NaN()
			if weight > 0 {
				rl = weight
				// No token that was sampled had a log-prob of −∞.
				if lp := s.Logprobs[t]; lp.Known() {
					roll = float64(lp)
				}
				known = known && !math.IsNaN(roll)
			}
			if observed {
				ce = 1
			}
			x.ActionWeight, x.RolloutLogprobs = append(x.ActionWeight, rl), append(x.RolloutLogprobs, roll)
			if a.Echo {
				x.EchoWeight = append(x.EchoWeight, ce)
			}
		}
		if !known || e.LogprobsUntempered {
			x.RolloutLogprobs = nil
		}
	}
}
