package trainer

import (
	"cmp"
	"iter"
	"runtime"
	"sync"

	"agentcli/internal/safego"
	"agentcli/trainer/episode"
)

// Episodes whose bodies are on a shelf are read when they are needed and laid out
// anew; what was computed of them is in the shelf's columns. Those in memory are
// always at hand, and all of this does nothing to them.

// maxHeld is how many tokens of a minibatch are held for the whole of its step; of
// a larger one each episode is read when its turn comes.
const maxHeld = 1 << 20

// open has an episode at hand; it reports whether it was not so before.
func (s *Session) open(e *episode.Episode) (opened bool, err error) {
	if e.Body != nil || e.Store == nil {
		return false, nil
	}
	if e.Body, err = e.Store.ReadBody(e); err != nil {
		return false, err
	}
	s.layout(e)
	if e.Layout != episode.LayoutOfAlgorithm {
		return true, nil
	}
	if s.scores != nil {
		e.Parts, e.StepRewards = nil, nil
	}
	if s.Config.OldLogprobs == OldFile && !s.Config.IsSupervised() {
		useRolloutLogprobs(e)
	}
	if c := shelfOf(e).columns; c != nil {
		if err = c.read(e); err != nil {
			e.Body = nil
		}
	}
	return err == nil, err
}

func (s *Session) layout(e *episode.Episode) {
	switch e.Layout {
	case episode.LayoutOfReply:
		e.LayOut(episode.TokenSelection{Scale: episode.ScaleDefault, Echo: false})
	case episode.LayoutOfLastToken:
		layLastToken(e)
	default:
		s.Config.layout(e)
	}
}

// hold has episodes at hand until release is called.
func (s *Session) hold(episodes []*episode.Episode) (release func(), err error) {
	var opened []*episode.Episode
	release = func() {
		for _, e := range opened {
			e.Body = nil
		}
	}
	for _, e := range episodes {
		is, err := s.open(e)
		if err != nil {
			release()
			return nil, err
		}
		if is {
			opened = append(opened, e)
		}
	}
	return release, nil
}

// holdStep is hold for a minibatch that is not too large.
func (s *Session) holdStep(batch []*episode.Episode) (release func(), err error) {
	tokens := 0
	for _, e := range batch {
		tokens += int(e.Sizes().Tokens)
	}
	if tokens > maxHeld && !s.Config.jointly() {
		return func() {}, nil
	}
	return s.hold(batch)
}

// each has one episode after the other at hand, and then keeps the columns that f
// filled.
func (s *Session) each(episodes []*episode.Episode, f func(*episode.Episode) error, cols ...column) error {
	for _, e := range episodes {
		if err := s.together([]*episode.Episode{e}, func() error { return f(e) }, cols...); err != nil {
			return err
		}
	}
	s.stored(cols...)
	return nil
}

