package traj

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestExpertsOfEarlierTurnsStay(t *testing.T) {
	first := &Experts{Layers: 2, Active: 1, IDs: ExpertIDs{1, 2, 3, 4}}
	later := &Experts{Layers: 2, Active: 1, IDs: ExpertIDs{9, 9, 9, 9, 5, 6}}
	got, err := first.Then(later)
	if err != nil || !slices.Equal(got.IDs, ExpertIDs{1, 2, 3, 4, 5, 6}) || len(first.IDs) != 4 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := (*Experts)(nil).Then(later); got != later || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	for _, nothing := range []*Experts{nil, {Layers: 2, Active: 1}, first.Head(1)} {
		if got, err := first.Then(nothing); got != first || err != nil {
			t.Errorf("%v, %v", got, err)
		}
	}
	if _, err := first.Then(&Experts{Layers: 1, Active: 2, IDs: later.IDs}); err == nil {
		t.Error("experts of another model follow")
	}
}

func TestExpertsThatDoNotFitTheirSequenceAreRefused(t *testing.T) {
	for _, e := range []Experts{
		{Layers: 0, Active: 1}, {Layers: 1, Active: 0}, {Layers: -1, Active: -1, IDs: ExpertIDs{1}}, {Layers: 1 << 20, Active: 1 << 20},
		{Layers: 1, Active: 2, IDs: ExpertIDs{1, 2, 3}}, {Layers: 1, Active: 1, IDs: ExpertIDs{1, 2, 3}},
	} {
		s := Sequence{TokenIDs: []int32{1, 2}, LossMask: make([]bool, 2), Logprobs: lps(2), Experts: &e}
		if s.Validate() == nil {
			t.Errorf("%+v of two tokens is taken", e)
		}
	}
}

func TestExpertsGoThroughJSON(t *testing.T) {
	e := Experts{Layers: 1, Active: 2, IDs: ExpertIDs{0, 1, 255, 256, NoExpert, 7}}
	text, err := json.Marshal(Sequence{Experts: &e})
	if err != nil {
		t.Fatal(err)
	}
	var got Sequence
	err = json.Unmarshal(text, &got)
	if err != nil || got.Experts == nil || !slices.Equal(got.Experts.IDs, e.IDs) || got.Experts.Tokens() != 3 {
		t.Errorf("%s: %v, %+v", text, err, got.Experts)
	}
	for _, bad := range []string{`{"experts":{"layers":1,"active":1,"ids":"AA=="}}`, `{"experts":{"ids":[1]}}`} {
		if json.Unmarshal([]byte(bad), &got) == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

func TestACutShortensTheExperts(t *testing.T) {
	x := Trajectory{Sequences: []Sequence{{TokenIDs: []int32{1, 2, 3, 4}, LossMask: []bool{false, true, true, true}, Logprobs: lps(4),
		Experts: &Experts{Layers: 1, Active: 1, IDs: ExpertIDs{1, 2, 3}}}}, Steps: []Step{{Start: 1, End: 4}}}
	x.Cut(Cut{Tokens: 1})
	if off, live := x.Sequences[0], x.Sequences[1]; off.Experts.Tokens() != 3 || live.Experts.Tokens() != 2 || live.Validate() != nil {
		t.Errorf("%d and %d tokens have experts", off.Experts.Tokens(), live.Experts.Tokens())
	}
}
