package trainer

import (
	"context"

	"agentcli/lossscale"
	"agentcli/trainer/episode"
	"agentcli/trainer/rows"
)

// LoadFor reads the files of a run with these settings: trajectories, and for the supervised
// algorithms also rows of text.
func LoadFor(ctx context.Context, patterns []string, c Config, from rows.Sources) (*rows.Data, error) {
	strategy, scaleRules := lossscale.Split(c.LossScale)
	weigh, err := lossscale.Open(scaleRules)
	if err != nil {
		return nil, err
	}
	l := c.layout()
	if l.own != nil { // whose tokens have no weights
		weigh = nil
	}
	o := rows.Options{Sources: from, Layout: rows.Layout{Name: l.name, Count: l.count}, Text: c.traits().text,
		Weigh: weigh, LastRound: strategy == lossscale.LastRound}
	if c.Echo == 0 {
		o.Observations = nil
	}
	if c.IsSupervised() {
		o.Observations, o.Demonstrations = nil, nil
		o.Steps = rows.StepTokens{End: c.Supervised.PRMToken, Labels: c.Supervised.PRMTokens}
		if c.TakesPairs() {
			o.Reward, o.Group, o.Pairs = true, true, c.Supervised.Pairs
		}
	} else {
		o.Reward, o.Group, o.Experts = !from.Rewarded && c.rewarded(), true, true
	}
	return rows.Load(ctx, patterns, o)
}

// DropUnfit leaves out the rows that a run with these settings cannot train on: those that do
// not fit into the model's window, and then, where attempts are compared, those that
// nothing is left to compare with in their group (a failure of the infrastructure is no
// reward, so the attempt that is left of such a group has no baseline). That nothing
// remains is rows.ErrNoRows.
func DropUnfit(d *rows.Data, window int, c Config) error {
	if err := d.DropLong(window); err != nil || c.IsSupervised() {
		return err
	}
	if err := d.DropStale(int64(c.MaxStaleness)); err != nil || !c.ComparesGroups() {
		return err
	}
	return d.DropLone()
}

// layout says for which tokens of an episode a run computes log-probs or values.
type layout struct {
	name   string // differs where what layOut does differs
	own    func(e *episode.Episode)
	tokens episode.TokenSelection // without own
}

// layOut makes the token streams of an episode.
func (l layout) layOut(e *episode.Episode) {
	if l.own != nil {
		l.own(e)
		return
	}
	e.LayOut(l.tokens)
}

// count counts what layOut would lay out.
func (l layout) count(e *episode.Episode) {
	if l.own == nil {
		e.CountTokens(l.tokens)
		return
	}
	l.own(e)
	e.Streams = nil
}

// units are what a minibatch never splits, and the pairs within each, by group.
func units(d *rows.Data, c Config) ([][]*episode.Episode, map[string][]rows.Pair, error) {
	switch {
	case c.TakesPairs():
		pairs, err := d.MakePairs(c.Supervised.Pairs)
		return episode.Groups(d.Episodes), pairs, err
	case c.IsSupervised():
		out := make([][]*episode.Episode, len(d.Episodes))
		for i, e := range d.Episodes {
			out[i] = []*episode.Episode{e}
		}
		return out, nil, nil
	}
	return episode.Groups(d.Episodes), nil, nil
}
