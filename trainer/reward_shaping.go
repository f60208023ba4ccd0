package trainer

import (
	"math"
	"slices"
	"strings"

	"agentcli/trainer/algo"
	"agentcli/trainer/episode"
	"agentcli/trainer/store"
	"agentcli/traj"
)

// shape gives every token its reward.
func (s *Session) shape() error {
	f, err := s.shaper()
	if err != nil {
		return err
	}
	return s.timed("adv", func() error { return s.loader.Groups(s.groups, f, store.Rewards) })
}

// shaper turns the file's scores of a group into the rewards of tokens: the
// score, clipped, less the punishments of length, on the token that it is for.
func (s *Session) shaper() (func(i int, g []*episode.Episode) error, error) {
	c := s.Config
	out, in, turns, err := c.lengthWeights()
	return func(_ int, g []*episode.Episode) error {
		score_G := make([]float64, len(g))
		for i, e := range g {
			score_G[i] = e.Score
			if c.RewardClip > 0 {
				score_G[i] = math.Max(-c.RewardClip, math.Min(c.RewardClip, e.Score))
			}
			if c.OverlongBuffer > 0 {
				score_G[i] += algo.Overlong(e.Sampled, c.OverlongLimit, c.OverlongBuffer, c.OverlongFactor)
			}
		}
		if out != 0 || in != 0 || turns != 0 {
			var out_G, in_G, turns_G []int
			for _, e := range g {
				out_G, in_G, turns_G = append(out_G, e.Sampled), append(in_G, e.ObservedTokens()), append(turns_G, e.Turns)
			}
			score_G = algo.LengthPenalty(score_G, out_G, in_G, turns_G, out, in, turns)
		}
		flat := c.withoutSpread(g, score_G)
		for i, e := range g {
			e.PlaceRewards(score_G[i])
			e.ShapedReward, e.ZeroStd = score_G[i], flat
			e.Filtered = c.OverlongFilter && (e.Termination == traj.TurnLength || e.Termination == traj.MaxTokens)
		}
		return nil
	}, err
}

// withoutSpread reports whether all attempts of a group have the same score; under
// gdpo, which compares the components, also the same of each.
func (c Config) withoutSpread(g []*episode.Episode, score_G []float64) bool {
	for i, e := range g {
		if score_G[i] != score_G[0] || (c.Advantage == "gdpo" && !slices.Equal(byName(e.Parts), byName(g[0].Parts))) {
			return false
		}
	}
	return len(g) > 1
}

// byName puts components in an order: rows may have them in another.
func byName(parts []traj.Part) []traj.Part {
	return slices.SortedFunc(slices.Values(parts), func(a, b traj.Part) int { return strings.Compare(a.Name, b.Name) })
}

// klReward takes β·kl(old, ref) from the reward of every action.
func (s *Session) klReward(episodes []*episode.Episode) error {
	c := s.Config
	if c.KLCoef == 0 || c.KLIn != KLInReward {
		return nil
	}
	sum, n := 0.0, 0
	take := func(e *episode.Episode) error {
		e.EachAction(func(_ int, x *episode.TokenStream, t int) {
			kl, _ := c.KL.At(x.OldLogprobs[t], x.RefLogprobs[t])
			x.Rewards[t] -= c.KLCoef * kl
			e.ShapedReward -= c.KLCoef * kl
			sum, n = sum+kl, n+1
		})
		return nil
	}
	err := s.timed("adv", func() error { return s.loader.Each(episodes, take, store.Rewards) })
	s.RefKL, s.RefKLRows = sum/float64(max(n, 1)), len(episodes)
	return err
}
