package loop

import (
	"agentcli/app/rollout"
	"agentcli/app/train"
)

// Options are the settings of loop: those of a rollout, those of a training
// run, and how they take turns.
type Options struct {
	Rollout rollout.Options
	Train   train.Options

	Steps     int // rollouts, each trained on
	Tasks     int // of each rollout
	Async     int // how many steps the policy that samples may be behind
	EvalEvery int // steps; 0: never
	EvalTasks int
	EvalTries int // attempts at each
	KLTarget  float64
	KLHorizon float64
	Output    string
	Resume    string
	Settings  map[string]any

	// Of a loop whose rollouts servers draw (Rollout.Model.BaseURL):

	AdminKey string // what requests carry that exchange weights; "": the key of all requests
	// WeightsThrough is ThroughDisk, ThroughWire or ThroughAdapter. "": disk where the server is on this machine and opens the
	// folder, else wire; the adapter where a run trains one and a server takes no weights.
	WeightsThrough string
}

// Serves reports whether servers draw the rollouts.
func (o *Options) Serves() bool {
	return len(o.Rollout.Model.BaseURL) > 0 && !o.Rollout.Model.BaseFromEnv
}
