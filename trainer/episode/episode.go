package episode

import (
	"path/filepath"
	"slices"
	"strings"

	"agentcli/traj"
)

// Episode is one trajectory as the trainer needs it. About 200 bytes are in memory
// for the whole run; the Body may be on disk.
type Episode struct {
	ID    string
	Group string
	Task  string // id of the task, for the greedy attempt that remax compares with
	File  string // that it was read from; "": none

	Score       float64
	GreedyScore *float64 // score of the greedy attempt at the same task; remax only
	// ShapedReward is the score as it is rewarded: clipped, less the length penalties
	// and, with --kl-in reward, less the KL.
	ShapedReward  float64
	PolicyVersion int64   // of the policy that sampled it, as the file counts; the oldest of its tokens'
	VersionsAhead Ahead   // how much newer than that its tokens are
	Temperature   float64 // that its tokens were sampled at; 0: 1

	*Body             // nil while it is on disk only
	BodySizes   Sizes // of the body; set where it is on disk
	Counts      TokenCounts
	Store       BodyReader // that has the body; nil: the body stays in memory
	StoredAt    int64      // offset of the body in Store, in bytes
	FirstWanted int64      // wanted tokens of the episodes before this one in the same Store
	StoredBytes int32      // length of the body in Store

	Layout LayoutKind

	Filtered           bool // it is left out of the loss, its counts and whitening, not out of its group's baseline
	Unscored           bool // it has no reward, and none is required: Score says nothing
	HeldOut            bool // its column split is the one that is held out (rows.Sources.EvalSplit)
	ZeroStd            bool // all attempts of its group have the same score, before a KL in the reward
	HasAdvantage       bool // the advantage of some action is not 0
	MissingLogprobs    bool // some action has no log-prob in the file
	MissingExperts     bool // the file does not have the experts that were chosen for some sequence with an action
	LogprobsUntempered bool // the file's log-probs are not of the distribution that it was sampled from
	SampledGreedily    bool // it was sampled at temperature 0
}

// Ahead is how many versions newer than the oldest the policies are that sampled the tokens of
// an episode; 0 where one policy sampled all.
type Ahead struct {
	Mean float64 // over the sampled tokens
	Most int64
}

// BodyReader reads the bodies of episodes that are not in memory; store.Spill is one. It is
// safe for concurrent use.
type BodyReader interface {
	ReadBody(e *Episode) (*Body, error)
}

// Body are the sequences of an episode, which of their tokens are trained on, and
// what else a step needs of it.
type Body struct {
	Role        string          // rae only
	Sequences   []traj.Sequence // a token of weight 0 is not trained on
	Images      []Image         // by the numbers that the sequences' spans have
	Parts       []traj.Part     // the reward's components
	StepRewards []StepReward    // that the environment gave on the way
	Termination traj.Termination
	Turns       int // 0: the file does not say, nor the two below
	ToolCalls   int
	ToolErrors  int
	Malformed   int // of ToolErrors; -1: the file does not say
	Prompt      int // tokens before the first sampled one
	Sampled     int // tokens that the policy sampled, over all sequences
	LastRound   int // of the last sequence: where its last model call begins; -1: not known

	Question      string // opsd only: the problem's own text, and
	Demonstration string // what the teacher is shown behind it; "": another attempt

	// Content says which tokens of each sequence are content of tool messages, for the
	// cross-entropy of --echo; nil: every token that was not sampled counts as observed.
	Content [][]bool

	Marks [][]float64 // prm: the labels of each step marker, a distribution over the reward tokens

	// OwnLoss says that messages of the row say themselves which replies are trained on, and
	// that the weights of the sequences have that: lossscale.LastRound chooses no replies.
	OwnLoss bool

	Streams []TokenStream // one a sequence
}

// StepReward is what the environment gave for one model call, at the last token
// that the policy sampled in it.
type StepReward struct {
	Sequence, Token int
	Reward          float64
}

// Sizes are what is known of a body that is on disk.
type Sizes struct {
	Tokens, Longest int32 // tokens of all sequences; of the longest one
	MaxID           int32 // the largest token id
}

// Measure gives the sizes of a body.
func (b *Body) Measure() Sizes {
	var n Sizes
	for i := range b.Sequences {
		ids := b.Sequences[i].TokenIDs
		n.Tokens += int32(len(ids))
		n.Longest = max(n.Longest, int32(len(ids)))
		if len(ids) > 0 {
			n.MaxID = max(n.MaxID, slices.Max(ids))
		}
	}
	return n
}

// ObservedTokens is how many tokens the policy read after its first own: tool output and what
// the template puts around it. The prompt is none, nor are tokens that a later sequence
// repeats of the one before.
func (b *Body) ObservedTokens() int {
	n := 0
	for i := range b.Sequences {
		s := &b.Sequences[i]
		from := slices.Index(s.LossMask, true)
		if i > 0 {
			from = CommonPrefix(b.Sequences[i-1].TokenIDs, s.TokenIDs)
		}
		for t := max(from, 0); t < len(s.LossMask); t++ {
			if !s.LossMask[t] {
				n++
			}
		}
	}
	return n
}

// Sizes are those of the body, in memory or on disk.
func (e *Episode) Sizes() Sizes {
	if e.Body != nil {
		return e.Measure()
	}
	return e.BodySizes
}

// LayoutKind says for which tokens of an episode a model computes log-probs or a score.
type LayoutKind uint8

// The kinds of layout.
const (
	LayoutOfAlgorithm LayoutKind = iota // those that the algorithm trains on
	LayoutOfReply                       // the sampled ones: a row of the second dataset (--ptx)
	LayoutOfLastToken                   // the last one of the last sequence: for a reward model
)

// LeastTemperature is the lowest at which tokens are taken to be sampled: below it
// nearly every token is the likeliest one. vLLM raises what is lower to it.
const LeastTemperature = .01

// SamplingTemperature is the temperature that log-probs are computed at: the episode's
// own, or 1 where it is not known or no token can have been sampled at it (greedy rows
// under --force).
func (e *Episode) SamplingTemperature() float64 {
	if e.Temperature < LeastTemperature { // 0: it is not said, or --force
		return 1
	}
	return e.Temperature
}

// Name names the episode, and its file where it has one.
func (e *Episode) Name() string {
	if f := e.File; f != "" {
		return f + ": " + strings.TrimPrefix(e.ID, filepath.Base(f)+":")
	}
	return e.ID
}

// CommonPrefix is how many tokens two sequences begin with that are the same.
func CommonPrefix(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// Groups lists the episodes by group, in order of first appearance.
func Groups(episodes []*Episode) [][]*Episode {
	at := map[string]int{}
	var out [][]*Episode
	for _, e := range episodes {
		i, ok := at[e.Group]
		if !ok {
			i = len(out)
			at[e.Group] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], e)
	}
	return out
}
