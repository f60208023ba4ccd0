package files

import (
	"fmt"
	"slices"

	"agentcli/app/console"
	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/lossscale"
	"agentcli/model/tokenizer"
	"agentcli/traj"
)

// weighing is a loss scale that a training would have.
type weighing struct {
	strategy string
	rules    *lossscale.Rules
	tok      *tokenizer.Tokenizer
}

// openWeighing reads a loss scale; nil for "". model is the one that sampled the file.
func openWeighing(o InspectOptions, model string) (*weighing, error) {
	if o.LossScale == "" {
		return nil, nil
	}
	strategy, names := lossscale.Split(o.LossScale)
	rules, err := lossscale.Open(names)
	if err != nil {
		return nil, exit.UsageError{Err: err}
	}
	w := &weighing{strategy: strategy, rules: rules}
	if rules != nil {
		w.tok, err = openTokenizer(o, model)
	}
	return w, err
}

// openTokenizer opens the tokenizer that reads a file's tokens.
func openTokenizer(o InspectOptions, model string) (*tokenizer.Tokenizer, error) {
	if o.Tokenizer != "" {
		model = o.Tokenizer
	}
	tok, err := tokenizer.Open(model)
	if err != nil {
		return nil, setting.Errorf("cannot read the tokens: %w; name the model by %s DIR", err, setting.Name("Tokenizer"))
	}
	return tok, nil
}

// needsMessages reports whether what the model was asked decides a weight.
func (w *weighing) needsMessages() bool { return w != nil && w.rules.NeedsQueries() }

// apply multiplies the weights of a trajectory's sampled tokens by those that a training would
// give them, and marks what else it learns. Sequences that do not agree with themselves stay as they are.
func (w *weighing) apply(t *traj.Trajectory) {
	if w == nil || slices.ContainsFunc(t.Sequences, func(s traj.Sequence) bool { return s.Validate() != nil }) {
		return
	}
	var all [][]float64
	if w.rules != nil {
		all = w.rules.Trajectory(w.tok, t)
	}
	lastSequence, last := lossscale.LastReply(t.Sequences)
	for i := range t.Sequences {
		s := &t.Sequences[i]
		if s.Weights == nil {
			s.Weights = slices.Repeat([]float64{1}, len(s.TokenIDs))
		}
		for k := range s.Weights {
			switch {
			case !s.LossMask[k]:
			case w.strategy == lossscale.LastRound && (i < lastSequence || k < last):
				s.Weights[k] = 0
			case all != nil:
				s.Weights[k] *= all[i][k]
			}
		}
		if w.strategy == lossscale.All {
			s.LossMask = lossscale.AllMask(s)
		}
	}
}

// note reports patterns that matched nothing, and tokens that are in no piece wholly.
func (w *weighing) note(s console.Streams) {
	if w == nil {
		return
	}
	for _, u := range w.rules.Unmatched() {
		s.Say(fmt.Sprintf("warning: %s: %s", setting.Name("LossScale"), u))
	}
	if n := w.rules.Rounded(); n.Tokens > 0 {
		s.Say(fmt.Sprintf("%s: %s", setting.Name("LossScale"), n))
	}
}

// tokenWeights is what the sampled tokens of a file weigh in the loss.
type tokenWeights struct {
	Mean   float64 `json:"mean"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Zero   int     `json:"zero"` // tokens of weight 0: they are not trained on
	Tokens int     `json:"tokens"`
	sum    float64
}

func (w *tokenWeights) add(t *traj.Trajectory) {
	for i := range t.Sequences {
		s := &t.Sequences[i]
		for k, sampled := range s.LossMask {
			if !sampled {
				continue
			}
			x := weightOf(s, k)
			if w.Tokens == 0 || x < w.Min {
				w.Min = x
			}
			w.Max = max(w.Max, x)
			if x == 0 {
				w.Zero++
			}
			w.Tokens++
			w.sum += x
			w.Mean = w.sum / float64(w.Tokens)
		}
	}
}

func (w *tokenWeights) String() string {
	return fmt.Sprintf("mean %.4g, %g to %g; %d of %d tokens weigh 0", w.Mean, w.Min, w.Max, w.Zero, w.Tokens)
}

// weightOf is what token k weighs in the loss, if it is sampled.
func weightOf(s *traj.Sequence, k int) float64 {
	if k >= len(s.Weights) {
		return 1
	}
	return s.Weights[k]
}
