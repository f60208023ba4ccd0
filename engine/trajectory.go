package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"agentcli/agent"
	"agentcli/env"
	"agentcli/internal/text"
	"agentcli/internal/workclock"
	"agentcli/traj"
)

// player plays one trajectory.
type player struct {
	*run
	t            *traj.Trajectory
	limits       Limits
	agent        agent.Agent
	env          env.Environment
	scheduler    scheduling
	conversation traj.Conversation
	used         int  // tokens after the first prompt
	otherImages  bool // the model was shown images otherwise than they are here
	fatal        error
	branches     []*player // further trajectories of the attempt, of a Runner

	watcher     Watcher // nil: nobody
	telling     sync.Mutex
	endReported bool // of the end
}

// attempt plays one attempt to its end and scores it. Whatever happens, there
// is a trajectory; fatal is set if the whole run must end.
func (r *run) attempt(ctx context.Context, task traj.Task, attempt int) (t *traj.Trajectory, fatal error) {
	start := r.c.Now()
	t = &traj.Trajectory{
		ID: trajectoryID(task.ID, attempt), Task: task, GroupID: task.ID, Attempt: attempt, Policy: r.c.Policy,
		Seed: AttemptSeed(r.c.Seed, task.ID, attempt), StartedAt: start.UTC(),
	}
	if s := r.c.Served; s != nil {
		t.GroupID = cmp.Or(s.Group(task), task.ID)
		var done context.CancelFunc
		ctx, done = s.awaited(ctx, task)
		defer done()
	}
	if r.c.Run != "" {
		t.GroupID += "@" + r.c.Run
	}
	p := &player{run: r, t: t, limits: r.c.limits(task), watcher: watcherFor(t, r.c.Observe)}
	p.scheduler.guard = r.workers.guard("the scheduler")
	ctx = traj.WithID(ctx, t.ID)
	own, cancel := workclock.WithLimit(ctx, r.c.Timeout)
	t.Termination, t.Error = p.play(ctx, own)
	cancel()
	p.settle(ctx, start)
	for _, b := range p.branches {
		b.settle(ctx, start)
		t.Branches = append(t.Branches, b.t)
	}
	if p.watcher != nil {
		p.emit(TrajectoryEnd{t})
	}
	return t, p.fatal
}

// play runs the loop of model call, environment step and scheduler. own is ctx with the
// trajectory's time-out, which is of working time.
func (p *player) play(ctx, own context.Context) (end traj.Termination, reason string) {
	defer func() {
		if x := recover(); x != nil {
			end, reason = traj.EnvFailed, fmt.Sprintf("panic in the agent or the environment: %v", x)
		}
	}()
	e, err := p.c.NewEnv(p.t.Task)
	if err != nil {
		return traj.EnvFailed, text.Line(err)
	}
	p.env = &guarded{Environment: e, guard: p.workers.guard("the environment")}
	defer p.env.Close()
	if p.agent, err = p.c.NewAgent(p.t.Task); err != nil {
		return traj.EnvFailed, text.Line(err)
	}
	if a, ok := p.agent.(agent.Seeded); ok {
		a.Seed(p.t.Seed)
	}
	defer func() {
		p.scheduler.keepStart(p.t)
		p.scheduler.close(cmp.Or(end, traj.EnvFailed)) // a panic has named none yet
	}()
	obs, err := p.env.Reset(own, p.t.Task)
	if err == nil {
		obs, err = p.scheduler.open(own, p.c.NewScheduler, p.t, obs)
	}
	if err == nil {
		err = own.Err()
	}
	if err != nil {
		return p.ended(ctx, own, traj.EnvFailed, err)
	}
	if runner, ok := p.scheduler.Scheduler.(Runner); ok {
		return runBy(ctx, own, runner, p, obs)
	}
	p.observe(obs)
	for turn := 1; ; turn++ {
		if p.watcher != nil {
			p.emit(TurnStart{turn - 1})
		}
		resp, left, err := p.ask(own, turn)
		if err != nil {
			return p.unanswered(ctx, own, err)
		}
		action, end, reason := p.take(own, resp, left)
		if end != "" {
			return end, reason
		}
		step := &p.t.Steps[len(p.t.Steps)-1]
		last := p.last(turn)
		var answered *env.Result
		start := p.c.Now()
		if last != "" && !action.Final {
			p.answerUnread(own, action) // nobody would read what the tools give
		} else if answered, err = p.step(own, action); err != nil {
			return p.ended(ctx, own, traj.EnvFailed, err)
		}
		next, err := p.scheduler.next(own, Turn{Number: turn, Last: last != "", Text: replyText(resp), Reply: resp, Action: action,
			Env: answered, Sampling: p.limits.Sampling}, p.t)
		if answered != nil || p.scheduler.Scheduler != nil {
			step.EnvMS = ms(p.c.Now().Sub(start))
		}
		switch {
		case err != nil:
			return p.ended(ctx, own, traj.EnvFailed, err)
		case next.Stop != "":
			if answered != nil {
				p.observe(answered.Observation)
			}
			return next.Stop, ""
		case last != "":
			return last, ""
		}
		if end, err := (&following{p, resp, answered}).begin(next); err != nil {
			return traj.EnvFailed, text.Line(err)
		} else if end != "" {
			if len(next.History) == 0 {
				p.answerUnread(own, action)
			}
			return end, ""
		}
	}
}

