package trainer

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"agentcli/trainer/algo"
	"agentcli/trainer/episode"
	"agentcli/trainer/store"
	"agentcli/traj"
)

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

// shape gives every token its reward.
func (s *Session) shape() error {
	f, err := s.shaper()
	if err != nil {
		return err
	}
	return s.timed("adv", func() error { return s.loader.Groups(s.groups, f, store.Rewards) })
}

// shapeAndEstimate is shape and advantages where nothing comes between them: in
// one pass over the rows.
func (s *Session) shapeAndEstimate() error {
	shape, err := s.shaper()
	if err != nil {
		return err
	}
	return s.estimate(shape)
}

// advantages estimates every action's advantage from its reward.
func (s *Session) advantages() error {
	return s.estimate(func(int, []*episode.Episode) error { return nil })
}

// estimate makes the advantages of groups that first may still have to shape.
func (s *Session) estimate(first func(i int, g []*episode.Episode) error) error {
	x, err := s.estimation()
	if err != nil {
		return err
	}
	return s.timed("adv", func() error { return s.estimateBy(x, first) })
}

func (s *Session) estimateBy(x *estimation, first func(i int, g []*episode.Episode) error) error {
	err := s.loader.Groups(s.groups, func(i int, g []*episode.Episode) error {
		if err := first(i, g); err != nil {
			return err
		}
		return x.look(i, g)
	}, x.cols...)
	if err != nil {
		return err
	}
	switch {
	case !x.est.Batch:
		return nil
	case x.est.PerToken():
		return s.whitenTokens()
	}
	return s.rowsAdvantages(x)
}

// estimation makes advantages of rewards.
type estimation struct {
	est   *algo.Estimator
	o     algo.EstimatorOptions
	parts []string       // of gdpo: the names of the reward's components
	cols  []store.Column // that a look at a group fills
	seen  [][]algo.Seen  // of an estimator of the batch whose rows have one advantage each
}

func (s *Session) estimation() (*estimation, error) {
	c := s.Config
	x := &estimation{cols: []store.Column{store.Advantages}}
	var ok bool
	if x.est, ok = algo.EstimatorByName(c.Advantage); !ok {
		return nil, fmt.Errorf("--advantage %s: want one of %v", c.Advantage, algo.EstimatorNames())
	}
	weights, err := numbers("part-weights", c.PartWeights)
	if err != nil {
		return nil, err
	}
	x.o = algo.EstimatorOptions{Gamma: c.Gamma, Lambda: c.Lambda, PartWeights: weights, Baseline: s.Baseline}
	if x.est.Batch && !x.est.PerToken() {
		x.cols, x.seen = nil, make([][]algo.Seen, len(s.groups))
	}
	switch c.Advantage {
	case "gae":
		x.cols = append(x.cols, store.Returns)
	case "gdpo":
		x.parts, err = s.partNames()
	}
	return x, err
}

// look estimates a group's advantages, as far as no more is needed than the group.
func (x *estimation) look(i int, g []*episode.Episode) error {
	row_G, err := rowsOfGroup(g, x.parts)
	if err != nil {
		return err
	}
	switch {
	case !x.est.Batch:
		var a algo.Advantages
		if a, err = x.est.Estimate([][]algo.Row{row_G}, x.o); err == nil {
			handOut(g, a)
		}
	case x.est.PerToken():
		a := algo.Advantages{Adv: [][][]float64{make([][]float64, len(g))}, Return: [][][]float64{make([][]float64, len(g))}}
		for j := range row_G {
			if a.Adv[0][j], a.Return[0][j], err = x.est.Token(&row_G[j], x.o); err != nil {
				return err
			}
		}
		handOut(g, a)
	default:
		x.seen[i], err = x.est.See(row_G, x.o)
	}
	if err != nil && x.est.Relative { // which one is at fault
		return fmt.Errorf("group of %s: %w (roll out with -n 2 or more, or take another --advantage)", g[0].ID, err)
	}
	return err
}

// components are those of the first row's reward, and which row has others: noticed
// as rows are read, for their rewards are not in memory later.
type components struct {
	row    string // the first one; "": none was read
	names  []string
	unlike string // the first row that has others, and which
}

