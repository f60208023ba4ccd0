package mathgrade

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestProfilesFollowTheirSources: pairs on which the sources' rules differ from one
// another, with the verdict of each.
func TestProfilesFollowTheirSources(t *testing.T) {
	for _, tc := range []struct{ profile, gold, answer, want string }{
		// rllm: mathd_normalize_answer.
		{RLLM, `\frac{1}{2}`, "0.5", "right"}, {RLLM, `\frac{1}{2}`, `\frac12`, "right"}, {RLLM, `\frac{1}{2}`, "1/2", "right"},
		{RLLM, "5", "x=5", "right"},
		{RLLM, "5", "xyz=5", "wrong"}, {RLLM, "90", `90^\circ`, "right"}, {RLLM, "5", `5\text{ cm}`, "right"},
		{RLLM, `\sqrt{3}`, `\sqrt3`, "right"}, {RLLM, `\text{Monday}`, "Monday", "right"}, {RLLM, "50", `50\%`, "right"},
		// rllm: PRM800K's rule.
		{RLLM, `\frac{1}{2}`, `\frac{2}{4}`, "wrong"},                                                    // fractions must be in lowest terms
		{RLLM, "1234", "1,234", "right"}, {RLLM, "5", "5.0", "right"}, {RLLM, "4", `\sqrt{16}`, "wrong"}, // an integer must be written as one
		{RLLM, "(1,2)", "(1, 2)", "right"}, {RLLM, "(1,2)", "[1,2]", "wrong"}, {RLLM, "(1,2)", "(2,1)", "wrong"},
		{RLLM, "2x+3", "3+2x", "right"}, {RLLM, "x+y+z+1", "1+x+y+z", "wrong"}, // more than two letters
		{RLLM, "5 hours", "5", "right"}, {RLLM, `\boxed{7}`, "7", "right"}, {RLLM, "Evelyn", "evelyn", "right"},
		// minerva: Lewkowycz et al.'s normal form, then the difference.
		{Minerva, "5", "x=5", "right"}, {Minerva, "5", "xyz=5", "right"}, {Minerva, "1000", "1,000", "right"},
		{Minerva, "5", "5 dollars", "right"},
		{Minerva, `\frac{1}{2}`, `\frac12`, "right"}, {Minerva, `\frac{1}{2}`, "0.5", "right"}, {Minerva, `\frac{1}{2}`, `\frac{2}{4}`, "right"},
		{Minerva, `2\sqrt{2}`, `\sqrt{8}`, "right"}, {Minerva, "1,2", "2,1", "wrong"}, {Minerva, `\text{Monday}`, "Monday", "right"},
		{Minerva, "$5$", "5", "right"}, {Minerva, `90^\circ`, "90", "right"}, {Minerva, "5", "6", "wrong"}, {Minerva, "50", `50\%`, "wrong"},
		// math-verify: decimals to 6 places, no units, equations as their right sides.
		{MathVerify, `\frac13`, "0.333333", "right"}, {MathVerify, `\frac13`, "0.33333", "wrong"}, {MathVerify, "5", "x+y=5", "right"},
		{MathVerify, "(1,2)", "1<x<2", "wrong"}, {MathVerify, "1<x<2", "(1,2)", "right"},
		{Default, `\frac13`, "0.333333", "wrong"}, {Default, "5", "x+y=5", "wrong"}, {Default, "(1,2)", "1<x<2", "right"},
	} {
		if v := Equal(tc.gold, tc.answer, Options{Profile: tc.profile}); v.String() != tc.want {
			t.Errorf("%s: %s against the gold answer %s: %s, want %s", tc.profile, tc.answer, tc.gold, v, tc.want)
		}
	}
}

// TestProfilesAgreeWithTheirOriginals: rllm's grader and lm-evaluation-harness's
// minerva_math on the pairs of golden.tsv (scripts/mathverify/profiles.py wrote their
// verdicts). These are pairs that graders quarrel about.
func TestProfilesAgreeWithTheirOriginals(t *testing.T) {
	differ := map[string]int{}
	var rllm []string
	for _, line := range goldenLines(t, "profiles.tsv") {
		for i, profile := range []string{RLLM, Minerva} {
			v := Equal(line[2], line[3], Options{Profile: profile})
			if v.String() == line[i] {
				continue
			}
			if differ[profile]++; profile == RLLM {
				rllm = append(rllm, line[2]+"  "+line[3]+": "+line[i])
			}
		}
	}
	// What sympy cannot simplify, and x_1, which it takes for a name: docs/math-grader.md.
	if differ[RLLM] > 8 {
		t.Errorf("rllm: %d pairs:\n%s", differ[RLLM], strings.Join(rllm, "\n"))
	}
	if differ[Minerva] > 146 {
		t.Errorf("minerva: %d pairs", differ[Minerva])
	}
}

