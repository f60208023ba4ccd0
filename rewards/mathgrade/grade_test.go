package mathgrade

import "testing"

func TestUsualAnswers(t *testing.T) {
	for _, tc := range []struct {
		got, gold string
		want      bool
	}{
		{"204", "204", true}, {"204.0", "204", true}, {"27", "27.0", true}, {"204", "205", false}, {"0204", "204", true}, {"+5", "5", true},
		{"1,234", "1234", true}, {"1{,}234", "1234", true}, {`1\!,234`, "1234", true}, {"1,234.50", "1234.5", true}, {"12,34", "1234", false},
		{`\frac{1}{2}`, "0.5", true}, {`\dfrac12`, `\frac{1}{2}`, true}, {`\tfrac{1}{2}`, "1/2", true},
		{"-1/2", `-\frac{1}{2}`, true}, {`\frac{-1}{2}`, `-\frac12`, true},
		{"0.333", `\frac13`, false}, {".5", "0.5", true}, {`\frac{3}{6}`, `\frac12`, true},
		{`3\frac{1}{2}`, "3.5", true}, {"3 1/2", `\frac72`, true}, {`-3\frac{1}{2}`, "-3.5", true}, {`2\frac{1}{2}`, "1", false},
		{"50%", "50", true}, {`50\%`, "0.5", true}, {"50", `50\%`, true}, {"5%", "50", false},
		{`\$18`, "18", true}, {"$18$", "18", true}, {"$18.00", "18", true}, {"18 dollars", "18", true},
		{`5\text{ cm}`, "5", true}, {`5 \text{ cm}^2`, "5", true}, {`90^\circ`, "90", true},
		{`90^{\circ}`, "90", true}, {"90°", "90", true}, {"15 mph", "15", true}, {"20cm", "20", true},
		{`\sqrt{2}`, `\sqrt2`, true}, {`\frac{\sqrt2}{2}`, `\frac{1}{\sqrt{2}}`, true}, {`\sqrt{8}`, `2\sqrt{2}`, true},
		{"1.414", `\sqrt{2}`, false}, {`\sqrt{4}`, "2", true}, {`\sqrt[3]{8}`, "2", true},
		{`\pi`, `\pi`, true}, {`2\pi`, `\pi*2`, true}, {`\frac{\pi}{2}`, `\pi/2`, true}, {"3.14", `\pi`, false},
		{`(3,\frac{\pi}{2})`, `\left( 3, \frac{\pi}{2} \right)`, true}, {"(1,2)", "(2,1)", false},
		{"(1, 2)", "(1,2)", true}, {"(0.5,2)", `(\frac12,2)`, true}, {"(1,2)", "1,2", true},
		{"[0,1)", "[0, 1)", true}, {"(0,1)", "[0,1)", false}, {`(-\infty,2)`, `(-\infty, 2)`, true},
		{`(-\infty,0)\cup(0,\infty)`, `(0,\infty) \cup (-\infty,0)`, true},
		{`\{1,2,3\}`, `\{3,2,1\}`, true}, {"1,2,3", "3,1,2", true}, {"1, -2", "-2,1", true}, {"1 and 2", "2,1", true},
		{"1,2", "1,2,3", false}, {`\{1,2\}`, `1,2`, true}, {"1,1,2", "1,2,2", false},
		{"x=5", "5", true}, {"x = 5", "5", true}, {"y=2x+3", "y=3+2x", true}, {"2x+3", "y=2x+3", true}, {`x \in [-2,7]`, "[-2,7]", true},
		{"x^2+2x+1", "(x+1)^2", true}, {"x^2+1", "(x+1)^2", false}, {"2xy", "xy2", true}, {"a+b", "b+a", true},
		{"x", "y", false}, {"X", "x", false},
		{`3 \pm \sqrt5`, `3+\sqrt{5}, 3-\sqrt{5}`, true}, {`\pm 2`, "2,-2", true},
		{`\text{Evelyn}`, "Evelyn", true}, {"evelyn", `\text{Evelyn}`, true}, {"(B)", `\text{B}`, true},
		{"A3_{16}", "163", true}, {"163", `\text{a3}_{16}`, true}, {"A3_{16}", "A3_{17}", false}, {"1A_{16}", "32_8", true},
		{"(2B)_{12}", "35", true}, {"A_{16}", "10", false}, {"1G_{16}", "32", false}, {"1Z_{36}", "71", true},
		{`\text{all real numbers}`, `(-\infty,\infty)`, true}, {`\mathbb{R}`, "All reals.", true}, {"all real numbers", `[0,\infty)`, false},
		{"DNE", `\text{does not exist}`, true}, {"Does not exist.", `\text{DNE}`, true},
		{"B", `\text{(B)}`, true}, {"C", "B", false}, {`\text{east}`, "west", false},
		{`\begin{pmatrix} 1 \\ 2 \end{pmatrix}`, `\begin{pmatrix}1\\2\end{pmatrix}`, true},
		{`\begin{pmatrix} 0.5 & 2 \end{pmatrix}`, `\begin{pmatrix}\frac12&2\end{pmatrix}`, true},
		{`\begin{pmatrix}1\\2\end{pmatrix}`, `\begin{pmatrix}1&2\end{pmatrix}`, false},
		{"2^{10}", "1024", true}, {"10^{-2}", "0.01", true}, {"2^{3^2}", "512", true}, {"5!", "120", true},
		{`\binom{5}{2}`, "10", true}, {"9^{9^{9^9}}", "1", false}, {"10^100000", "5", false},
		{"11_2", "11_{2}", true}, {"11_2", "11_3", false}, {"1/0", "0", false}, {`\boxed{7}`, "7", true},
		{"7", `\boxed{7}`, true}, {"7", `the answer \boxed{7}`, true},
		{"5.", "5", true}, {"", "", false}, {"5", "", false}, {"-5", "5", false}, {"−5", "-5", true},
		{"(5)", "5", true}, {`6 - 5i`, "6-5i", true}, {"6+5i", "6-5i", false},
		{`\frac{3}{56}`, `\dfrac{3}{56}`, true}, {`10\sqrt{5} \text{ units}`, `10\sqrt{5}`, true},
		{`\sin 30`, `\sin30`, true}, {`\frac{270}{7}\text{ degrees}`, `\frac{270}7`, true},
		{"100000000000000000001", "100000000000000000000", false}, {"0.1", "0.10000000000000001", false},
	} {
		if got := Equal(tc.gold, tc.got, Options{}); (got == Right) != tc.want {
			t.Errorf("%q against %q: %v", tc.got, tc.gold, got)
		}
	}
	if Equal(`\frac13`, "0.333", Options{Rounding: 3}) != Right || Equal(`\frac13`, "0.334", Options{Rounding: 3}) != Wrong {
		t.Error("rounding to three decimals")
	}
}

