package trainer

import (
	"fmt"
	"slices"

	"agentcli/internal/setting"
	"agentcli/trainer/algo"
	"agentcli/trainer/episode"
	"agentcli/trainer/store"
	"agentcli/traj"
)

// estimation gives the tokens of a run's groups their rewards and advantages.
type estimation struct {
	t      *Trainer
	shaper *rewardShaper
	est    *algo.Estimator
	o      algo.EstimatorOptions
	parts  []string             // the names of the reward's components, of an estimator that compares them
	cols   []store.Column       // that a look at a group fills
	seen   [][]algo.GroupResult // of an estimator of the batch whose rows have one advantage each
}

func newEstimation(t *Trainer) (*estimation, error) {
	c := t.Config
	x := &estimation{t: t}
	var ok bool
	if x.est, ok = algo.EstimatorByName(c.Advantage); !ok {
		return nil, setting.Errorf("%s %s: want one of %v", setting.Name("Advantage"), c.Advantage, algo.EstimatorNames())
	}
	weights, err := parseNumbers("part-weights", c.PartWeights)
	if err != nil {
		return nil, err
	}
	x.o = algo.EstimatorOptions{Gamma: c.Gamma, Lambda: c.Lambda, PartWeights: weights, Baseline: t.Baseline}
	x.shaper, err = newRewardShaper(c)
	return x, err
}

// shapeEstimateAndDrop gives every token its reward and its advantage, and leaves out the
// groups without spread where DropZeroStd is set. It is ErrNothingToLearn where no attempt is
// better or worse than another, and nothing else moves the policy.
func (x *estimation) shapeEstimateAndDrop() error {
	t, c := x.t, x.t.Config
	// What a batch says together is of what is left; a baseline that goes on from batch to
	// batch is of all.
	if x.est.Batch && !x.est.Carried && c.DropZeroStd {
		if err := x.shapeAndDrop(); err != nil {
			return err
		}
		return x.estimate()
	}
	if err := x.shapeAndEstimate(); err != nil {
		return err
	}
	lessons := withAdvantage(t.groups)
	switch {
	case c.DropZeroStd:
		return dropGroups(t, nonZeroStd(lessons))
	case len(lessons) == 0 && !movesAnyway(c, t.groups):
		return errNoSignal(t.groups)
	}
	return nil
}

// shapeAndDrop gives every token its reward and then, where asked, leaves out the
// groups without spread: ErrNothingToLearn where no other is left.
func (x *estimation) shapeAndDrop() error {
	t := x.t
	err := t.timed("adv", func() error { return t.loader.Groups(t.groups, x.shaper.shape, store.Rewards) })
	if err != nil || !t.Config.DropZeroStd {
		return err
	}
	return dropGroups(t, nonZeroStd(t.groups))
}

// shapeAndEstimate gives every token its reward and its advantage, in one pass over the rows.
func (x *estimation) shapeAndEstimate() error { return x.estimateAfter(x.shaper.shape) }

// estimate estimates every action's advantage from its reward.
func (x *estimation) estimate() error {
	return x.estimateAfter(func(int, []*episode.Episode) error { return nil })
}

// estimateAfter estimates the advantages of groups that first may still have to shape.
func (x *estimation) estimateAfter(first func(i int, g []*episode.Episode) error) error {
	t := x.t
	x.cols, x.seen = []store.Column{store.Advantages}, nil
	switch {
	case x.est.Batch && !x.est.PerToken():
		x.cols, x.seen = nil, make([][]algo.GroupResult, len(t.groups))
	case x.est.Critic:
		x.cols = append(x.cols, store.Returns)
	}
	if x.est.Parts {
		var err error
		if x.parts, err = partNames(t); err != nil {
			return err
		}
	}
	return t.timed("adv", func() error {
		err := t.loader.Groups(t.groups, func(i int, g []*episode.Episode) error {
			if err := first(i, g); err != nil {
				return err
			}
			return x.estimateGroup(i, g)
		}, x.cols...)
		switch {
		case err != nil || !x.est.Batch:
			return err
		case x.est.PerToken():
			return x.whitenTokens()
		}
		return x.rowsAdvantages()
	})
}

// estimateGroup estimates a group's advantages, as far as no more is needed than the group.
func (x *estimation) estimateGroup(i int, g []*episode.Episode) error {
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
		x.seen[i], err = x.est.EstimateGroup(row_G, x.o)
	}
	if err != nil && x.est.Relative { // which one is at fault
		return setting.Errorf("group of %s: %w (roll out with %s 2 or more, or take another %s)",
			g[0].ID, err, setting.Name("Samples"), setting.Name("Advantage"))
	}
	return err
}

