package scheduler

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"agentcli/engine"
	"agentcli/internal/child"
	"agentcli/internal/remote"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/traj"
)

// execPrefix begins the name of what is a program.
const execPrefix = "exec:"

var errNoAddress = errors.New("it is neither a program nor an address")

// addressOf reads exec:COMMAND (nil) or http://…; errNoAddress: it is neither.
func addressOf(name string) (*url.URL, error) {
	if command, ok := strings.CutPrefix(name, execPrefix); ok {
		if strings.TrimSpace(command) == "" {
			return nil, errors.New("exec: names no command; for example exec:'python3 scheduler.py'")
		}
		return nil, nil
	}
	if !strings.HasPrefix(name, "http://") && !strings.HasPrefix(name, "https://") {
		return nil, errNoAddress
	}
	u, err := url.Parse(name)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("%q is no address; for example http://127.0.0.1:8000/next", text.Redact(name))
	}
	return u, nil
}

// program is a scheduler or an environment that is not of this program: a process that
// speaks JSON lines, or a server that takes each object as a POST.
type program struct {
	name    string // for people
	lines   *child.Lines
	server  *remote.Server
	timeout time.Duration
	ids     atomic.Int64 // of what is posted
}

// openProgram opens what a setting names.
func openProgram(ctx context.Context, from setting.Name, name string, o Options) (*program, error) {
	address, err := addressOf(name)
	if err != nil {
		return nil, err
	}
	p := &program{timeout: o.Timeout}
	if address != nil {
		p.name = text.Address(address.String())
		p.server = remote.New(address, remote.Options{Timeout: o.Timeout, Longest: 16 << 20})
		return p, nil
	}
	command := child.Command{Shell: strings.TrimPrefix(name, execPrefix), Pass: o.Pass}
	p.name = execPrefix + command.Name()
	if o.Stderr && o.Notice != nil {
		command.Said = func(line string) { o.Notice(p.name + ": " + line) }
	}
	if err := command.Check(); err != nil {
		return nil, setting.Errorf("%s %s: %w", from, p.name, err)
	}
	p.lines = child.NewLines(child.LinesConfig{Command: command, Notice: o.Notice})
	if err := p.lines.Open(ctx); err != nil {
		p.close()
		return nil, setting.Errorf("%s %s: %w", from, p.name, err)
	}
	return p, nil
}

func (p *program) close() {
	switch {
	case p == nil:
	case p.lines != nil:
		p.lines.Close()
	default:
		p.server.Close()
	}
}

// talk is what one trajectory says to a program: all of it to one process.
type talk struct {
	p       *program
	session *child.Session // of a process
	id      string         // the trajectory's
}

// ErrProgram is in the errors of programs and servers.
var ErrProgram = errors.New("gave no answer that can be used")

// open begins a trajectory.
func (p *program) open(ctx context.Context, trajectory string) (*talk, error) {
	t := &talk{p: p, id: trajectory}
	if p.lines == nil {
		return t, nil
	}
	var err error
	if t.session, err = p.lines.Session(ctx); err != nil {
		return nil, p.failed(ctx, err)
	}
	return t, nil
}

// ask sends an object and reads the answer to it. What is already JSON goes as it is.
func (t *talk) ask(ctx context.Context, method string, object map[string]any, read func([]byte) error) error {
	p := t.p
	own, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	object["method"], object["trajectory"] = method, t.id
	if p.server != nil {
		object["id"] = p.ids.Add(1)
		if err := p.server.Post(own, object, read); err != nil {
			return p.failed(ctx, err)
		}
		return nil
	}
	line, err := t.session.Call(own, object, false)
	if err == nil {
		err = read(line)
	}
	if err != nil {
		return p.failed(ctx, err)
	}
	return nil
}

// tell sends what has no answer.
func (t *talk) tell(object map[string]any) {
	object["trajectory"] = t.id
	if t.session != nil {
		t.session.Notify(object)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(t.p.timeout, 5*time.Second))
	defer cancel()
	_ = t.p.server.Post(ctx, object, func([]byte) error { return nil }) // who does not listen has not lost anything
}

// close says the end.
func (t *talk) close(object map[string]any) {
	t.tell(object)
	if t.session != nil {
		t.session.Close()
	}
}

func (p *program) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, child.ErrSilent) || errors.Is(err, context.DeadlineExceeded) {
		flush := ""
		if p.lines != nil {
			flush = "; each answer must be flushed, in Python by print(..., flush=True)"
		}
		return setting.Errorf("%s %w: there was none within %v (%s)%s", p.name, ErrProgram, p.timeout, setting.Name("SchedulerTimeout"), flush)
	}
	return fmt.Errorf("%s %w: %w", p.name, ErrProgram, err)
}

// external is a user's scheduler.
type external struct {
	p    *program
	talk *talk // nil: Start has failed
}

// Start implements engine.Starter.
func (e *external) Start(ctx context.Context, o engine.Opening) (engine.Opening, error) {
	var err error
	if e.talk, err = e.p.open(ctx, o.Trajectory); err != nil {
		return o, err
	}
	err = e.talk.ask(ctx, "start", map[string]any{"task": taskOf(o.Task), "messages": wireMessages(o.Messages), "seed": o.Seed},
		func(b []byte) error { return readStart(b, &o) })
	return o, err
}

// Next implements engine.Scheduler.
func (e *external) Next(ctx context.Context, t engine.Turn) (next engine.Next, err error) {
	err = e.talk.ask(ctx, "next", turnOf(&t), func(b []byte) (err error) { next, err = readNext(b, &t); return err })
	return next, err
}

// Close implements engine.Closer.
func (e *external) Close(end traj.Termination) error {
	if e.talk != nil {
		e.talk.close(map[string]any{"method": "end", "termination": end})
	}
	return nil
}

// gymProgram is a user's environment.
type gymProgram struct {
	p    *program
	talk *talk
}

// Reset implements Gym.
func (g *gymProgram) Reset(ctx context.Context, r GymReset) (start GymStart, err error) {
	if g.talk, err = g.p.open(ctx, r.Trajectory); err != nil {
		return start, err
	}
	err = g.talk.ask(ctx, "reset", map[string]any{"config": r.Config, "task": taskOf(r.Task), "seed": r.Seed}, func(b []byte) error {
		return readObject(b, map[string]any{"observation": &start.Observation, "system_message": &start.System, "info": &start.Info})
	})
	return start, err
}

// Step implements Gym.
func (g *gymProgram) Step(ctx context.Context, reply string) (step GymStep, err error) {
	err = g.talk.ask(ctx, "step", map[string]any{"action": reply}, func(b []byte) error {
		var said *string
		err := readObject(b, map[string]any{"observation": &said, "reward": &step.Reward, "done": &step.Done, "info": &step.Info})
		if err == nil && said == nil && !step.Done {
			err = fmt.Errorf(`%w has no "observation", and no "done": true`, ErrAnswer)
		}
		set(&step.Observation, said)
		return err
	})
	return step, err
}

// Close implements Gym.
func (g *gymProgram) Close() error {
	if g.talk != nil {
		g.talk.close(map[string]any{"method": "close"})
	}
	return nil
}