// TestUnits: what follows a number is dropped where it is a unit, and only there.
func TestUnits(t *testing.T) {
	for _, tc := range []struct {
		got, gold string
		want      bool
	}{
		{"3 pi", "3", false}, {"3 pi", `3\pi`, true}, {"3pi", `3\pi`, true}, {`3 \pi`, `3\pi`, true},
		{"3 pi^2", "3", false}, {"3 pi^2", `3\pi^2`, true},
		{"3 pi cm", `3\pi`, true}, {`3\pi cm`, `3\pi`, true}, {`3\pi\text{ cm}^2`, `3\pi`, true}, {"3 pi radians", `3\pi`, true},
		{"2 e", "2", false}, {"2 e", "2e", true}, {`2\mathrm{e}`, "2e", true}, {`2\mathrm{e}`, "2", false},
		{`3+2\mathrm{i}`, "3+2i", true}, {`3+2\mathrm{i}`, "5", false}, {`3+2\text{i}`, "3+2", false},
		{"2 sqrt(3)", `2\sqrt{3}`, true}, {"2 sqrt", "2", false}, {"2 xy", "2", false}, {"2 xy", "2xy", true}, {"3 ab", "3ab", true},
		{"2 infty", "2", false}, {"5 sin", "5", false}, {"4 and", "4", false},
		{"3 cm", "3", true}, {"3 cm^2", "3", true}, {"3 square meters", "3", true}, {"12 apples", "12", true},
		{"5 in.", "5", true}, {"7 km/h", "7", true},
		{`\frac{3}{4} in`, "3/4", true}, {"8 kb", "8", true}, {"40 percent", "40%", true}, {"40 percent", "0.4", true},
		{`\frac{3}{4} miles`, "3/4", true}, {"1/2 hour", "0.5", true}, {"6 pie slices", "6", true},
		{"1.5 million", "1500000", true}, {`1.5\text{ million}`, "1{,}500{,}000", true}, {`\$1.5\text{ million}`, "1500000", true},
		{"1.5 million", "1.5", true}, {"2 million", "2 billion", false}, {"2 million dollars", "2 billion dollars", false},
		{"2 million dollars", "2 dollars", false}, {"2 million dollars", "2000000 dollars", true}, {"1 million", "1000 thousand", true},
		{`2.5\text{ billion years}`, `2.5\times10^9`, true}, {"3 dozen eggs", "36", true}, {`10\text{ million km}`, "10^{10} meters", true},
		{"3 hundred thousand", "300000", true}, {"2 million", "2000", false},
		{"90 degrees", "90", true}, {"10 cents", "10", true}, {"2 eggs", "2", true}, {`5\text{ pints}`, "5", true}, {`5\text{ in}`, "5", true},
	} {
		if got := Equal(tc.gold, tc.got, Options{}); (got == Right) != tc.want {
			t.Errorf("%q against %q: %v", tc.got, tc.gold, got)
		}
	}
}

