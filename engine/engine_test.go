package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"agentcli/agent"
	"agentcli/env"
	"agentcli/traj"

	"github.com/google/go-cmp/cmp"
)

type modelFunc func(ctx context.Context, req *traj.Request) (*traj.Response, error)

func (f modelFunc) Generate(ctx context.Context, req *traj.Request) (*traj.Response, error) {
	return f(ctx, req)
}

// say is a reply whose every byte is a token, behind a prompt of all bytes of
// the conversation; so the prompt grows as a real one does.
func say(req *traj.Request, content string, calls ...traj.ToolCall) *traj.Response {
	r := &traj.Response{Message: traj.Message{Content: content, ToolCalls: calls}, FinishReason: traj.FinishStop, Policy: "fake"}
	r.PromptIDs = slices.Clone(req.PrefixIDs)
	for _, m := range req.Messages[req.PrefixMessages:] {
		for _, b := range []byte(m.Content) {
			r.PromptIDs = append(r.PromptIDs, int32(b))
		}
	}
	text := content
	for _, c := range calls {
		text += c.Arguments
	}
	for _, b := range []byte(text) {
		r.SampledIDs = append(r.SampledIDs, int32(b))
		r.Logprobs = append(r.Logprobs, -0.5)
	}
	r.PromptTokens, r.OutputTokens = len(r.PromptIDs), len(r.SampledIDs)
	if len(calls) > 0 {
		r.FinishReason = traj.FinishToolCalls
	}
	return r
}

func calc(expression string) traj.ToolCall {
	return traj.ToolCall{Name: "calculator", Arguments: fmt.Sprintf(`{"expression":%q}`, expression)}
}

func named(id string, c traj.ToolCall) traj.ToolCall {
	c.ID = id
	return c
}

func tasks(n int) iter.Seq2[traj.Task, error] {
	return func(yield func(traj.Task, error) bool) {
		for i := range n {
			q := fmt.Sprintf("question %d", i)
			if !yield(traj.Task{ID: fmt.Sprintf("t/%d", i), Question: q, Messages: []traj.Message{{Role: "user", Content: q}}}, nil) {
				return
			}
		}
	}
}

// config is a run with the calculator; the reward is 1 for a final reply "84".
func config(m modelFunc) Config {
	tools := env.Config{Tools: []env.Tool{env.Calculator{}}}
	return Config{
		Model:    m,
		NewAgent: func(traj.Task) (agent.Agent, error) { return agent.New(tools.Specs()), nil },
		NewEnv:   func(traj.Task) (env.Environment, error) { return env.New(tools) },
		Reward: func(_ context.Context, t *traj.Trajectory) error {
			v, ok := 0.0, false
			if r := t.FinalReply(); r != nil {
				t.Extracted = &r.Content
				ok = r.Content == "84"
			}
			if ok {
				v = 1
			}
			t.Reward, t.Correct = &v, &ok
			return nil
		},
	}
}

func play(t *testing.T, c Config, n int) ([]*traj.Trajectory, Summary, error) {
	t.Helper()
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	var all []*traj.Trajectory
	s, err := e.Run(t.Context(), tasks(n), func(x *traj.Trajectory) error { all = append(all, x); return nil })
	return all, s, err
}

// toolThenAnswer calls the calculator once and answers with its result.
func toolThenAnswer(_ context.Context, req *traj.Request) (*traj.Response, error) {
	last := req.Messages[len(req.Messages)-1]
	if last.Role == traj.RoleTool {
		return say(req, last.Content), nil
	}
	return say(req, "", calc("12*7")), nil
}

