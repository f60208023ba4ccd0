package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"agentcli/agent"
	"agentcli/env"
	"agentcli/internal/safego"
	"agentcli/internal/setting"
	"agentcli/traj"
)

// maxInfo is how long an info may be, in bytes.
const maxInfo = 1 << 20

// ErrNext is in the error of a scheduler that asks for what cannot be.
var ErrNext = errors.New("the scheduler")

// scheduling is the scheduler of a trajectory, and what it has decided for the next turn.
type scheduling struct {
	Scheduler       // nil: ToolLoop
	guard     guard // of Scheduler
	start     traj.Info
	opening   []traj.Message // of the conversation, where it is not the task's own; nil: it is
	noTools   bool
	given     *traj.Sampling
}

// open makes the trajectory's scheduler, and lets it replace the opening.
func (s *scheduling) open(ctx context.Context, mk func(traj.Task) (Scheduler, error), t *traj.Trajectory,
	o traj.Observation) (traj.Observation, error) {
	if mk == nil {
		return o, nil
	}
	own, err := mk(t.Task)
	if own == nil || err != nil {
		return o, err
	}
	s.Scheduler = own
	starter, ok := own.(Starter)
	if !ok {
		return o, nil
	}
	var begin Opening
	err = s.guard.do(ctx, func() (err error) {
		begin, err = starter.Start(ctx, Opening{Trajectory: t.ID, Task: &t.Task, Messages: o.Messages, Seed: t.Seed})
		return err
	})
	if err != nil {
		return o, err
	}
	if err := checkInfo(begin.Info); err != nil {
		return o, err
	}
	s.start = begin.Info
	if begin.Messages != nil {
		if len(begin.Messages) == 0 || begin.Messages[len(begin.Messages)-1].Role == traj.RoleAssistant {
			return o, fmt.Errorf("%w begins with no messages, or with one of the model's last: want a user's", ErrNext)
		}
		known := imagesOf(o.Messages)
		o = valid(traj.Observation{Messages: begin.Messages})
		if o.Messages, err = fillImages(o.Messages, known); err != nil {
			return o, err
		}
		s.opening = o.Messages
	}
	return o, nil
}

// keepStart keeps what was known at the start of a trajectory that ended before the scheduler
// was asked what follows.
func (s *scheduling) keepStart(of *traj.Trajectory) {
	of.SetInfo(withStart(nil, s.start))
	s.start = nil
}

