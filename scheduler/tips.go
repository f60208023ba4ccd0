package scheduler

import (
	"context"
	"strings"

	"agentcli/engine"
	"agentcli/traj"
)

// The words of ms-swift (swift/rollout/multi_turn.py).
const (
	tipInReply = "But wait... It seems I made a mistake,"
	tipInTurn  = "The answer is not correct, It seems You made a mistake, you need to recheck very carefully."
)

// tipOnce doubts a wrong answer, once. Whether it is wrong, the task's reward says.
type tipOnce struct {
	o     Options
	doubt func(engine.Turn) engine.Next
	given bool
}

// Next implements engine.Scheduler.
func (s *tipOnce) Next(ctx context.Context, t engine.Turn) (engine.Next, error) {
	if !t.Action.Final {
		return engine.ToolLoop{}.Next(ctx, t)
	}
	right, err := s.o.Correct(ctx, &t)
	if err != nil {
		return engine.Next{}, err
	}
	next := engine.Next{Stop: traj.Answered}
	if !s.given && !right {
		next = s.doubt(t)
	}
	next.Info = infoOf(map[string]any{"tip": s.given, "correct": right})
	s.given = true
	return next, nil
}

// inReply is the doubt of ms-swift's math_tip_trick: the reply is cut back to where its
// answer or the end of its thinking stands, and goes on with it.
func inReply(t engine.Turn) engine.Next {
	next := engine.Next{Continue: tipInReply}
	for _, tag := range []string{"<answer>", "</think>"} {
		if at := strings.Index(t.Text, tag); at > 0 && (next.Cut == nil || at < *next.Cut) {
			next.Cut = &at
		}
	}
	return next
}

// inTurn is that of math_tip_trick_multi_turn: a user's turn.
func inTurn(engine.Turn) engine.Next {
	return engine.Next{Messages: []traj.Message{{Role: traj.RoleUser, Content: tipInTurn}}}
}

// thinkingTips is ms-swift's thinking_tips_scheduler: a wrong answer is doubted by a user
// until it is right or the turns are spent. The thinking of earlier replies is not shown
// again: each round is a sequence of its own, of one trajectory.
type thinkingTips struct{ o Options }

// Next implements engine.Scheduler.
func (s *thinkingTips) Next(ctx context.Context, t engine.Turn) (engine.Next, error) {
	return (&tipOnce{o: s.o, doubt: againWithoutThinking}).Next(ctx, t) // each time as if it were the first
}

// againWithoutThinking asks again in a history without the thinking so far.
func againWithoutThinking(t engine.Turn) engine.Next {
	history := make([]traj.Message, 0, len(t.Messages)+1)
	for _, m := range t.Messages {
		if m.Role == traj.RoleAssistant {
			m.Reasoning, m.Content = "", withoutThinking(m.Content)
		}
		history = append(history, m)
	}
	return engine.Next{History: append(history, traj.Message{Role: traj.RoleUser, Content: tipInTurn})}
}

// withoutThinking is what follows the last </think>.
func withoutThinking(s string) string {
	if i := strings.LastIndex(s, "</think>"); i >= 0 {
		return strings.TrimLeft(s[i+len("</think>"):], "\n")
	}
	return s
}