func TestRunAnswered(t *testing.T) {
	all, s, err := play(t, config(toolThenAnswer), 1)
	if err != nil || len(all) != 1 || s.Done != 1 || s.Errors != 0 || s.Mean != 1 {
		t.Fatalf("%+v %v", s, err)
	}
	x := all[0]
	var roles []string
	for _, m := range x.Messages {
		roles = append(roles, m.Role+":"+m.Content)
	}
	if diff := cmp.Diff([]string{"user:question 0", "assistant:", "tool:84", "assistant:84"}, roles); diff != "" {
		t.Error(diff)
	}
	if x.Termination != traj.Answered || *x.Reward != 1 || !*x.Correct || x.ID != "t/0#0" || x.GroupID != "t/0" || x.Policy != "fake" {
		t.Errorf("%+v", x)
	}
	// One sequence: prompt, call (trained), result (not trained), answer (trained).
	if len(x.Sequences) != 1 || x.Sequences[0].Validate() != nil {
		t.Fatalf("%+v", x.Sequences)
	}
	q := x.Sequences[0]
	var text, mask strings.Builder
	for i, id := range q.TokenIDs {
		text.WriteByte(byte(id))
		if q.LossMask[i] != q.Logprobs[i].Known() {
			t.Fatal("a sampled token has a log-prob, another has none")
		}
		mask.WriteByte(map[bool]byte{true: 'x', false: '.'}[q.LossMask[i]])
	}
	if text.String() != `question 0{"expression":"12*7"}8484` || mask.String() != "..........xxxxxxxxxxxxxxxxxxxxx..xx" {
		t.Fatalf("\n%s\n%s", text.String(), mask.String())
	}
	if x.Steps[0].End != 31 || x.Steps[1].Start != 33 || x.Steps[1].End != 35 || x.CompletionTokens != 23 ||
		x.PromptTokens != 10 || x.Steps[0].ToolCalls != 1 {
		t.Fatalf("%+v", x.Steps)
	}
}

// ending is how a trajectory of a model ends.
type ending struct {
	name   string
	model  modelFunc
	change func(*Config)
	want   traj.Termination
	error  string // part of Trajectory.Error
	reward string // "nil" or the number
	answer bool   // there is a final reply
	turns  int
}

// cutAtLength replies as a model does that reached its longest reply.
func cutAtLength(content string) modelFunc {
	return func(_ context.Context, req *traj.Request) (*traj.Response, error) {
		r := say(req, content)
		r.FinishReason = traj.FinishLength
		return r, nil
	}
}

func failing(err error) modelFunc {
	return func(context.Context, *traj.Request) (*traj.Response, error) { return nil, err }
}

func always(content string, calls ...traj.ToolCall) modelFunc {
	return func(_ context.Context, req *traj.Request) (*traj.Response, error) {
		return say(req, content, calls...), nil
	}
}