// close tells the scheduler the end.
func (s *scheduling) close(end traj.Termination) {
	c, ok := s.Scheduler.(Closer)
	if !ok {
		return
	}
	if left := s.guard.left; left != nil { // it is in use until then
		go func() {
			defer safego.Catch(nil)
			<-left
			_ = c.Close(end)
		}()
		return
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.guard.do(over, func() error { return c.Close(end) }) // the trajectory is what it is
}

// sampling is that of the next turn.
func (s *scheduling) sampling(own traj.Sampling) traj.Sampling {
	if s.given == nil {
		return own
	}
	next := *s.given
	if own.MaxTokens > 0 && (next.MaxTokens == 0 || next.MaxTokens > own.MaxTokens) {
		next.MaxTokens = own.MaxTokens
	}
	return next
}

// next asks the scheduler what follows a reply, and keeps what it says of the step.
func (s *scheduling) next(ctx context.Context, t Turn, of *traj.Trajectory) (Next, error) {
	if s.Scheduler == nil {
		return ToolLoop{}.Next(ctx, t)
	}
	task := s.task(of.Task)
	t.Trajectory, t.Task, t.Messages, t.Infos = of.ID, &task, of.Messages, of.Infos
	s.noTools, s.given = false, nil
	var next Next // what was left behind may still write to it
	err := s.guard.do(ctx, func() (err error) {
		if f, ok := s.Scheduler.(Finisher); ok {
			if next.Stop, err = f.Finished(ctx, t); err != nil || next.Stop != "" {
				return err
			}
		}
		next, err = s.Scheduler.Next(ctx, t)
		return err
	})
	if err == nil {
		err = next.check(&t)
	}
	if err != nil {
		return Next{}, err
	}
	if next.Reward != nil {
		of.Steps[len(of.Steps)-1].Reward = next.Reward
	}
	of.Weigh(next.Weights)
	of.SetInfo(withStart(next.Info, s.start))
	s.start = nil
	s.noTools, s.given = next.NoTools, next.Sampling
	return next, nil
}

// replyText is a reply as the model wrote it, as far as that is known.
func replyText(r *traj.Response) string {
	if r.Raw != "" {
		return r.Raw
	}
	return r.Message.Content
}

// withStart puts what was known at the start into the first step's info.
func withStart(info, start traj.Info) traj.Info {
	if len(start) == 0 {
		return info
	}
	rest := bytes.TrimSpace(info)
	if len(rest) > 0 {
		rest = bytes.TrimSpace(rest[1 : len(rest)-1])
	}
	if len(rest) > 0 {
		rest = append([]byte(","), rest...)
	}
	return slices.Concat(traj.Info(`{"start":`), start, traj.Info(rest), traj.Info("}"))
}

func checkInfo(i traj.Info) error {
	if len(i) > maxInfo {
		return fmt.Errorf("%w gives an info of %d bytes; %d are the most", ErrNext, len(i), maxInfo)
	}
	if b := bytes.TrimSpace(i); len(i) > 0 && (len(b) == 0 || b[0] != '{' || !json.Valid(b)) {
		return fmt.Errorf("%w gives an info that %w: %.60q", ErrNext, traj.ErrInfo, string(i))
	}
	return nil
}

// ways names what the trajectory would end or go on by.
func (n *Next) ways() (names []string) {
	for _, way := range []struct {
		given bool
		name  string
	}{{n.Stop != "", "an end"}, {len(n.Messages) > 0, "messages"}, {n.Continue != "" || n.Cut != nil, "a text or a cut in the reply"},
		{n.History != nil, "a history"}} {
		if way.given {
			names = append(names, way.name)
		}
	}
	return names
}

// check reports what cannot be followed.
func (n *Next) check(t *Turn) error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w, after turn %d, %w", ErrNext, t.Number, fmt.Errorf(format, args...))
	}
	if err := checkInfo(n.Info); err != nil {
		return err
	}
	if n.Reward != nil && !traj.Finite(*n.Reward) {
		return wrong("gives the reward %v", *n.Reward)
	}
	if k := len(n.Weights); k > 1 && k != len(t.Reply.SampledIDs) {
		return wrong("gives %d weights for %d tokens; give one for all, or one for each", k, len(t.Reply.SampledIDs))
	}
	for i, w := range n.Weights {
		if !(w >= 0 && w <= math.MaxFloat64) {
			return wrong("gives token %d the weight %v; want a number of at least 0", i, w)
		}
	}
	goesOn := n.Continue != "" || n.Cut != nil
	ways := n.ways()
	if len(ways) > 1 {
		return wrong("has %s at once; give one of them", strings.Join(ways, " and "))
	}
	if n.Stop != "" && (n.Stop.Infrastructure() || !slices.Contains(traj.Terminations, n.Stop)) {
		return wrong("ends the trajectory as %q, which is none of its reasons", string(n.Stop))
	}
	if n.Cut != nil {
		if at := *n.Cut; at <= 0 || at > len(t.Text) || at < len(t.Text) && !utf8.RuneStart(t.Text[at]) {
			return wrong("cuts a reply of %d bytes at byte %d; want 1 to %[1]d, and the end of a character (in UTF-8)", len(t.Text), at)
		}
	}
	if n.History != nil {
		return n.checkHistory(wrong)
	}
	for _, m := range n.Messages {
		if m.Role != traj.RoleUser && m.Role != traj.RoleTool && m.Role != traj.RoleSystem {
			return wrong("adds a message of the role %q; want user, tool or system", m.Role)
		}
	}
	switch said := t.Env; {
	case n.Stop != "" || t.Last:
	case n.Cut != nil && said != nil && said.Observation.Continue != "":
		return wrong("cuts a reply that the environment goes on with")
	case goesOn && said != nil && len(said.Observation.Messages) > 0:
		return wrong("goes on with a reply that the environment has answered")
	case len(ways) == 0 && (said == nil || len(said.Observation.Messages) == 0 && said.Observation.Continue == ""):
		return wrong("has nothing to go on with, and does not end it: the environment said nothing")
	}
	return nil
}

