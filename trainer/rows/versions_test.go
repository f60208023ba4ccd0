package rows

import (
	"testing"

	"agentcli/traj"
)

// TestARowOfSeveralVersionsIsAsOldAsItsTokens: on average, and as old as the oldest where old rows
// are left out; the newest token says how far the policy has come.
func TestARowOfSeveralVersionsIsAsOldAsItsTokens(t *testing.T) {
	row := &traj.Trajectory{PolicyVersion: 4, Steps: []traj.Step{
		{Start: 1, End: 3}, // both of version 4
		{Start: 5, End: 7, PolicyVersions: []int64{6}}, // both of 6
		{Start: 9, End: 13, PolicyVersions: []int64{4, 4, 6, 8}},
	}}
	ahead := versionsAhead(row)
	if ahead.Most != 4 || ahead.Mean != (2.*2+0+0+2+4)/8 {
		t.Errorf("%+v", ahead)
	}
	if a := versionsAhead(&traj.Trajectory{PolicyVersion: 9, Steps: []traj.Step{{Sequence: -1}}}); a.Most != 0 || a.Mean != 0 {
		t.Errorf("without tokens: %+v", a)
	}
}
