package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentcli/agent"
	"agentcli/env"
	"agentcli/traj"
)

// script is a scheduler that says what a test wants.
type script struct {
	next   func(Turn) (Next, error)
	start  func(Opening) (Opening, error)
	finish func(Turn) (traj.Termination, error)
	closed func(traj.Termination)
}

func (s *script) Next(_ context.Context, t Turn) (Next, error) { return s.next(t) }
func (s *script) Start(_ context.Context, o Opening) (Opening, error) {
	if s.start == nil {
		return o, nil
	}
	return s.start(o)
}
func (s *script) Finished(_ context.Context, t Turn) (traj.Termination, error) {
	if s.finish == nil {
		return "", nil
	}
	return s.finish(t)
}
func (s *script) Close(end traj.Termination) error {
	if s.closed != nil {
		s.closed(end)
	}
	return nil
}

// playScript plays one trajectory with a scheduler, of a model that writes "one two 世".
func playScript(t *testing.T, s *script, change func(*Config)) *traj.Trajectory {
	t.Helper()
	turn := int32(0)
	c := Config{MaxTurns: 4, NewScheduler: func(traj.Task) (Scheduler, error) { return s, nil },
		NewAgent: func(traj.Task) (agent.Agent, error) { return agent.New(nil), nil },
		NewEnv:   func(traj.Task) (env.Environment, error) { return env.New(env.Config{}) },
		Model: modelFunc(func(_ context.Context, r *traj.Request) (*traj.Response, error) {
			turn++
			prompt := []int32{1, 2}
			if len(r.PrefixIDs) > 0 {
				prompt = append(slices.Clone(r.PrefixIDs), 7)
			}
			return &traj.Response{Message: traj.Message{Content: "one two 世"}, PromptIDs: prompt, SampledIDs: []int32{10, 20 + turn, 30},
				FinishReason: traj.FinishStop, PromptTokens: len(prompt), OutputTokens: 3}, nil
		})}
	if change != nil {
		change(&c)
	}
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	var got *traj.Trajectory
	task := traj.Task{ID: "t", Messages: []traj.Message{{Role: traj.RoleUser, Content: "q"}}}
	if _, err := e.Run(t.Context(), func(yield func(traj.Task, error) bool) { yield(task, nil) },
		func(x *traj.Trajectory) error { got = x; return nil }); err != nil {
		t.Fatal(err)
	}
	return got
}

func user(s string) []traj.Message { return []traj.Message{{Role: traj.RoleUser, Content: s}} }

// TestWhatASchedulerCannotSayIsAnError: of its trajectory alone.
func TestWhatASchedulerCannotSayIsAnError(t *testing.T) {
	at := func(n int) *int { return &n }
	nan, inf := math.NaN(), math.Inf(1)
	for name, n := range map[string]Next{
		"two ways at once":                 {Messages: user("x"), Continue: "y"},
		"a stop and messages":              {Stop: traj.Answered, Messages: user("x")},
		"a stop that is a failure":         {Stop: traj.ModelFailed},
		"a stop that there is not":         {Stop: "whatever"},
		"nothing":                          {},
		"a message of the model":           {Messages: []traj.Message{{Role: traj.RoleAssistant, Content: "x"}}},
		"a cut at 0":                       {Cut: at(0)},
		"a cut before 0":                   {Cut: at(-1)},
		"a cut beyond the reply":           {Cut: at(12)},
		"a cut inside a character":         {Cut: at(9)},
		"weights of another length":        {Messages: user("x"), Weights: []float64{1, 1}},
		"a negative weight":                {Messages: user("x"), Weights: []float64{-1}},
		"a weight that is no number":       {Messages: user("x"), Weights: []float64{1, nan, 1}},
		"an infinite weight":               {Messages: user("x"), Weights: []float64{inf}},
		"a reward that is no number":       {Messages: user("x"), Reward: &nan},
		"an info that is no object":        {Messages: user("x"), Info: traj.Info("[1]")},
		"an info that is no JSON":          {Messages: user("x"), Info: traj.Info("{")},
		"an info of megabytes":             {Messages: user("x"), Info: traj.Info(`{"a":"` + strings.Repeat("x", maxInfo) + `"}`)},
		"a history without replies":        {History: user("x")},
		"an empty history":                 {History: []traj.Message{}},
		"a history that ends with a reply": {History: append(user("x"), traj.Message{Role: traj.RoleAssistant, Content: "y"})},
		"a history of unknown roles": {History: append([]traj.Message{{Role: traj.RoleAssistant}, {Role: "judge", Content: "y"}},
			user("x")...)},
	} {
		x := playScript(t, &script{next: func(Turn) (Next, error) { return n, nil }}, nil)
		if x.Termination != traj.EnvFailed || x.Reward != nil || len(x.Steps) != 1 || !strings.Contains(x.Error, ErrNext.Error()) {
			t.Errorf("%s: %s %q after %d turns", name, x.Termination, x.Error, len(x.Steps))
		}
	}
}