// together has episodes at hand for f, and then keeps what it filled. Once all
// episodes have it, stored says so.
func (s *Session) together(episodes []*episode.Episode, f func() error, cols ...column) error {
	release, err := s.hold(episodes)
	if err != nil {
		return err
	}
	defer release()
	if err := f(); err != nil {
		return err
	}
	for _, e := range episodes {
		if err := s.store(e, cols...); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) store(e *episode.Episode, cols ...column) error {
	if e.Store == nil || e.Layout != episode.LayoutOfAlgorithm {
		return nil
	}
	for _, k := range cols {
		if err := shelfOf(e).columns.write(k, e); err != nil {
			return err
		}
	}
	return nil
}

// stored says that all episodes that are trained on have these columns.
func (s *Session) stored(cols ...column) {
	if s.Data.shelf != nil {
		for _, k := range cols {
			s.Data.shelf.columns.have[k] = true
		}
	}
}

// eachGroup has one group after the other at hand for f, which then fills
// columns. On disk several goroutines do this at once.
func (s *Session) eachGroup(f func(i int, g []*episode.Episode) error, cols ...column) error {
	err := s.parallel(len(s.groups), func(i int) error {
		g := s.groups[i]
		return s.together(g, func() error { return f(i, g) }, cols...)
	})
	if err == nil {
		s.stored(cols...)
	}
	return err
}

// lay lays episodes out for the first time and counts what they ask for.
func (s *Session) lay(episodes []*episode.Episode) error {
	return s.parallel(len(episodes), func(i int) error {
		e := episodes[i]
		if e.Body == nil && e.Layout == episode.LayoutOfAlgorithm && s.Data.tallied == s.Config.laidOut() {
			return nil // counted when it was read
		}
		opened, err := s.open(e)
		switch {
		case err != nil:
			return err
		case opened:
			e.Body = nil
		default:
			s.layout(e)
		}
		return nil
	})
}

// parallel calls f for the numbers up to n, on disk by several goroutines. The
// error is that of the smallest number.
func (s *Session) parallel(n int, f func(i int) error) error {
	workers := 1
	if s.Data.shelf != nil {
		workers = max(1, min(runtime.GOMAXPROCS(0), n/64))
	}
	errs := make([]error, workers)
	var work sync.WaitGroup
	for w := range workers {
		work.Go(func() {
			defer safego.Into(&errs[w])
			for i := n * w / workers; i < n*(w+1)/workers && errs[w] == nil; i++ {
				errs[w] = f(i)
			}
		})
	}
	work.Wait()
	return cmp.Or(errs...)
}

// layColumns gives every wanted token its place.
func (s *Session) layColumns(episodes []*episode.Episode) error {
	if s.Data.shelf == nil {
		return nil
	}
	n := int64(0)
	for _, e := range episodes {
		e.FirstWanted = n
		n += int64(e.Counts.Wanted)
	}
	var err error
	s.Data.shelf.columns, err = newColumns(n)
	return err
}

// dropColumns forgets what an earlier session computed of the same episodes.
func (s *Session) dropColumns() error {
	if s.Data.shelf == nil || s.Data.shelf.columns == nil {
		return nil
	}
	err := s.Data.shelf.columns.file.Close()
	s.Data.shelf.columns = nil
	return err
}

// micro cuts episodes into batches as microBatches does, and has those of one
// batch at hand while it is looked at. done is called for each episode when that
// is over; it may be nil.
func (s *Session) micro(episodes []*episode.Episode, done func(*episode.Episode) error) iter.Seq2[micro, error] {
	return func(yield func(micro, error) bool) {
		type held struct {
			e      *episode.Episode
			opened bool
		}
		var whole []held // all of their sequences are cut
		var now held     // some may be to come
		over := func() error {
			for _, h := range whole {
				if done != nil {
					if err := done(h.e); err != nil {
						return err
					}
				}
				if h.opened {
					h.e.Body = nil
				}
			}
			whole = whole[:0]
			return nil
		}
		defer func() {
			for _, h := range append(whole, now) {
				if h.opened {
					h.e.Body = nil
				}
			}
		}()
		cut := cutter{max: s.Config.MicroTokens, tempered: !s.Config.IsSupervised()}
		pass := func(mb micro) bool {
			if !yield(mb, nil) {
				return false
			}
			if err := over(); err != nil {
				yield(micro{}, err)
				return false
			}
			return true
		}
		for _, e := range episodes {
			opened, err := s.open(e)
			if err != nil {
				yield(micro{}, err)
				return
			}
			now = held{e, opened}
			for i := range e.Sequences {
				if mb, full := cut.add(e, i); full && !pass(mb) {
					return
				}
			}
			whole, now = append(whole, now), held{}
		}
		if len(cut.now.items) > 0 {
			pass(cut.now)
		} else if err := over(); err != nil {
			yield(micro{}, err)
		}
	}
}

// useRolloutLogprobs takes the file's log-probs for those of the old policy, where it
// has them.
func useRolloutLogprobs(e *episode.Episode) {
	for i := range e.Streams {
		e.Streams[i].OldLogprobs = e.Streams[i].RolloutLogprobs
	}
}