// add looks at a row whose body is in memory.
func (c *components) add(e *episode.Episode) {
	if c.unlike != "" {
		return
	}
	if c.row == "" {
		c.row, c.names = e.Name(), partsOf(e)
		return
	}
	same := len(e.Parts) == len(c.names)
	for i := 0; same && i < len(e.Parts); i++ {
		same = e.Parts[i].Name == c.names[i]
	}
	if same {
		return
	}
	names := partsOf(e) // in another order they are the same
	a, b := slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(c.names))
	if !slices.Equal(a, b) {
		c.unlike = fmt.Sprintf("%s has %s, and %s has %s", e.Name(), listed(names), c.row, listed(c.names))
	}
}

// partsOf are the names of the components of a row's reward.
func partsOf(e *episode.Episode) []string {
	names := make([]string, len(e.Parts))
	for i, p := range e.Parts {
		names[i] = p.Name
	}
	return names
}

// listed says how many there are, and which.
func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return fmt.Sprintf("%d (%s)", len(names), strings.Join(names, ", "))
}

// CheckParts looks whether the rewards have the components that gdpo compares, all the
// same, and as many as --part-weights gives weights.
func (d *Data) CheckParts(c Config) error {
	if c.Advantage != "gdpo" || c.IsSupervised() || c.Algo == AlgoPPO || d.parts.row == "" {
		return nil
	}
	weights, err := numbers("part-weights", c.PartWeights)
	if err != nil {
		return err
	}
	const compares = "--advantage gdpo compares the reward's components (reward_parts)"
	switch n := len(d.parts.names); {
	case d.parts.unlike != "":
		return fmt.Errorf("%s, and the rows have not the same: %s; score the rows anew with --reward, or take another --advantage", compares, d.parts.unlike)
	case n == 0:
		return fmt.Errorf("%s, and %s has none: take another --advantage", compares, d.parts.row)
	case weights != nil && len(weights) != n:
		return fmt.Errorf("--part-weights %s: its weights must be as many as the components of the rewards, here %s", c.PartWeights, listed(d.parts.names))
	}
	return nil
}

// partNames are the components of the first row's reward.
func (s *Session) partNames() (parts []string, err error) {
	first := s.groups[0][:1]
	err = s.loader.With(first, func() error {
		for _, p := range first[0].Parts {
			parts = append(parts, p.Name)
		}
		return nil
	})
	return parts, err
}

// rowsOfGroup is a group as an estimator sees it.
func rowsOfGroup(g []*episode.Episode, parts []string) ([]algo.Row, error) {
	row_G := make([]algo.Row, len(g))
	for i, e := range g {
		var err error
		if row_G[i], err = rowOf(e, parts); err != nil {
			return nil, err
		}
	}
	return row_G, nil
}

// rowOf is the episode as an estimator sees it: its actions only.
func rowOf(e *episode.Episode, parts []string) (algo.Row, error) {
	r := algo.Row{Role: e.Role, Greedy: e.GreedyScore, Filtered: e.Filtered, Reward_T: make([]float64, 0, e.Actions())}
	e.EachAction(func(_ int, s *episode.TokenStream, t int) {
		r.Reward_T = append(r.Reward_T, s.Rewards[t])
		if s.Values != nil {
			r.Value_T = append(r.Value_T, s.Values[t])
		}
	})
	for _, name := range parts {
		i := slices.IndexFunc(e.Parts, func(p traj.Part) bool { return p.Name == name })
		if i < 0 {
			return r, fmt.Errorf("%s: its reward has no component %q, as that of other rows has", e.ID, name)
		}
		r.Parts = append(r.Parts, e.Parts[i].Value)
	}
	return r, nil
}

// handOut gives a group its advantages, the first of a.
func handOut(g []*episode.Episode, a algo.Advantages) {
	for j, e := range g {
		var ret []float64
		if a.Return != nil {
			ret = a.Return[0][j]
		}
		e.SetAdvantages(a.Adv[0][j], ret)
	}
}

// spread are the groups whose attempts did not all score the same.
func spread(groups [][]*episode.Episode) [][]*episode.Episode {
	var out [][]*episode.Episode
	for _, g := range groups {
		if !g[0].ZeroStd {
			out = append(out, g)
		}
	}
	return out
}

// teaching are the groups in which some action is better or worse than expected.
func teaching(groups [][]*episode.Episode) [][]*episode.Episode {
	var out [][]*episode.Episode
	for _, g := range groups {
		if slices.ContainsFunc(g, func(e *episode.Episode) bool { return e.HasAdvantage && !e.Filtered }) {
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