// TestASchedulerThatPanicsHangsOrFailsCostsItsTrajectory and no more; it is told the end.
func TestASchedulerThatPanicsHangsOrFailsCostsItsTrajectory(t *testing.T) {
	boom := errors.New("boom")
	var told traj.Termination
	playScript(t, &script{closed: func(end traj.Termination) { told = end }}, func(c *Config) {
		c.NewAgent = func(traj.Task) (agent.Agent, error) { return panicking{agent.New(nil)}, nil }
	})
	if told != traj.EnvFailed {
		t.Errorf("a panic of the agent: told %q", told)
	}
	for name, s := range map[string]*script{
		"panic":        {next: func(Turn) (Next, error) { panic("boom") }},
		"error":        {next: func(Turn) (Next, error) { return Next{}, boom }},
		"start":        {start: func(Opening) (Opening, error) { return Opening{}, boom }},
		"start panics": {start: func(Opening) (Opening, error) { panic("boom") }},
		"finish":       {finish: func(Turn) (traj.Termination, error) { return "", boom }},
		"bad opening":  {start: func(o Opening) (Opening, error) { o.Messages = []traj.Message{}; return o, nil }},
	} {
		var ends []traj.Termination
		s.closed = func(end traj.Termination) { ends = append(ends, end) }
		x := playScript(t, s, nil)
		if x.Termination != traj.EnvFailed || !slices.Equal(ends, []traj.Termination{traj.EnvFailed}) {
			t.Errorf("%s: %s %q, told %v", name, x.Termination, x.Error, ends)
		}
	}
}

// TestASchedulerThatHangsIsLeftBehind: and closed when it comes back after all.
func TestASchedulerThatHangsIsLeftBehind(t *testing.T) {
	for _, late := range []error{nil, errors.New("too late")} {
		hangs(t, late)
	}
}

// hangs plays a scheduler that comes back late, with an error or without.
func hangs(t *testing.T, late error) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var told []traj.Termination
		s := &script{next: func(Turn) (Next, error) { <-release; return Next{}, late },
			closed: func(end traj.Termination) { told = append(told, end) }}
		x := playScript(t, s, func(c *Config) { c.Timeout = time.Minute })
		if x.Termination != traj.EnvFailed || !strings.Contains(x.Error, errLeft.Error()) || told != nil {
			t.Errorf("%s %q, told %v", x.Termination, x.Error, told)
		}
		close(release)
		synctest.Wait()
		if !slices.Equal(told, []traj.Termination{traj.EnvFailed}) {
			t.Errorf("late error %v: told %v", late, told)
		}
	})
}

// TestATextBehindCallsThatTheServerReadIsRefused: the next prompt would have it in front of
// them. With the reply's text it is where it belongs.
func TestATextBehindCallsThatTheServerReadIsRefused(t *testing.T) {
	for raw, end := range map[string]traj.Termination{"": traj.EnvFailed, "so: call f": traj.MaxTurns} {
		x := playScript(t, &script{next: func(Turn) (Next, error) { return Next{Continue: "!"}, nil }}, func(c *Config) {
			c.NewEnv = func(traj.Task) (env.Environment, error) { return &silent{}, nil }
			c.Model = modelFunc(func(context.Context, *traj.Request) (*traj.Response, error) {
				return &traj.Response{Message: traj.Message{Content: "so: ", ToolCalls: []traj.ToolCall{{ID: "a", Name: "f", Arguments: "{}"}}},
					Raw: raw, FinishReason: traj.FinishToolCalls}, nil
			})
		})
		if refused := strings.Contains(x.Error, ErrCallsRead.Error()); x.Termination != end || refused != (raw == "") {
			t.Errorf("reply %q: %s %q", raw, x.Termination, x.Error)
		}
	}
}

// silent is an environment that says nothing.
type silent struct{}

func (silent) Reset(_ context.Context, t traj.Task) (traj.Observation, error) {
	return traj.Observation{Messages: t.Messages}, nil
}
func (silent) Step(context.Context, traj.Action) (env.Result, error) { return env.Result{}, nil }
func (silent) Close() error                                          { return nil }

// panicking is an agent that panics.
type panicking struct{ agent.Agent }

func (panicking) Update(*traj.Response) traj.Action { panic("boom") }