// unanswered is how a trajectory ends to which the model gives no reply.
func (p *player) unanswered(ctx, own context.Context, err error) (end traj.Termination, reason string) {
	switch {
	case errors.Is(err, traj.ErrPromptTooLong):
		return traj.PromptTooLong, text.Line(err)
	case errors.Is(err, traj.ErrFatal):
		p.fatal = err
	case errors.Is(err, traj.ErrGone):
		p.mu.Lock()
		p.endEarly(err)
		p.mu.Unlock()
	}
	return p.ended(ctx, own, traj.ModelFailed, err)
}

// take keeps a reply and makes an action of it; end says that the trajectory ends with it.
func (p *player) take(ctx context.Context, resp *traj.Response, left int) (a traj.Action, end traj.Termination, reason string) {
	a = p.agent.Update(resp)
	p.reply(resp)
	step := &p.t.Steps[len(p.t.Steps)-1]
	step.ToolCalls = len(a.ToolCalls) + len(a.CallErrors)
	unread := len(a.CallErrors)
	step.ToolErrors, step.ToolMalformed = unread, &unread
	switch {
	case step.Error != "":
		return a, traj.ModelFailed, step.Error
	case resp.FinishReason == traj.FinishLength:
		p.answerUnread(ctx, a)
		if p.c.MaxResponseTokens > 0 && resp.OutputTokens >= left {
			return a, traj.MaxTokens, ""
		}
		return a, traj.TurnLength, ""
	case strings.TrimSpace(resp.Message.Content) == "" && len(a.ToolCalls) == 0 && len(a.CallErrors) == 0:
		return a, traj.EmptyReply, ""
	}
	return a, "", ""
}

// last is why no turn can follow this one; "": one can.
func (p *player) last(turn int) traj.Termination {
	switch {
	case turn >= p.turns():
		return traj.MaxTurns
	case p.c.MaxResponseTokens > 0 && p.used >= p.c.MaxResponseTokens:
		return traj.MaxTokens
	}
	return ""
}

// step asks the environment.
func (p *player) step(ctx context.Context, a traj.Action) (*env.Result, error) {
	res, err := p.env.Step(p.watchTools(ctx), a)
	if err != nil {
		return nil, err
	}
	if r := res.Reward; r != nil && !traj.Finite(*r) {
		return nil, fmt.Errorf("the environment's reward of step %d is %v", len(p.t.Steps)-1, *r)
	}
	step := &p.t.Steps[len(p.t.Steps)-1]
	malformed := max(res.Malformed, len(a.CallErrors))
	step.Reward, step.ToolErrors, step.ToolCached, step.ToolMalformed = res.Reward, res.ToolErrors, res.ToolCached, &malformed
	return &res, nil
}