// goldenLines are the columns of a file of testdata.
func goldenLines(t *testing.T, name string) (lines [][]string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		lines = append(lines, strings.Split(strings.TrimRight(line, "\n"), "\t"))
	}
	return lines
}

func TestToleranceIsRelative(t *testing.T) {
	for _, tc := range []struct {
		gold, answer string
		tolerance    float64
		want         Verdict
	}{{`\frac13`, "0.33", .01, Right}, {`\frac13`, "0.33", .005, Wrong}, {`\pi`, "3.14", .001, Right}, {`\pi`, "3.15", .001, Wrong},
		{"(1,2)", "(1.001,2)", .01, Right}, {"1000000", "1000001", .00001, Right}, {"0", "0.001", .01, Wrong}} {
		o := Options{Tolerance: tc.tolerance}
		if v := Equal(tc.gold, tc.answer, o); v != tc.want || Equal(tc.answer, tc.gold, o) != v {
			t.Errorf("%s and %s within %g: %v", tc.gold, tc.answer, tc.tolerance, v)
		}
	}
	for _, o := range []Options{{Profile: "sympy"}, {Tolerance: -1}, {Tolerance: 1}, {Rounding: -1}} {
		if o.Validate() == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

// TestRulesOfExtraction: the rule that fired is told, in the order of priority.
func TestRulesOfExtraction(t *testing.T) {
	for _, tc := range []struct {
		reply, answer string
		rule          Rule
	}{
		{`so $\boxed{4}$`, "4", RuleBoxed}, {`\boxed{1} and \boxed{2}`, "1, 2", RuleBoxed}, {`\boxed{1}$, or $\boxed{2}$.`, "1, 2", RuleBoxed},
		{"\\boxed{1}\n\nno: \\boxed{2}", "2", RuleBoxed}, {`\boxed{\text{(B)}}`, `\text{(B)}`, RuleBoxed},
		{"work\n#### 1,234", "1,234", RuleHash}, {`{"reason": "…", "answer": 42}`, "42", RuleJSON},
		{`{"final_answer": "\\frac{1}{2}"}`, `\frac{1}{2}`, RuleJSON},
		{`{"answer": [1, 2]}`, "1, 2", RuleJSON}, {"The answer is $x=5$.", "x=5", RulePhrase}, {"**Final Answer:** 12", "12", RulePhrase},
		{"Answer: (B)", "(B)", RulePhrase}, {"Hence\n\\[x = 3\\]", "x = 3", RuleDisplay}, {"Hence\n$$a = 1 + 2 = 3$$", "3", RuleDisplay},
		{"So we get **42**.", "42", RuleBold}, {"She has **7 apples** left.", "7 apples", RuleBold},
		{"It follows that $y=2x$ holds.", "y=2x", RuleInline},
		{"She makes $18 a day and $90 a week", "90", RuleNumber}, {"about -2.5%", "-2.5%", RuleNumber}, {"3/4 of it", "3/4", RuleNumber},
		{"no answer here", "", ""}, {`an empty \boxed{}`, "", ""}, {"<think>42", "", ""}, {"<think>1</think> 42", "42", RuleNumber},
	} {
		if a, rule, _ := Extract(tc.reply); a != tc.answer || rule != tc.rule {
			t.Errorf("%q: %q by %q, want %q by %q", tc.reply, a, rule, tc.answer, tc.rule)
		}
	}
	if _, err := ParseRules("boxed,guess"); err == nil {
		t.Error("an unknown rule is taken")
	}
	rules, err := ParseRules("number,boxed")
	if a, rule, _ := Extract(`\boxed{1} of 3`, rules...); err != nil || a != "3" || rule != RuleNumber {
		t.Error(a, rule, err)
	}
}

// TestAnIntegralWithoutLimitsIsReadByEachProfile: its limits are no nodes.
func TestAnIntegralWithoutLimitsIsReadByEachProfile(t *testing.T) {
	for _, profile := range Profiles {
		for _, s := range []string{`\int xx\,dx=x`, `\int x\,dx`, `\lim_{x\to0} x = y`, `\frac{d}{dx} x = 1`} {
			for _, other := range append(seeds, s) {
				o := Options{Profile: profile}
				Equal(s, other, o)
				Equal(other, s, o)
			}
		}
	}
}
