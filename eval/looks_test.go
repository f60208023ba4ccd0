package eval

import (
	"encoding/json"
	"testing"

	"agentcli/traj"

	"github.com/google/go-cmp/cmp"
)

// seen is an attempt with an image, so many crops of it, and as many calls and two more that
// failed where it has crops.
func seen(id string, attempt, crops int, right bool) *traj.Trajectory {
	t := played(id, attempt, traj.Answered, "4", right)
	t.Images = []traj.Image{{Hash: "a", Width: 600, Height: 600}}
	for range crops {
		t.Images = append(t.Images, traj.Image{Hash: "b", Crop: &traj.Crop{Source: "a", Box: [4]int{100, 20, 200, 60}}})
	}
	t.Steps[0].ToolCalls, t.Steps[0].ToolErrors = crops, 0
	if crops > 0 {
		t.Steps[0].ToolCalls, t.Steps[0].ToolErrors = crops+2, 2
	}
	return t
}

func TestAReportSaysHowImagesWereUsed(t *testing.T) {
	y := New(Config{Samples: 2, PassK: 1})
	for _, x := range []*traj.Trajectory{
		seen("a", 0, 2, true), seen("a", 1, 0, false),
		seen("b", 0, 1, true), seen("b", 1, 1, false),
		seen("c", 0, 0, true), played("c", 1, traj.Answered, "4", false), // no image: in none of these
	} {
		y.Add(x)
	}
	l := reported(t, y).Looks
	if l == nil {
		t.Fatal("no looks")
	}
	got := map[string][2]float64{}
	for name, e := range map[string]Estimate{"share": l.Share, "per trajectory": l.PerTrajectory, "width": l.Width, "height": l.Height,
		"refused": l.Refused, "with": l.With, "without": l.Without} {
		got[name] = [2]float64{*e.Value, float64(e.Problems)}
	}
	want := map[string][2]float64{"share": {3. / 5, 3}, "per trajectory": {4. / 5, 3}, "width": {100, 2}, "height": {40, 2},
		"refused": {6. / 10, 2}, "with": {2. / 3, 2}, "without": {1. / 2, 2}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if *l.Share.StdErr <= 0 || l.Width.Bound != nil {
		t.Errorf("%+v", l)
	}
}

func TestAReportWithoutImagesSaysNothingOfThem(t *testing.T) {
	y := New(Config{Samples: 1, PassK: 1})
	y.Add(played("a", 0, traj.Answered, "4", true))
	b, err := json.Marshal(reported(t, y))
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(b, &keys); err != nil {
		t.Fatal(err)
	}
	if _, there := keys["looks"]; there {
		t.Errorf("%s", b)
	}
}

func TestEnvironmentsOfARunAreReportedApart(t *testing.T) {
	y := New(Config{Samples: 2, PassK: 2})
	in := func(env string, x *traj.Trajectory) *traj.Trajectory {
		x.Task.Env = env
		return x
	}
	for _, x := range []*traj.Trajectory{
		in("search", played("a", 0, traj.Answered, "4", true)), in("search", played("a", 1, traj.Answered, "5", false)),
		in("search", played("b", 0, traj.Answered, "4", true)), in("search", played("b", 1, traj.Answered, "4", true)),
		in("", played("c", 0, traj.Answered, "5", false)), in("", played("c", 1, traj.ModelFailed, "", false)),
	} {
		y.Add(x)
	}
	got := reported(t, y).Environments
	if len(got) != 2 || got[0].Env != "" || got[0].Problems != 1 || got[0].Attempts != 1 || *got[0].PassAt1.Value != 0 ||
		got[1].Env != "search" || got[1].Problems != 2 || got[1].Attempts != 4 || *got[1].PassAt1.Value != .75 || *got[1].PassAt1.StdErr <= 0 {
		t.Errorf("%+v", got)
	}
	one := New(Config{Samples: 1, PassK: 1})
	one.Add(in("search", played("a", 0, traj.Answered, "4", true)))
	if got := reported(t, one).Environments; got != nil {
		t.Errorf("one environment: %+v", got)
	}
}