// turns is how many model calls the trajectory may take.
func (p *player) turns() int {
	if p.limits.FinalTurn {
		return p.limits.MaxTurns + 1
	}
	return p.limits.MaxTurns
}

// ask calls the model. left is what remained of the trajectory's budget.
func (p *player) ask(ctx context.Context, turn int) (resp *traj.Response, left int, err error) {
	req := p.agent.Request()
	req.Sampling = p.scheduler.sampling(p.limits.Sampling)
	req.Seed = turnSeed(p.t.Seed, turn-1)
	req.MaxPrompt = p.c.MaxPromptTokens
	req.Group = p.t.GroupID
	if turn > p.limits.MaxTurns || p.scheduler.noTools { // the final turn, or one without
		req.Tools = nil
	}
	left = math.MaxInt
	if p.c.MaxResponseTokens > 0 {
		left = p.c.MaxResponseTokens - p.used
		if req.Sampling.MaxTokens == 0 || left < req.Sampling.MaxTokens {
			req.Sampling.MaxTokens = left
		}
	}
	start := p.c.Now()
	if p.watcher != nil {
		p.emit(ModelStart{req})
	}
	resp, err = p.generate(ctx, req)
	took := p.c.Now().Sub(start)
	if p.watcher != nil {
		p.emit(ModelEnd{req, resp, err, took})
	}
	if err != nil {
		return nil, left, err
	}
	if err := p.expenses.bill(resp); err != nil {
		return nil, left, err
	}
	p.otherImages = p.otherImages || resp.ImagesDiffer
	images, err := imageSpans(p.t, req, resp)
	if err != nil {
		return nil, left, err
	}
	seq, from, to, rerr := p.t.Record(resp.PromptIDs, images, resp.SampledIDs, resp.Logprobs)
	step := traj.Step{Sequence: seq, Start: from, End: to, FinishReason: resp.FinishReason,
		PromptTokens: resp.PromptTokens, CompletionTokens: resp.OutputTokens, ModelMS: ms(took)}
	if rerr == nil {
		rerr = recordExperts(p.t, seq, resp)
	}
	if rerr != nil {
		step.Error = text.Line(rerr)
	}
	if len(p.t.Steps) == 0 {
		p.t.PromptTokens = resp.PromptTokens
	}
	recordVersions(p.t, &step, resp)
	p.t.Steps = append(p.t.Steps, step)
	p.t.CompletionTokens += resp.OutputTokens
	if resp.Policy != "" {
		p.t.Policy = resp.Policy
	}
	p.used += resp.OutputTokens
	if resp.PromptTokens > 0 && p.t.PromptTokens > 0 {
		// The prompt's own length says what the observations really took. It
		// can be less, where a template drops earlier thinking.
		p.used = max(resp.PromptTokens+resp.OutputTokens-p.t.PromptTokens, p.t.CompletionTokens)
	}
	return resp, left, nil
}

// recordVersions keeps which weights drew a new step: the trajectory's version is the oldest of its
// steps', and a step with others has its own.
func recordVersions(t *traj.Trajectory, step *traj.Step, resp *traj.Response) {
	switch v := resp.PolicyVersion; {
	case len(t.Steps) == 0:
		t.PolicyVersion = v
	case v < t.PolicyVersion:
		for i := range t.Steps {
			if s := &t.Steps[i]; s.PolicyVersions == nil {
				s.PolicyVersions = []int64{t.PolicyVersion}
			}
		}
		t.PolicyVersion = v
	case v > t.PolicyVersion:
		step.PolicyVersions = []int64{v}
	}
	if len(resp.Versions) > 0 && len(resp.Versions) == step.End-step.Start {
		step.PolicyVersions = resp.Versions
	}
}

