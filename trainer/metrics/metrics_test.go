package metrics

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, dir string, keep int, steps ...int) {
	t.Helper()
	l, err := Open(dir, keep, time.Unix(1700000000+int64(keep), 0))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		if err := l.Write(s, map[string]float64{"actor/lr": 1e-5 * float64(s), "critic/score/mean": .5, "odd": math.NaN()}, time.Unix(1700000000+int64(s), 0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestTensorBoardReadsTheEvents(t *testing.T) {
	python := os.Getenv("AGENTCLI_PYTHON")
	if python == "" {
		t.Skip("AGENTCLI_PYTHON names no Python with the tensorboard package; make test sets it")
	}
	dir := t.TempDir()
	write(t, dir, 0, 1, 2, 3)
	out, err := exec.Command(python, "-c", `
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
a = EventAccumulator(sys.argv[1]); a.Reload()
print(json.dumps({k: [(e.step, e.value, e.wall_time) for e in a.Scalars(k)] for k in a.Tags()["scalars"] if k != "odd"}))`, dir).Output()
	if err != nil {
		t.Fatalf("tensorboard cannot read the file: %v", err)
	}
	var got map[string][][3]float64
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	for s := 1; s <= 3; s++ {
		e := got["actor/lr"][s-1]
		if int(e[0]) != s || math.Abs(e[1]-1e-5*float64(s)) > 1e-10 || e[2] != 1700000000+float64(s) {
			t.Errorf("step %d came back as %v", s, e)
		}
	}
}

func TestResumedLogDropsUndoneSteps(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, 0, 1, 2, 3)
	f, err := os.OpenFile(filepath.Join(dir, "metrics.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(`{"step": 4, "torn`)
	f.Close()
	write(t, dir, 2, 3, 4)
	data, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d lines, want steps 1 to 4:\n%s", len(lines), data)
	}
	for i, l := range lines {
		var v map[string]any
		if err := json.Unmarshal([]byte(l), &v); err != nil || v["step"] != float64(i+1) || v["odd"] != nil {
			t.Errorf("line %d is %s (%v)", i+1, l, err)
		}
	}
}

func TestPlotIsWellFormedWhateverTheNumbers(t *testing.T) {
	nan := math.NaN()
	for name, c := range map[string]Curve{
		"a curve":      {Name: "reward <&>", X: []float64{1, 2, 3}, Y: []float64{.2, .5, .9}, Err: []float64{.1, .1, nan}},
		"one point":    {X: []float64{1}, Y: []float64{5}},
		"a flat curve": {X: []float64{1, 2}, Y: []float64{0, 0}},
		"nothing":      {},
		"gaps":         {X: []float64{1, 2, 3}, Y: []float64{nan, math.Inf(1), 1e-9}},
		"huge":         {X: []float64{0, 1e9}, Y: []float64{-1e30, 1e30}},
	} {
		svg := SVG("run <1>", []Panel{{Title: name, XLabel: "step", Curves: []Curve{c, c}}}, 2)
		d := xml.NewDecoder(strings.NewReader(string(svg)))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if strings.Contains(string(svg), "NaN") || strings.Contains(string(svg), "Inf") {
			t.Errorf("%s: the picture holds NaN or Inf", name)
		}
	}
}
