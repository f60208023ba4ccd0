package trainer

import (
	"fmt"
	"math"
	"slices"

	"agentcli/policy"
	"agentcli/trainer/algo"
	"agentcli/traj"
)

// Episode is one trajectory as the trainer needs it: what is known of it all the
// time, and its Body.
type Episode struct {
	ID       string
	Group    string
	Task     string // id of the task, for the greedy attempt that remax compares with
	version  int64  // of the policy that sampled it, as the file counts
	from     string // file that it was read from; "" where it was not
	Score    float64
	Greedy   *float64 // score of the greedy attempt at the same task; remax only
	Filtered bool     // left out of the loss, its counts and what is whitened, not out of its group's baseline
	// Temperature that its tokens were sampled at; 0: 1.
	Temperature float64
	*Body       // nil while it is on disk alone: Session.hold has it at hand

	reads   reads   // how it is laid out
	shaped  float64 // the score as it is rewarded: clipped, less what length costs and, in the reward, KL
	flat    bool    // all attempts of its group scored the same, before a KL in the reward
	teaches bool    // some action is better or worse than expected
	unsaid  bool    // some action has no log-prob in the file
	untold  bool    // the file's log-probs are not of the distribution that it was sampled from
	greedy  bool    // it was sampled at temperature 0
	size    sizes   // of the body
	counts  counted
	shelf   *shelf // that the body is on; nil: it stays in memory
	at      int64  // where it is there
	length  int32  // in bytes
	first   int64  // number of its first wanted token among those of all episodes

	held bool // its column split is the one that is held out (From.EvalSplit)

	unscored bool // it has no reward, and none is asked for: Score says nothing
}

// Body are the sequences of an episode, which of their tokens are trained on, and
// what else a step needs of it.
type Body struct {
	Role        string // rae only
	Sequences   []traj.Sequence
	Parts       []traj.Part  // the reward's components
	StepRewards []StepReward // that the environment gave on the way
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

	Weights [][]float64 // of each token of each sequence in the loss; nil: 1. A token of weight 0 is not trained on
	Marks   [][]float64 // prm: the labels of each step marker, a distribution over the reward tokens

	Streams []Stream // one a sequence
}

// sizes are what is known of a body that is on disk.
type sizes struct {
	tokens, longest int32 // of all sequences, of one
	top             int32 // the largest id
}

// measure gives the sizes of a body that is at hand.
func (b *Body) measure() sizes {
	var n sizes
	for i := range b.Sequences {
		ids := b.Sequences[i].TokenIDs
		n.tokens += int32(len(ids))
		n.longest = max(n.longest, int32(len(ids)))
		if len(ids) > 0 {
			n.top = max(n.top, slices.Max(ids))
		}
	}
	return n
}

// observed is how many tokens the policy read after its first own: tool output and what
// the template puts around it. The prompt is none, nor are tokens that a later sequence
// repeats of the one before.
func (b *Body) observed() int {
	n := 0
	for i := range b.Sequences {
		s := &b.Sequences[i]
		from := slices.Index(s.LossMask, true)
		if i > 0 {
			from = commonPrefix(b.Sequences[i-1].TokenIDs, s.TokenIDs)
		}
		for t := max(from, 0); t < len(s.LossMask); t++ {
			if !s.LossMask[t] {
				n++
			}
		}
	}
	return n
}

// sizes are those of the body, wherever it is.
func (e *Episode) sizes() sizes {
	if e.Body != nil {
		return e.measure()
	}
	return e.size
}

// counted is what its layout makes of an episode.
type counted struct {
	actions, observations int32 // trained on as the policy's; in the cross-entropy
	wanted                int32 // either
	sequences             int32 // of which anything is wanted
}

// reads says how an episode is laid out.
type reads uint8

const (
	readsConfig reads = iota // as the algorithm asks
	readsReply               // its sampled tokens: a row of the second dataset
	readsEnd                 // its last token: for a reward model
)

