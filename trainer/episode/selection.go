package episode

import (
	"math"
	"slices"

	"agentcli/lossscale"
)

// TokenSelection says which tokens of a sequence take part in the loss.
type TokenSelection struct {
	// Strategy is lossscale.Default: the tokens that the policy sampled; LastRound: those of
	// its last reply; or All: everything behind the prompt.
	Strategy string
	Prompts  bool // with All: prompts too, but for the first token, before which nothing is
	Echo     bool // observation tokens are in a cross-entropy
}

// actionsFrom gives the first token of sequence i that was sampled, and from where on
// tokens are actions. With Prompts both are the first token that no sequence before has.
func (a TokenSelection) actionsFrom(e *Episode, i int) (first, from int) {
	mask := e.Sequences[i].LossMask
	first = slices.Index(mask, true)
	switch {
	case a.Strategy == lossscale.All && a.Prompts:
		first = 1
		if i > 0 {
			first = max(1, CommonPrefix(e.Sequences[i-1].TokenIDs, e.Sequences[i].TokenIDs))
		}
		return first, first
	case a.Strategy != lossscale.LastRound || e.OwnLoss:
		return first, first
	case i == len(e.Sequences)-1:
		return first, max(first, e.LastRound)
	}
	return first, len(mask)
}

// weigh says what token t of sequence i weighs in the policy loss, above 0 if it
// is an action, and whether it is in the cross-entropy. image is that of traj.Sequence.ImageMask.
func (a TokenSelection) weigh(e *Episode, i, t, first, from int, image []bool) (weight float64, observed bool) {
	s := &e.Sequences[i]
	if image != nil && image[t] {
		return 0, false
	}
	sampled := s.LossMask[t]
	if t >= from && (sampled || a.Strategy == lossscale.All) {
		weight = 1
		if s.Weights != nil {
			weight = s.Weights[t]
		}
	}
	observed = a.Echo && t > first && !sampled && !(weight > 0) && (e.Content == nil || e.Content[i][t])
	return weight, observed
}

// CountTokens sets Counts to what LayOut would lay out.
func (e *Episode) CountTokens(a TokenSelection) {
	var n TokenCounts
	e.MissingLogprobs, e.MissingExperts = false, false
	for i := range e.Sequences {
		s := &e.Sequences[i]
		first, from := a.actionsFrom(e, i)
		before, image := n, s.ImageMask()
		for t := max(first, 0); t < len(s.LossMask); t++ {
			switch weight, observed := a.weigh(e, i, t, first, from, image); {
			case weight > 0:
				n.Actions++
				e.MissingLogprobs = e.MissingLogprobs || !s.Logprobs[t].Known()
			case observed:
				n.Observations++
			}
		}
		if n != before {
			n.Sequences++
			e.MissingExperts = e.MissingExperts || s.Experts.Tokens() < len(s.TokenIDs)-1
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
		image := s.ImageMask()
		x.Want = make([]bool, len(s.LossMask))
		n := 0
		for t := max(first, 0); t < len(s.LossMask); t++ {
			if weight, observed := a.weigh(e, i, t, first, from, image); weight > 0 || observed {
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
			weight, observed := a.weigh(e, i, t, first, from, image)
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
