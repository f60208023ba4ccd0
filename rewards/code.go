package rewards

import (
	"context"

	"agentcli/rewards/code"
	"agentcli/rewards/mathgrade"
	"agentcli/traj"
)

// codeReward runs the program of the reply on the task's hidden tests: package code has the
// forms of tests and what keeps the program from them. A program that fails, crashes or
// takes too long scores 0; a fault of the sandbox or of the tests is an error.
type codeReward struct {
	s      code.Settings
	runner code.Runner
}

func (codeReward) Name() string { return "code" }

func (r codeReward) Score(ctx context.Context, t *traj.Trajectory) (Score, error) {
	if ok, err := scorable(t); !ok {
		return Score{}, err
	}
	suite, err := code.ParseSuite(t.Task.Answers, t.Task.Meta)
	if err != nil {
		return Score{}, err
	}
	none := outcome("code", false, nil)
	none.Verdict = VerdictNoAnswer
	m := t.FinalReply()
	if m == nil {
		return none, nil
	}
	reply, ok := mathgrade.AfterThinking(m.Content)
	if !ok {
		return none, nil
	}
	program, ok := code.Program(reply, cutOff(t))
	if !ok {
		return none, nil
	}
	got, err := code.Test(ctx, r.runner, program, suite, r.s)
	if err != nil {
		return Score{}, taskError(t, err)
	}
	s := outcome("code", got.All(), &program)
	if r.s.Count == code.CountShare {
		share := got.Share()
		s.Value, s.Parts[0].Value = &share, share
	}
	if s.Verdict = VerdictWrong; got.All() {
		s.Verdict = VerdictRight
	}
	return s, nil
}
