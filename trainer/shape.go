package trainer

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"agentcli/trainer/algo"
	"agentcli/traj"
)

// shape turns the file's scores into the rewards of tokens: the score, clipped,
// less the punishments of length, on the token that it is for.
func (s *Session) shape() error {
	c := s.Config
	out, in, turns, err := c.lengthWeights()
	if err != nil {
		return err
	}
	for _, g := range s.groups {
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
				observed := 0
				for i := range e.Sequences {
					observed += len(e.Sequences[i].TokenIDs) - e.Sequences[i].Sampled()
				}
				out_G, in_G, turns_G = append(out_G, e.Sampled), append(in_G, observed), append(turns_G, e.Turns)
			}
			score_G = algo.LengthPenalty(score_G, out_G, in_G, turns_G, out, in, turns)
		}
		for i, e := range g {
			e.rewards(score_G[i])
			e.Filtered = c.OverlongFilter && (e.Termination == traj.TurnLength || e.Termination == traj.MaxTokens)
		}
	}
	return nil
}

// advantages estimates every action's advantage from its reward, and counts the
// groups that can teach nothing.
func (s *Session) advantages() error {
	c := s.Config
	est, ok := algo.EstimatorByName(c.Advantage)
	if !ok {
		return fmt.Errorf("--advantage %s: want one of %v", c.Advantage, algo.EstimatorNames())
	}
	weights, err := numbers("part-weights", c.PartWeights)
	if err != nil {
		return err
	}
	var parts []string
	if c.Advantage == "gdpo" {
		for _, p := range s.groups[0][0].Parts {
			parts = append(parts, p.Name)
		}
	}
	rows := make([][]algo.Row, len(s.groups))
	s.flat = 0
	for i, g := range s.groups {
		equal := len(g) > 1
		for _, e := range g {
			r, err := e.row(parts)
			if err != nil {
				return err
			}
			rows[i] = append(rows[i], r)
			equal = equal && r.Score() == rows[i][0].Score()
		}
		if equal {
			s.flat++
		}
	}
	o := algo.EstimatorOptions{Gamma: c.Gamma, Lambda: c.Lambda, PartWeights: weights}
	if est.Relative { // group by group, to say which one is at fault
		for i := range rows {
			if _, err := est.Estimate(rows[i:i+1], o); err != nil {
				return fmt.Errorf("group of %s: %w (roll out with -n 2 or more, or take another --advantage)", s.groups[i][0].ID, err)
			}
		}
	}
	a, err := est.Estimate(rows, o)
	if err != nil {
		return err
	}
	for i, g := range s.groups {
		for j, e := range g {
			for k := range e.Streams {
				n := len(e.Streams[k].RL)
				e.Streams[k].Adv = make([]float64, n)
				if a.Return != nil {
					e.Streams[k].Return = make([]float64, n)
				}
			}
			e.each(func(n int, x *Stream, t int) {
				x.Adv[t] = a.Adv[i][j][n]
				if a.Return != nil {
					x.Return[t] = a.Return[i][j][n]
				}
			})
		}
	}
	return nil
}

// teaching are the groups in which some action is better or worse than expected.
func teaching(groups [][]*Episode) [][]*Episode {
	var out [][]*Episode
	for _, g := range groups {
		if slices.ContainsFunc(g, func(e *Episode) bool { _, some := e.advantage(); return some && !e.Filtered }) {
			out = append(out, g)
		}
	}
	return out
}

// numbers reads numbers with commas between them; "" is nil.
func numbers(flag, text string) ([]float64, error) {
	if text == "" {
		return nil, nil
	}
	var out []float64
	for part := range strings.SplitSeq(text, ",") {
		x, err := strconv.ParseFloat(strings.TrimSpace(part), 64)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
			return nil, fmt.Errorf("--%s %q: want numbers with commas between them, for example 1,.5", flag, text)
		}
		out = append(out, x)
	}
	return out, nil
}
