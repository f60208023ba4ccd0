package rollout

import (
	"testing"

	"agentcli/datasets"
	"agentcli/engine"
)

// TestASchedulerIsAskedOnDatasetsOfOneReply: a dataset that suggests one model call suggests
// it for its own loop; a scheduler that begins a turn gets one.
func TestASchedulerIsAskedOnDatasetsOfOneReply(t *testing.T) {
	tool, err := environmentNamed("")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ suggested, asked, without, with int }{{1, 0, 1, engine.DefaultMaxTurns},
		{20, 0, 20, 20}, {0, 0, engine.DefaultMaxTurns, engine.DefaultMaxTurns}, {1, 3, 3, 3}} {
		d := &datasets.Dataset{MaxTurns: c.suggested}
		if got := settled(Options{MaxTurns: c.asked}, tool, d).MaxTurns; got != c.without {
			t.Errorf("%+v: %d turns without a scheduler", c, got)
		}
		if got := settled(Options{MaxTurns: c.asked, Scheduler: "exec:x"}, tool, d).MaxTurns; got != c.with {
			t.Errorf("%+v: %d turns with a scheduler", c, got)
		}
	}
}
