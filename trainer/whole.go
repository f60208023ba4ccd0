package trainer

import (
	"slices"

	"agentcli/trainer/algo"
	"agentcli/trainer/episode"
	"agentcli/trainer/store"
)

// Advantages that depend on the whole batch are made in the order of its groups, so
// that sums have the same bits wherever the rows are. Of a row that is on disk only
// its numbers are read, not its tokens: 8 bytes of each action.

// rowsAdvantages gives every row the one advantage that the batch says.
func (s *Session) rowsAdvantages(x *estimation) error {
	adv, err := x.est.Rows(slices.Concat(x.seen...), x.o)
	if err != nil {
		return err
	}
	x.seen = nil
	i := 0
	for _, g := range s.groups {
		for _, e := range g {
			if err := s.loader.SetActionValues(e, store.Advantages, slices.Repeat(adv[i:i+1], e.Actions())); err != nil {
				return err
			}
			e.HasAdvantage = adv[i] != 0
			i++
		}
	}
	s.loader.Complete(store.Advantages)
	return nil
}

// whitenTokens whitens the advantages over all actions of the batch that are in the
// loss.
func (s *Session) whitenTokens() error {
	var w algo.Whitening
	each := func(f func(e *episode.Episode, adv_T []float64) error) error {
		for _, g := range s.groups {
			for _, e := range g {
				adv_T, err := s.loader.ActionValues(e, store.Advantages)
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
		return s.loader.SetActionValues(e, store.Advantages, adv_T)
	})
}
