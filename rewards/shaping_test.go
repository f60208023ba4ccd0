package rewards

import (
	"errors"
	"math"
	"strings"
	"testing"

	"agentcli/traj"
)

// The golden file is what TRL's functions gave (scripts/golden/shaping.py).
func TestShapingIsTRLs(t *testing.T) {
	var golden struct {
		Length []struct {
			LengthSettings
			Tokens int
			Value  float64
		}
		Cosine []struct {
			CosineSettings
			Tokens  int
			Correct bool
			Value   float64
		}
		Repetition []struct {
			RepetitionSettings
			Text  string
			Value float64
		}
	}
	goldenFile(t, "shaping.json", &golden)
	if len(golden.Length) < 35 || len(golden.Cosine) < 45 || len(golden.Repetition) < 100 {
		t.Fatalf("%d, %d and %d cases", len(golden.Length), len(golden.Cosine), len(golden.Repetition))
	}
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-12 }
	for _, c := range golden.Length {
		if got := c.penalty(c.Tokens); !near(got, c.Value) {
			t.Errorf("length of %+v is %v", c, got)
		}
	}
	for _, c := range golden.Cosine {
		if got := c.CosineSettings.value(c.Tokens, c.Correct); !near(got, c.Value) {
			t.Errorf("cosine of %d in %d, correct %v: %v, theirs %v", c.Tokens, c.Max, c.Correct, got, c.Value)
		}
	}
	for _, c := range golden.Repetition {
		s := score(t, "repetition", Options{Repetition: c.RepetitionSettings}, attempt(c.Text))
		if !near(*s.Value, c.Value) {
			t.Errorf("repetition of %+v is %v", c, *s.Value)
		}
	}
}

func TestShapingNeverDecides(t *testing.T) {
	o := Options{Length: LengthSettings{Max: 100, Buffer: 50}, Cosine: CosineSettings{Max: 100}}
	a := attempt(`\boxed{84}`, "84")
	a.CompletionTokens = 75
	for name, want := range map[string]float64{
		"math:1,length:.2": .9, "length:.2,math:1": .9, "math,cosine": 1 + .5 + .25*(1+math.Cos(.75*math.Pi)),
		"cosine,math": 1 + .5 + .25*(1+math.Cos(.75*math.Pi)), "math:1,repetition:.5,language:.1": 1.1,
	} {
		s := score(t, name, o, a)
		if math.Abs(*s.Value-want) > 1e-12 || s.Correct == nil || !*s.Correct || *s.Extracted != "84" || s.Verdict != VerdictRight ||
			s.Rule != "boxed" {
			t.Errorf("%s: %v, want %v: %+v", name, *s.Value, want, s)
		}
	}
	if s := score(t, "length:1,language:1", o, a); s.Correct != nil || s.Extracted != nil || len(s.Parts) != 2 {
		t.Errorf("%+v", s)
	}
	if s := score(t, "length", o, a); *s.Value != -.5 || s.Correct != nil {
		t.Errorf("%+v", s)
	}
	a.Termination = traj.ModelFailed
	for _, name := range []string{"length", "repetition", "language", "math,cosine"} {
		if s := score(t, name, o, a); s.Value != nil {
			t.Errorf("%s has scored a failure of the infrastructure", name)
		}
	}
}

func TestTokensAreThoseThatWereSampled(t *testing.T) {
	a := attempt("x")
	a.Steps = []traj.Step{{CompletionTokens: 30}, {CompletionTokens: 40}}
	if n, err := sampledTokens(a); n != 70 || err != nil {
		t.Error(n, err)
	}
	a.CompletionTokens = 60
	if n, err := sampledTokens(a); n != 60 || err != nil {
		t.Error(n, err)
	}
	a.Sequences = []traj.Sequence{{TokenIDs: []int32{1, 2, 3}, LossMask: []bool{false, true, true}}}
	if n, err := sampledTokens(a); n != 2 || err != nil {
		t.Error(n, err)
	}
	if _, err := sampledTokens(attempt("x")); !errors.Is(err, ErrNoLength) {
		t.Error(err)
	}
	if n, err := sampledTokens(&traj.Trajectory{}); n != 0 || err != nil {
		t.Error(n, err)
	}
}

