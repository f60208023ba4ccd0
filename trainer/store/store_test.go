package store

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"agentcli/lossscale"
	"agentcli/trainer/episode"
	"agentcli/traj"
)

// spilled moves the bodies of episodes to a Spill.
func spilled(t *testing.T, episodes []*episode.Episode) *Spill {
	t.Helper()
	s, err := NewSpill()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	for _, e := range episodes {
		if err := s.Put(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Finish(); err != nil {
		t.Fatal(err)
	}
	return s
}

// loader trains on every sampled token.
func loader(s *Spill) *Loader {
	return &Loader{Spill: s, LayOut: func(e *episode.Episode) { e.LayOut(episode.TokenSelection{Strategy: lossscale.Default}) }}
}

// sampled is an episode of n tokens, of which all but the first were sampled.
func sampled(id, n int) *episode.Episode {
	s := traj.Sequence{TokenIDs: make([]int32, n), LossMask: make([]bool, n), Logprobs: make([]traj.Logprob, n)}
	for t := range n {
		s.TokenIDs[t], s.LossMask[t] = int32(100*id+t), t > 0
	}
	return &episode.Episode{ID: fmt.Sprint(id), Body: &episode.Body{Sequences: []traj.Sequence{s}}}
}

// Each column is a field of its own: what is kept in one comes back in that one.
func TestEachColumnComesBackInItsOwnField(t *testing.T) {
	episodes := []*episode.Episode{sampled(0, 4), sampled(1, 3)}
	l := loader(spilled(t, episodes))
	if err := l.Begin(episodes); err != nil {
		t.Fatal(err)
	}
	value := func(e *episode.Episode, k Column, i int) float64 {
		return float64(1000*e.FirstWanted) + float64(10*int(k)+i)
	}
	for k := range numColumns {
		err := l.Each(episodes, func(e *episode.Episode) error {
			x := &e.Streams[0]
			*k.Of(x) = make([]float64, len(x.ActionWeight))
			for i := range x.ActionWeight {
				(*k.Of(x))[i] = value(e, k, i)
			}
			return nil
		}, k)
		if err != nil {
			t.Fatal(err)
		}
	}
	l.Same(episodes, RefLogprobs, OldLogprobs)
	release, err := l.Load(episodes...)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	for _, e := range episodes {
		for k := range numColumns {
			from := k
			if k == RefLogprobs {
				from = OldLogprobs
			}
			for i, got := range *k.Of(&e.Streams[0]) {
				if got != value(e, from, i) {
					t.Errorf("%s, %s, token %d: %v, want %v", e.ID, k, i, got, value(e, from, i))
				}
			}
		}
	}
}

// A column whose loop was left early was not computed of every episode, and is not read.
func TestAColumnIsReadOnceAllEpisodesHaveIt(t *testing.T) {
	episodes := []*episode.Episode{sampled(0, 4), sampled(1, 3)}
	l := loader(spilled(t, episodes))
	l.MicroTokens = 1
	if err := l.Begin(episodes); err != nil {
		t.Fatal(err)
	}
	fill := func(all bool) {
		for mb, err := range l.MicroBatches(episodes, OldLogprobs) {
			if err != nil {
				t.Fatal(err)
			}
			for _, it := range mb.Items {
				it.Stream().OldLogprobs = slices.Repeat([]float64{-1}, len(it.Stream().ActionWeight))
			}
			if !all {
				break
			}
		}
	}
	old := func() []float64 {
		release, err := l.Load(episodes[0])
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		return episodes[0].Streams[0].OldLogprobs
	}
	if fill(false); old() != nil {
		t.Error("a column of some episodes was read")
	}
	if fill(true); !slices.Equal(old(), []float64{-1, -1, -1}) {
		t.Errorf("%v was read", old())
	}
}

func TestABodyComesBackFromTheSpillAsItWas(t *testing.T) {
	nan, lp := traj.NoLogprob(), func(x float64) traj.Logprob { return traj.Logprob(x) }
	bodies := []*episode.Body{
		{LastRound: -1, Sequences: []traj.Sequence{{TokenIDs: []int32{}, LossMask: []bool{}, Logprobs: []traj.Logprob{}}}},
		{Role: "r", Termination: traj.Answered, Turns: 3, ToolCalls: 2, ToolErrors: 1, Prompt: 7, Sampled: 300, LastRound: 0,
			Parts:       []traj.Part{{Name: "exact", Value: -1.5}, {Name: "", Value: math.Inf(1)}},
			StepRewards: []episode.StepReward{{Sequence: 1, Token: 70000, Reward: -2}},
			Sequences: []traj.Sequence{
				{TokenIDs: []int32{0, 65535, 65536, math.MaxInt32}, LossMask: []bool{false, true, true, false},
					Logprobs: []traj.Logprob{nan, lp(-.1), nan, nan}, Weights: []float64{0, 0, 1, .5}},
				{TokenIDs: []int32{1, 65535}, LossMask: []bool{true, false}, Logprobs: []traj.Logprob{lp(math.Inf(-1)), lp(0)}},
				{TokenIDs: []int32{1, 2, 3}, LossMask: []bool{false, false, true}, Logprobs: []traj.Logprob{nan, nan, nan},
					Weights: []float64{0, 0, 0}},
			},
			OwnLoss: true, Marks: [][]float64{{1, 0}, {.25, .75}}},
	}
	var episodes []*episode.Episode
	for i, b := range bodies {
		c := *b
		episodes = append(episodes, &episode.Episode{ID: fmt.Sprint(i), Body: &c})
	}
	spilled(t, episodes)
	for i, e := range episodes {
		if e.Body != nil {
			t.Error("it is in memory still")
		}
		got, err := e.Store.ReadBody(e)
		if err != nil {
			t.Fatal(err)
		}
		// NaN is not itself: the bits are compared as text.
		if g, w := fmt.Sprintf("%#v", got), fmt.Sprintf("%#v", bodies[i]); g != w {
			t.Errorf("%s\nwas %s", g, w)
		}
		if e.BodySizes != bodies[i].Measure() {
			t.Errorf("sizes %+v", e.BodySizes)
		}
	}
}

// A minibatch larger than what is held is read as it is needed, and no more than
// a micro-batch of it is in memory at once.
func TestOnlyAMicroBatchIsInMemory(t *testing.T) {
	var episodes []*episode.Episode
	for i := range 10 {
		episodes = append(episodes, sampled(i, 6))
	}
	l := loader(spilled(t, episodes))
	l.MicroTokens = 14
	if err := l.Count(episodes); err != nil {
		t.Fatal(err)
	}
	most, batches, closed := 0, 0, 0
	for mb, err := range l.cut(episodes, func(*episode.Episode) error { closed++; return nil }) {
		if err != nil {
			t.Fatal(err)
		}
		batches++
		at := 0
		for _, e := range episodes {
			if e.Body != nil {
				at++
			}
		}
		most = max(most, at)
		for _, it := range mb.Items {
			if it.Episode.Body == nil {
				t.Error("an episode of the batch is not in memory")
			}
		}
	}
	if batches < 4 || most > 4 || closed != len(episodes) {
		t.Errorf("%d batches, %d episodes in memory at once, %d of %d done", batches, most, closed, len(episodes))
	}
	stop := errors.New("stop")
	for _, err := range l.cut(episodes, func(*episode.Episode) error { return stop }) {
		if err != nil && !errors.Is(err, stop) {
			t.Error(err)
		}
		if err != nil {
			break
		}
	}
	for range l.MicroBatches(episodes) {
		break
	}
	for _, e := range episodes {
		if e.Body != nil {
			t.Errorf("%s was left in memory", e.ID)
		}
	}
}

// Experts of an episode on disk are those that it had.
func TestExpertsOfAnEpisodeOnDiskComeBack(t *testing.T) {
	episodes := []*episode.Episode{sampled(0, 4), sampled(1, 3)}
	want := &traj.Experts{Layers: 2, Active: 2, IDs: traj.ExpertIDs{1, 2, 3, 4, 5, 6, 700, 8, 9, 10, 11, traj.NoExpert}}
	episodes[0].Sequences[0].Experts = want
	l := loader(spilled(t, episodes))
	for i, e := range episodes {
		release, err := l.Load(e)
		if err != nil {
			t.Fatal(err)
		}
		got := e.Sequences[0].Experts
		if i == 0 && (got == nil || got.Layers != 2 || got.Active != 2 || !slices.Equal(got.IDs, want.IDs)) || i == 1 && got != nil {
			t.Errorf("episode %d: %+v", i, got)
		}
		release()
	}
}
