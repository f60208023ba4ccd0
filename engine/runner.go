package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"agentcli/env"
	"agentcli/internal/text"
	"agentcli/traj"
)

// Drive is an attempt in the hands of a Runner. It is used by one goroutine.
type Drive struct {
	Opening // Messages as they would begin
	p       *player
	ctx     context.Context // of the run; the Runner's own ends with the trajectory's time
	own     context.Context
	begun   []*Branch
	over    atomic.Bool // what a Runner says that was left behind is not heard
}

// Branch is one trajectory of an attempt.
type Branch struct {
	d      *Drive
	p      *player
	turn   int
	action traj.Action
	end    traj.Termination // "": it goes on
	reason string
}

// ErrEnded is the error of a branch that has ended: by its limits, by a reply that was cut
// short or empty, or because the model gave none.
var ErrEnded = errors.New("the trajectory has ended")

// maxBranches is how many trajectories one attempt may give.
const maxBranches = 1024

// runBy lets a Runner play.
func runBy(ctx, own context.Context, r Runner, p *player, o traj.Observation) (end traj.Termination, reason string) {
	d := &Drive{Opening: Opening{Trajectory: p.t.ID, Task: &p.t.Task, Messages: o.Messages, Seed: p.t.Seed}, p: p, ctx: ctx, own: own}
	err := p.scheduler.guard.do(own, func() error { return r.Run(own, d) })
	if p.scheduler.guard.left != nil { // it still uses what it has begun
		d.over.Store(true)
		return p.ended(ctx, own, traj.EnvFailed, err)
	}
	defer func() {
		for _, b := range d.begun[min(1, len(d.begun)):] {
			_ = b.p.env.Close()
		}
	}()
	if err == nil && len(d.begun) == 0 {
		err = fmt.Errorf("%w has begun no trajectory", ErrNext)
	}
	if err != nil && !errors.Is(err, ErrEnded) {
		return p.ended(ctx, own, traj.EnvFailed, err)
	}
	for i, b := range d.begun {
		if b.end == "" {
			if b.end = traj.EnvDone; b.action.Final {
				b.end = traj.Answered
			}
		}
		if i > 0 {
			b.p.t.Termination, b.p.t.Error = b.end, b.reason
			p.branches = append(p.branches, b.p)
		}
		if b.p.fatal != nil {
			p.fatal = b.p.fatal
		}
	}
	return d.begun[0].end, d.begun[0].reason
}

// Begin begins a trajectory; nil: with the opening messages. The first is the attempt's own
// row, each further one a row beside it, of the same group, with ".1", ".2" behind its id.
func (d *Drive) Begin(messages []traj.Message) (*Branch, error) {
	if d.over.Load() {
		return nil, ErrEnded
	}
	if messages == nil {
		messages = d.Messages
	}
	if len(messages) == 0 || messages[len(messages)-1].Role == traj.RoleAssistant {
		return nil, fmt.Errorf("%w begins with no messages, or with one of the model's last: want a user's", ErrNext)
	}
	n := len(d.begun)
	if n == maxBranches {
		return nil, fmt.Errorf("%w begins more than %d trajectories", ErrNext, maxBranches)
	}
	b := &Branch{d: d, p: d.p}
	if n > 0 {
		main := d.p.t
		t := &traj.Trajectory{ID: fmt.Sprintf("%s.%d", main.ID, n), Task: main.Task, GroupID: main.GroupID, Attempt: main.Attempt,
			Policy: main.Policy, Seed: AttemptSeed(main.Seed, main.ID, n), StartedAt: main.StartedAt}
		b.p = &player{run: d.p.run, t: t, limits: d.p.limits}
		var err error
		if b.p.agent, err = d.p.c.NewAgent(main.Task); err != nil {
			return nil, err
		}
		e, err := d.p.c.NewEnv(main.Task)
		if err != nil {
			return nil, err
		}
		b.p.env = &guarded{Environment: e, guard: d.p.workers.guard("the environment")}
		if _, err := b.p.env.Reset(d.own, main.Task); err != nil {
			return nil, err
		}
	}
	d.begun = append(d.begun, b)
	b.p.observe(valid(traj.Observation{Messages: slices.Clone(messages)}))
	return b, nil
}