func TestExtract(t *testing.T) {
	for _, tc := range []struct {
		reply, want string
		rules       []Rule
	}{
		{`so \boxed{4} no, \boxed{5}`, "5", nil},
		{`\boxed{\frac{1}{2}} is it`, `\frac{1}{2}`, nil},
		{`\boxed{a\}b}`, `a\}b`, nil},
		{`\boxed{3} and \boxed{4`, "3", nil},
		{`\boxed 7 then`, "7", nil},
		{`\fbox{8}`, "8", nil},
		{`<think>\boxed{1}</think> it is \boxed{2}`, "2", nil},
		{`<think>\boxed{1}`, "-", nil},
		{`<think>\boxed{1}</think> I do not know`, "-", nil},
		{"The answer is 42.", "42", nil},
		{"The final answer is: $\\frac{1}{2}$.", `\frac{1}{2}`, nil},
		{"**Answer:** 1,234", "1,234", nil},
		{"#### 18", "18", nil},
		{"The answer is 3.5 because", "3.5 because", nil},
		{"The answer is that she makes 18 dollars a day", "18", nil},
		{"3 + 4 gives 7 apples", "7", nil},
		{"about -2.5", "-2.5", nil},
		{"3/4 of it", "3/4", nil},
		{"no digits", "-", nil},
		{"", "-", nil},
		{"The answer is 42.", "-", []Rule{RuleBoxed}},
		{"The answer is 42.", "-", []Rule{RuleBoxed}},
		{`\boxed{1} of 3`, "3", []Rule{RuleNumber}},
		{" x+1 ", "x+1", []Rule{RuleWhole}},
	} {
		got, _, ok := Extract(tc.reply, tc.rules...)
		if !ok {
			got = "-"
		}
		if got != tc.want {
			t.Errorf("%q %v: %q, want %q", tc.reply, tc.rules, got, tc.want)
		}
	}
}
