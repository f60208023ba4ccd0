package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"agentcli/engine"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/traj"
)

// DefaultTimeout is the time limit of one answer of a program.
const DefaultTimeout = time.Minute

// Options are what schedulers are made of.
type Options struct {
	Gym     string        // environment of gym_scheduler where the row's env_config names none; server of openenv_scheduler
	Timeout time.Duration // of one answer of a program; 0: DefaultTimeout
	Pass    []string      // names of variables that programs get of our environment
	Notice  func(string)  // what people should know; nil: nobody
	Stderr  bool          // Notice gets each line that a program writes on stderr, too
	// Correct says whether a conversation's last reply solves its task; of schedulers that
	// give tips.
	Correct func(ctx context.Context, t *engine.Turn) (bool, error)
}

// Set gives each trajectory of a run its scheduler. It is safe for concurrent use.
type Set struct {
	make  func(traj.Task) (engine.Scheduler, error)
	close func()
}

// New makes the scheduler of one trajectory; that of a nil Set is nil, the engine's loop.
func (s *Set) New(t traj.Task) (engine.Scheduler, error) {
	if s == nil {
		return nil, nil
	}
	return s.make(t)
}

// Close ends what the schedulers share.
func (s *Set) Close() error {
	if s != nil && s.close != nil {
		s.close()
	}
	return nil
}

// Names of schedulers that a run has more to do with.
const (
	GymName     = "gym_scheduler"     // of gym environments
	OpenEnvName = "openenv_scheduler" // of servers of OpenEnv
	SearchR1    = "search-r1"         // the engine's own loop, with results in the model's reply
	DeepEyes    = "deepeyes"          // the engine's own loop, in the environment of that name
)

// builtin makes the schedulers that are built in.
var builtin = map[string]func(context.Context, Options) (*Set, error){
	"math_tip_trick": func(_ context.Context, o Options) (*Set, error) {
		return tips(o, func() engine.Scheduler { return &tipOnce{o: o, doubt: inReply} })
	},
	"math_tip_trick_multi_turn": func(_ context.Context, o Options) (*Set, error) {
		return tips(o, func() engine.Scheduler { return &tipOnce{o: o, doubt: inTurn} })
	},
	"thinking_tips_scheduler": func(_ context.Context, o Options) (*Set, error) {
		return tips(o, func() engine.Scheduler { return &thinkingTips{o: o} })
	},
	GymName:     openGym,
	OpenEnvName: openOpenEnv,
	SearchR1:    ownLoop,
	DeepEyes:    ownLoop,
}

// ownLoop leaves the trajectories to the engine.
func ownLoop(context.Context, Options) (*Set, error) {
	return &Set{make: func(traj.Task) (engine.Scheduler, error) { return nil, nil }}, nil
}

// Gymlike reports whether a scheduler plays the environments of Options.Gym: what they give
// is then the reward, unless another is named.
func Gymlike(name string) bool { return name == GymName || name == OpenEnvName }

// AsksProgram reports whether a scheduler, or its environment, is a program or a server.
func AsksProgram(name, gymEnv string) bool {
	if name == GymName {
		name = gymEnv
	}
	_, err := addressOf(name)
	return name == OpenEnvName || err == nil
}

// Names are the schedulers that are built in, sorted.
func Names() []string { return slices.Sorted(maps.Keys(builtin)) }

// ErrUnknown is in the error of a name that no scheduler has.
var ErrUnknown = errors.New("there is no such scheduler")

// Check reports what is wrong with the name of a scheduler.
func Check(name string) error {
	if builtin[name] != nil {
		return nil
	}
	if _, err := addressOf(name); err == nil || !errors.Is(err, errNoAddress) {
		return err
	}
	remedy := ""
	if near := text.Nearest(name, Names()); near != "" {
		remedy = fmt.Sprintf("did you mean %s? ", near)
	}
	return fmt.Errorf("%q: %w; %sthe schedulers are %s, exec:COMMAND and the address of a server", text.Cut(name, 80), ErrUnknown, remedy,
		strings.Join(Names(), ", "))
}

// Open makes the scheduler of a name: one of Names, exec:COMMAND or http://…. A program
// is started. Close it.
func Open(ctx context.Context, name string, o Options) (*Set, error) {
	if err := Check(name); err != nil {
		return nil, setting.Errorf("%s %w", setting.Name("Scheduler"), err)
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Notice == nil {
		o.Notice = func(string) {}
	}
	if open := builtin[name]; open != nil {
		return open(ctx, o)
	}
	p, err := openProgram(ctx, setting.Name("Scheduler"), name, o)
	if err != nil {
		return nil, err
	}
	return &Set{make: func(traj.Task) (engine.Scheduler, error) { return &external{p: p}, nil }, close: p.close}, nil
}

// tips are schedulers that need to know what is right.
func tips(o Options, mk func() engine.Scheduler) (*Set, error) {
	if o.Correct == nil {
		return nil, errors.New("a scheduler that gives tips needs a reward that says what is correct")
	}
	return &Set{make: func(traj.Task) (engine.Scheduler, error) { return mk(), nil }}, nil
}
