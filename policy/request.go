package policy

import (
	"errors"

	"agentcli/model/tokenizer"
	"agentcli/traj"
)

// Request asks a policy for one continuation of a prompt. Sample is the short form.
type Request struct {
	Prompt   Sequence
	Sampling traj.Sampling
	Seed     int64 // with the token's position it decides the draw
	// Priority orders the requests that wait, the lowest first; those of one priority are
	// served in the order in which they came.
	Priority int
	// Salt keeps the prompt's keys and values from requests of other salts.
	Salt string
	// Adapter is the name of the adapter that the reply is drawn with (Engine.LoadAdapter); "": the model as it is.
	Adapter string
	// IgnoreEnd has the model's own end-of-turn ids, and Sampling.StopIDs, end nothing.
	IgnoreEnd bool
	// Top is how many of the most probable ids come with each token.
	Top int
	// PromptLogprobs has the reply say the log-prob of each id of the prompt but the first,
	// and PromptTop of the most probable ones in its place.
	PromptLogprobs bool
	PromptTop      int
	// Grammar says which ids may come next; nil: any.
	Grammar Grammar
	// Emit is called with each token in order, from the engine's own loop: it must return at
	// once. The reply has the same tokens.
	Emit func(Token)
}

// Grammar is what a reply may be. A request owns its Grammar.
type Grammar interface {
	// Fill sets bit i%32 of word i/32 where id i may be next, and clears the others.
	Fill(mask []uint32)
	// Accept takes the id that was drawn; false: it could not be next.
	Accept(id int32) bool
}

// Token is one that was drawn, or one of a prompt.
type Token struct {
	ID      int32
	Logprob traj.Logprob // as Config.SampledLogprobs says
	Top     []TopToken   // the most probable first; as many as were asked for
	Version int64        // of the weights that drew it, or of their adapter
}

// TopToken is an id and its log-prob at a position.
type TopToken struct {
	ID      int32
	Logprob traj.Logprob
}

// Output is what was sampled after a prompt; LogprobKind says what its log-probs
// are of.
type Output = traj.Completion

// Reply is what was drawn for a Request.
type Reply struct {
	Output
	Tokens []Token // of Output.IDs, in order
	Prompt []Token // where Request.PromptLogprobs; the first has no log-prob (0) and no Top
	Cached int     // tokens of the prompt whose keys and values were there
}

// Exchange says what becomes of the requests under way when the weights are exchanged.
type Exchange string

// The kinds.
const (
	ExchangeWait  Exchange = "wait"  // they end first; what comes meanwhile waits
	ExchangeAbort Exchange = "abort" // they end at once with FinishAbort and what they have
	ExchangeKeep  Exchange = "keep"  // they go on with the new weights, and each token has its version
)

// FinishAbort is the reason of a reply that was ended from without.
const FinishAbort = "abort"

// Load is what an engine is doing.
type Load struct {
	Running, Waiting    int
	Blocks, UsedBlocks  int // of the key-value cache
	BlockTokens         int
	PromptTokens        int64 // of requests so far
	CachedTokens        int64 // of those, found in the cache
	HostTokens          int64 // that came back from the host's memory
	SampledTokens       int64
	DraftTokens         int64 // guessed, and of those
	AcceptedTokens      int64 // what was drawn
	Preemptions, Aborts int64
}

// ErrNoAdapter says that no adapter has the name that a request gives.
var ErrNoAdapter = errors.New("there is no adapter of this name")

// Adapter is one that requests may name.
type Adapter struct {
	Name, Folder string
	Base         string // the model that its folder names
	Version      int64
}

// Facts is what a model is.
type Facts struct {
	Tokenizer  *tokenizer.Tokenizer
	EndIDs     []int32 // end a reply unless a request ignores them
	VocabSize  int     // ids that the model can draw
	Barred     []int32 // ids below VocabSize that it never draws: those of images
	MaxContext int     // tokens that prompt and reply may have together
}