// StepReward is what the environment gave for one model call, at the last token
// that the policy sampled in it.
type StepReward struct {
	Sequence, Token int
	Reward          float64
}

// Stream is what is trained on of one sequence. Want says which of its tokens
// take part; the other slices have one entry for each of those, in order.
type Stream struct {
	Want    []bool
	RL      []float64 // weight in the policy loss; 0: in neither the loss nor its counts
	CE      []float64 // weight in the cross-entropy (echo); nil: none
	Reward  []float64
	Adv     []float64
	Old     []float64 // log-probs of the policy before the update
	Ref     []float64 // of the reference
	Teacher []float64 // of the teacher (opd)
	Roll    []float64 // as recorded at sampling; nil where the file lacks some
	Value   []float64 // of the critic before the update
	Return  []float64
	Own     bool // the values are of the text with the wanted token (policy.Batch.Own)

	now  policy.Outputs   // what the model says in this step; losses of several sequences only
	grad policy.Gradients // of the step's loss with respect to it
}

// LossScale says which tokens are the policy's actions.
type LossScale string

// The kinds of --loss-scale.
const (
	ScaleDefault   LossScale = "default"    // every token that the policy sampled
	ScaleLastRound LossScale = "last_round" // those of its last reply only
	ScaleAll       LossScale = "all"        // everything after the prompt, observations too: for showing what that does
)

// asks says which tokens of a sequence take part.
type asks struct {
	scale LossScale
	echo  bool // the cross-entropy of observation tokens beside
}

// of gives the first token of sequence i that was sampled, and from where on
// tokens are actions.
func (a asks) of(e *Episode, i int) (first, from int) {
	mask := e.Sequences[i].LossMask
	first = slices.Index(mask, true)
	if a.scale != ScaleLastRound {
		return first, first
	}
	if i == len(e.Sequences)-1 {
		return first, max(first, e.LastRound)
	}
	return first, len(mask)
}

// token says what token t of sequence i weighs in the policy loss, above 0 if it
// is an action, and whether it is in the cross-entropy.
func (a asks) token(e *Episode, i, t, first, from int) (weight float64, observed bool) {
	sampled := e.Sequences[i].LossMask[t]
	if t >= from && (sampled || a.scale == ScaleAll) {
		weight = 1
		if e.Weights != nil {
			weight = e.Weights[i][t]
		}
	}
	observed = a.echo && t > first && !sampled && !(weight > 0) && (e.Content == nil || e.Content[i][t])
	return weight, observed
}

// tally counts what streams would lay out.
func (e *Episode) tally(a asks) {
	var n counted
	e.unsaid = false
	for i := range e.Sequences {
		s := &e.Sequences[i]
		first, from := a.of(e, i)
		before := n
		for t := max(first, 0); t < len(s.LossMask); t++ {
			switch weight, observed := a.token(e, i, t, first, from); {
			case weight > 0:
				n.actions++
				e.unsaid = e.unsaid || !s.Logprobs[t].Known()
			case observed:
				n.observations++
			}
		}
		if n != before {
			n.sequences++
		}
	}
	n.wanted = n.actions + n.observations
	e.counts = n
}

// streams lays out what is computed of an episode.
func (e *Episode) streams(a asks) {
	e.tally(a)
	e.Streams = make([]Stream, len(e.Sequences))
	for i := range e.Sequences {
		s, x := &e.Sequences[i], &e.Streams[i]
		first, from := a.of(e, i)
		x.Want = make([]bool, len(s.LossMask))
		n := 0
		for t := max(first, 0); t < len(s.LossMask); t++ {
			if weight, observed := a.token(e, i, t, first, from); weight > 0 || observed {
				x.Want[t] = true
				n++
			}
		}
		if n == 0 {
			continue
		}
		x.RL, x.Roll = make([]float64, 0, n), make([]float64, 0, n)
		if a.echo {
			x.CE = make([]float64, 0, n)
		}
		known := true
		for t, want := range x.Want {
			if !want {
				continue
			}
			weight, observed := a.token(e, i, t, first, from)
			rl, ce, roll := 0.0, 0.0, math.NaN()
			if weight > 0 {
				rl = weight
				// No token that was sampled had a log-prob of −∞.
				if lp := s.Logprobs[t]; lp.Known() {
					roll = float64(lp)
				}
				known = known && !math.IsNaN(roll)
			}
			if observed {
				ce = 1
			}
			x.RL, x.Roll = append(x.RL, rl), append(x.Roll, roll)
			if a.echo {
				x.CE = append(x.CE, ce)
			}
		}
		if !known || e.untold {
			x.Roll = nil
		}
	}
}

