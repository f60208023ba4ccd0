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
		err := s.together(g, func() error {
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
			return nil
		}, colReward)
		if err != nil {
			return err
		}
	}
	s.stored(colReward)
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
	o := algo.EstimatorOptions{Gamma: c.Gamma, Lambda: c.Lambda, PartWeights: weights}
	cols := []column{colAdv}
	if c.Advantage == "gae" {
		cols = append(cols, colReturn)
	}
	var parts []string
	s.flat = 0
	rows := make([][]algo.Row, 0, len(s.groups)) // of an estimator that looks at the whole batch
	for i, g := range s.groups {
		err := s.together(g, func() error {
			if i == 0 && c.Advantage == "gdpo" {
				for _, p := range g[0].Parts {
					parts = append(parts, p.Name)
				}
			}
			row_G, err := s.rowsOf(g, parts)
			if err != nil {
				return err
			}
			a := algo.Advantages{}
			if est.Relative || !est.Batch { // group by group, to say which one is at fault
				if a, err = est.Estimate([][]algo.Row{row_G}, o); err != nil && est.Relative {
					err = fmt.Errorf("group of %s: %w (roll out with -n 2 or more, or take another --advantage)", g[0].ID, err)
				}
			}
			switch {
			case err != nil:
				return err
			case est.Batch:
				rows = append(rows, row_G)
				return nil
			}
			take(g, a, 0)
			for _, e := range g {
				if err := s.store(e, cols...); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if est.Batch {
		a, err := est.Estimate(rows, o)
		if err != nil {
			return err
		}
		for i, g := range s.groups {
			if err := s.together(g, func() error { take(g, a, i); return nil }, cols...); err != nil {
				return err
			}
		}
	}
	s.stored(cols...)
	return nil
}

// rowsOf is a group as an estimator sees it; one whose rewards are all equal is
// counted.
func (s *Session) rowsOf(g []*Episode, parts []string) ([]algo.Row, error) {
	var row_G []algo.Row
	equal := len(g) > 1
	for _, e := range g {
		r, err := e.row(parts)
		if err != nil {
			return nil, err
		}
		row_G = append(row_G, r)
		equal = equal && r.Score() == row_G[0].Score()
	}
	if equal {
		s.flat++
	}
	return row_G, nil
}

// take hands a group the advantages that are number i of a.
func take(g []*Episode, a algo.Advantages, i int) {
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
		_, e.teaches = e.advantage()
	}
}

// teaching are the groups in which some action is better or worse than expected.
func teaching(groups [][]*Episode) [][]*Episode {
	var out [][]*Episode
	for _, g := range groups {
		if slices.ContainsFunc(g, func(e *Episode) bool { return e.teaches && !e.Filtered }) {
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