// recordExperts keeps which experts a reply's model chose for the tokens of a sequence; -1: it is none.
func recordExperts(t *traj.Trajectory, sequence int, resp *traj.Response) (err error) {
	if sequence < 0 {
		return nil
	}
	s := &t.Sequences[sequence]
	s.Experts, err = s.Experts.Then(resp.Experts)
	return err
}

// imageSpans are those of a prompt by the numbers of the trajectory's images.
func imageSpans(t *traj.Trajectory, req *traj.Request, resp *traj.Response) ([]traj.ImageSpan, error) {
	if len(resp.Images) == 0 {
		return nil, nil
	}
	numbers := t.AddImages(req.Messages)
	spans := slices.Clone(resp.Images)
	for i := range spans {
		n := spans[i].Image
		if n < 0 || n >= len(numbers) {
			return nil, fmt.Errorf("the model speaks of image %d of a conversation with %d images", n, len(numbers))
		}
		spans[i].Image = numbers[n]
	}
	return spans, nil
}

// generate is the model's call, under its time-out; a panic is an error.
func (p *player) generate(ctx context.Context, req *traj.Request) (resp *traj.Response, err error) {
	if d := p.c.ModelTimeout; d > 0 {
		parent := ctx
		own, cancel := context.WithTimeoutCause(ctx, d, fmt.Errorf("the model gave no reply within %v", d))
		defer cancel()
		defer func() {
			if err != nil && own.Err() != nil && parent.Err() == nil {
				err = context.Cause(own)
			}
		}()
		ctx = own
	}
	defer func() {
		if x := recover(); x != nil {
			resp, err = nil, fmt.Errorf("panic in the model: %v", x)
		}
	}()
	resp, err = p.c.Model.Generate(ctx, req)
	if err == nil && resp == nil {
		err = errors.New("the model returned neither a reply nor an error")
	}
	return resp, err
}

// ended tells the trajectory's own time-out and the run's end from a failure.
func (p *player) ended(ctx, own context.Context, otherwise traj.Termination, err error) (traj.Termination, string) {
	switch {
	case errors.Is(err, traj.ErrFatal):
		return otherwise, text.Line(err)
	case ctx.Err() != nil:
		return traj.Cancelled, text.Line(context.Cause(ctx))
	case errors.Is(err, errLeft): // not the policy's doing
		return traj.EnvFailed, text.Line(err)
	case own.Err() != nil && (otherwise == traj.ModelFailed || len(p.t.Steps) == 0): // without a whole reply nothing is known of the policy
		return otherwise, fmt.Sprintf("the trajectory's time of %v was spent before the model had answered", p.c.Timeout)
	case own.Err() != nil:
		return traj.Timeout, fmt.Sprintf("the trajectory took longer than %v", p.c.Timeout)
	}
	return otherwise, text.Line(err)
}

// observe shows an observation to the agent and keeps it.
func (p *player) observe(o traj.Observation) {
	if len(o.Messages) == 0 && o.Continue == "" {
		return
	}
	p.agent.Observe(o)
	p.append(o)
	tokens := p.shown.add(p.c.Model, o)
	if p.watcher != nil {
		p.emit(Observed{Observation: o, Continues: o.Continue != "" && len(o.Messages) == 0, ImageTokens: tokens})
	}
}

// reply keeps what the model wrote.
func (p *player) reply(r *traj.Response) {
	p.conversation.Reply(r)
	p.t.Messages = p.conversation.Messages
}

func (p *player) append(o traj.Observation) {
	p.conversation.Observe(o)
	p.t.AddImages(o.Messages)
	p.t.Messages = p.conversation.Messages
}

