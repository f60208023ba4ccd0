package trainer

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"agentcli/trainer/algo"
	"agentcli/traj"
)

// shaper turns the file's scores of a group into the rewards of tokens: the
// score, clipped, less the punishments of length, on the token that it is for.
func (s *Session) shaper() (func(i int, g []*Episode) error, error) {
	c := s.Config
	out, in, turns, err := c.lengthWeights()
	return func(_ int, g []*Episode) error {
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
	}, err
}

// shape gives every token its reward.
func (s *Session) shape() error {
	f, err := s.shaper()
	if err != nil {
		return err
	}
	return s.eachGroup(f, colReward)
}

// shapeAndEstimate is shape and advantages where nothing comes between them: in
// one pass, if an estimator needs no more than a group.
func (s *Session) shapeAndEstimate() error {
	shape, err := s.shaper()
	if err != nil {
		return err
	}
	x, err := s.estimation()
	if err != nil {
		return err
	}
	if x.est.Batch {
		if err := s.eachGroup(shape, colReward); err != nil {
			return err
		}
		return s.advantages()
	}
	err = s.eachGroup(func(i int, g []*Episode) error {
		if err := shape(i, g); err != nil {
			return err
		}
		return x.group(i, g)
	}, x.cols...)
	s.flat = int(x.flat.Load())
	return err
}

// estimation makes advantages of rewards, and counts the groups that can teach
// nothing.
type estimation struct {
	est   *algo.Estimator
	o     algo.EstimatorOptions
	parts []string     // of gdpo: the names of the reward's components
	cols  []column     // that it fills
	rows  [][]algo.Row // of an estimator that looks at the whole batch
	flat  atomic.Int64
}

func (s *Session) estimation() (*estimation, error) {
	c := s.Config
	x := &estimation{cols: []column{colAdv}, rows: make([][]algo.Row, len(s.groups))}
	var ok bool
	if x.est, ok = algo.EstimatorByName(c.Advantage); !ok {
		return nil, fmt.Errorf("--advantage %s: want one of %v", c.Advantage, algo.EstimatorNames())
	}
	weights, err := numbers("part-weights", c.PartWeights)
	if err != nil {
		return nil, err
	}
	x.o = algo.EstimatorOptions{Gamma: c.Gamma, Lambda: c.Lambda, PartWeights: weights}
	switch c.Advantage {
	case "gae":
		x.cols = append(x.cols, colReturn)
	case "gdpo":
		x.parts, err = s.partNames()
	}
	return x, err
}

// group looks at one group, and estimates its advantages if no more is needed.
func (x *estimation) group(i int, g []*Episode) error {
	row_G, err := rowsOfGroup(g, x.parts)
	if err != nil {
		return err
	}
	if len(g) > 1 && !slices.ContainsFunc(row_G, func(r algo.Row) bool { return r.Score() != row_G[0].Score() }) {
		x.flat.Add(1)
	}
	if x.est.Relative || !x.est.Batch { // group by group, to say which one is at fault
		a, err := x.est.Estimate([][]algo.Row{row_G}, x.o)
		switch {
		case err != nil && x.est.Relative:
			return fmt.Errorf("group of %s: %w (roll out with -n 2 or more, or take another --advantage)", g[0].ID, err)
		case err != nil:
			return err
		}
		if !x.est.Batch {
			handOut(g, a, 0)
			return nil
		}
	}
	x.rows[i] = row_G
	return nil
}

// advantages estimates every action's advantage from its reward.
func (s *Session) advantages() error {
	x, err := s.estimation()
	if err != nil {
		return err
	}
	if !x.est.Batch {
		err = s.eachGroup(x.group, x.cols...)
		s.flat = int(x.flat.Load())
		return err
	}
	if err = s.eachGroup(x.group); err != nil {
		return err
	}
	s.flat = int(x.flat.Load())
	a, err := x.est.Estimate(x.rows, x.o)
	if err != nil {
		return err
	}
	return s.eachGroup(func(i int, g []*Episode) error { handOut(g, a, i); return nil }, x.cols...)
}

// partNames are the components of the first row's reward.
func (s *Session) partNames() (parts []string, err error) {
	first := s.groups[0][:1]
	err = s.together(first, func() error {
		for _, p := range first[0].Parts {
			parts = append(parts, p.Name)
		}
		return nil
	})
	return parts, err
}

// rowsOfGroup is a group as an estimator sees it.
func rowsOfGroup(g []*Episode, parts []string) ([]algo.Row, error) {
	row_G := make([]algo.Row, len(g))
	for i, e := range g {
		var err error
		if row_G[i], err = e.row(parts); err != nil {
			return nil, err
		}
	}
	return row_G, nil
}

// handOut gives a group the advantages that are number i of a.
func handOut(g []*Episode, a algo.Advantages, i int) {
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