// TestLimitsAreTheEnginesWhateverASchedulerSays: turns, tokens, replies that were cut short.
func TestLimitsAreTheEnginesWhateverASchedulerSays(t *testing.T) {
	more := func(Turn) (Next, error) { return Next{Messages: user("more")}, nil }
	finish := func(reason, content string) func(*Config) {
		return func(c *Config) {
			c.Model = modelFunc(func(context.Context, *traj.Request) (*traj.Response, error) {
				return &traj.Response{Message: traj.Message{Content: content}, FinishReason: reason}, nil
			})
		}
	}
	var lasts []bool
	for name, x := range map[string]struct {
		s      *script
		change func(*Config)
		end    traj.Termination
		turns  int
	}{
		"turns": {&script{next: func(t Turn) (Next, error) { lasts = append(lasts, t.Last); return more(t) }}, nil, traj.MaxTurns, 4},
		"turns with a rewritten history": {&script{next: func(t Turn) (Next, error) {
			return Next{History: append([]traj.Message{{Role: traj.RoleAssistant, Content: "x"}}, user("y")...)}, nil
		}}, nil, traj.MaxTurns, 4},
		"length": {&script{next: more}, finish(traj.FinishLength, "x"), traj.TurnLength, 1},
		"empty":  {&script{next: more}, finish(traj.FinishStop, " "), traj.EmptyReply, 1},
		"tokens": {&script{next: more}, func(c *Config) { c.MaxResponseTokens = 9 }, traj.MaxTokens, 1},
		"tokens, cuts": {&script{next: func(Turn) (Next, error) { return Next{Cut: new(3)}, nil }},
			func(c *Config) { c.MaxResponseTokens = 7 }, traj.MaxTokens, 3},
		"a stop": {&script{next: func(Turn) (Next, error) { return Next{Stop: traj.EnvDone}, nil }}, nil, traj.EnvDone, 1},
		"finished": {&script{next: more, finish: func(t Turn) (traj.Termination, error) { return traj.Answered, nil }}, nil,
			traj.Answered, 1},
	} {
		got := playScript(t, x.s, x.change)
		if got.Termination != x.end || len(got.Steps) != x.turns {
			t.Errorf("%s: %s after %d turns (%s)", name, got.Termination, len(got.Steps), got.Error)
		}
		if last := got.Messages[len(got.Messages)-1]; last.Role != traj.RoleAssistant {
			t.Errorf("%s: the last words are %+v", name, last)
		}
	}
	if !slices.Equal(lasts, []bool{false, false, false, true}) {
		t.Errorf("last turns: %v", lasts)
	}
}

// TestASchedulerBeginsAndSteers: opening, tools, sampling and infos arrive where they belong.
func TestASchedulerBeginsAndSteers(t *testing.T) {
	var asked []*traj.Request
	s := &script{
		start: func(o Opening) (Opening, error) {
			o.Messages = append(user("another question"), o.Messages...)
			o.Info = traj.Info(`{"level":3}`)
			return o, nil
		},
		next: func(turn Turn) (Next, error) {
			switch turn.Number {
			case 1:
				return Next{Messages: user("x"), NoTools: true, Info: traj.Info(`{"n":1}`),
					Sampling: &traj.Sampling{TopK: 5, MaxTokens: 1000}}, nil
			case 2:
				return Next{Messages: user("y"), Sampling: &traj.Sampling{MaxTokens: 10}}, nil
			}
			return Next{Stop: traj.Answered, Info: traj.Info(`{"n":3}`)}, nil
		}}
	x := playScript(t, s, func(c *Config) {
		inner := c.Model
		c.Model = modelFunc(func(ctx context.Context, r *traj.Request) (*traj.Response, error) {
			asked = append(asked, r)
			return inner.Generate(ctx, r)
		})
		c.Sampling = traj.Sampling{MaxTokens: 50, TopK: 9}
		c.NewAgent = func(traj.Task) (agent.Agent, error) { return agent.New(someTools), nil }
	})
	if len(asked) != 3 || asked[0].Messages[0].Content != "another question" {
		t.Fatalf("%d requests", len(asked))
	}
	for i, want := range []struct{ tools, topK, tokens int }{{1, 9, 50}, {0, 5, 50}, {1, 0, 10}} {
		if r := asked[i]; len(r.Tools) != want.tools || r.Sampling.TopK != want.topK || r.Sampling.MaxTokens != want.tokens {
			t.Errorf("request %d: %d tools, %+v", i, len(r.Tools), r.Sampling)
		}
	}
	got, _ := json.Marshal(x.Infos)
	if string(got) != `[{"start":{"level":3},"n":1},null,{"n":3}]` {
		t.Errorf("infos %s", got)
	}
}

