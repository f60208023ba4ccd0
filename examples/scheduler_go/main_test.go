package main

import (
	"testing"

	"agentcli/llm"
	"agentcli/llm/llmtest"
	"agentcli/traj"
)

// TestOnlyWhoIsNotSureIsAskedAgain, and with another temperature.
func TestOnlyWhoIsNotSureIsAskedAgain(t *testing.T) {
	s := llmtest.New(t, func(r *llmtest.Request) llmtest.Reply {
		if len(r.Messages) > 1 && string(r.Fields["temperature"]) != "0.5" {
			t.Errorf("asked again at %s", r.Fields["temperature"])
		}
		if r.Messages[0].Text() == "easy" || len(r.Messages) == 3 {
			return llmtest.Text("I am sure.")
		}
		return llmtest.Text("Perhaps.")
	})
	m, err := llm.New(llm.Config{BaseURL: s.BaseURL(), Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	turns := map[string]int{}
	if err := play(t.Context(), m, "sure", []string{"easy", "hard"}, func(x *traj.Trajectory) error {
		turns[x.Messages[0].Content] = len(x.Steps)
		return nil
	}); err != nil || turns["easy"] != 1 || turns["hard"] != 2 {
		t.Error(turns, err)
	}
}

// TestDraftsAreRowsOfOneGroup, and an environment in gym's form wants to be thanked.
func TestDraftsAreRowsOfOneGroup(t *testing.T) {
	s := llmtest.New(t, func(r *llmtest.Request) llmtest.Reply {
		if len(r.Messages) > 2 {
			return llmtest.Text("Thank you.")
		}
		return llmtest.Text("Perhaps.")
	})
	m, err := llm.New(llm.Config{BaseURL: s.BaseURL(), Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]int{}
	keep := func(x *traj.Trajectory) error {
		if x.Termination.Infrastructure() || len(x.Steps) != 2 {
			t.Errorf("%s: %s %q after %d turns", x.ID, x.Termination, x.Error, len(x.Steps))
		}
		rows[x.GroupID]++
		return nil
	}
	if err := play(t.Context(), m, "drafts", []string{"a", "b"}, keep); err != nil || rows["0"] != 3 || rows["1"] != 3 {
		t.Error(rows, err)
	}
	if err := play(t.Context(), m, "polite", []string{"a"}, keep); err != nil || rows["0"] != 4 {
		t.Error(rows, err)
	}
	if err := play(t.Context(), m, "nobody", nil, keep); err == nil {
		t.Error("a scheduler that there is not was opened")
	}
}
