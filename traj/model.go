package traj

import "errors"

// Sampling is how tokens are drawn. The zero value of each optional field
// means that the field has no effect; nil means the model's own default.
type Sampling struct {
	Temperature *float64 `json:"temperature,omitempty"` // 0 is greedy; nil is 1 for a local policy, the server's default elsewhere
	TopP        float64  `json:"top_p,omitempty"`       // 1: off; 0: the model's default, off for a local policy
	TopK        int      `json:"top_k,omitempty"`       // 0: the model's default, off for a local policy; -1: off, and a server is told so
	MinP        float64  `json:"min_p,omitempty"`       // 0: off
	MaxTokens   int      `json:"max_tokens,omitempty"`  // of this reply; 0: what the window leaves
	Stop        []string `json:"stop,omitempty"`        // stop strings; kept in the reply's ids, cut from its text
	StopIDs     []int32  `json:"stop_ids,omitempty"`    // beside the model's own end-of-turn ids
	// Neutral tells a server to leave out what else it does by default: min-p, repetition
	// penalty.
	Neutral bool     `json:"neutral,omitempty"`
	Grammar *Grammar `json:"grammar,omitempty"` // what each reply must be; nil: anything
}

// Request asks a model for one reply.
//
// PrefixIDs are the exact ids of the first PrefixMessages messages as the model
// saw and sampled them: the prompt of the previous call and its reply. A model
// that holds the tokens continues them verbatim instead of rendering the
// conversation again. They are opaque to the agent.
type Request struct {
	Messages       []Message
	Tools          []ToolSpec
	Sampling       Sampling
	Seed           int64
	PrefixIDs      []int32
	PrefixMessages int
	PrefixImages   []ImageSpan // in PrefixIDs, by their numbers among the images of Messages
	Group          string      // requests of one group open with the same prompt: a hint to compute it once
	MaxPrompt      int         // longest prompt in tokens; 0: the model's window. A longer one is ErrPromptTooLong
	Continue       bool        // the last message is the model's own, to be continued
	Form           Form        // of calls; nil: the model's own
	Inserted       string      // where Continue and PrefixMessages is all of Messages: the text behind PrefixIDs that ends the last message
	Memo           *Memo       // nil: none
	Reply          *string     // what a model that replays is to say; nil: every other one's own
}

// Form is a way to write calls that a conversation has in place of the model's own. It is
// safe for concurrent use.
type Form interface {
	// InText gives what writes calls, results and, where the form needs it, tools into the
	// messages' text; nil: the chat template or the server writes them.
	InText() func(messages []Message, tools []ToolSpec) []Message
	// Parse reads a reply's text.
	Parse(text string) (Message, []CallError)
}

// Memo is a place that belongs to one conversation, where a model may keep what
// saves it work at the next request: what it made of the messages so far. Whoever
// changes a message that was shown in a request gives a new Memo. It is used by
// one request at a time.
type Memo struct{ Value any }

// Response is one reply.
//
// SampledIDs holds every token the model drew, the end-of-turn token included
// if it was drawn. Logprobs is empty or as long. PromptIDs is what the model
// was given. All three are empty where a server returns no ids.
//
// Raw is the reply as the model wrote it, before thinking and calls were read out
// of it, a stop string that ended it included; empty where it is not known. Apart says
// that the server took Message.Reasoning out of the reply: it is not in Raw.
type Response struct {
	Message       Message
	CallErrors    []CallError
	Raw           string
	Apart         bool
	PromptIDs     []int32
	Images        []ImageSpan // of the prompt's images, by their numbers among those of the request's messages
	ImagesDiffer  bool        // the model was shown images otherwise than they are here: the trajectory keeps no ids
	SampledIDs    []int32
	Logprobs      []Logprob
	FinishReason  string
	PromptTokens  int
	OutputTokens  int
	Policy        string
	PolicyVersion int64    // of the weights; the oldest of Versions
	Versions      []int64  // of the weights that drew each of SampledIDs; nil: all were PolicyVersion
	Experts       *Experts // of PromptIDs and SampledIDs; nil: they are not known
}

// Completion is what was sampled after a prompt of ids.
type Completion struct {
	IDs          []int32   // every token that was drawn, a final stop token included
	Logprobs     []Logprob // of each; empty or as long as IDs
	Text         string    // without a stop token and what follows a stop string; may be empty where the ids say it all
	FinishReason string    // stop or length
	StopString   string    // the stop string that ended it, if one did and that is known
	Ended        bool      // the last of IDs is a stop token
	Versions     []int64   // of the weights, as the model counts: one for all of IDs, or one for each; nil: it does not say
	Experts      *Experts  // of the prompt's ids and of IDs; nil: they are not known
}

// Errors that a model returns and the engine tells apart; wrap them with %w.
var (
	// ErrPromptTooLong: the prompt exceeds MaxPrompt or the model's window. Not retried.
	ErrPromptTooLong = errors.New("prompt too long")
	// ErrFatal: no request of this run can succeed (wrong key, unknown model). The run stops.
	ErrFatal = errors.New("fatal")
	// ErrGone: nothing listens where the model was, and it was waited for. Requests
	// that are under way fail; the run starts nothing new and ends.
	ErrGone = errors.New("gone")
)

// Mark makes err match kind in errors.Is while its text stays as it is: kinds
// are for the program, texts for people.
func Mark(err, kind error) error { return marked{err, kind} }

type marked struct {
	error
	kind error
}

func (m marked) Unwrap() []error { return []error{m.error, m.kind} }