// Reply has the model answer. Of n, NoTools and Sampling are read. The error is ErrEnded
// where the trajectory has ended, or ends with this reply.
func (b *Branch) Reply(n Next) (Turn, error) {
	if !b.ended() && b.turn > 0 {
		b.end = b.p.last(b.turn)
	}
	if b.ended() {
		return Turn{}, ErrEnded
	}
	b.turn++
	b.p.scheduler.noTools, b.p.scheduler.given = n.NoTools, n.Sampling
	resp, left, err := b.p.ask(b.d.own, b.turn)
	if err != nil {
		b.end, b.reason = b.p.unanswered(b.d.ctx, b.d.own, err)
		return Turn{}, fmt.Errorf("%w: %w", ErrEnded, err)
	}
	b.action, b.end, b.reason = b.p.take(b.d.own, resp, left)
	t := Turn{Trajectory: b.p.t.ID, Number: b.turn, Last: b.p.last(b.turn) != "", Task: &b.p.t.Task, Messages: b.p.t.Messages,
		Text: replyText(resp), Reply: resp, Action: b.action, Infos: b.p.t.Infos, Sampling: b.p.limits.Sampling}
	if b.end != "" {
		return t, ErrEnded
	}
	return t, nil
}

func (b *Branch) ended() bool { return b.end != "" || b.d.over.Load() }

// Step gives the reply's calls to the environment, whose answer is the next turn's beginning.
func (b *Branch) Step() (*env.Result, error) {
	if b.ended() {
		return nil, ErrEnded
	}
	res, err := b.p.step(b.d.own, b.action)
	if err != nil {
		b.end, b.reason = b.p.ended(b.d.ctx, b.d.own, traj.EnvFailed, err)
		return nil, fmt.Errorf("%w: %w", ErrEnded, err)
	}
	return res, b.observe(res.Observation)
}

// Say begins the next turn with messages.
func (b *Branch) Say(messages ...traj.Message) error {
	if b.ended() {
		return ErrEnded
	}
	return b.observe(valid(traj.Observation{Messages: messages}))
}

// observe appends what still fits.
func (b *Branch) observe(o traj.Observation) error {
	if err := b.p.checkContinue(o); err != nil {
		b.end, b.reason = traj.EnvFailed, text.Line(err)
		return fmt.Errorf("%w: %w", ErrEnded, err)
	}
	n := b.p.count(o)
	if b.p.c.MaxResponseTokens > 0 && b.p.used+n >= b.p.c.MaxResponseTokens {
		b.end = traj.MaxTokens
		return ErrEnded
	}
	b.p.used += n
	b.p.observe(o)
	return nil
}

// Note keeps what is known of the last step: Reward, Weights and Info of n are read.
func (b *Branch) Note(n Next) error {
	if len(b.p.t.Steps) == 0 {
		return fmt.Errorf("%w notes something of a step, and there is none", ErrNext)
	}
	step := &b.p.t.Steps[len(b.p.t.Steps)-1]
	own := Next{Stop: traj.EnvDone, Reward: n.Reward, Weights: n.Weights, Info: n.Info}
	sampled := make([]int32, max(step.End-step.Start, 0))
	if err := own.check(&Turn{Number: b.turn, Reply: &traj.Response{SampledIDs: sampled}}); err != nil {
		return err
	}
	if n.Reward != nil {
		step.Reward = n.Reward
	}
	b.p.t.Weigh(n.Weights)
	b.p.t.SetInfo(n.Info)
	return nil
}

// End ends the trajectory; without it, it ends as answered after an answer, else as env_done.
func (b *Branch) End(end traj.Termination) {
	if b.end == "" {
		b.end = end
	}
}

// Trajectory is what was played so far; it is only read.
func (b *Branch) Trajectory() *traj.Trajectory { return b.p.t }

// each hands a trajectory on, and then its branches.
func each(sink func(*traj.Trajectory) error) func(*traj.Trajectory) error {
	return func(t *traj.Trajectory) error {
		branches := t.Branches
		t.Branches = nil
		if err := sink(t); err != nil {
			return err
		}
		for _, b := range branches {
			if err := sink(b); err != nil {
				return err
			}
		}
		return nil
	}
}
