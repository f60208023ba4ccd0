package rewards

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"agentcli/internal/text"
	"agentcli/rewards/mathgrade"
	"agentcli/traj"
)

// FormatSettings are the settings of format.
type FormatSettings struct {
	// Answer is what stands behind the thinking: one of FormatAnswers; "": tags.
	Answer string `json:"answer,omitempty"`
	// NoThinking makes the thinking before the answer optional.
	NoThinking bool `json:"no_thinking,omitempty"`
}

// FormatAnswers are the forms of an answer: between <answer> and </answer> and nothing beside
// it, with a \boxed{} in it, or any text.
var FormatAnswers = []string{"tags", "boxed", "any"}

// Validate checks the settings.
func (s FormatSettings) Validate() error {
	if s.Answer != "" && !slices.Contains(FormatAnswers, s.Answer) {
		return fmt.Errorf("answer is %q; it is one of %s", text.Name(s.Answer, 40), strings.Join(FormatAnswers, ", "))
	}
	return nil
}

// formatReward is 1 where the final reply is thinking, closed once and not empty, and then an
// answer: the format reward of DeepSeek-R1 (arXiv 2501.12948, section 2.2.2), whose template asks
// for <think> … </think> <answer> … </answer>. A prompt may have opened the thinking.
type formatReward struct{ s FormatSettings }

func newFormat(o Options) (Reward, error) { return formatReward{o.Format}, nil }

func (formatReward) Name() string { return "format" }

func (r formatReward) Score(_ context.Context, t *traj.Trajectory) (Score, error) {
	if t.Termination.Infrastructure() {
		return Score{}, nil
	}
	m := t.FinalReply()
	if m == nil || !r.thinks(m) {
		return shape("format", 0), nil
	}
	if answer, _ := mathgrade.AfterThinking(m.Content); !r.answers(answer) {
		return shape("format", 0), nil
	}
	return shape("format", 1), nil
}

const openThink, closeThink = "<think>", "</think>"

// thinks reports whether a message has thinking that is closed once; with NoThinking, whether
// it leaves none open.
func (r formatReward) thinks(m *traj.Message) bool {
	if m.Reasoning != "" { // a server or the chat format took it out
		return strings.TrimSpace(m.Reasoning) != "" && !strings.Contains(m.Content, openThink) && !strings.Contains(m.Content, closeThink)
	}
	thought, _, closed := strings.Cut(strings.TrimSpace(m.Content), closeThink)
	if !closed {
		return r.s.NoThinking && !strings.Contains(m.Content, openThink)
	}
	thought = strings.TrimPrefix(thought, openThink)
	return strings.TrimSpace(thought) != "" && strings.Count(m.Content, closeThink) == 1 && strings.Count(m.Content, openThink) <= 1 &&
		!strings.Contains(thought, openThink)
}

// answers reports whether a text has the form of FormatSettings.Answer.
func (r formatReward) answers(said string) bool {
	said = strings.TrimSpace(said)
	switch r.s.Answer {
	case "any":
		return said != ""
	case "boxed":
		return strings.Contains(said, `\boxed{`)
	}
	inner, opened := strings.CutPrefix(said, "<answer>")
	inner, closed := strings.CutSuffix(inner, "</answer>")
	return opened && closed && strings.TrimSpace(inner) != "" && !strings.Contains(inner, "<answer>") && !strings.Contains(inner, "</answer>")
}
