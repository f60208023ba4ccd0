package mathgrade

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"agentcli/rewards/mathexpr"
)

// square is a matrix whose cells have the format.
func square(size int, format string) string {
	var b strings.Builder
	for i := range size * size {
		fmt.Fprintf(&b, format, i%7+1)
		b.WriteString([]string{"&", `\\`}[(i%size+1)/size])
	}
	return `\begin{pmatrix}` + b.String() + `\end{pmatrix}`
}

// hostile are pairs of answers that cost a naive grader more than it has.
func hostile() map[string][2]string {
	rep := strings.Repeat
	list := func(e string, n int) string { return strings.TrimSuffix(rep(e+",", n), ",") }
	numbers := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return strings.Trim(b.String(), ",&")
	}
	return map[string][2]string{
		"tower":            {"9^{9^{9^{9}}}", "9^9^9^8"},
		"tower of sums":    {"(x+1)^{9^9}", "(x+2)^{9^9}"},
		"braces":           {rep("{", 1000000), "1"},
		"open and closed":  {rep("{", 30000) + "1" + rep("}", 30000), "1"},
		"brackets":         {rep("(", 2000) + "1" + rep(")", 2000), rep("(2,", 900) + "1" + rep(")", 900)},
		"digits":           {rep("7", 10000), rep("7", 9999) + "8"},
		"20000 digits":     {rep("7", 20000) + "/3", rep("7", 20000) + "/7"},
		"decimals":         {"0." + rep("7", 10000), "0." + rep("7", 9999) + "8"},
		"products":         {rep("7", 10000) + "*" + rep("3", 10000), rep("3", 10000) + "*" + rep("9", 10000)},
		"fractions":        {rep(`\frac{1}{1+`, 140) + "1" + rep("}", 140), rep(`\frac{1}{1+`, 140) + "2" + rep("}", 140)},
		"deep fractions":   {rep(`\frac{1}{1+`, 4000) + "1" + rep("}", 4000), "1"},
		"nested variables": {rep(`\frac{1}{x+`, 60) + "1" + rep("}", 60), rep(`\frac{1}{x+`, 60) + "2" + rep("}", 60)},
		"factorial":        {"(10^9)!", "(10^9)!+1"},
		"factorials":       {list("x"+rep("400!", 240), 4), list("x"+rep("399!", 240), 4)},
		"many !":           {"5" + rep("!", 1000), "5!"},
		"sums":             {list("x"+rep("+1/399!", 130), 4), list("x"+rep("+1/397!", 130), 4)},
		"binomials":        {"x+" + rep(`\binom{999}{500}`, 60), "x-" + rep(`\binom{999}{500}`, 60)},
		"huge binomial":    {`\binom{10^9}{10^8}`, "1"},
		"wide binomial":    {`\binom{100000}{2900}`, "1"},
		"powers":           {"x" + rep("+3^999/7^999", 80), "x" + rep("+3^998/7^999", 80)},
		"polynomial":       {"(a+b+c+d+e_1+f)^{40}", "(a+b+c+d+e_1+f)^{40}+1"},
		"product of sums":  {rep("(x+y+1)", 300), rep("(x+y+2)", 300)},
		"different bases":  {rep("(x+y)(y+z)(z+w)(w+v)", 30), rep("(x+y)(y+z)(z+w)(w+u)", 30)},
		"pairs":            {list("x+399!", 200), list("x+398!", 200)},
		"long lists":       {numbers(9000, "%d,"), numbers(9001, "%d,")},
		"list of roots":    {numbers(3000, `\sqrt{%d},`), numbers(3000, `\sqrt{1%d},`)},
		"list of sines":    {numbers(3000, `\sin %d,`), numbers(3000, `\cos %d,`)},
		"matrix": {`\begin{pmatrix}` + numbers(9000, "%d&") + `\end{pmatrix}`, `\begin{pmatrix}` + numbers(9000, "0%d&") +
			`\end{pmatrix}`},
		"matrix of roots": {`\begin{pmatrix}` + numbers(3000, `\sqrt{%d}&`) + `\end{pmatrix}`, `\begin{pmatrix}` + numbers(3000, `%d^{0.5}&`) +
			`\end{pmatrix}`},
		"open integral":    {"\\int xx dx=x", "::::3"},
		"determinant":      {`\begin{vmatrix}` + strings.TrimSuffix(rep(`a&b&c&d&x+f\\`, 5), `\\`) + `\end{vmatrix}`, "1"},
		"matrix power":     {square(20, "%d") + "^{64}", square(20, "%d")},
		"matrix products":  {rep(square(2, "x_{%d}"), 300), rep(square(2, "y_{%d}"), 300)},
		"matrix inverse":   {square(5, "x_{%d}") + "^{-1}", square(5, "y_{%d}")},
		"matrix of digits": {square(4, rep("7", 900)+"%d") + "^{-60}", square(4, "%d")},
		"inequalities":     {list(`\{x\mid x^{12}-99999999x^5<99999989\}`, 300), list(`\{x\mid x^{12}-99999999x^5<99999988\}`, 300)},
		"squares":          {`\{x\mid ` + list(`(x^2-2)^2(x^2-3)^3>0`, 100) + `\}`, `\{x\mid ` + list(`(x^2-2)^2(x^2-5)^3>0`, 100) + `\}`},
		"roots of roots":   {`\{x\mid ` + rep(`\sqrt{`, 100) + "x" + rep("}", 100) + `<2\}`, "[0,4)"},
		"roots not":        {`\{x\mid ` + rep(`\sqrt{1+`, 70) + "x" + rep("}", 70) + `\ne 2\}`, "[0,4)"},
		"logs of logs":     {`\{x\mid ` + rep(`\ln(`, 60) + "x" + rep(")", 60) + `<2\}`, "(0,4)"},
		"powers of powers": {`\{x\mid ` + rep(`2^{`, 60) + "x" + rep("}", 60) + `>-1\}`, "(0,4)"},
		"thousandth roots": {`\{x\mid ` + rep("(", 60) + "x" + rep(")^{1/1000}", 60) + `<3\}`, "(0,4)"},
		"many inverses":    {`\{x\mid ` + list(`\ln(2^{\sqrt{x}}-1)<3`, 300) + `\}`, `\{x\mid ` + list(`\ln(2^{\sqrt{x}}-1)\ne4`, 300) + `\}`},
		"integers":         {`\{x\in\mathbb{Z}\mid x^2<\sqrt{20000}\}`, `\{x\in\mathbb{Z}\mid x^2<20002\}`},
		"many series":      {list(`\sum_{n=1}^{\infty}\frac{1}{n^2+1}`, 50), list(`\sum_{n=1}^{\infty}\frac{1}{n^2+2}`, 50)},
		"slow series":      {`\sum_{n=-1300}^{\infty}\frac{n^9+1}{(n^2+99)^6}`, `\sum_{n=-1300}^{\infty}\frac{n^9}{(n^2+100)^6}`},
		"nested series":    {`\sum_{n=1}^{\infty}\sum_{m=1}^{\infty}\frac{1}{n^2m^2}`, "1"},
		"antiderivatives":  {rep(`\sin(`, 140) + "x" + rep(")", 140) + "+C", rep(`\sin(`, 139) + "x" + rep(")", 139) + "+C"},
		"sets":             {rep(`\{1,`, 400) + "1" + rep(`\}`, 400), rep(`\{2,`, 400) + "1" + rep(`\}`, 400)},
		"unions":           {strings.TrimSuffix(rep(`(0,\sqrt{2})\cup`, 400), `\cup`), strings.TrimSuffix(rep(`(0,\sqrt{3})\cup`, 400), `\cup`)},
		"intersections":    {strings.TrimSuffix(rep(`(0,1)\cap`, 400), `\cap`), strings.TrimSuffix(rep(`(0,2)\setminus`, 400), `\setminus`)},
		"signs":            {rep(`\pm±\mp1,`, 300), rep(`\mp±\pm2,`, 300)},
		"sum of signs":     {"1" + rep(`\pm 1`, 300), "1" + rep(`\pm 2`, 300)},
		"roots":            {"x" + rep(`\sqrt{399!/397!}`, 60), "y" + rep(`\sqrt{399!/397!}`, 60)},
		"nested roots":     {rep(`\sqrt{2+`, 140) + "1" + rep("}", 140), rep(`\sqrt{2+`, 140) + "2" + rep("}", 140)},
		"root of digits":   {`\sqrt{` + rep("7", 9000) + "}", `\sqrt{` + rep("7", 8999) + "3}"},
		"odd root":         {`\sqrt[61]{` + rep("7", 900) + "}", `\sqrt[59]{` + rep("7", 899) + "3}"},
		"long sum":         {`\sum_{k=1}^{1000000} \frac{1}{k}`, "14"},
		"long product":     {`\prod_{k=1}^{100000} k`, "1"},
		"nested sums":      {`\sum_{i=1}^{999}\sum_{j=1}^{999}\sum_{k=1}^{999} ijk`, "1"},
		"sum of sines":     {`\sum_{k=1}^{20000} \sin k`, "1"},
		"series":           {`\sum_{k=1}^{\infty} \frac{1}{k^2}`, `\frac{\pi^2}{6}`},
		"integral":         {`\int_0^1 e^{\sin(x^2)} dx`, "1.3"},
		"nested integrals": {`\int_0^1 \int_0^1 \sin(xy) dx dy`, "1"},
		"limit":            {`\lim_{x\to 0} \lim_{y\to 0} \frac{\sin(xy)}{xy}`, "1"},
		"functions":        {rep(`\sin(`, 140) + "x" + rep(")", 140), rep(`\sin(`, 139) + "x" + rep(")", 139)},
		"exponentials":     {rep("e^{", 140) + "1" + rep("}", 140), "1"},
		"big sine":         {`\sin(10^{5000})`, "1"},
		"exponent":         {"1e5000", "1e-5000"},
		"units":            {"1 " + rep("ab ", 1300), rep(`x\in`, 900) + "1"},
		"texts":            {rep(`\text{1}`, 5000), rep(`\text{a}`, 5000)},
		"open texts":       {rep(`\text{`, 10000), rep(`\mathbb{`, 9000)},
		"nested texts":     {rep(`\text{1`, 3000) + rep("}", 3000), "1"},
		"overlines":        {"0." + rep(`1\overline{`, 9000), rep(`0.\overline{`, 5000)},
		"mixed":            {rep(`3\frac12`, 3000), rep(`3\frac1{2}`, 3000)},
		"mixed nested":     {rep(`3\frac{`, 3000), "1"},
		"relations":        {rep("x<", 9000) + "x", rep("x>", 9000) + "x"},
		"equations":        {rep("x=", 9000) + "1", rep("y=", 9000) + "2"},
		"scripts":          {rep("x^", 9000) + "2", rep("x_", 9000) + "2"},
		"superscripts":     {"x" + rep("²", 9000), "2" + rep("½", 9000)},
		"bars":             {rep("|", 9000) + "x" + rep("|", 9000), rep("|x|", 5000)},
		"choices":          {rep("(A) ", 5000), rep("(B) ", 5001)},
		"spaces":           {"x" + rep(" ", 60000) + "y", "y" + rep("~", 60000) + "x"},
		"long text":        {rep("word ", 2<<20), rep("wort ", 2<<20)},
		"bytes":            {rep("\xff\x00", 5000), rep("\\", 9999)},
		"ratio":            {strings.TrimSuffix(rep("3^{50}:", 2000), ":"), strings.TrimSuffix(rep("3^{51}:", 2000), ":")},
		"moduli":           {rep(`7^{99} \bmod `, 500) + "3", rep(`7^{98} \bmod `, 500) + "3"},
	}
}