func TestLanguageIsTheShareOfLetters(t *testing.T) {
	for _, c := range []struct {
		script, reply string
		want          float64
	}{
		{"", "hello", 1}, {"", "да", 0}, {"en", "abc абв", .5}, {"zh", "你好 ok", .5}, {"cjk", "こんにちは 한국 你好", 1}, {"zh", "こんにちは", 0},
		{"ru", "Ответ: `print(x)` и ```python\nfor x in y: pass\n``` $a+b$ \\(x\\) \\boxed{5} https://example.com", 1},
		{"latin", "12 + 3 = 15", 1},
		{"ru", "<think>да</think>", 1}, {"hangul", "한국", 1}, {"greek", "αβγ", 1}, {"ar", "مرحبا", 1}, {"latin", "é à ü", 1},
		{"ru", "```\nend", 1},
	} {
		s := score(t, "language", Options{Language: LanguageSettings{Script: c.script}}, attempt(c.reply))
		if math.Abs(*s.Value-c.want) > 1e-12 || s.Correct != nil {
			t.Errorf("%s of %q: %v, want %v", c.script, c.reply, *s.Value, c.want)
		}
	}
}

// The prompt and what tools say are not the model's words; its thinking is.
func TestOnlyTheModelsWordsAreShaped(t *testing.T) {
	a := attempt("", "1")
	a.Task.Messages = []traj.Message{{Role: traj.RoleUser, Content: "да"}, {Role: traj.RoleAssistant, Content: "да"}}
	a.Messages = append(a.Task.Messages, traj.Message{Role: traj.RoleAssistant, Reasoning: "abc", Content: "de <information>да</information>"},
		traj.Message{Role: traj.RoleTool, Content: "да"}, traj.Message{Role: traj.RoleAssistant, Content: "fé"})
	if s := score(t, "language", Options{}, a); *s.Value != 1 {
		t.Error(*s.Value)
	}
	if got := strings.Fields(written(a)); len(got) != 3 {
		t.Errorf("%q", got)
	}
}

func TestHanCharactersAreWords(t *testing.T) {
	n := 2
	s := score(t, "repetition", Options{Repetition: RepetitionSettings{N: &n}}, attempt("你好你好你好"))
	if math.Abs(*s.Value+.6) > 1e-12 { // five pairs, two of them different
		t.Error(*s.Value)
	}
}

func FuzzShaping(f *testing.F) {
	f.Add("a b a b", 2)
	f.Add("```x\n$$ \\( 你", 1)
	f.Fuzz(func(t *testing.T, reply string, n int) {
		if r := repeated(reply, min(max(n, 1), 1000)); !(r >= 0 && r < 1) {
			t.Errorf("%v of %q is repeated", r, reply)
		}
		if p := prose(reply); len(p) > len(reply) {
			t.Errorf("%q has more than %q", p, reply)
		}
	})
}

func BenchmarkShaping10MB(b *testing.B) {
	for name, part := range map[string]string{"words": "ab cd ", "dollars": "$ ", "fences": "```\n", "begins": `\begin{a} `, "han": "你好"} {
		a := attempt(strings.Repeat(part, 10_000_000/len(part)))
		for _, reward := range []string{"repetition", "language"} {
			r, err := New(reward, Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.Run(reward+"/"+name, func(b *testing.B) {
				for b.Loop() {
					_, _ = r.Score(b.Context(), a)
				}
			})
		}
	}
}

func TestChoicesAreScored(t *testing.T) {
	meta := []byte(`{"choices": ["Paris", "London"]}`)
	for _, c := range []struct{ reply, gold, verdict, rule string }{
		{"The answer is (B).", "B", VerdictRight, "phrase"}, {"The answer is London.", "1", VerdictRight, "phrase"},
		{"\\boxed{A}", "London", VerdictWrong, "boxed"}, {"hm", "B", VerdictNoAnswer, ""},
	} {
		a := attempt(c.reply, c.gold)
		a.Task.Meta = meta
		s := score(t, "choice", Options{}, a)
		if s.Verdict != c.verdict || s.Rule != c.rule || *s.Correct != (c.verdict == VerdictRight) ||
			(s.Extracted == nil) != (c.verdict == VerdictNoAnswer) {
			t.Errorf("%s: %+v", c.reply, s)
		}
	}
	cut := attempt("First I think of B", "B")
	cut.Termination = traj.TurnLength
	if s := score(t, "choice", Options{}, cut); s.Verdict != VerdictNoAnswer {
		t.Errorf("half a reply has answered: %+v", s)
	}
	r, _ := New("choice", Options{})
	bad := attempt("B", "C")
	bad.Task.Meta = meta
	if _, err := r.Score(t.Context(), bad); err == nil {
		t.Error("the gold answer is no choice")
	}
}