// answerUnread appends the messages for calls that could not be read, where the
// trajectory ends on them. Their text stands in the reply's content, and no
// reward must take it for an answer.
func (p *player) answerUnread(ctx context.Context, a traj.Action) {
	if len(a.CallErrors) == 0 || len(a.ToolCalls) > 0 {
		return
	}
	if res, err := p.env.Step(ctx, traj.Action{CallErrors: a.CallErrors}); err == nil {
		p.append(res.Observation)
	}
}

// count is how many tokens an observation takes: as the model counts, or by the
// rule of thumb of four bytes a token and a few for the turn around it.
func (p *player) count(o traj.Observation) int {
	if p.c.MaxResponseTokens == 0 {
		return 0
	}
	const turn = 5 // <|im_start|>role\n … <|im_end|>\n
	counter, exact := p.c.Model.(agent.TokenCounter)
	n := 0
	for _, s := range texts(o) {
		if exact {
			n += counter.CountTokens(s) + turn
		} else {
			n += (len(s)+3)/4 + turn
		}
	}
	for i := range o.Messages {
		for k := range o.Messages[i].Images {
			n += imageTokens(p.c.Model, &o.Messages[i].Images[k])
		}
	}
	return n
}

func texts(o traj.Observation) []string {
	var all []string
	for i := range o.Messages {
		all = append(all, o.Messages[i].Content)
	}
	if o.Continue != "" {
		all = append(all, o.Continue)
	}
	return all
}

// settle scores what has ended.
func (p *player) settle(ctx context.Context, start time.Time) {
	t := p.t
	if p.otherImages {
		t.ForgetTokens()
	}
	if !t.Termination.Infrastructure() {
		asked := t.Task
		t.Task = p.scheduler.task(asked)
		p.score(ctx)
		t.Task = asked
	}
	if t.Termination.Infrastructure() {
		t.Reward, t.RewardParts, t.Correct, t.Extracted = nil, nil, nil, nil
	}
	t.DurationMS = p.c.Now().Sub(start).Milliseconds()
}

// score asks for the reward. A trajectory whose reward is not known is not
// worth 0: it ends as reward_error.
func (p *player) score(ctx context.Context) {
	t := p.t
	if p.c.Reward == nil {
		for i := range t.Steps {
			if r := t.Steps[i].Reward; r != nil {
				if t.Reward == nil {
					t.Reward = new(float64)
				}
				*t.Reward += *r
			}
		}
		if err := numbers(t); err != nil {
			t.Termination, t.Error = traj.RewardFailed, text.Line(err)
		}
		return
	}
	own, cancel := ctx, context.CancelFunc(func() {})
	if p.c.RewardLimit > 0 {
		own, cancel = context.WithTimeout(ctx, p.c.RewardLimit)
	}
	defer cancel()
	err := p.callReward(own)
	if err == nil {
		err = numbers(t)
	}
	switch {
	case err == nil:
	case ctx.Err() != nil:
		t.Termination, t.Error = traj.Cancelled, text.Line(context.Cause(ctx))
	case own.Err() != nil:
		t.Termination, t.Error = traj.RewardFailed, fmt.Sprintf("there was no score within %v (%s)", p.c.RewardLimit, text.Line(err))
	default:
		t.Termination, t.Error = traj.RewardFailed, text.Line(err)
	}
}

// numbers refuses rewards that are none: neither JSON nor a mean can hold them.
func numbers(t *traj.Trajectory) error {
	for _, part := range t.RewardParts {
		if !traj.Finite(part.Value) {
			return fmt.Errorf("the reward %s is %v", part.Name, part.Value)
		}
	}
	if t.Reward != nil && !traj.Finite(*t.Reward) {
		return fmt.Errorf("the reward is %v", *t.Reward)
	}
	return nil
}

func (p *player) callReward(ctx context.Context) (err error) {
	defer func() {
		if x := recover(); x != nil {
			err = fmt.Errorf("panic in the reward: %v", x)
		}
	}()
	return p.c.Reward(ctx, p.t)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
