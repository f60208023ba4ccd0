// Package rewards scores finished trajectories against their gold answers.
//
// It is in layer 1: it imports traj, its own folders and packages of internal. A
// reward sees the whole trajectory. What the model did wrong is a score; an error
// means that no score could be found, which says nothing of the model.
package rewards

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"agentcli/internal/setting"
	"agentcli/rewards/mathgrade"
	"agentcli/traj"
)

// Score is what a reward makes of a trajectory. Value is nil where the
// trajectory ended for a reason of the infrastructure and must not be scored.
type Score struct {
	Value     *float64
	Parts     []traj.Part
	Correct   *bool
	Extracted *string // the answer as it was found in the reply; nil: there is none
	// Verdict is what a grader that can fail to decide found: right, wrong, undecided or
	// no_answer; "" of the others.
	Verdict string
	Rule    string // the rule that found the answer in the reply; "" where there is one rule
	// Steps are the rewards of the trajectory's steps, the parts of Value that are earned
	// there; nil of a step: none. nil: the reward gives none, and what the environment gave
	// for the steps stays.
	Steps []*float64
}

// ErrSteps is in the error of rewards of steps that are not one for each.
var ErrSteps = errors.New("another number of steps")

// checkSteps refuses rewards of steps that do not fit the trajectory.
func (s Score) checkSteps(t *traj.Trajectory) error {
	if s.Steps == nil {
		return nil
	}
	if len(s.Steps) != len(t.Steps) {
		return traj.Mark(fmt.Errorf("it gives rewards of %d steps, and the trajectory has %d", len(s.Steps), len(t.Steps)), ErrSteps)
	}
	for i, r := range s.Steps {
		if r != nil && !traj.Finite(*r) {
			return fmt.Errorf("the reward of step %d is %v", i, *r)
		}
	}
	return nil
}

// The verdicts of a Score. Of math there is undecided, too.
const (
	VerdictRight    = "right"
	VerdictWrong    = "wrong"
	VerdictNoAnswer = "no_answer"
)

// Reward scores trajectories. It is safe for concurrent use and does not
// change the trajectory. An error is of the infrastructure or of the data (no
// gold answer), never of the model's reply.
type Reward interface {
	Name() string
	Score(ctx context.Context, t *traj.Trajectory) (Score, error)
}

// kind is a reward of ours: how it is made, and what it reads.
type kind struct {
	make func(Options) (Reward, error)
	// shapes is of a reward for the form of a reply: it never decides what is correct.
	shapes bool
	// unread is of a reward that reads no answer out of a reply.
	unread bool
	// noGold is of a reward that scores tasks without gold answers too.
	noGold bool
	// meta is of a reward that reads the task's meta.
	meta bool
	// objects is of a reward whose gold answers may be objects of JSON.
	objects bool
}

// simple is a reward that always can be made.
func simple(mk func(Options) Reward) kind {
	return kind{make: func(o Options) (Reward, error) { return mk(o), nil }}
}

var kinds = map[string]kind{
	"math":  simple(func(o Options) Reward { return mathReward{o} }),
	"exact": simple(func(Options) Reward { return exactReward{} }),
	"em":    simple(func(o Options) Reward { return qaReward{"em", o, exactMatch} }),
	"f1":    simple(func(o Options) Reward { return qaReward{"f1", o, f1} }),
	"subem": simple(func(o Options) Reward { return qaReward{"subem", o, substringMatch} }),

	"deepeyes":      {make: newDeepEyes},
	"deepeyes-math": {make: newDeepEyesMath},

	"search-r1": simple(func(Options) Reward { return searchR1Reward{} }),

	"choice": {make: func(Options) (Reward, error) { return choiceReward{}, nil }, meta: true},

	judgeName: {make: newJudge},

	"code": {make: func(o Options) (Reward, error) { return codeReward{o.Code, o.Runner}, nil }, meta: true, objects: true},

	"regex":       {make: newRegex, noGold: true},
	"json-schema": {make: newJSONSchema, noGold: true, objects: true},
	"tool-call":   {make: func(o Options) (Reward, error) { return toolCallReward{o.ToolCall}, nil }, meta: true, objects: true},
	"ifeval":      {make: func(o Options) (Reward, error) { return ifevalReward{o.IFEval}, nil }, noGold: true, meta: true},
	"countdown":   {make: func(Options) (Reward, error) { return countdownReward{}, nil }, noGold: true, meta: true, objects: true},

	"env": {make: func(Options) (Reward, error) { return envReward{}, nil }, noGold: true, unread: true},

	"length":     {make: newLength, shapes: true, noGold: true},
	"cosine":     {make: newCosine, shapes: true, noGold: true},
	"repetition": {make: newRepetition, shapes: true, noGold: true},
	"language":   {make: newLanguage, shapes: true, noGold: true},
	"format":     {make: newFormat, shapes: true, noGold: true},
}

// Names are the rewards that New knows, sorted.
func Names() []string { return slices.Sorted(maps.Keys(kinds)) }

// Known reports whether a name is of a reward that New can make, with the right options.
func Known(name string) bool {
	return External(name) || !slices.ContainsFunc(terms(name), func(one string) bool { return kinds[one].make == nil })
}

