package traj

// What recorded log-probs are of: the metadata's "logprobs", of a server with
// "server: " in front.
const (
	LogprobsOfModel   = "model, temperature 1, full vocabulary"
	LogprobsAfterTemp = "after temperature, before top-k, top-p and min-p"
	LogprobsAfterCuts = "after temperature and cuts (top-k, top-p, min-p)"
	LogprobsNotKnown  = "as the server computes them, not probed"
)
