package main

import (
	"path/filepath"
	"testing"

	"agentcli/llm/llmtest"
)

func TestAStopStringKeepsItsSpace(t *testing.T) {
	stops := make(chan string, 9)
	s := llmtest.New(t, func(r *llmtest.Request) llmtest.Reply {
		if r.Has("stop") {
			stops <- string(r.Fields["stop"])
		}
		return llmtest.Text("7")
	})
	if _, log, code := run(t, "rollout", "--base-url", s.BaseURL(), "--model", "m", "-d", "arith", "--limit", "1", "-n", "1",
		"--tools", "none", "--stop", "\n", "--stop", " END ", "-o", filepath.Join(t.TempDir(), "t.parquet")); code != 0 {
		t.Fatalf("%d: %s", code, log)
	}
	if got := <-stops; got != `["\n"," END "]` {
		t.Errorf("the server is asked to stop at %s", got)
	}
}