// count settles what was laid out where every wanted token is an action.
func (e *Episode) count() {
	var n counted
	for i := range e.Streams {
		if wanted := int32(len(e.Streams[i].RL)); wanted > 0 {
			n.sequences++
			n.wanted += wanted
		}
	}
	n.actions = n.wanted
	e.counts = n
}

// actions is the number of tokens that are trained on as the policy's.
func (e *Episode) actions() int { return int(e.counts.actions) }

// observations is the number of tokens in the cross-entropy.
func (e *Episode) observations() int { return int(e.counts.observations) }

// each calls f for every action token, in order, with its number.
func (e *Episode) each(f func(n int, s *Stream, t int)) {
	n := 0
	for i := range e.Streams {
		s := &e.Streams[i]
		for t, w := range s.RL {
			if w > 0 {
				f(n, s, t)
				n++
			}
		}
	}
}

// row is the episode as an estimator sees it: its actions only.
func (e *Episode) row(parts []string) (algo.Row, error) {
	r := algo.Row{Role: e.Role, Greedy: e.Greedy, Filtered: e.Filtered, Reward_T: make([]float64, 0, e.actions())}
	e.each(func(_ int, s *Stream, t int) {
		r.Reward_T = append(r.Reward_T, s.Reward[t])
		if s.Value != nil {
			r.Value_T = append(r.Value_T, s.Value[t])
		}
	})
	for _, name := range parts {
		i := slices.IndexFunc(e.Parts, func(p traj.Part) bool { return p.Name == name })
		if i < 0 {
			return r, fmt.Errorf("%s: its reward has no component %q, as that of other rows has", e.ID, name)
		}
		r.Parts = append(r.Parts, e.Parts[i].Value)
	}
	return r, nil
}

// advantage is the mean of the actions' advantages, for the metrics and for
// knowing whether there is anything to learn.
func (e *Episode) advantage() (mean float64, some bool) {
	n := 0
	e.each(func(i int, s *Stream, t int) {
		mean += s.Adv[t]
		some = some || s.Adv[t] != 0
		n = i + 1
	})
	return mean / float64(max(n, 1)), some
}

// rewards puts the score on the episode's tokens: what the environment gave for
// a step on the last token of that step, the rest on the last token of all, so
// that they sum up to score. A token that is no action hands its reward to the
// last action before it, else to the first after.
func (e *Episode) rewards(score float64) {
	last, n := -1, 0
	// Of a sequence with a step's reward: by token, the action at or before it.
	where := make([][]int, len(e.Streams))
	for _, r := range e.StepRewards {
		where[r.Sequence] = make([]int, len(e.Streams[r.Sequence].Want))
	}
	for i := range e.Streams {
		s := &e.Streams[i]
		s.Reward = make([]float64, len(s.RL))
		k := 0
		for t, want := range s.Want {
			if want {
				if s.RL[k] > 0 {
					last = n
					n++
				}
				k++
			}
			if where[i] != nil {
				where[i][t] = last
			}
		}
	}
	at := make([]float64, n)
	if n == 0 {
		return
	}
	for _, r := range e.StepRewards {
		at[max(where[r.Sequence][r.Token], 0)] += r.Reward
		score -= r.Reward
	}
	at[n-1] += score
	e.each(func(i int, s *Stream, t int) { s.Reward[t] = at[i] })
}
