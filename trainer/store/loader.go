package store

import (
	"cmp"
	"iter"
	"runtime"
	"slices"
	"sync"

	"agentcli/internal/safego"
	"agentcli/lossscale"
	"agentcli/trainer/episode"
)

// maxStepTokens is how many tokens of a minibatch stay in memory for the whole of its step;
// of a larger one each episode is read when its turn comes.
const maxStepTokens = 1 << 20

// Loader has episodes in memory while they are used. One whose body is in a Spill is read
// for that, laid out anew and given the columns that were computed before, and is dropped
// after. Episodes in memory are always there, and a Loader does nothing to them.
//
// A Loader and the episodes that it was given are for one goroutine; Groups and Count use
// several by themselves.
type Loader struct {
	Spill *Spill // of the episodes that are trained on; nil: they are in memory
	// LayOut makes the Streams of an episode of LayoutOfAlgorithm.
	LayOut func(e *episode.Episode)
	// LayOutLastToken makes those of one of LayoutOfLastToken.
	LayOutLastToken func(e *episode.Episode)
	// Loaded is called with an episode of LayoutOfAlgorithm that was read and laid out,
	// before it is given its columns; may be nil.
	Loaded func(e *episode.Episode)
	// Counted says that the Counts of episodes on disk are already those of LayOut.
	Counted bool
	// MicroTokens is the most packed tokens of a micro-batch.
	MicroTokens int
	// Tempered says that log-probs are computed at the temperature of each episode.
	Tempered bool
	// WholeSteps keeps a minibatch in memory for the whole of its step, however large.
	WholeSteps bool
}

// Count lays episodes out for the first time, which sets their Counts.
func (l *Loader) Count(episodes []*episode.Episode) error {
	return l.parallel(len(episodes), func(i int) error {
		e := episodes[i]
		if e.Body == nil && e.Layout == episode.LayoutOfAlgorithm && l.Counted {
			return nil
		}
		opened, err := l.open(e)
		switch {
		case err != nil:
			return err
		case opened:
			e.Body = nil
		default:
			l.layOut(e)
		}
		return nil
	})
}

// Begin counts the episodes that are trained on and makes empty columns for them. Those of
// an earlier Loader of the same Spill are forgotten.
func (l *Loader) Begin(episodes []*episode.Episode) error {
	if l.Spill != nil {
		if err := l.Spill.dropColumns(); err != nil {
			return err
		}
	}
	if err := l.Count(episodes); err != nil {
		return err
	}
	return l.NewColumns(episodes)
}

// NewColumns makes empty columns for episodes that were counted: it gives every wanted
// token its place.
func (l *Loader) NewColumns(episodes []*episode.Episode) error {
	if l.Spill == nil {
		return nil
	}
	if err := l.Spill.dropColumns(); err != nil {
		return err
	}
	n := int64(0)
	for _, e := range episodes {
		e.FirstWanted = n
		n += int64(e.Counts.Wanted)
	}
	var err error
	l.Spill.columns, err = newColumns(n)
	return err
}