func hanging(ctx context.Context, _ *traj.Request) (*traj.Response, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// unreadCall replies with a call that cannot be read.
func unreadCall(_ context.Context, req *traj.Request) (*traj.Response, error) {
	r := say(req, `<tool_call>{"name": 84`)
	r.CallErrors = []traj.CallError{{Raw: "{", Reason: "it ends too early"}}
	return r, nil
}

// endings is the golden table of how a trajectory ends.
var endings = []ending{
	{"answered", always("84"), nil, traj.Answered, "", "1", true, 1},
	{"wrong", always("85"), nil, traj.Answered, "", "0", true, 1},
	{"max turns with a pending call", always("84", calc("1")), func(c *Config) { c.MaxTurns = 3 }, traj.MaxTurns, "", "0", false, 3},
	{"max turns with a call that cannot be read", unreadCall, func(c *Config) { c.MaxTurns = 2 }, traj.MaxTurns, "", "0", false, 2},
	{"turn length", cutAtLength("84"), nil, traj.TurnLength, "", "1", true, 1},
	{"turn length within the budget", cutAtLength("84"), func(c *Config) { c.MaxResponseTokens = 100 }, traj.TurnLength, "", "1", true, 1},
	{"length at the budget's end", cutAtLength("84"), func(c *Config) { c.MaxResponseTokens = 2 }, traj.MaxTokens, "", "1", true, 1},
	{"observation beyond the budget", always("", calc("10**60")), func(c *Config) { c.MaxResponseTokens = 40 },
		traj.MaxTokens, "", "0", false, 1},
	{"empty", always(" \n"), nil, traj.EmptyReply, "", "0", true, 1},
	{"prompt too long", failing(fmt.Errorf("9 > 8: %w", traj.ErrPromptTooLong)), nil, traj.PromptTooLong, "9 > 8", "0", false, 0},
	{"time-out before an answer", hanging, func(c *Config) { c.Timeout = time.Minute }, traj.ModelFailed,
		"before the model had answered", "nil", false, 0},
	{"time-out before a question", always("84"), func(c *Config) {
		c.NewEnv = func(traj.Task) (env.Environment, error) { return oddEnv{reset: time.Minute + time.Second}, nil }
		c.Timeout = time.Minute
	}, traj.EnvFailed, "before the model had answered", "nil", false, 0},
	{"model time-out", hanging, func(c *Config) { c.ModelTimeout = time.Second }, traj.ModelFailed, "no reply within 1s", "nil", false, 0},
	{"model error", failing(errors.New("connection\nreset")), nil, traj.ModelFailed, "connection reset", "nil", false, 0},
	{"model panic", func(context.Context, *traj.Request) (*traj.Response, error) { panic("boom") }, nil,
		traj.ModelFailed, "boom", "nil", false, 0},
	{"model returns nothing", func(context.Context, *traj.Request) (*traj.Response, error) { return nil, nil },
		nil, traj.ModelFailed, "neither", "nil", false, 0},
	{"log-probs that do not fit", func(_ context.Context, r *traj.Request) (*traj.Response, error) {
		x := say(r, "84")
		x.Logprobs = x.Logprobs[1:]
		return x, nil
	}, nil, traj.ModelFailed, "1 log-probs for 2", "nil", true, 1},
	{"env error", always("84"), func(c *Config) {
		c.NewEnv = func(traj.Task) (env.Environment, error) { return nil, errors.New("no env") }
	}, traj.EnvFailed, "no env", "nil", false, 0},
	{"env panic", always("84"), func(c *Config) { c.NewEnv = func(traj.Task) (env.Environment, error) { return fakeEnv{}, nil } },
		traj.EnvFailed, "panic", "nil", true, 1},
	{"env hangs", always("", calc("1")), func(c *Config) {
		c.NewEnv = func(traj.Task) (env.Environment, error) { return oddEnv{step: time.Hour}, nil }
		c.Timeout = time.Minute
	}, traj.EnvFailed, "was left behind", "nil", false, 1},
	{"env hangs at its beginning", always("84"), func(c *Config) {
		c.NewEnv = func(traj.Task) (env.Environment, error) { return oddEnv{reset: time.Hour}, nil }
		c.Timeout = time.Minute
	}, traj.EnvFailed, "was left behind", "nil", false, 0},
	{"env comes back late", always("", calc("1")), func(c *Config) {
		c.NewEnv = func(traj.Task) (env.Environment, error) { return oddEnv{step: time.Minute + time.Second}, nil }
		c.Timeout = time.Minute
	}, traj.Timeout, "longer than 1m0s", "0", false, 1},
	{"env hangs at its end", always("84"), func(c *Config) {
		c.NewEnv = func(traj.Task) (env.Environment, error) { return oddEnv{close: time.Hour}, nil }
	}, traj.Answered, "", "1", true, 1},
	{"env exits", always("84"), func(c *Config) {
		c.NewEnv = func(traj.Task) (env.Environment, error) { return oddEnv{exit: true}, nil }
	}, traj.EnvFailed, "ended its goroutine", "nil", true, 1},
	{"env done", always("", calc("1")), func(c *Config) {
		c.NewEnv = func(traj.Task) (env.Environment, error) { return fakeEnv{ok: true}, nil }
		c.Reward = nil
	}, traj.EnvDone, "", "0.5", false, 1},
	{"reward error", always("84"), func(c *Config) {
		c.Reward = func(context.Context, *traj.Trajectory) error { return errors.New("no grader") }
	}, traj.RewardFailed, "no grader", "nil", true, 1},
	{"reward panic", always("84"), func(c *Config) {
		c.Reward = func(_ context.Context, t *traj.Trajectory) error { t.Reward = new(float64); panic("boom") }
	}, traj.RewardFailed, "boom", "nil", true, 1},
	{"reward is no number", always("84"), func(c *Config) {
		c.Reward = func(_ context.Context, t *traj.Trajectory) error { z := 0.0; z /= z; t.Reward = &z; return nil }
	}, traj.RewardFailed, "NaN", "nil", true, 1},
	{"a reward part is no number", always("84"), func(c *Config) {
		c.Reward = func(_ context.Context, t *traj.Trajectory) error {
			t.Reward, t.RewardParts = new(float64), []traj.Part{{Name: "style", Value: math.Inf(-1)}}
			return nil
		}
	}, traj.RewardFailed, "the reward style is -Inf", "nil", true, 1},
	{"env's reward is no number", always("", calc("1")), func(c *Config) {
		c.NewEnv = func(traj.Task) (env.Environment, error) { return fakeEnv{ok: true, reward: math.NaN()}, nil }
	}, traj.EnvFailed, "reward of step 0 is NaN", "nil", false, 1},
	{"env's rewards have no sum", always("", calc("1")), func(c *Config) {
		c.NewEnv = func(traj.Task) (env.Environment, error) {
			return fakeEnv{ok: true, reward: math.MaxFloat64, endless: true}, nil
		}
		c.Reward, c.MaxTurns = nil, 3
	}, traj.RewardFailed, "the reward is +Inf", "nil", false, 3},
	{"reward hangs", always("84"), func(c *Config) {
		c.RewardLimit = time.Second
		c.Reward = func(ctx context.Context, _ *traj.Trajectory) error { <-ctx.Done(); return ctx.Err() }
	}, traj.RewardFailed, "no score within 1s", "nil", true, 1},
}

func TestTerminations(t *testing.T) {
	for _, c := range endings {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conf := config(c.model)
				if c.change != nil {
					c.change(&conf)
				}
				all, s, err := play(t, conf, 1)
				if err != nil || len(all) != 1 {
					t.Fatal(len(all), err)
				}
				x := all[0]
				if _, err := json.Marshal(x); err != nil { // as the journal writes it
					t.Fatal(err)
				}
				reward := "nil"
				if x.Reward != nil {
					reward = fmt.Sprint(*x.Reward)
				}
				if x.Termination != c.want || !strings.Contains(x.Error, c.error) || strings.Contains(x.Error, "\n") ||
					reward != c.reward || (x.FinalReply() != nil) != c.answer || x.Turns() != c.turns {
					t.Errorf("%s %q reward %s answer %v turns %d", x.Termination, x.Error, reward, x.FinalReply() != nil, x.Turns())
				}
				if (s.Errors == 1) != c.want.Infrastructure() {
					t.Errorf("%d errors", s.Errors)
				}
				time.Sleep(2 * time.Hour) // of the bubble: what was left behind comes back
				if reward == "nil" && (x.Correct != nil || x.Extracted != nil) {
					t.Error("a trajectory without a reward has no correctness")
				}
			})
		})
	}
}