// rowsAdvantages gives every row the one advantage that the batch says. Like
// whitenTokens it goes through the groups in their order, so that sums have the same bits
// wherever the rows are. Of a row on disk only the column is read, 8 bytes of each action.
func (x *estimation) rowsAdvantages() error {
	adv, err := x.est.Rows(slices.Concat(x.seen...), x.o)
	if err != nil {
		return err
	}
	x.seen = nil
	i := 0
	for _, g := range x.t.groups {
		for _, e := range g {
			if err := x.t.loader.SetActionValues(e, store.Advantages, slices.Repeat(adv[i:i+1], e.Actions())); err != nil {
				return err
			}
			e.HasAdvantage = adv[i] != 0
			i++
		}
	}
	x.t.loader.Complete(store.Advantages)
	return nil
}

// whitenTokens whitens the advantages over all actions of the batch that are in the
// loss.
func (x *estimation) whitenTokens() error {
	var w algo.Whitening
	each := func(f func(e *episode.Episode, adv_T []float64) error) error {
		for _, g := range x.t.groups {
			for _, e := range g {
				adv_T, err := x.t.loader.ActionValues(e, store.Advantages)
				if err != nil {
					return err
				}
				if err := f(e, adv_T); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for pass := range algo.Passes {
		if err := each(func(e *episode.Episode, adv_T []float64) error {
			if !e.Filtered { // what is not in the loss moves nothing in it
				w.AddAll(pass, adv_T)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return each(func(e *episode.Episode, adv_T []float64) error {
		w.Whiten(adv_T)
		e.HasAdvantage = slices.ContainsFunc(adv_T, func(x float64) bool { return x != 0 })
		return x.t.loader.SetActionValues(e, store.Advantages, adv_T)
	})
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

// nonZeroStd are the groups whose attempts did not all score the same.
func nonZeroStd(groups [][]*episode.Episode) [][]*episode.Episode {
	var out [][]*episode.Episode
	for _, g := range groups {
		if !g[0].ZeroStd {
			out = append(out, g)
		}
	}
	return out
}

// withAdvantage are the groups in which some action is better or worse than expected.
func withAdvantage(groups [][]*episode.Episode) [][]*episode.Episode {
	var out [][]*episode.Episode
	for _, g := range groups {
		if slices.ContainsFunc(g, func(e *episode.Episode) bool { return e.HasAdvantage && !e.Filtered }) {
			out = append(out, g)
		}
	}
	return out
}

// movesAnyway reports whether something moves the policy where all advantages are 0:
// a KL to a reference, which may be another model, an entropy bonus, or a cross-entropy.
func movesAnyway(c Config, groups [][]*episode.Episode) bool {
	observed := func(e *episode.Episode) bool { return e.Observations() > 0 }
	return c.KLCoef > 0 || c.EntropyCoef != 0 || c.PTXCoef > 0 ||
		(c.Echo > 0 && slices.ContainsFunc(flatten(groups), observed))
}

// errNoSignal says why nothing is left to learn from.
func errNoSignal(groups [][]*episode.Episode) error {
	cut := 0 // groups whose rows with an advantage all leave the loss
	for _, g := range groups {
		if !g[0].ZeroStd && slices.ContainsFunc(g, func(e *episode.Episode) bool { return e.HasAdvantage && e.Filtered }) {
			cut++
		}
	}
	if cut > 0 {
		return traj.Mark(
			setting.Errorf("the attempts of %d of the %d groups have different rewards, but those that would teach were cut off at their length "+
				"limit, and %s leaves them out: there is nothing to learn (leave the flag out, or raise %s where they are sampled)",
				cut, len(groups), setting.Name("OverlongFilter"), setting.Name("MaxTokens")), ErrNothingToLearn)
	}
	return traj.Mark(
		fmt.Errorf("all attempts within each of the %d groups have the same reward: there is nothing to compare, "+
			"hence nothing to learn (sample more attempts with rollout -n, or harder or easier tasks)", len(groups)), ErrNothingToLearn)
}

// dropGroups goes on with the groups that are kept, and says how many rows the others
// are.
func dropGroups(t *Trainer, kept [][]*episode.Episode) error {
	c := t.Config
	if len(kept) == 0 && (c.HasCritic() || movesAnyway(c, t.groups)) { // the flag alone is in the way
		return traj.Mark(
			setting.Errorf("all attempts within each of the %d groups have the same reward, and %s leaves such groups out: "+
				"nothing is left to learn from (leave the flag out, or sample more attempts with rollout -n, or harder or easier tasks)",
				len(t.groups), setting.Name("DropZeroStd")), ErrNothingToLearn)
	}
	if len(kept) == 0 {
		return errNoSignal(t.groups)
	}
	if out := len(flatten(t.groups)) - len(flatten(kept)); out > 0 && t.OnDrop != nil {
		t.OnDrop(out)
	}
	t.allGroups, t.groups = t.groups, kept
	return nil
}