// TestWhatAStartGaveIsKeptWhereTheSchedulerIsNotAskedAgain: a reply at its limit ends the trajectory.
func TestWhatAStartGaveIsKeptWhereTheSchedulerIsNotAskedAgain(t *testing.T) {
	s := &script{start: func(o Opening) (Opening, error) { o.Info = traj.Info(`{"level":3}`); return o, nil },
		next: func(Turn) (Next, error) { return Next{Stop: traj.Answered}, nil }}
	x := playScript(t, s, func(c *Config) {
		c.Model = modelFunc(func(context.Context, *traj.Request) (*traj.Response, error) {
			return &traj.Response{Message: traj.Message{Role: traj.RoleAssistant, Content: "x"}, FinishReason: traj.FinishLength}, nil
		})
	})
	if got, _ := json.Marshal(x.Infos); x.Termination != traj.TurnLength || string(got) != `[{"start":{"level":3}}]` {
		t.Errorf("%s, infos %s", x.Termination, got)
	}
}

// TestWhatOpensAConversationIsKnownWhateverASchedulerMakesOfIt: rewards take what stands
// behind Task.Messages for what was played.
func TestWhatOpensAConversationIsKnownWhateverASchedulerMakesOfIt(t *testing.T) {
	replaced := []traj.Message{{Role: traj.RoleSystem, Content: "be brief"}, {Role: traj.RoleUser, Content: "one"},
		{Role: traj.RoleAssistant, Content: "1"},
		{Role: traj.RoleUser, Content: "two"}}
	for name, c := range map[string]struct {
		history []traj.Message
		want    int // messages of the opening
	}{
		"another opening":            {nil, 4},
		"a history behind the shots": {slices.Concat(replaced, []traj.Message{{Role: traj.RoleAssistant, Content: "2"}}, user("go on")), 4},
		"a summary": {[]traj.Message{{Role: traj.RoleUser, Content: "so far"}, {Role: traj.RoleAssistant, Content: "2"},
			{Role: traj.RoleUser, Content: "go on"}}, 1},
	} {
		var scored []traj.Message
		x := playScript(t, &script{
			start: func(o Opening) (Opening, error) { o.Messages = replaced; return o, nil },
			next: func(turn Turn) (Next, error) {
				if turn.Number == 1 && c.history != nil {
					return Next{History: c.history}, nil
				}
				return Next{Stop: traj.Answered}, nil
			}}, func(c *Config) {
			c.Reward = func(_ context.Context, x *traj.Trajectory) error { scored = x.Task.Messages; return nil }
		})
		if n := len(scored); n != c.want || x.Error != "" {
			t.Errorf("%s: %d messages open it, want %d %s", name, n, c.want, x.Error)
		}
		for i, m := range scored {
			if x.Messages[i].Content != m.Content {
				t.Errorf("%s: message %d is %q, and opens as %q", name, i, x.Messages[i].Content, m.Content)
			}
		}
		if len(x.Task.Messages) != 1 { // else the row would be another when the run is resumed
			t.Errorf("%s: the task is kept with %d messages", name, len(x.Task.Messages))
		}
	}
}

// TestASlowTrajectoryHoldsNoOtherUp: there is no barrier between turns.
func TestASlowTrajectoryHoldsNoOtherUp(t *testing.T) {
	const n = 8
	others := make(chan struct{})
	var mu sync.Mutex
	ended := 0
	c := Config{MaxTurns: 3, Parallel: n, NewAgent: func(traj.Task) (agent.Agent, error) { return agent.New(nil), nil },
		NewEnv: func(traj.Task) (env.Environment, error) { return env.New(env.Config{}) },
		Model: modelFunc(func(context.Context, *traj.Request) (*traj.Response, error) {
			return &traj.Response{Message: traj.Message{Content: "x"}, FinishReason: traj.FinishStop}, nil
		}),
		NewScheduler: func(task traj.Task) (Scheduler, error) {
			return &script{next: func(turn Turn) (Next, error) {
				if task.ID == "0" {
					<-others // which a barrier would keep from ending
				}
				return Next{Messages: user("more")}, nil
			}}, nil
		}}
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Run(t.Context(), func(yield func(traj.Task, error) bool) {
		for i := range n {
			if !yield(traj.Task{ID: fmt.Sprint(i), Messages: user("q")}, nil) {
				return
			}
		}
	}, func(x *traj.Trajectory) error {
		mu.Lock()
		defer mu.Unlock()
		if ended++; ended == n-1 {
			close(others)
		}
		return nil
	})
	if err != nil || ended != n {
		t.Fatal(ended, err)
	}
}
