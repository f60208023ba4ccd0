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

// mathTip is ms-swift's math_tip_trick: once, a wrong reply is cut back to where its
// answer or the end of its thinking stands, and goes on with a doubt. Whether it is wrong,
// the task's reward says.
type mathTip struct {
	o     Options
	given bool
}

// Next implements engine.Scheduler.
func (m *mathTip) Next(ctx context.Context, t engine.Turn) (engine.Next, error) {
	if !t.Action.Final {
		return engine.ToolLoop{}.Next(ctx, t)
	}
	right, err := m.o.Correct(ctx, &t)
	if err != nil {
		return engine.Next{}, err
	}
	info := infoOf(map[string]any{"tip": m.given, "correct": right})
	if m.given || right {
		return engine.Next{Stop: traj.Answered, Info: info}, nil
	}
	m.given = true
	next := engine.Next{Continue: tipInReply, Info: info}
	for _, tag := range []string{"<answer>", "</think>"} {
		if at := strings.Index(t.Text, tag); at > 0 && (next.Cut == nil || at < *next.Cut) {
			next.Cut = &at
		}
	}
	return next, nil
}

// mathTipTurn is ms-swift's math_tip_trick_multi_turn: once, a wrong reply is answered by a
// user who doubts it.
type mathTipTurn struct {
	o     Options
	given bool
}

// Next implements engine.Scheduler.
func (m *mathTipTurn) Next(ctx context.Context, t engine.Turn) (engine.Next, error) {
	if !t.Action.Final {
		return engine.ToolLoop{}.Next(ctx, t)
	}
	right, err := m.o.Correct(ctx, &t)
	if err != nil {
		return engine.Next{}, err
	}
	info := infoOf(map[string]any{"tip": m.given, "correct": right})
	if m.given || right {
		return engine.Next{Stop: traj.Answered, Info: info}, nil
	}
	m.given = true
	return engine.Next{Messages: []traj.Message{{Role: traj.RoleUser, Content: tipInTurn}}, Info: info}, nil
}

// thinkingTips is ms-swift's thinking_tips_scheduler: a wrong reply is answered by a user
// who doubts it, until it is right or the turns are spent. The thinking of earlier replies
// is not shown again: each round is a sequence of its own, of one trajectory.
type thinkingTips struct{ o Options }

// Next implements engine.Scheduler.
func (s *thinkingTips) Next(ctx context.Context, t engine.Turn) (engine.Next, error) {
	if !t.Action.Final {
		return engine.ToolLoop{}.Next(ctx, t)
	}
	right, err := s.o.Correct(ctx, &t)
	if err != nil {
		return engine.Next{}, err
	}
	info := infoOf(map[string]any{"correct": right})
	if right {
		return engine.Next{Stop: traj.Answered, Info: info}, nil
	}
	history := make([]traj.Message, 0, len(t.Messages)+1)
	for _, m := range t.Messages {
		if m.Role == traj.RoleAssistant {
			m.Reasoning, m.Content = "", withoutThinking(m.Content)
		}
		history = append(history, m)
	}
	history = append(history, traj.Message{Role: traj.RoleUser, Content: tipInTurn})
	return engine.Next{History: history, Info: info}, nil
}

// withoutThinking is what follows the last </think>.
func withoutThinking(s string) string {
	if i := strings.LastIndex(s, "</think>"); i >= 0 {
		return strings.TrimLeft(s[i+len("</think>"):], "\n")
	}
	return s
}
