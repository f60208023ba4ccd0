package rewards

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"agentcli/rewards/judge"
	"agentcli/traj"
)

// looked is a trajectory whose environment has shown a crop, or has not.
func looked(gold, reply string, shown bool) *traj.Trajectory {
	opening := []traj.Message{{Role: traj.RoleUser, Content: traj.ImageMark + "?", Images: []traj.Image{{Hash: "a"}}}}
	t := &traj.Trajectory{Task: traj.Task{ID: "t", Question: "?", Answers: []string{gold}, Messages: opening}, Termination: traj.Answered,
		Messages: append(opening[:1:1], traj.Message{Role: traj.RoleAssistant, Content: "<think>look</think>",
			ToolCalls: []traj.ToolCall{{ID: "1", Name: "image_zoom_in_tool"}}})}
	answer := traj.Message{Role: traj.RoleTool, ToolCallID: "1", Content: "error: the box is empty"}
	if shown {
		answer.Content, answer.Images = traj.ImageMark, []traj.Image{{Hash: "b", Crop: &traj.Crop{Source: "a"}}}
	}
	t.Messages = append(t.Messages, answer, traj.Message{Role: traj.RoleAssistant, Content: reply})
	return t
}

func TestDeepEyesPaysForARightAnswerAfterAnImageOfTheEnvironment(t *testing.T) {
	const vision = "<|vision_start|><|image_pad|><|vision_end|>"
	for _, tc := range []struct {
		name, reward, gold, reply string
		shown                     bool
		value                     float64
		right                     bool
	}{
		{"right, after an image", "deepeyes", "a red car", "<think>x</think><answer>A red car.</answer>", true, 2, true},
		{"right, without one", "deepeyes", "a red car", "<answer>red car</answer>", false, .8, true},
		{"right, an image that the model wrote", "deepeyes", "a red car", vision + "<answer>red car</answer>", false, .8, true},
		{"wrong, after an image", "deepeyes", "a red car", "<answer>blue</answer>", true, 0, false},
		{"a letter", "deepeyes", "B", "<answer>(B) the sign</answer>", true, 2, true},
		{"another letter", "deepeyes", "B", "<answer>A</answer>", true, 0, false},
		{"a word is no letter", "deepeyes", "A", "<answer>Apple</answer>", true, 0, false},
		{"no tags", "deepeyes", "red", "red", true, -.2, false},
		{"an open tag", "deepeyes", "red", "<think>x</think></think><answer>red</answer>", true, 1.8, true},
		{"a long answer", "deepeyes", "red", "<answer>" + strings.Repeat("red ", 300) + "</answer>", true, -.2, false},
		{"math", "deepeyes-math", "1/2", "<think>x</think> it is \\boxed{0.5}", false, 1.2, true},
		{"wrong math", "deepeyes-math", "1/2", "it is \\boxed{3}", true, 0, false},
		{"math without a box", "deepeyes-math", "1/2", "<think>x \\boxed{0.5}</think> it is 3", false, -.4, false},
		{"math with an open tag", "deepeyes-math", "1/2", "</answer> \\boxed{0.5}", true, .8, true},
	} {
		r, err := New(tc.reward, Options{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := r.Score(context.Background(), looked(tc.gold, tc.reply, tc.shown))
		if err != nil || s.Value == nil || math.Abs(*s.Value-tc.value) > 1e-9 || s.Correct == nil || *s.Correct != tc.right || len(s.Parts) != 3 {
			t.Errorf("%s: %+v, %v; want %v, %v", tc.name, s, err, tc.value, tc.right)
		}
	}
	zero := 0.0
	r, err := New("deepeyes", Options{DeepEyes: DeepEyesSettings{Tool: &zero}})
	if err != nil {
		t.Fatal(err)
	}
	if s, err := r.Score(context.Background(), looked("red", "<answer>red</answer>", true)); err != nil || *s.Value != .8 {
		t.Errorf("without a bonus: %+v, %v", s, err)
	}
}

func TestAnImageOfTheOpeningIsNoImageOfTheEnvironment(t *testing.T) {
	x := looked("red", "<answer>red</answer>", true)
	x.Task.Messages = x.Messages[:3] // a worked example
	r, err := New("deepeyes", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if s, err := r.Score(context.Background(), x); err != nil || *s.Value != .8 {
		t.Errorf("%+v, %v", s, err)
	}
}

// opinion is a judge that says the same of each reply, or fails.
type opinion struct {
	says string
	err  error
}

func (o opinion) Generate(context.Context, *traj.Request) (*traj.Response, error) {
	return &traj.Response{Message: traj.Message{Role: traj.RoleAssistant, Content: o.says}}, o.err
}

func TestDeepEyesAsksTheJudgeWhereTheRuleSaysNo(t *testing.T) {
	rubric, err := judge.OpenRubric("correct")
	if err != nil {
		t.Fatal(err)
	}
	score := func(o opinion, reply string) (Score, error) {
		j, err := judge.New(judge.Config{Model: o, Name: "m", Rubric: rubric})
		if err != nil {
			t.Fatal(err)
		}
		r, err := New("deepeyes", Options{Judge: j})
		if err != nil {
			t.Fatal(err)
		}
		return r.Score(context.Background(), looked("a red car", reply, true))
	}
	if s, err := score(opinion{says: "VERDICT: CORRECT"}, "<answer>the car, which is red</answer>"); err != nil || *s.Value != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := score(opinion{says: "VERDICT: INCORRECT"}, "<answer>blue</answer>"); err != nil || *s.Value != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := score(opinion{err: errors.New("away")}, "<answer>a red car</answer>"); err != nil || *s.Value != 2 {
		t.Errorf("the judge is asked where the rule says yes: %+v, %v", s, err)
	}
	if s, err := score(opinion{err: errors.New("away")}, "<answer>blue</answer>"); err == nil || s.Value != nil {
		t.Errorf("a judge that does not answer scores %+v", s)
	}
}

// Without a rubric of its own the judge is asked in the form of the reward's name.
func TestDeepEyesAsksTheJudgeInItsOwnForm(t *testing.T) {
	for reward, c := range map[string]struct{ yes, no, reply string }{
		"deepeyes":      {"Judgement: 1", "0", "<answer>the car, which is red</answer>"},
		"deepeyes-math": {"## Equivalence Judgement\nTRUE", "FALSE", "\\boxed{the half}"},
	} {
		for says, right := range map[string]bool{c.yes: true, c.no: false} {
			j, err := judge.New(judge.Config{Model: opinion{says: says}, Name: "m"})
			if err != nil {
				t.Fatal(err)
			}
			r, err := New(reward, Options{Judge: j})
			if err != nil {
				t.Fatal(err)
			}
			if s, err := r.Score(context.Background(), looked("a red car", c.reply, true)); err != nil || s.Correct == nil || *s.Correct != right {
				t.Errorf("%s, %q: %+v, %v", reward, says, s, err)
			}
		}
		j, err := judge.New(judge.Config{Model: opinion{says: "VERDICT: CORRECT"}, Name: "m"})
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(reward, Options{Judge: j})
		if err != nil {
			t.Fatal(err)
		}
		if s, err := r.Score(context.Background(), looked("a red car", c.reply, true)); !errors.Is(err, judge.ErrUnreadable) || s.Value != nil {
			t.Errorf("%s: a judge that answers in another form scores %+v, %v", reward, s, err)
		}
	}
}