// Load has episodes in memory until release is called.
func (l *Loader) Load(episodes ...*episode.Episode) (release func(), err error) {
	var opened []*episode.Episode
	release = func() {
		for _, e := range opened {
			e.Body = nil
		}
	}
	for _, e := range episodes {
		is, err := l.open(e)
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

// LoadStep is Load for the minibatch of a step. One that is too large is not loaded, unless
// WholeSteps is set: Each and MicroBatches then read its episodes one by one.
func (l *Loader) LoadStep(batch []*episode.Episode) (release func(), err error) {
	tokens := 0
	for _, e := range batch {
		tokens += int(e.Sizes().Tokens)
	}
	if tokens > maxStepTokens && !l.WholeSteps {
		return func() {}, nil
	}
	return l.Load(batch...)
}

// With has episodes in memory for f, and then keeps the columns that f filled. They can be
// read once all episodes have them (Complete).
func (l *Loader) With(episodes []*episode.Episode, f func() error, fills ...Column) error {
	release, err := l.Load(episodes...)
	if err != nil {
		return err
	}
	defer release()
	if err := f(); err != nil {
		return err
	}
	for _, e := range episodes {
		if err := keep(e, fills...); err != nil {
			return err
		}
	}
	return nil
}

// Each has one episode after the other in memory for f, and keeps the columns that f fills.
func (l *Loader) Each(episodes []*episode.Episode, f func(e *episode.Episode) error, fills ...Column) error {
	for _, e := range episodes {
		if err := l.With([]*episode.Episode{e}, func() error { return f(e) }, fills...); err != nil {
			return err
		}
	}
	l.Complete(fills...)
	return nil
}

// Groups has one group after the other in memory for f, and keeps the columns that f fills.
// On disk several goroutines do this at once. The error is that of the first group.
func (l *Loader) Groups(groups [][]*episode.Episode, f func(i int, g []*episode.Episode) error, fills ...Column) error {
	err := l.parallel(len(groups), func(i int) error {
		return l.With(groups[i], func() error { return f(i, groups[i]) }, fills...)
	})
	if err == nil {
		l.Complete(fills...)
	}
	return err
}

// MicroBatches cuts episodes into batches of at most MicroTokens packed tokens, and has the
// episodes of one batch in memory while it is looked at. The columns that the loop fills are
// kept; they can be read once it has seen every batch.
func (l *Loader) MicroBatches(episodes []*episode.Episode, fills ...Column) iter.Seq2[MicroBatch, error] {
	return func(yield func(MicroBatch, error) bool) {
		for mb, err := range l.cut(episodes, func(e *episode.Episode) error { return keep(e, fills...) }) {
			if !yield(mb, err) {
				return
			}
			if err != nil {
				return
			}
		}
		l.Complete(fills...)
	}
}

// Complete says that all episodes that are trained on have these columns.
func (l *Loader) Complete(fills ...Column) {
	if l.Spill != nil {
		for _, k := range fills {
			l.Spill.columns.have[k] = true
		}
	}
}

// Same makes the column to have the numbers of the column from.
func (l *Loader) Same(episodes []*episode.Episode, to, from Column) {
	if l.Spill != nil {
		c := l.Spill.columns
		c.have[to], c.from[to] = true, c.from[from]
		return
	}
	for _, e := range episodes {
		for i := range e.Streams {
			x := &e.Streams[i]
			*to.Of(x) = *from.Of(x)
		}
	}
}

// ActionValues are a column's numbers of an episode's actions, [actions]. Where all that
// is wanted of an episode on disk are actions, its tokens are not read.
func (l *Loader) ActionValues(e *episode.Episode, k Column) ([]float64, error) {
	if actionsAlone(e) {
		return spillOf(e).columns.get(k, e)
	}
	var out []float64
	err := l.With([]*episode.Episode{e}, func() error {
		e.EachAction(func(_ int, x *episode.TokenStream, t int) { out = append(out, (*k.Of(x))[t]) })
		return nil
	})
	return out, err
}

// SetActionValues puts such numbers into a column; those of observations are 0.
func (l *Loader) SetActionValues(e *episode.Episode, k Column, values []float64) error {
	if actionsAlone(e) {
		return spillOf(e).columns.put(k, e, slices.Values(values))
	}
	return l.With([]*episode.Episode{e}, func() error {
		for i := range e.Streams {
			*k.Of(&e.Streams[i]) = make([]float64, len(e.Streams[i].ActionWeight))
		}
		e.EachAction(func(n int, x *episode.TokenStream, t int) { (*k.Of(x))[t] = values[n] })
		return nil
	}, k)
}

// actionsAlone reports whether an episode is on disk and nothing but its actions is wanted:
// its columns are then those of its actions.
func actionsAlone(e *episode.Episode) bool {
	return e.Body == nil && e.Store != nil && e.Counts.Wanted == e.Counts.Actions
}

// open has an episode in memory; it reports whether it was not before.
func (l *Loader) open(e *episode.Episode) (opened bool, err error) {
	if e.Body != nil || e.Store == nil {
		return false, nil
	}
	if e.Body, err = e.Store.ReadBody(e); err != nil {
		return false, err
	}
	l.layOut(e)
	if e.Layout != episode.LayoutOfAlgorithm {
		return true, nil
	}
	if l.Loaded != nil {
		l.Loaded(e)
	}
	if c := spillOf(e).columns; c != nil {
		if err = c.read(e); err != nil {
			e.Body = nil
		}
	}
	return err == nil, err
}

func (l *Loader) layOut(e *episode.Episode) {
	switch e.Layout {
	case episode.LayoutOfReply:
		e.LayOut(episode.TokenSelection{Strategy: lossscale.Default})
	case episode.LayoutOfLastToken:
		l.LayOutLastToken(e)
	default:
		l.LayOut(e)
	}
}

// keep writes columns of an episode that is in memory.
func keep(e *episode.Episode, fills ...Column) error {
	if e.Store == nil || e.Layout != episode.LayoutOfAlgorithm {
		return nil
	}
	for _, k := range fills {
		if err := spillOf(e).columns.write(k, e); err != nil {
			return err
		}
	}
	return nil
}

// parallel calls f for the numbers up to n, on disk by several goroutines. The
// error is that of the smallest number.
func (l *Loader) parallel(n int, f func(i int) error) error {
	workers := 1
	if l.Spill != nil {
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

// cut cuts episodes into micro-batches, and has those of one in memory while it is looked
// at. done is called for each episode when that is over.
func (l *Loader) cut(episodes []*episode.Episode, done func(*episode.Episode) error) iter.Seq2[MicroBatch, error] {
	return func(yield func(MicroBatch, error) bool) {
		type held struct {
			e      *episode.Episode
			opened bool
		}
		var whole []held // all of their sequences are cut
		var now held     // some may be to come
		over := func() error {
			for _, h := range whole {
				if err := done(h.e); err != nil {
					return err
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
		cut := cutter{max: l.MicroTokens, tempered: l.Tempered}
		pass := func(mb MicroBatch) bool {
			if !yield(mb, nil) {
				return false
			}
			if err := over(); err != nil {
				yield(MicroBatch{}, err)
				return false
			}
			return true
		}
		for _, e := range episodes {
			opened, err := l.open(e)
			if err != nil {
				yield(MicroBatch{}, err)
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
		if len(cut.now.Items) > 0 {
			pass(cut.now)
		} else if err := over(); err != nil {
			yield(MicroBatch{}, err)
		}
	}
}