func (n *Next) checkHistory(wrong func(string, ...any) error) error {
	replies := 0
	for _, m := range n.History {
		switch m.Role {
		case traj.RoleAssistant:
			replies++
		case traj.RoleUser, traj.RoleTool, traj.RoleSystem:
		default:
			return wrong("rewrites the history with a message of the role %q", m.Role)
		}
	}
	if replies == 0 {
		return wrong("rewrites the history to %d messages, none of which is the model's; want one or more", len(n.History))
	}
	if n.History[len(n.History)-1].Role == traj.RoleAssistant {
		return wrong("rewrites the history to one whose last message is the model's; want a user's or a tool's last")
	}
	return nil
}

// following begins the turn that follows a reply.
type following struct {
	*player
	resp *traj.Response
	said *env.Result // what the environment said; nil: nothing
}

// begin begins the next turn; end says that the trajectory ends here instead, since the
// model could not answer to what would be added.
func (p *following) begin(n Next) (end traj.Termination, err error) {
	var o traj.Observation
	if p.said != nil {
		o = p.said.Observation
	}
	switch {
	case n.History != nil:
		return p.rewrite(n.History)
	case n.Cut != nil:
		return p.cut(*n.Cut, strings.ToValidUTF8(n.Continue, "�"))
	case n.Continue != "":
		o.Continue += n.Continue
	case len(n.Messages) > 0 && o.Continue != "":
		return "", fmt.Errorf("%w adds messages where the environment goes on with the model's reply", ErrNext)
	case len(n.Messages) > 0:
		o.Messages = slices.Concat(o.Messages, n.Messages)
	}
	o = valid(o)
	if o.Messages, err = fillImages(o.Messages, p.t.Images); err != nil {
		return "", err
	}
	if err := p.checkContinue(o); err != nil {
		return "", err
	}
	count := p.count(o)
	if p.c.MaxResponseTokens > 0 && p.used+count >= p.c.MaxResponseTokens {
		// The last tokens are the model's: what it could not answer to is
		// not appended.
		return traj.MaxTokens, nil
	}
	p.used += count
	p.observe(o)
	return "", nil
}

// errNoReviser is an agent whose conversation nobody can change.
var errNoReviser = errors.New("the agent's conversation cannot be changed: it is no agent.Reviser")

// ErrCallsRead is in the error of a text behind a reply whose calls the model's server read
// out of it.
var ErrCallsRead = errors.New("the model's server read calls out of the reply, so no text can follow them in it")

// checkContinue refuses a text in the model's reply where the next prompt could not have it
// behind what the model wrote.
func (p *player) checkContinue(o traj.Observation) error {
	if o.Continue == "" || len(o.Messages) > 0 || p.conversation.CanContinue() {
		return nil
	}
	return setting.Errorf("%w; start the server without its parser of tool calls, or use %s", ErrCallsRead, setting.Name("llm.Tokens"))
}

