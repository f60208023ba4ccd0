// Package agent holds the side of a trajectory that asks: the Model interface,
// the Agent interface, and ToolAgent, which speaks to a model that calls tools.
// It imports layer 0 only; it knows neither environments nor where a model's
// replies come from.
package agent

import (
	"context"
	"strings"

	"agentcli/internal/splitmix"
	"agentcli/traj"
)

// Model gives one reply to a conversation. Generate is safe for concurrent use
// and does not keep or change the request. It retries what is worth retrying by
// itself: an error is final for this request. Errors that wrap
// traj.ErrPromptTooLong, traj.ErrFatal or traj.ErrGone mean what is written there;
// any other error is the infrastructure's fault, not the policy's. While it waits
// instead of working it stops the clock of ctx (package workclock).
type Model interface {
	Generate(ctx context.Context, req *traj.Request) (*traj.Response, error)
}

// TokenCounter is a Model that can say how many tokens a text takes. The engine
// uses it to decide whether an observation still fits the budget; without it
// the engine estimates.
type TokenCounter interface {
	CountTokens(text string) int
}

// ImageProcessor is a Model that can say how many patches (frames, rows, columns) and tokens an
// image of this size in pixels takes. Without it the engine counts as Qwen2.5-VL's does.
type ImageProcessor interface {
	ImageGrid(width, height int) (grid [3]int, tokens int, err error)
}

// Readier is a Model that may be away for a while, as a server that restarts is.
// Ready waits until requests are taken again. Its error means that none will be
// (traj.ErrGone), or is that of ctx. The engine calls it before each attempt: nothing
// begins that could only wait. It is safe for concurrent use.
type Readier interface {
	Ready(ctx context.Context) error
}

// Ready waits for a model that is a Readier; any other is ready.
func Ready(ctx context.Context, m any) error {
	if r, ok := m.(Readier); ok {
		return r.Ready(ctx)
	}
	return nil
}

// TokenSplitter is a Model that knows where in a reply's text its tokens end.
type TokenSplitter interface {
	// SplitTokens says how many of a reply's ids have their text wholly within its first
	// at bytes, and how many bytes theirs is.
	SplitTokens(ids []int32, text string, at int) (tokens, bytes int)
}

// Reviser is an Agent whose conversation can be changed behind its back, as some
// schedulers do. Both are called between Update and Request.
type Reviser interface {
	// Cut takes back the end of the last reply, which goes on with a text. Without ids
	// (-1 tokens) those of the conversation are not known any more.
	Cut(c traj.Cut, text string)
	// Rewrite puts another conversation in the place of the one so far.
	Rewrite(history []traj.Message)
}

// Agent serves one trajectory and is used by one goroutine. The order of calls
// is Observe, Request, Update, then again Observe, until Update returns a final
// action or the engine ends the trajectory.
type Agent interface {
	// Observe takes what the environment gave: the opening conversation first.
	Observe(traj.Observation)
	// Request builds the next request; its sampling settings and seed are the
	// engine's to fill.
	Request() *traj.Request
	// Update turns a reply into an action. It may rewrite the ids of the
	// reply's tool calls, in place, where they are missing or taken.
	Update(*traj.Response) traj.Action
}

// ToolAgent passes the conversation on as it is, and takes every reply without
// a tool call for the final answer.
//
// It keeps the exact ids that the model saw and sampled, so that a model which
// holds tokens continues them verbatim.
type ToolAgent struct {
	// Answers reports whether a reply without a call is an answer; one that is not
	// is told so, like a call that cannot be read. nil: every such reply is.
	Answers func(reply string) bool
	// Form is how calls are written; nil: in the model's own way.
	Form traj.Form
	// Replies are those that a model that replays says, one a turn; nil: the model has its own.
	Replies []string

	tools []traj.ToolSpec
	talk  traj.Conversation
	taken map[string]bool // call ids in use
	seed  uint64          // of the ids that are made here
	made  uint64          // how many were

	prefixIDs      []int32
	prefixMessages int
	prefixImages   []traj.ImageSpan
	sampled        int // how many of prefixIDs are the last reply's
	memo           *traj.Memo
}

// New returns an agent that offers these tools.
func New(tools []traj.ToolSpec) *ToolAgent {
	return &ToolAgent{tools: tools, taken: map[string]bool{}, memo: &traj.Memo{}}
}

// Seeded is an Agent that makes something up, and makes the same up again in a run
// with the same seed. The engine calls Seed before anything else.
type Seeded interface{ Seed(trajectory int64) }