// replies are texts that cost a naive extraction more than it has.
func replies() map[string]string {
	rep := strings.Repeat
	return map[string]string{
		"boxes":      rep(`\boxed{`, 1<<20),
		"numbers":    rep("1,234 ", 1<<20),
		"slashes":    rep("1/", 5<<20),
		"spaces":     "1" + rep(" ", 10<<20),
		"commas":     rep("1,", 5<<20),
		"points":     rep("1.", 5<<20),
		"answers":    rep("answer ", 1<<20),
		"answers is": rep("answer is ", 1<<20),
		"thoughts":   rep("<think>", 1<<20),
		"ends":       rep("</think>", 1<<20),
		"dollars":    rep("$", 10<<20),
		"stars":      rep("**", 5<<20),
		"displays":   rep(`\[`, 5<<20) + `\]`,
		"json":       rep(`"answer": `, 1<<20),
		"deep json":  `"answer": ` + rep("[", 1<<20),
		"hashes":     rep("#### ", 2<<20),
		"joined":     rep(`\boxed{1} and `, 1<<20),
		"dashes":     rep("-−", 3<<20),
		"words":      rep("word ", 2<<20),
	}
}

// TestHostileInputsEnd: the worst answers end, with a verdict, after a counted amount
// of work. What is bounded takes a fraction of a second; what is not never ends, and
// runs into the time-out of go test, whose trace names the case.
func TestHostileInputsEnd(t *testing.T) {
	before := runtime.NumGoroutine()
	for _, profile := range Profiles {
		for name, p := range hostile() {
			t.Log(profile, name)
			o := Options{Profile: profile}
			if v := Equal(p[0], p[0], o); v == Wrong && profile == Default {
				t.Errorf("%s: not itself", name)
			}
			if Equal(p[0], p[1], o) == Right || Equal(p[1], p[0], o) == Right {
				switch name {
				case "series", "limit", "spaces", "matrix", "matrix of roots", "ratio", "relations", "open and closed", "moduli",
					"mixed": // they are equal
				case "decimals": // to so many places as Math-Verify looks at
				default:
					t.Errorf("%s in profile %s: right", name, profile)
				}
			}
		}
	}
	for name, r := range replies() {
		t.Log(name)
		for _, rule := range append(Rules, RuleWhole) {
			Extract(r, rule)
		}
		Extract(r)
	}
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines before, %d after", before, after)
	}
}

// TestLongAnswersAreUndecided: what is too long to read is neither right nor wrong.
func TestLongAnswersAreUndecided(t *testing.T) {
	long := strings.Repeat("1+", mathexpr.MaxBytes) + "1"
	if v := Equal("5", long, Options{}); v != Undecided {
		t.Error(v)
	}
	if v := Equal(long, long, Options{}); v != Right {
		t.Error(v)
	}
}
