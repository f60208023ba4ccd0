package rollout

import (
	"testing"

	"agentcli/datasets"
	"agentcli/env"
	"agentcli/model/chat"
	"agentcli/traj"
)

// TestARowsToolsAreBesideTheRuns: of two with one name the run's counts, which can be called;
// where calls have a form of their own, none of the row's is offered.
func TestARowsToolsAreBesideTheRuns(t *testing.T) {
	x := &envSetup{tools: &toolset{config: env.Config{Tools: []env.Tool{env.Calculator{}}}}}
	task := traj.Task{Meta: []byte(`{"tools":[{"name":"calculator","description":"another"},{"name":"f"}]}`)}
	c, err := x.config(task)
	if err != nil || len(c.Declared) != 1 || c.Declared[0].Name != "f" || c.Validate() != nil {
		t.Errorf("%+v, %v", c.Declared, err)
	}
	if c, err = x.config(traj.Task{}); err != nil || c.Declared != nil {
		t.Errorf("another row has %+v, %v", c.Declared, err)
	}
	if x.form, err = chat.ParserFor(chat.ParserSearch, nil); err != nil {
		t.Fatal(err)
	}
	if c, err = x.config(task); err != nil || c.Declared != nil {
		t.Errorf("tags have %+v, %v", c.Declared, err)
	}
}

// TestARunWithToolsOfItsRowsIsAnotherRun: a run of a program that did not offer them cannot
// be resumed by one that does, and a run without such rows keeps its identity.
func TestARunWithToolsOfItsRowsIsAnotherRun(t *testing.T) {
	x := &Run{Data: &datasets.Dataset{}, tools: &toolset{}, envs: &envSetups{}}
	without := x.Identity()
	x.Data.OwnTools = []traj.ToolSpec{{Name: "f"}}
	with := x.Identity()
	x.Data.OwnTools = []traj.ToolSpec{{Name: "g"}} // the journal has each task's hash
	if with == without || x.Identity() != with {
		t.Error(without, with, x.Identity())
	}
}

// TestTrajectoriesOfferOneListOfTools: what a client or a parser makes of a list of tools is
// made once a run, and not at each request.
func TestTrajectoriesOfferOneListOfTools(t *testing.T) {
	s, err := openEnvSetups(t.Context(), Options{Tools: []string{"calculator"}}, &datasets.Dataset{}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	var lists []*traj.ToolSpec
	for range 2 {
		a, err := s.newAgent(traj.Task{})
		if err != nil {
			t.Fatal(err)
		}
		lists = append(lists, &a.Request().Tools[0])
	}
	p, err := chat.ParserFor(chat.ParserAuto, nil)
	if err != nil {
		t.Fatal(err)
	}
	offered := s.main().specs
	made := p.For(offered)
	if lists[0] != lists[1] || made != p.For(offered) {
		t.Error("made again")
	}
	if other := []traj.ToolSpec{{Name: "f"}}; p.For(other) == made {
		t.Error("other tools have the same parser")
	}
}
