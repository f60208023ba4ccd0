package traj

import (
	"encoding/json"
	"slices"
	"testing"
)

func lps(n int) []Logprob {
	out := make([]Logprob, n)
	for i := range out {
		out[i] = Logprob(-float32(i+1) / 4)
	}
	return out
}

func TestRecordGrowsTheSequenceOrBeginsANewOne(t *testing.T) {
	var x Trajectory
	if s, a, b, err := x.Record([]int32{1, 2, 3}, nil, []int32{4, 5}, lps(2)); s != 0 || a != 3 || b != 5 || err != nil {
		t.Fatal(s, a, b, err)
	}
	// The next prompt starts with everything so far: the observation is masked.
	if s, a, b, err := x.Record([]int32{1, 2, 3, 4, 5, 9, 9}, nil, []int32{6}, nil); s != 0 || a != 7 || b != 8 || err != nil {
		t.Fatal(s, a, b, err)
	}
	// A server that tokenised the reply afresh: a new sequence, nothing trained twice.
	if s, a, b, err := x.Record([]int32{1, 2, 3, 45, 9, 9, 6, 9}, nil, []int32{7, 8}, lps(2)); s != 1 || a != 8 || b != 10 || err != nil {
		t.Fatal(s, a, b, err)
	}
	want := []Sequence{
		{TokenIDs: []int32{1, 2, 3, 4, 5, 9, 9, 6}, LossMask: []bool{false, false, false, true, true, false, false, true}},
		{TokenIDs: []int32{1, 2, 3, 45, 9, 9, 6, 9, 7, 8}, LossMask: []bool{false, false, false, false, false, false, false, false, true, true}},
	}
	for i, w := range want {
		got := x.Sequences[i]
		if err := got.Validate(); err != nil {
			t.Error(err)
		}
		if !slices.Equal(got.TokenIDs, w.TokenIDs) || !slices.Equal(got.LossMask, w.LossMask) {
			t.Errorf("sequence %d is %v %v", i, got.TokenIDs, got.LossMask)
		}
	}
	if lp := x.Sequences[0].Logprobs; !lp[3].Known() || lp[7].Known() || lp[0].Known() {
		t.Errorf("log-probs %v: known where none was given, or lost", lp)
	}
	if n := x.Sequences[0].Sampled(); n != 3 {
		t.Errorf("%d sampled tokens, want 3", n)
	}
}

func TestRecordWithoutIDsRecordsNothing(t *testing.T) {
	var x Trajectory
	for _, c := range [][2][]int32{{nil, nil}, {{1}, nil}, {nil, {2}}} {
		if s, _, _, err := x.Record(c[0], nil, c[1], nil); s != -1 || err != nil || x.Sequences != nil {
			t.Errorf("prompt %v, sampled %v gave sequence %d, %v", c[0], c[1], s, err)
		}
	}
	if _, _, _, err := x.Record([]int32{1}, nil, []int32{2, 3}, lps(1)); err == nil {
		t.Error("1 log-prob for 2 tokens was taken")
	}
}

func TestUnknownLogprobIsNullNotZero(t *testing.T) {
	b, err := json.Marshal([]Logprob{-.5, NoLogprob(), 0})
	if err != nil || string(b) != "[-0.5,null,0]" {
		t.Fatal(string(b), err)
	}
	var back []Logprob
	if err := json.Unmarshal(b, &back); err != nil || back[0] != -.5 || back[1].Known() || !back[2].Known() {
		t.Fatal(back, err)
	}
}

func TestFinalReplyIsNotAPendingCall(t *testing.T) {
	user, reply := Message{Role: RoleUser}, Message{Role: RoleAssistant, Content: "7"}
	call := Message{Role: RoleAssistant, ToolCalls: []ToolCall{{Name: "calculator"}}}
	tool := Message{Role: RoleTool}
	for _, c := range []struct {
		msgs []Message
		want bool
	}{{nil, false}, {[]Message{user}, false}, {[]Message{user, reply}, true}, {[]Message{user, call}, false},
		{[]Message{user, call, tool}, false}} {
		x := Trajectory{Messages: c.msgs}
		if got := x.FinalReply() != nil; got != c.want {
			t.Errorf("%v: final reply %v, want %v", c.msgs, got, c.want)
		}
	}
}

func TestInfrastructureEndingsAreNobodysFault(t *testing.T) {
	for _, e := range Terminations {
		want := e == ModelFailed || e == EnvFailed || e == RewardFailed || e == Cancelled
		if e.Infrastructure() != want {
			t.Errorf("%s: infrastructure %v", e, !want)
		}
	}
}
