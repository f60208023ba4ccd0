package trainer

import (
	"fmt"

	"agentcli/internal/setting"
	"agentcli/lossscale"
	"agentcli/trainer/algo"
	"agentcli/trainer/episode"
	"agentcli/trainer/rows"
)

// The names of the algorithms.
const (
	AlgoGRPO = "grpo" // advantages from the group, no critic
	AlgoPPO  = "ppo"  // advantages from a critic
	AlgoSFT  = "sft"  // cross-entropy of replies
	AlgoDPO  = "dpo"  // preferred against rejected replies, directly
	AlgoRM   = "rm"   // a reward model from the same
	AlgoPRM  = "prm"  // a process reward model from labelled steps
)

// traits are what the machinery around an algorithm knows of it, so that it need not ask
// for its name.
type traits struct {
	name      string
	algorithm func(*Trainer) algorithm

	supervised bool          // it learns from given replies and takes no rewards
	pairs      bool          // it compares two replies
	critic     bool          // its advantages come from a critic, by an estimator that reads one
	reference  bool          // its loss always has the reference's log-probs, whatever --kl-coef
	jointly    bool          // its loss ties several sequences together: a step is in memory as a whole
	scoreHead  bool          // what it trains is a head that scores a conversation
	prompts    bool          // with lossscale.All it learns prompts too
	aggregated bool          // its loss is aggregated as Config.Aggregation says
	text       rows.TextKind // the rows of text that it takes beside trajectories
	flags      []string      // that no other kind of algorithm takes
	// layOut makes the token streams of an episode; nil: by Config's token selection.
	layOut func(e *episode.Episode)
}

// registry has the algorithms that --algo takes.
var registry []traits

func init() { // for the algorithms read the registry
	registry = []traits{
		{name: AlgoGRPO, algorithm: newGRPO, aggregated: true},
		{name: AlgoPPO, algorithm: func(t *Trainer) algorithm { return &PPO{newPolicyGradient(t)} }, aggregated: true, critic: true},
		{name: AlgoSFT, algorithm: func(t *Trainer) algorithm { return &SFT{supervised: supervised{t}} }, aggregated: true,
			supervised: true, prompts: true, text: rows.TextReplies},
		{name: AlgoDPO, algorithm: func(t *Trainer) algorithm { return &DPO{supervised{t}} },
			supervised: true, pairs: true, reference: true, jointly: true, text: rows.TextPairs,
			flags: []string{"dpo-beta", "dpo-loss", "label-smoothing"}},
		{name: AlgoRM, algorithm: func(t *Trainer) algorithm { return &RM{supervised{t}} },
			supervised: true, pairs: true, jointly: true, layOut: layLastToken, scoreHead: true, text: rows.TextPairs, flags: []string{"rm-loss"}},
		{name: AlgoPRM, algorithm: func(t *Trainer) algorithm { return &PRM{supervised{t}} },
			supervised: true, jointly: true, layOut: layMarkers, text: rows.TextSteps, flags: []string{"prm-token", "prm-tokens"}},
	}
}

// newGRPO is GRPO, or OPD where a teacher's log-probs stand for advantages.
func newGRPO(t *Trainer) algorithm {
	if t.Config.NeedsTeacher() {
		return &OPD{newPolicyGradient(t)}
	}
	return &GRPO{newPolicyGradient(t)}
}

func newPolicyGradient(t *Trainer) policyGradient {
	loss, _ := algo.LossByName(t.Config.Loss) // Validate has looked for it
	return policyGradient{t: t, loss: loss}
}

// traits are those of the algorithm; none for one that is not known, which Validate refuses.
func (c Config) traits() traits {
	for _, a := range registry {
		if a.name == c.Algo {
			return a
		}
	}
	return traits{}
}

func isAny(traits) bool { return true }

// algorithms names those of the registry that a predicate holds of.
func algorithms(is func(traits) bool) []string {
	var names []string
	for _, a := range registry {
		if is(a) {
			names = append(names, a.name)
		}
	}
	return names
}

// IsSupervised reports whether the algorithm takes no rewards.
func (c Config) IsSupervised() bool { return c.traits().supervised }

// TakesPairs reports whether the algorithm compares two replies.
func (c Config) TakesPairs() bool { return c.traits().pairs }

// HasCritic reports whether the algorithm learns a critic beside the policy.
func (c Config) HasCritic() bool { return c.traits().critic }

// HasScoreHead reports whether what is trained is a head that scores a conversation.
func (c Config) HasScoreHead() bool { return c.traits().scoreHead }

// ReadsReference reports whether the log-probs of a reference are in the loss or the reward.
func (c Config) ReadsReference() bool { return c.KLCoef > 0 || c.traits().reference }

// NeedsTeacher reports whether the loss reads a teacher's log-probs.
func (c Config) NeedsTeacher() bool {
	loss, ok := algo.LossByName(c.Loss)
	return ok && loss.Teacher
}

// withCritic names the algorithms that have a critic, as a flag.
func withCritic() string {
	return fmt.Sprintf("%s %s", setting.Name("Algo"), oneOf(algorithms(func(a traits) bool { return a.critic })))
}

// layout is that of the algorithm.
func (c Config) layout() layout {
	strategy, _ := lossscale.Split(c.LossScale)
	l := layout{own: c.traits().layOut,
		tokens: episode.TokenSelection{Strategy: strategy, Prompts: c.traits().prompts, Echo: c.Echo > 0}}
	if l.own != nil {
		l.name = c.Algo + " "
	}
	l.name += fmt.Sprintf("%s prompts=%t echo=%t", l.tokens.Strategy, l.tokens.Prompts, l.tokens.Echo)
	return l
}