type fakeEnv struct {
	ok      bool
	reward  float64 // of a step; 0: 0.5
	endless bool    // it is never done
}

func (fakeEnv) Reset(_ context.Context, task traj.Task) (traj.Observation, error) {
	return traj.Observation{Messages: task.Messages}, nil
}

func (f fakeEnv) Step(context.Context, traj.Action) (env.Result, error) {
	if !f.ok {
		panic("environment is broken")
	}
	r := env.Result{Done: !f.endless, Reward: &f.reward}
	if f.reward == 0 {
		f.reward = 0.5
	}
	return r, nil
}
func (fakeEnv) Close() error { return nil }

// oddEnv takes its time, whatever its context says.
type oddEnv struct {
	reset, step, close time.Duration
	exit               bool
	says               string
}

func (e oddEnv) Reset(_ context.Context, task traj.Task) (traj.Observation, error) {
	time.Sleep(e.reset)
	return traj.Observation{Messages: task.Messages}, nil
}

func (e oddEnv) Step(ctx context.Context, a traj.Action) (env.Result, error) {
	if e.exit {
		runtime.Goexit()
	}
	time.Sleep(e.step)
	if e.says != "" && !a.Final {
		return env.Result{
			Observation: traj.Observation{
				Messages: []traj.Message{{Role: traj.RoleTool, Name: e.says, Content: e.says, ToolCallID: e.says}}}}, ctx.Err()
	}
	return env.Result{Done: true}, ctx.Err()
}