// Seed decides the ids of calls that come without one.
func (a *ToolAgent) Seed(trajectory int64) { a.seed = uint64(trajectory) }

// Observe appends the observation to the conversation, or its text to the model's
// own last message. The ids so far stay what they are: the model that holds them
// puts the text behind them.
func (a *ToolAgent) Observe(o traj.Observation) {
	for _, m := range o.Messages {
		for _, c := range m.ToolCalls {
			a.taken[c.ID] = true
		}
	}
	if a.talk.Observe(o); a.talk.Continued {
		a.memo = &traj.Memo{} // a message that was shown has changed
	}
}

// Request is the conversation so far. The slices are the agent's own; a model
// only reads them.
func (a *ToolAgent) Request() *traj.Request {
	n := len(a.talk.Messages)
	var reply *string
	if len(a.Replies) > 0 {
		reply = &a.Replies[0]
	}
	return &traj.Request{
		Messages:       a.talk.Messages[:n:n],
		Tools:          a.tools,
		PrefixIDs:      a.prefixIDs,
		PrefixMessages: a.prefixMessages,
		PrefixImages:   a.prefixImages,
		Continue:       a.talk.Continued,
		Inserted:       a.talk.Inserted,
		Form:           a.Form,
		Memo:           a.memo,
		Reply:          reply,
	}
}

// Update takes the model's reply.
func (a *ToolAgent) Update(r *traj.Response) traj.Action {
	for i := range r.Message.ToolCalls {
		r.Message.ToolCalls[i].ID = a.callID(r.Message.ToolCalls[i].ID)
	}
	if a.talk.Continued { // the model went on writing its own last message
		a.memo = &traj.Memo{}
	}
	a.talk.Reply(r)
	a.Replies = a.Replies[min(1, len(a.Replies)):]
	a.prefixIDs, a.prefixMessages, a.prefixImages = nil, 0, nil
	if len(r.PromptIDs) > 0 && len(r.SampledIDs) > 0 {
		ids := make([]int32, 0, len(r.PromptIDs)+len(r.SampledIDs))
		a.prefixIDs = append(append(ids, r.PromptIDs...), r.SampledIDs...)
		a.prefixMessages, a.prefixImages, a.sampled = len(a.talk.Messages), r.Images, len(r.SampledIDs)
	}
	if len(r.Message.ToolCalls) == 0 && len(r.CallErrors) == 0 {
		if a.Answers != nil && strings.TrimSpace(r.Message.Content) != "" && !a.Answers(r.Message.Content) {
			return traj.Action{CallErrors: []traj.CallError{{Raw: r.Message.Content, Reason: "it is neither a call nor an answer"}}}
		}
		return traj.Action{Final: true, Answer: r.Message.Content}
	}
	return traj.Action{ToolCalls: r.Message.ToolCalls, CallErrors: r.CallErrors}
}

// Cut keeps the ids of the reply's tokens that stay whole.
func (a *ToolAgent) Cut(c traj.Cut, text string) {
	a.memo = &traj.Memo{}
	a.talk.Cut(c, text)
	if c.Tokens < 0 {
		a.prefixIDs, a.prefixMessages, a.prefixImages = nil, 0, nil
	} else if n := len(a.prefixIDs); n > 0 {
		at := n - a.sampled + c.Tokens
		a.prefixIDs = a.prefixIDs[:at:at]
	}
}

// Rewrite forgets the ids: the next prompt is rendered from the messages.
func (a *ToolAgent) Rewrite(history []traj.Message) {
	a.memo = &traj.Memo{}
	a.talk.Rewrite(history)
	a.prefixIDs, a.prefixMessages, a.prefixImages = nil, 0, nil
}

// callID is the id that a call came with, if no other call of this trajectory has it:
// some templates render ids (Kimi K2's), and the next prompt is to begin with what was
// sampled. Else, as models and servers number from 0 in every reply, it is a new one of
// nine letters and digits: Mistral's servers take no other.
func (a *ToolAgent) callID(given string) string {
	id := given
	for id == "" || a.taken[id] {
		id = newCallID(splitmix.Next(a.seed + a.made))
		a.made++
	}
	a.taken[id] = true
	return id
}

func newCallID(x uint64) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	var id [9]byte // 62^9 is less than 2^64
	for i := range id {
		id[i] = letters[x%uint64(len(letters))]
		x /= uint64(len(letters))
	}
	return string(id[:])
}