// ReadsAnswers reports whether a named reward reads an answer out of a reply, so that one can be
// missing.
func ReadsAnswers(name string) bool {
	return External(name) || slices.ContainsFunc(terms(name), func(one string) bool { return !kinds[one].shapes && !kinds[one].unread })
}

// NeedsAnswers reports whether a named reward cannot score a task without gold answers.
// Of a judge its rubric decides.
func NeedsAnswers(name string, o Options) bool {
	return !External(name) && slices.ContainsFunc(terms(name), func(one string) bool {
		judged := one == judgeName && o.Judge != nil && !o.Judge.NeedsAnswer()
		return !kinds[one].noGold && !judged
	})
}

// TakesObjects reports whether a gold answer of a named reward may be an object of JSON.
func TakesObjects(name string) bool {
	return slices.ContainsFunc(terms(name), func(one string) bool { return kinds[one].objects })
}

// ReadsMeta reports whether a named reward reads the task's meta.
func ReadsMeta(name string) bool {
	return External(name) || slices.ContainsFunc(terms(name), func(one string) bool { return kinds[one].meta })
}

// ErrUnknown is in the error of a name that no reward has.
var ErrUnknown = errors.New("there is no reward")

// New makes a reward by name: one of Names, a weighted sum of them (math:1,em:.2),
// exec:COMMAND, or the address of a remote reward. One that implements io.Closer wants to be closed.
func New(name string, o Options) (Reward, error) {
	if External(name) {
		return newExternal(name, o)
	}
	if isSum(name) {
		return newSum(name, o)
	}
	r, err := newOne(name, o)
	if _, ok := r.(follower); ok {
		return nil, fmt.Errorf("reward %s needs a reward before it that decides what is correct; for example math:1,%s:.5", name, name)
	}
	return r, err
}

// newOne makes one of Names.
func newOne(name string, o Options) (Reward, error) {
	k, ok := kinds[name]
	if !ok {
		if name == "" {
			return nil, setting.Errorf("no reward is named, and the dataset has none (it has no answers); name one with %s: %s",
				setting.Name("Reward"), strings.Join(Names(), ", "))
		}
		return nil, fmt.Errorf("%w %q; the rewards are %s, exec:COMMAND and the address of a server",
			ErrUnknown, name, strings.Join(Names(), ", "))
	}
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("reward %s: %w", name, err)
	}
	r, err := k.make(o)
	if err != nil {
		return nil, fmt.Errorf("reward %s: %w", name, err)
	}
	return r, nil
}

func newExternal(name string, o Options) (Reward, error) {
	if o.Text() != "{}" {
		return nil, fmt.Errorf("reward %s: options are for the graders %s", name, strings.Join(Names(), ", "))
	}
	if !strings.HasPrefix(name, execPrefix) {
		return newRemote(name)
	}
	if strings.TrimSpace(strings.TrimPrefix(name, execPrefix)) == "" {
		return nil, errors.New("reward exec: names no command; for example exec:'python3 reward.py'")
	}
	return newExec(name, o), nil
}

// outcome is the score of a reward that knows right and wrong only.
func outcome(name string, right bool, extracted *string) Score {
	v := 0.0
	if right {
		v = 1
	}
	return Score{Value: &v, Parts: []traj.Part{{Name: name, Value: v}}, Correct: &right, Extracted: extracted}
}

// scorable reports whether a trajectory can be scored at all.
func scorable(t *traj.Trajectory) (bool, error) {
	if t.Termination.Infrastructure() {
		return false, nil
	}
	if len(t.Task.Answers) == 0 {
		return false, taskError(t, errors.New("there is no gold answer to score against"))
	}
	return true, nil
}

// decided is the score of a reward that says right, wrong or no answer (extracted is nil).
func decided(name string, right bool, extracted *string) Score {
	s := outcome(name, right, extracted)
	switch {
	case right:
		s.Verdict = VerdictRight
	case extracted != nil:
		s.Verdict = VerdictWrong
	default:
		s.Verdict = VerdictNoAnswer
	}
	return s
}

// spokenReply is the final reply behind its thinking; false: there is none.
func spokenReply(t *traj.Trajectory) (string, bool) {
	m := t.FinalReply()
	if m == nil {
		return "", false
	}
	return mathgrade.AfterThinking(m.Content)
}

// cutOff reports that the last reply hit a limit instead of ending by itself.
func cutOff(t *traj.Trajectory) bool {
	if n := len(t.Steps); n > 0 && t.Steps[n-1].FinishReason != "" {
		return t.Steps[n-1].FinishReason == traj.FinishLength
	}
	return t.Termination == traj.TurnLength || t.Termination == traj.MaxTokens
}

// exactReward is 1 where the last reply is, but for white space around it, one
// of the gold answers, and ended by itself.
type exactReward struct{}

func (exactReward) Name() string { return "exact" }

func (exactReward) Score(_ context.Context, t *traj.Trajectory) (Score, error) {
	if ok, err := scorable(t); !ok {
		return Score{}, err
	}
	m := t.FinalReply()
	if m == nil {
		return outcome("exact", false, nil), nil
	}
	got := strings.TrimSpace(m.Content)
	if got == "" {
		return outcome("exact", false, nil), nil
	}
	right := false
	if !cutOff(t) {
		for _, a := range t.Task.Answers {
			right = right || got == strings.TrimSpace(a)
		}
	}
	return outcome("exact", right, &got), nil
}
