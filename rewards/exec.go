package rewards

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"agentcli/internal/child"
	"agentcli/internal/text"
	"agentcli/traj"
)

// Names of rewards that are no graders of ours begin so.
const (
	execPrefix  = "exec:"
	httpPrefix  = "http://"
	httpsPrefix = "https://"
)

// External reports whether a reward is a program or a server of the user's: it
// may score tasks without gold answers.
func External(name string) bool {
	return strings.HasPrefix(name, execPrefix) || strings.HasPrefix(name, httpPrefix) || strings.HasPrefix(name, httpsPrefix)
}

// CheckProgram reports that a reward is a program that is not there. A program that is not
// meant to run here, as one that an entry of a dataset names, may be missing.
func CheckProgram(name string) error {
	command, isProgram := strings.CutPrefix(name, execPrefix)
	if !isProgram {
		return nil
	}
	if err := (child.Command{Shell: command}).Check(); err != nil {
		return fmt.Errorf("reward %s: %w", text.Redact(name), err)
	}
	return nil
}

// execReward asks a program in any language, one JSON object a line.
type execReward struct {
	name  string
	lines *child.Lines
}

func newExec(name string, o Options) Reward {
	return &execReward{
		name, child.NewLines(
			child.LinesConfig{Command: child.Command{Shell: strings.TrimPrefix(name, execPrefix), Pass: o.Pass}, Notice: o.Notice})}
}

func (r *execReward) Name() string { return r.name }

// Close ends the program.
func (r *execReward) Close() error { r.lines.Close(); return nil }

func (r *execReward) Score(ctx context.Context, t *traj.Trajectory) (Score, error) {
	if t.Termination.Infrastructure() {
		return Score{}, nil
	}
	request := map[string]any{"id": 0, "task_id": t.Task.ID, "dataset": t.Task.Dataset, "question": t.Task.Question, "answer": t.Task.Answers,
		"response": response(t), "messages": traj.WithoutFiles(t.Messages), "termination": t.Termination, "meta": t.Task.Meta,
		"turns": len(t.Steps)}
	if t.Infos != nil {
		request["infos"] = t.Infos
	}
	if t.Task.Answers == nil {
		request["answer"] = []string{}
	}
	line, err := r.lines.Call(ctx, request, false)
	if err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			return Score{}, context.Cause(ctx) // by the user: nothing is wrong with the program
		}
		if errors.Is(err, child.ErrSilent) && ctx.Err() != nil {
			return Score{}, traj.Mark(fmt.Errorf("reward %s gave no answer in time", text.Redact(r.name)), child.ErrSilent)
		}
		return Score{}, fmt.Errorf("reward %s: %w", text.Redact(r.name), err)
	}
	var a struct {
		Reward    *float64           `json:"reward"`
		Parts     map[string]float64 `json:"parts"`
		Correct   *bool              `json:"correct"`
		Extracted *string            `json:"extracted"`
		Steps     []*float64         `json:"steps"`
		Error     *string            `json:"error"`
	}
	if err := json.Unmarshal(line, &a); err != nil {
		return Score{}, fmt.Errorf(`reward %s: its answer %s is %w {"id": …, "reward": NUMBER}: %w`,
			text.Redact(r.name), text.Cut(text.OneLine(string(line)), 120), errForm, err)
	}
	switch {
	case a.Error != nil:
		return Score{}, fmt.Errorf("reward %s: %s", text.Redact(r.name), text.Cut(text.OneLine(*a.Error), 300))
	case a.Reward == nil:
		return Score{}, fmt.Errorf(`reward %s: %w: %s; a trajectory that it cannot score is {"id": …, "error": "why"}`,
			text.Redact(r.name), errNoReward, text.Cut(text.OneLine(string(line)), 120))
	}
	s := Score{Value: a.Reward, Parts: named(a.Parts), Correct: a.Correct, Extracted: a.Extracted, Steps: a.Steps}
	if err := s.checkSteps(t); err != nil {
		return Score{}, fmt.Errorf("reward %s: %w", text.Redact(r.name), err)
	}
	return s, nil
}

// What may be wrong with an answer.
var (
	errForm     = errors.New("not of the form")
	errNoReward = errors.New(`its answer has no "reward"`)
)

func named(m map[string]float64) []traj.Part {
	var out []traj.Part
	for name, v := range m {
		if !math.IsNaN(v) {
			out = append(out, traj.Part{Name: name, Value: v})
		}
	}
	slices.SortFunc(out, func(a, b traj.Part) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// response is the text of the final reply; "" where there is none.
func response(t *traj.Trajectory) string {
	if m := t.FinalReply(); m != nil {
		return m.Content
	}
	return ""
}