func (e oddEnv) Close() error { time.Sleep(e.close); return nil }

// idEnv says whose it is.
type idEnv struct{ oddEnv }

func (idEnv) Step(ctx context.Context, a traj.Action) (env.Result, error) {
	return oddEnv{says: traj.IDOf(ctx)}.Step(ctx, a)
}

func TestToolsCanTellWhoseCallItIs(t *testing.T) {
	c := config(toolThenAnswer)
	c.NewEnv = func(traj.Task) (env.Environment, error) { return idEnv{}, nil }
	c.Samples = 2
	all, _, err := play(t, c, 2)
	if err != nil || len(all) != 4 {
		t.Fatal(all, err)
	}
	for _, x := range all {
		if !slices.ContainsFunc(x.Messages, func(m traj.Message) bool { return m.Role == traj.RoleTool && m.Content == x.ID }) {
			t.Errorf("%s: %+v", x.ID, x.Messages)
		}
	}
}

// What an environment says is written into files that hold UTF-8.
func TestGarbageOfAnEnvironmentIsMadeText(t *testing.T) {
	c := config(toolThenAnswer)
	c.NewEnv = func(traj.Task) (env.Environment, error) { return oddEnv{says: "a\xffb"}, nil }
	all, _, err := play(t, c, 1)
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	found := false
	for _, m := range all[0].Messages {
		found = found || m.Content == "a\uFFFDb" && m.Name == m.Content && m.ToolCallID == m.Content
		if !utf8.ValidString(m.Content + m.Name + m.ToolCallID) {
			t.Errorf("%+v", m)
		}
	}
	if !found {
		t.Errorf("%+v", all[0].Messages)
	}
}

func TestLengthRunsNoTool(t *testing.T) {
	var ran atomic.Bool
	c := config(func(_ context.Context, req *traj.Request) (*traj.Response, error) {
		r := say(req, "", calc("1"))
		r.FinishReason = traj.FinishLength
		return r, nil
	})
	c.NewEnv = func(traj.Task) (env.Environment, error) { return watchedEnv{&ran}, nil }
	all, _, err := play(t, c, 1)
	if err != nil || all[0].Termination != traj.TurnLength || ran.Load() {
		t.Fatal(all[0].Termination, ran.Load(), err)
	}
}

type watchedEnv struct{ ran *atomic.Bool }

func (watchedEnv) Reset(_ context.Context, task traj.Task) (traj.Observation, error) {
	return traj.Observation{Messages: task.Messages}, nil
}

func (w watchedEnv) Step(context.Context, traj.Action) (env.Result, error) {
	w.ran.Store(true)
	return env.Result{Done: true}, nil
}
func (watchedEnv) Close() error { return nil }

func TestBudgetLimitsTheTurn(t *testing.T) {
	var limits []int
	c := config(func(ctx context.Context, req *traj.Request) (*traj.Response, error) {
		limits = append(limits, req.Sampling.MaxTokens)
		return toolThenAnswer(ctx, req)
	})
	c.MaxResponseTokens, c.Sampling.MaxTokens = 60, 50
	if _, _, err := play(t, c, 1); err != nil {
		t.Fatal(err)
	}
	// 60 less the call's 21 tokens and the result's 6, by the rule of thumb.
	if diff := cmp.Diff([]int{50, 33}, limits); diff != "" {
		t.Fatal(diff)
	}
}

func TestSlowOnesHoldNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int32
		c := config(func(ctx context.Context, req *traj.Request) (*traj.Response, error) {
			n := running.Add(1)
			defer running.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			d := time.Second
			if strings.HasSuffix(req.Messages[0].Content, " 0") {
				d = 20 * time.Second
			}
			time.Sleep(d)
			return toolThenAnswer(ctx, req)
		})
		c.Parallel, c.Samples = 4, 2
		start := time.Now()
		all, s, err := play(t, c, 16)
		if err != nil || len(all) != 32 || s.Done != 32 || most.Load() != 4 {
			t.Fatal(len(all), s, most.Load(), err)
		}
		if d := time.Since(start); d > 62*time.Second { // 40 s of the slow pair beside 60 s of work for the others, on 4 lanes
			t.Fatalf("took %v", d)
		}
		seen := map[string]bool{}
		for _, x := range all {
			seen[x.ID] = true
		}
		if len(seen) != 32 {
			t.Fatalf("%d different attempts", len(seen))
		}
	})
}

