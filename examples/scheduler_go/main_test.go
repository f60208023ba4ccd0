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
	if err := play(t.Context(), m, []string{"easy", "hard"}, func(x *traj.Trajectory) error {
		turns[x.Messages[0].Content] = len(x.Steps)
		return nil
	}); err != nil || turns["easy"] != 1 || turns["hard"] != 2 {
		t.Error(turns, err)
	}
}