// cut takes back the end of the reply, and puts a text in its place.
func (p *following) cut(at int, more string) (end traj.Termination, err error) {
	reviser, ok := p.agent.(agent.Reviser)
	if !ok {
		return "", errNoReviser
	}
	text := replyText(p.resp)
	c := traj.Cut{Bytes: at, Tokens: -1}
	step := &p.t.Steps[len(p.t.Steps)-1]
	splitter, exact := p.c.Model.(agent.TokenSplitter)
	if exact && step.Sequence >= 0 {
		var whole int
		c.Tokens, whole = splitter.SplitTokens(p.resp.SampledIDs, text, at)
		c.Rest = text[whole:at]
	}
	o := traj.Observation{Continue: c.Rest + more}
	count := p.count(o)
	if p.c.MaxResponseTokens > 0 && p.used+count >= p.c.MaxResponseTokens {
		return traj.MaxTokens, nil
	}
	p.used += count
	if c.Tokens >= 0 {
		p.t.Cut(c)
	} else { // which of the tokens are cut off is not known: none is trained on
		p.t.Weigh([]float64{0})
	}
	reviser.Cut(c, more)
	p.conversation.Cut(c, more)
	p.t.Messages = p.conversation.Messages
	if p.watcher != nil {
		p.emit(Observed{Observation: traj.Observation{Continue: more}, Continues: true, CutAt: at})
	}
	return "", nil
}

func imagesOf(messages []traj.Message) (all []traj.Image) {
	for i := range messages {
		all = append(all, messages[i].Images...)
	}
	return all
}

// fillImages are messages with what is known of images that a scheduler names by their hash.
func fillImages(messages []traj.Message, known []traj.Image) ([]traj.Message, error) {
	if imagesOf(messages) == nil {
		return messages, nil
	}
	messages = slices.Clone(messages)
	for i := range messages {
		m := &messages[i]
		if _, err := m.Parts(); err != nil {
			return nil, fmt.Errorf("%w: message %d: %w", ErrNext, i, err)
		}
		m.Images = slices.Clone(m.Images)
		for k := range m.Images {
			im := &m.Images[k]
			if im.Bytes != nil || im.Crop != nil && im.Crop.File != nil {
				continue
			}
			n := slices.IndexFunc(known, func(have traj.Image) bool { return have.Hash == im.Hash })
			if n < 0 {
				return nil, fmt.Errorf("%w has an image in message %d, %.12s, that is neither in the conversation nor sent", ErrNext, i, im.Hash)
			}
			*im = known[n]
		}
	}
	return messages, nil
}

// rewrite puts a history in the place of the conversation.
func (p *following) rewrite(history []traj.Message) (end traj.Termination, err error) {
	reviser, ok := p.agent.(agent.Reviser)
	if !ok {
		return "", errNoReviser
	}
	p.used = p.t.CompletionTokens // what the next prompt takes, it will tell
	if p.c.MaxResponseTokens > 0 && p.used >= p.c.MaxResponseTokens {
		return traj.MaxTokens, nil
	}
	o := valid(traj.Observation{Messages: history})
	if o.Messages, err = fillImages(o.Messages, p.t.Images); err != nil {
		return "", err
	}
	p.scheduler.opening = openingOf(o.Messages, p.scheduler.task(p.t.Task).Messages)
	reviser.Rewrite(o.Messages)
	p.conversation.Rewrite(o.Messages)
	p.t.AddImages(o.Messages)
	p.t.Messages = p.conversation.Messages
	if p.watcher != nil {
		p.emit(Observed{Observation: o, Rewritten: true})
	}
	return "", nil
}

// task is the task with the messages that open the conversation: what stands behind them
// was played. The file and the journal keep the task as it was asked.
func (s *scheduling) task(t traj.Task) traj.Task {
	if s.opening != nil {
		t.Messages = s.opening
	}
	return t
}

// openingOf gives the messages of a rewritten history that open the conversation: those that
// it has in common with the opening before, which may hold worked examples, or those in front
// of the model's first, if they are more.
func openingOf(history, before []traj.Message) []traj.Message {
	same, first := 0, 0
	for same < min(len(history), len(before)) && history[same].Role == before[same].Role && history[same].Content == before[same].Content {
		same++
	}
	for first < len(history) && history[first].Role != traj.RoleAssistant {
		first++
	}
	return slices.Clone(history[:max(same, first)])
}
