package main

import (
	"strings"
	"testing"

	"agentcli/eval"
	"agentcli/traj"
)

// TestPrintReport: every format says what is incomplete, and that a number is
// not there, rather than that it is 0.
func TestPrintReport(t *testing.T) {
	y := eval.New(eval.Config{Dataset: "d", Model: "m", Samples: 1, PassK: 1})
	y.Add(&traj.Trajectory{Task: traj.Task{ID: "p"}, Termination: traj.ModelFailed})
	for format, want := range map[string][]string{
		"table":    {"d · m · 1 problem × 1 sample", "pass@1", "– ± –\n", "1 problem incomplete", "ended: model_error 1"},
		"markdown": {"**d · m · 1 problem × 1 sample**", "| pass@1 | – | – |", "1 problem incomplete"},
		"csv":      {"d,m,pass@1,,,0,1"},
		"json":     {`"value": null`, `"incomplete": 1`},
	} {
		var b strings.Builder
		if err := printReport(&b, y.Report(), format); err != nil {
			t.Fatal(err)
		}
		for _, part := range want {
			if !strings.Contains(b.String(), part) {
				t.Errorf("%s: %q is not in\n%s", format, part, b.String())
			}
		}
	}
	if len(reportFormats) != 4 {
		t.Error("a format is not tested")
	}
}
