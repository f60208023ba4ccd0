package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"agentcli/engine"
	"agentcli/internal/malformed"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/traj"
)

// Gym is an environment in the form of OpenAI's gym, of one trajectory: it is used by one
// goroutine. What the policy did wrong is an observation; an error is the environment's own.
type Gym interface {
	// Reset begins. The observation is shown as a user's message, behind the system prompt
	// if there is one; "": the task's own messages are shown.
	Reset(ctx context.Context, r GymReset) (GymStart, error)
	// Step takes the model's newest reply.
	Step(ctx context.Context, reply string) (GymStep, error)
	// Close is called in every ending.
	Close() error
}

// GymReset describes the trajectory to its environment.
type GymReset struct {
	Trajectory string
	Task       *traj.Task
	Config     json.RawMessage // the row's env_config; an object
	Seed       int64
}

// GymStart is how an environment begins.
type GymStart struct {
	Observation string
	System      string // system prompt
	Info        traj.Info
}

// GymStep is what an environment says to a reply.
type GymStep struct {
	Observation string
	Reward      float64
	Done        bool
	Info        traj.Info
}

// gyms are the environments that are built in.
var gyms = map[string]func() Gym{"frozen_lake": func() Gym { return &frozenLake{} }}

// RegisterGym adds an environment to those that rows and Options.Gym may name. It is for
// the init function of a program of your own.
func RegisterGym(name string, mk func() Gym) { gyms[name] = mk }

// Gyms names the environments, sorted.
func Gyms() []string { return slices.Sorted(maps.Keys(gyms)) }

// gymSet opens the environments of a run.
type gymSet struct {
	o       Options
	program *program // of Options.Gym; nil: it is none
}

func openGym(ctx context.Context, o Options) (*Set, error) {
	s := &gymSet{o: o}
	if _, err := addressOf(o.Gym); err == nil {
		if s.program, err = openProgram(ctx, setting.Name("GymEnv"), o.Gym, o); err != nil {
			return nil, err
		}
	} else if !errors.Is(err, errNoAddress) {
		return nil, setting.Errorf("%s %w", setting.Name("GymEnv"), err)
	} else if o.Gym != "" && gyms[o.Gym] == nil {
		return nil, setting.Errorf("%s %w, exec:COMMAND and the address of a server", setting.Name("GymEnv"), noGym(o.Gym))
	}
	return &Set{make: s.scheduler, close: s.program.close}, nil
}

// ErrNoGym is in the error of a row, or a setting, that names no environment that there is.
var ErrNoGym = errors.New("there is no such environment")

func noGym(name string) error {
	remedy := ""
	if near := text.Nearest(name, Gyms()); near != "" {
		remedy = fmt.Sprintf("did you mean %s? ", near)
	}
	return fmt.Errorf("%q: %w; %sthe environments are %s", text.Cut(name, 80), ErrNoGym, remedy, strings.Join(Gyms(), ", "))
}

// scheduler opens the environment that a row's env_config names, else that of the options.
// A row names none that is a program: somebody may have sent it.
func (s *gymSet) scheduler(t traj.Task) (engine.Scheduler, error) {
	config, name, err := gymConfig(t.Meta)
	if err != nil {
		return nil, err
	}
	if name != "" && gyms[name] == nil {
		return nil, &malformed.Error{Field: "env_config.name", Err: setting.Errorf("%w; a row cannot name a program or a server, %s can",
			noGym(name), setting.Name("GymEnv"))}
	}
	g := gym{config: config}
	switch {
	case name != "":
		g.env = gyms[name]()
	case s.program != nil:
		g.env = &gymProgram{p: s.program}
	case s.o.Gym != "":
		g.env = gyms[s.o.Gym]()
	default:
		return nil, malformed.Field("env_config", malformed.Missing, "the row names no environment; give it one, or all by %s",
			setting.Name("GymEnv"))
	}
	return &g, nil
}

// gymConfig reads a row's column env_config.
func gymConfig(meta json.RawMessage) (config json.RawMessage, name string, err error) {
	var m struct {
		Config json.RawMessage `json:"env_config"`
	}
	if len(meta) > 0 {
		if err := json.Unmarshal(meta, &m); err != nil {
			return nil, "", malformed.Field("meta", malformed.Type, "want an object: %w", err)
		}
	}
	if len(m.Config) == 0 || string(m.Config) == "null" {
		return json.RawMessage("{}"), "", nil
	}
	if m.Config[0] == '"' { // CSV holds it as JSON text
		var given string
		if err := json.Unmarshal(m.Config, &given); err != nil {
			return nil, "", &malformed.Error{Field: "env_config", Kind: malformed.Type, Err: err}
		}
		m.Config = json.RawMessage(given)
	}
	var named struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(m.Config, &named); err != nil {
		return nil, "", malformed.Field("env_config", malformed.Type, "want an object with the environment's name: %w", err)
	}
	return m.Config, named.Name, nil
}

// gym is ms-swift's gym_scheduler: the environment answers each reply, until it is done.
// Its rewards are those of the steps.
type gym struct {
	env    Gym
	config json.RawMessage
	total  float64
}

// Start implements engine.Starter.
func (g *gym) Start(ctx context.Context, o engine.Opening) (engine.Opening, error) {
	start, err := g.env.Reset(ctx, GymReset{Trajectory: o.Trajectory, Task: o.Task, Config: g.config, Seed: o.Seed})
	if err != nil {
		return o, err
	}
	if start.Observation != "" {
		o.Messages = nil
		if start.System != "" {
			o.Messages = append(o.Messages, traj.Message{Role: traj.RoleSystem, Content: start.System})
		}
		o.Messages = append(o.Messages, traj.Message{Role: traj.RoleUser, Content: start.Observation})
	} else if start.System != "" {
		o.Messages = append([]traj.Message{{Role: traj.RoleSystem, Content: start.System}},
			slices.DeleteFunc(slices.Clone(o.Messages), func(m traj.Message) bool { return m.Role == traj.RoleSystem })...)
	}
	o.Info = start.Info
	return o, nil
}

// Next implements engine.Scheduler.
func (g *gym) Next(ctx context.Context, t engine.Turn) (engine.Next, error) {
	step, err := g.env.Step(ctx, t.Reply.Message.Content)
	if err != nil {
		return engine.Next{}, err
	}
	g.total += step.Reward
	if !traj.Finite(g.total) {
		return engine.Next{}, fmt.Errorf("the environment's reward of turn %d is %v, in all %v", t.Number, step.Reward, g.total)
	}
	what := map[string]any{"gym_done": step.Done, "step_reward": step.Reward, "total_reward": g.total}
	if len(step.Info) > 0 {
		what["info"] = step.Info
	}
	next := engine.Next{Reward: &step.Reward, Info: infoOf(what)}
	if step.Done {
		next.Stop = traj.EnvDone
	} else {
		next.Messages = []traj.Message{{Role: traj.RoleUser, Content: step.Observation}}
	}
	return next, nil
}

// Close implements engine.Closer.
func (g *gym) Close(traj.Termination) error { return g.env.Close() }

// infoOf is an object as an info.
func infoOf(m map[string]any) traj.Info {
	b, err := json.Marshal(m)
	if err != nil { // of what programs wrote it is valid JSON
		return nil
	}
	return b
}
