package engine

import (
	"slices"
	"testing"

	"agentcli/traj"
)

// TestARowSaysWhichWeightsDrewItsTokens: its version is the oldest, whichever step had it, and
// only steps of others have their own.
func TestARowSaysWhichWeightsDrewItsTokens(t *testing.T) {
	for name, x := range map[string]struct {
		replies []traj.Response
		version int64
		steps   [][]int64
	}{
		"one version":             {[]traj.Response{{PolicyVersion: 2}, {PolicyVersion: 2}}, 2, [][]int64{nil, nil}},
		"exchanged between turns": {[]traj.Response{{PolicyVersion: 2}, {PolicyVersion: 3}, {PolicyVersion: 3}}, 2, [][]int64{nil, {3}, {3}}},
		"an older server":         {[]traj.Response{{PolicyVersion: 3}, {PolicyVersion: 3}, {PolicyVersion: 1}}, 1, [][]int64{{3}, {3}, nil}},
		"exchanged amid a reply": {[]traj.Response{{PolicyVersion: 2, Versions: []int64{2, 4}}, {PolicyVersion: 4}}, 2,
			[][]int64{{2, 4}, {4}}},
		"amid the last": {[]traj.Response{{PolicyVersion: 4}, {PolicyVersion: 4, Versions: []int64{4, 5}}}, 4,
			[][]int64{nil, {4, 5}}},
		"a reply without token ids": {[]traj.Response{{PolicyVersion: 4, Versions: []int64{4, 5, 5}}}, 4, [][]int64{nil}},
	} {
		row := &traj.Trajectory{}
		for i := range x.replies {
			step := traj.Step{Start: 3, End: 5} // two tokens
			recordVersions(row, &step, &x.replies[i])
			row.Steps = append(row.Steps, step)
		}
		for i, want := range x.steps {
			if got := row.Steps[i].PolicyVersions; row.PolicyVersion != x.version || !slices.Equal(got, want) {
				t.Errorf("%s: version %d, step %d has %v; want %d and %v", name, row.PolicyVersion, i, got, x.version, want)
			}
		}
	}
}
