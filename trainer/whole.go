package trainer

import (
	"slices"

	"agentcli/trainer/algo"
	"agentcli/trainer/episode"
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
			if err := s.setActions(e, colAdv, slices.Repeat(adv[i:i+1], e.Actions())); err != nil {
				return err
			}
			e.HasAdvantage = adv[i] != 0
			i++
		}
	}
	s.stored(colAdv)
	return nil
}

// whitenTokens whitens the advantages over all actions of the batch that are in the
// loss.
func (s *Session) whitenTokens() error {
	var w algo.Whitening
	each := func(f func(e *episode.Episode, adv_T []float64) error) error {
		for _, g := range s.groups {
			for _, e := range g {
				adv_T, err := s.actions(e, colAdv)
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
		return s.setActions(e, colAdv, adv_T)
	})
}

// actions are a column's numbers of an episode's actions.
func (s *Session) actions(e *episode.Episode, k column) ([]float64, error) {
	if readableAlone(e) {
		return shelfOf(e).columns.get(k, e)
	}
	var out []float64
	err := s.together([]*episode.Episode{e}, func() error {
		e.EachAction(func(_ int, x *episode.TokenStream, t int) { out = append(out, (*k.of(x))[t]) })
		return nil
	})
	return out, err
}

// setActions puts such numbers into a column.
func (s *Session) setActions(e *episode.Episode, k column, values []float64) error {
	if readableAlone(e) {
		return shelfOf(e).columns.put(k, e, slices.Values(values))
	}
	return s.together([]*episode.Episode{e}, func() error {
		for i := range e.Streams {
			*k.of(&e.Streams[i]) = make([]float64, len(e.Streams[i].ActionWeight))
		}
		e.EachAction(func(n int, x *episode.TokenStream, t int) { (*k.of(x))[t] = values[n] })
		return nil
	}, k)
}

// readableAlone reports whether an episode is on disk and has nothing but actions there: its
// columns can be read without its tokens.
func readableAlone(e *episode.Episode) bool {
	return e.Body == nil && e.Store != nil && e.Counts.Wanted == e.Counts.Actions
}
