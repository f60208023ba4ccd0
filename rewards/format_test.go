package rewards

import (
	"testing"

	"agentcli/traj"
)

// TestAReplyHasItsFormOrNot: thinking that the reply or the prompt opened, closed once; behind it
// an answer of the configured form.
func TestAReplyHasItsFormOrNot(t *testing.T) {
	const both = "<think>two and two</think>\n<answer>4</answer>"
	for _, c := range []struct {
		s                FormatSettings
		reply, reasoning string
		want             float64
	}{
		{FormatSettings{}, both, "", 1},
		{FormatSettings{}, "two and two</think><answer>4</answer>", "", 1}, // the prompt opened it
		{FormatSettings{}, "<answer>4</answer>", "two and two", 1},         // a server took it out
		{FormatSettings{}, "  " + both + "\n", "", 1},
		{FormatSettings{}, both + " So it is 4.", "", 0},
		{FormatSettings{}, "Well. " + "<answer>4</answer>", "two and two", 0},
		{FormatSettings{}, "<think></think><answer>4</answer>", "", 0},
		{FormatSettings{}, "<think>two and two<answer>4</answer>", "", 0},
		{FormatSettings{}, "<think>a</think><think>b</think><answer>4</answer>", "", 0},
		{FormatSettings{}, "<think>a<think>b</think><answer>4</answer>", "", 0},
		{FormatSettings{}, "<think>a</think><answer></answer>", "", 0},
		{FormatSettings{}, "<think>a</think><answer>4</answer><answer>5</answer>", "", 0},
		{FormatSettings{}, "<think>a</think>4", "", 0},
		{FormatSettings{}, "<answer>4</answer>", "", 0},
		{FormatSettings{}, "<answer>4</answer></think>", "a", 0},
		{FormatSettings{Answer: "any"}, "<think>a</think>4", "", 1},
		{FormatSettings{Answer: "any"}, "<think>a</think> \n", "", 0},
		{FormatSettings{Answer: "boxed"}, `<think>a</think>It is \boxed{4}.`, "", 1},
		{FormatSettings{Answer: "boxed"}, `<think>\boxed{4}</think>It is 4.`, "", 0},
		{FormatSettings{NoThinking: true}, "<answer>4</answer>", "", 1},
		{FormatSettings{NoThinking: true}, both, "", 1},
		{FormatSettings{NoThinking: true}, "<think>a<answer>4</answer>", "", 0},
	} {
		a := attempt(c.reply)
		a.Messages[len(a.Messages)-1].Reasoning = c.reasoning
		if s := score(t, "format", Options{Format: c.s}, a); *s.Value != c.want || s.Correct != nil {
			t.Errorf("%+v: %q behind %q: %v, want %v", c.s, c.reply, c.reasoning, *s.Value, c.want)
		}
	}
}

// TestTheFormIsAPartOfASum: it never decides what is correct, and a failure of the infrastructure
// has none.
func TestTheFormIsAPartOfASum(t *testing.T) {
	a := attempt("<think>two and two</think><answer>4</answer>", "4")
	s := score(t, "math:1,format:.2", Options{}, a)
	if *s.Value != 1.2 || s.Correct == nil || !*s.Correct || len(s.Parts) != 2 || s.Parts[1].Name != "format" || s.Parts[1].Value != 1 {
		t.Errorf("%+v", s)
	}
	a.Messages = append(a.Messages, traj.Message{Role: traj.RoleTool, Content: "4"})
	if s := score(t, "format", Options{}, a); *s.Value != 0 {
		t.Errorf("a tool's words have a form: %+v", s)
	}
	a.Termination = traj.ModelFailed
	if s := score(t, "format", Options{}, a); s.Value != nil {
		t.Errorf("a failure is scored: %+v", s)
	}
	for _, bad := range []string{`{"format": {"answer": "xml"}}`, `{"format": {"answers": "any"}}`} {
		if _, err := ParseOptions([]byte(bad)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}
