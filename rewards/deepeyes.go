package rewards

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"agentcli/rewards/judge"
	"agentcli/traj"
)

// DeepEyes' rewards (verl/utils/reward_score/vl_agent.py): an accuracy, a penalty for the
// form, and a bonus for a right answer after an image of a tool.

// DeepEyesSettings are the weights of deepeyes and deepeyes-math; nil: DeepEyes'.
type DeepEyesSettings struct {
	Accuracy *float64 `json:"accuracy,omitempty"`
	Format   *float64 `json:"format,omitempty"`
	Tool     *float64 `json:"tool,omitempty"`
}

// Validate checks the weights.
func (s DeepEyesSettings) Validate() error {
	for name, w := range map[string]*float64{"accuracy": s.Accuracy, "format": s.Format, "tool": s.Tool} {
		if w != nil && !traj.Finite(*w) {
			return fmt.Errorf("%s is %v", name, *w)
		}
	}
	return nil
}

// deepEyesReward is accuracy·.8 + format·.2 + tool·1.2, in deepeyes-math accuracy·1.2 +
// format·.4.
//
//   - accuracy: 1 where the answer is right by rule, else what the judge says, if there is one. Its
//     rubric is DeepEyes' of the reward's name, unless another was named.
//   - format: −1 where tags are not paired, the answer's are missing (in deepeyes-math a \boxed
//     behind the thinking) or the answer is long, else 0. A long answer has accuracy 0.
//   - tool: 1 where the answer is right and the environment has given an image. DeepEyes
//     looks for the text of an image in the replies, which a model can write.
type deepEyesReward struct {
	name                   string
	accuracy, format, tool float64
	rule                   Reward // of the accuracy
	judge                  *judge.Judge
	tagged                 bool // the answer stands in tags
}

// longAnswer is the length in characters from which an answer is none.
const longAnswer = 1000

func newDeepEyes(o Options) (Reward, error) {
	return deepEyesReward{"deepeyes", orDefault(o.DeepEyes.Accuracy, .8), orDefault(o.DeepEyes.Format, .2), orDefault(o.DeepEyes.Tool, 1.2),
		qaReward{"em", Options{Strict: true}, exactMatch}, o.Judge.WithDefault(judge.DeepEyes), true}, nil
}

func newDeepEyesMath(o Options) (Reward, error) {
	w := o.DeepEyes
	return deepEyesReward{"deepeyes-math", orDefault(w.Accuracy, 1.2), orDefault(w.Format, .4), orDefault(w.Tool, 0),
		mathReward{o}, o.Judge.WithDefault(judge.DeepEyesMath), false}, nil
}

func orDefault(v *float64, otherwise float64) float64 {
	if v != nil {
		return *v
	}
	return otherwise
}

func (r deepEyesReward) Name() string { return r.name }

func (r deepEyesReward) Score(ctx context.Context, t *traj.Trajectory) (Score, error) {
	if ok, err := scorable(t); !ok {
		return Score{}, err
	}
	s, err := r.rule.Score(ctx, t)
	if err != nil {
		return Score{}, err
	}
	right := s.Correct != nil && *s.Correct
	answer := ""
	if s.Extracted != nil {
		answer = *s.Extracted
	}
	if !right && r.tagged && answer != "" {
		right = sameChoice(answer, t.Task.Answers)
	}
	long := len([]rune(answer)) >= longAnswer
	if !right && !long && answer != "" && r.judge != nil {
		g, err := r.judge.Grade(ctx, judge.Attempt{Question: t.Task.Question, Answers: t.Task.Answers, Reply: answer})
		if err != nil { // a judge that does not answer says nothing of the reply
			return Score{}, fmt.Errorf("reward %s: %w", r.name, err)
		}
		right = g.Value > .5
	}
	accuracy, format, tool := 0.0, 0.0, 0.0
	if right = right && !long; right {
		accuracy = 1
		if shownImage(t) {
			tool = 1
		}
	}
	if said := assistantText(t); long || r.tagged && answer == "" || !r.tagged && !hasBoxedAnswer(said) || !paired(said) {
		format = -1
	}
	value := r.accuracy*accuracy + r.format*format + r.tool*tool
	return Score{Value: &value, Correct: &right, Extracted: s.Extracted, Rule: s.Rule,
		Parts: []traj.Part{{Name: "accuracy", Value: accuracy}, {Name: "format", Value: format}, {Name: "tool", Value: tool}}}, nil
}

var choiceLetter = regexp.MustCompile(`^\s*\(?([A-Z])(?:[).:]|\)[.:]?)?(?:\s|$)`)

// sameChoice reports whether an answer has the letter of a gold one: B, (B), B. Paris.
func sameChoice(answer string, golds []string) bool {
	got := choiceLetter.FindStringSubmatch(answer)
	return got != nil && slices.ContainsFunc(golds, func(gold string) bool {
		g := choiceLetter.FindStringSubmatch(gold)
		return g != nil && g[1] == got[1]
	})
}

// shownImage reports whether the environment has answered with an image.
func shownImage(t *traj.Trajectory) bool {
	for i := len(t.Task.Messages); i < len(t.Messages); i++ {
		if t.Messages[i].Role == traj.RoleTool && len(t.Messages[i].Images) > 0 {
			return true
		}
	}
	return false
}

// assistantText is the concatenated content of all replies.
func assistantText(t *traj.Trajectory) string {
	var text strings.Builder
	for i := len(t.Task.Messages); i < len(t.Messages); i++ {
		if m := &t.Messages[i]; m.Role == traj.RoleAssistant {
			text.WriteString(m.Content)
		}
	}
	return text.String()
}

// hasBoxedAnswer reports whether there is a \boxed behind the thinking.
func hasBoxedAnswer(said string) bool {
	return strings.Contains(said[strings.LastIndex(said, "</think>")+1:], `\boxed{`)
}

// paired reports whether each tag of the replies is closed.
func paired(said string) bool {
	for _, tag := range []string{"think", "tool_call", "answer"} {
		if strings.Count(said, "<"+tag+">") != strings.Count(said, "</"+tag+">") {
			return false
		}
	}
	return true
}