func TestSeedsDoNotDependOnTheSchedule(t *testing.T) {
	seeds := func(parallel int) map[string]int64 {
		got := map[string]int64{}
		var mu sync.Mutex
		c := config(func(ctx context.Context, req *traj.Request) (*traj.Response, error) {
			mu.Lock()
			got[fmt.Sprint(req.Group, len(req.Messages), req.Seed)] = req.Seed
			mu.Unlock()
			return toolThenAnswer(ctx, req)
		})
		c.Parallel, c.Samples, c.Seed = parallel, 3, 5
		if _, _, err := play(t, c, 5); err != nil {
			t.Fatal(err)
		}
		return got
	}
	one, many := seeds(1), seeds(8)
	if diff := cmp.Diff(one, many); diff != "" || len(one) != 30 {
		t.Fatalf("%d seeds: %s", len(one), diff)
	}
	if AttemptSeed(1, "a", 0) == AttemptSeed(2, "a", 0) || AttemptSeed(1, "a", 0) == AttemptSeed(1, "a", 1) ||
		AttemptSeed(1, "a", 0) == AttemptSeed(1, "b", 0) {
		t.Fatal("seeds must differ")
	}
}

func TestFatalEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int32
		c := config(func(ctx context.Context, _ *traj.Request) (*traj.Response, error) {
			if n.Add(1) == 3 {
				return nil, fmt.Errorf("wrong key: %w", traj.ErrFatal)
			}
			<-ctx.Done()
			return nil, ctx.Err()
		})
		c.Parallel = 4
		start := time.Now()
		_, s, err := play(t, c, 1000)
		if !errors.Is(err, traj.ErrFatal) || n.Load() > 5 || time.Since(start) != 0 {
			t.Fatal(err, n.Load(), s)
		}
	})
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		c := config(func(ctx context.Context, req *traj.Request) (*traj.Response, error) {
			d := 5 * time.Second
			if strings.HasSuffix(req.Messages[0].Content, " 1") {
				d = time.Hour
			}
			select {
			case <-time.After(d):
				return say(req, "84"), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		c.Parallel, c.Stop = 2, stop
		go func() { time.Sleep(time.Second); close(stop) }()
		start := time.Now()
		all, s, err := play(t, c, 100)
		if err != nil || !s.Interrupted || len(all) != 2 || time.Since(start) != 11*time.Second {
			t.Fatal(len(all), s, err, time.Since(start))
		}
		if all[0].Termination != traj.Answered || all[1].Termination != traj.Cancelled || all[1].Reward != nil {
			t.Fatal(all[0].Termination, all[1].Termination)
		}
	})
}

func TestSinkAndTaskErrors(t *testing.T) {
	c := config(toolThenAnswer)
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("disk full")
	n := 0
	_, err = e.Run(t.Context(), tasks(1000), func(*traj.Trajectory) error { n++; return full })
	if !errors.Is(err, full) || n != 1 {
		t.Fatal(err, n)
	}
	bad := errors.New("row 3 is bad")
	_, err = e.Run(t.Context(), func(yield func(traj.Task, error) bool) {
		for task := range tasks(2) {
			if !yield(task, nil) {
				return
			}
		}
		yield(traj.Task{}, bad)
	}, func(*traj.Trajectory) error { return nil })
	if !errors.Is(err, bad) {
		t.Fatal(err)
	}
	_, err = e.Run(t.Context(), func(yield func(traj.Task, error) bool) {
		for task := range tasks(1) {
			first, again := task, task // the same id twice
			if !yield(first, nil) || !yield(again, nil) {
				return
			}
		}
	}, func(*traj.Trajectory) error { return nil })
	if !errors.Is(err, ErrTaskID) {
		t.Fatal(err)
	}
}
