package mathgrade

import "testing"

// pairs compares answers both ways.
func pairs(t *testing.T, cases [][3]string) {
	t.Helper()
	for _, c := range cases {
		for _, p := range [][2]string{{c[0], c[1]}, {c[1], c[0]}} {
			if v := Equal(p[0], p[1], Options{}); v.String() != c[2] {
				t.Errorf("%s against %s: %s, want %s", p[1], p[0], v, c[2])
			}
		}
	}
}

func pmatrix(s string) string { return `\begin{pmatrix}` + s + `\end{pmatrix}` }

// TestProductsOfMatrices: products, powers, inverses and transposes are worked out.
func TestProductsOfMatrices(t *testing.T) {
	a, b := pmatrix(`1&2\\3&4`), pmatrix(`0&1\\1&1`)
	pairs(t, [][3]string{
		{a + b, pmatrix(`2&3\\4&7`), "right"},
		{b + a, pmatrix(`2&3\\4&7`), "wrong"}, // they do not commute
		{a + b, b + a, "wrong"},
		{a + `\cdot` + pmatrix(`x\\y`), pmatrix(`x+2y\\3x+4y`), "right"},
		{pmatrix(`1&2`) + pmatrix(`3\\4`), "11", "right"},
		{pmatrix(`3\\4`) + pmatrix(`1&2`), pmatrix(`3&6\\4&8`), "right"},
		{"2" + a + b + `\frac12`, pmatrix(`2&3\\4&7`), "right"},
		{"-" + a + b, pmatrix(`-2&-3\\-4&-7`), "right"},
		{a + b + a, pmatrix(`11&16\\25&36`), "right"},
		{a + pmatrix(`1&2&3`), a, "wrong"}, // no product
		{a + "^2", pmatrix(`7&10\\15&22`), "right"},
		{b + "^{10}", pmatrix(`34&55\\55&89`), "right"},
		{a + "^{-1}", pmatrix(`-2&1\\3/2&-1/2`), "right"},
		{a + "^{-1}" + a, pmatrix(`1&0\\0&1`), "right"},
		{pmatrix(`a&b\\c&d`) + "^{-1}", `\frac{1}{ad-bc}` + pmatrix(`d&-b\\-c&a`), "right"},
		{pmatrix(`1&2&0\\0&1&3\\2&0&1`) + "^{-1}", `\frac{1}{13}` + pmatrix(`1&-2&6\\6&1&-3\\-2&4&1`), "right"},
		{pmatrix(`1&2\\2&4`) + "^{-1}", pmatrix(`1&2\\2&4`), "wrong"}, // singular
		{pmatrix(`1&2&3\\4&5&6`) + "^T", pmatrix(`1&4\\2&5\\3&6`), "right"},
		{a + "^0", pmatrix(`1&0\\0&1`), "right"},
		{a + "^n", a, "undecided"},
		{a + "^{100}", a, "undecided"},
		{a + "+" + b, pmatrix(`1&3\\4&5`), "right"},
		{pmatrix("a&b") + "^n", pmatrix("a&b"), "wrong"}, // not square
		{a + "+1", a, "wrong"},
		{a, "5", "wrong"},
	})
}

// TestNonlinearSets: conditions that are rational functions of one variable are solved; a
// root that cannot be written leaves the answer undecided, never wrong.
func TestNonlinearSets(t *testing.T) {
	set := func(condition string) string { return `\{x \mid ` + condition + `\}` }
	pairs(t, [][3]string{
		{set("x^2<4"), "(-2,2)", "right"},
		{set(`x^2\le 4`), "[-2,2]", "right"},
		{set("x^2<4"), "[-2,2]", "wrong"},
		{set("x^2>4"), `(-\infty,-2)\cup(2,\infty)`, "right"},
		{set(`x^2 \ne 4`), `\mathbb{R}\setminus\{-2,2\}`, "right"},
		{set("x^2=4"), `\{-2,2\}`, "right"},
		{set("x^2-2x-1<0"), `(1-\sqrt2,1+\sqrt2)`, "right"},
		{set("x^2-2x-1<0"), `(1-\sqrt2,1+\sqrt3)`, "wrong"},
		{set("x^2+1>0"), `\mathbb{R}`, "right"},
		{set("x^2+1<0"), `\emptyset`, "right"},
		{set("x^3>2"), `(\sqrt[3]{2},\infty)`, "right"},
		{set("x^4<16"), "(-2,2)", "right"},
		{set("x^4-5x^2+4>0"), `(-\infty,-2)\cup(-1,1)\cup(2,\infty)`, "right"},
		{set(`(x-1)^2(x+2)\le 0`), `(-\infty,-2]\cup\{1\}`, "right"},
		{set("(x-1)^2>0"), `\mathbb{R}\setminus\{1\}`, "right"},
		{set(`\frac{x-1}{x+2}\ge 0`), `(-\infty,-2)\cup[1,\infty)`, "right"},
		{set(`\frac{x-1}{x+2}\ge 0`), `(-\infty,-2]\cup[1,\infty)`, "wrong"},
		{set(`\frac{1}{x}<1`), `(-\infty,0)\cup(1,\infty)`, "right"},
		{set(`\frac{x^2}{x}>0`), `(0,\infty)`, "right"},
		{set("1<x^2<4"), `(-2,-1)\cup(1,2)`, "right"},
		{set("|x^2-2|<1"), `(-\sqrt3,-1)\cup(1,\sqrt3)`, "right"},
		{set("(x^2-2)^2>0"), `\mathbb{R}\setminus\{-\sqrt2,\sqrt2\}`, "right"},
		{set(`x^2<4, x>0`), "(0,2)", "right"},
		{`\{x\in\mathbb{Z} \mid x^2<5\}`, `\{-2,-1,0,1,2\}`, "right"},
		{`\{x\in\mathbb{Z} \mid x^2<5\}`, "(-2,2)", "wrong"},
		{`\{n\in\mathbb{Z}^+ \mid n^2<10\}`, `\{1,2,3\}`, "right"},
		{`\{n\in\mathbb{N} \mid n^2<10\}`, `\{1,2,3\}`, "undecided"}, // is 0 a natural number?
		{`\{n\in\mathbb{Z} \mid n^2>10\}`, `\{4\}`, "undecided"},
		{`[-1,1]\cap\mathbb{Z}`, `\{-1,0,1\}`, "right"},
		{`\mathbb{Z}\cap(-1,1)`, `\{0\}`, "right"},
		{`[-1,1]\cap\mathbb{Z}`, `\{-1,1\}`, "wrong"},
		{set("x^5-x-1<0"), "(0,1)", "undecided"}, // no radicals
		{set(`\sin x<0`), "(0,1)", "undecided"},
		{"x^2<4", "-2<x<2", "right"},
		{"x^2-5x+6<0", "2<x<3", "right"},
		{"x^2<4", "x<2", "wrong"},
	})
}

// TestSetsByInverses: a condition whose variable is in one place is solved step by step. What
// the left side is no real number for is in no set.
func TestSetsByInverses(t *testing.T) {
	set := func(condition string) string { return `\{x \mid ` + condition + `\}` }
	pairs(t, [][3]string{
		{set("2^x<8"), `(-\infty,3)`, "right"},
		{set("2^x<8"), `(-\infty,3]`, "wrong"},
		{set("2^x<8"), `(-\infty,4)`, "wrong"},
		{set(`(\frac{1}{2})^x<8`), `(-3,\infty)`, "right"},
		{set("2^x>-1"), `\mathbb{R}`, "right"},
		{set(`2^x\le 0`), `\emptyset`, "right"},
		{set(`2^{\sqrt{x}}>-1`), `[0,\infty)`, "right"},
		{set(`5-2\cdot 3^{x-1}\ge -13`), `(-\infty,3]`, "right"},
		{set("e^x=5"), `\{\ln 5\}`, "right"},
		{set(`\ln x>0`), `(1,\infty)`, "right"},
		{set(`\ln x<0`), "(0,1)", "right"},
		{set(`\ln x<0`), `(-\infty,1)`, "wrong"},
		{set(`\log_{1/2} x>1`), `(0,\frac12)`, "right"},
		{set(`\log_2(x^2-1)<3`), `(-3,-1)\cup(1,3)`, "right"},
		{set(`\log x<2`), "(0,100)", "right"},
		{set(`\log x<1`), "(0,e)", "right"},
		{set(`\ln x \ne 0`), `(0,1)\cup(1,\infty)`, "right"},
		{set(`\sqrt{x}<2`), "[0,4)", "right"},
		{set(`\sqrt{x}<2`), `(-\infty,4)`, "wrong"},
		{set(`\sqrt{x-1}\ge 3`), `[10,\infty)`, "right"},
		{set(`\sqrt{x}>-1`), `[0,\infty)`, "right"},
		{set(`\sqrt{x}<-1`), `\emptyset`, "right"},
		{set(`\sqrt{x}\ne 2`), `[0,4)\cup(4,\infty)`, "right"},
		{set(`\sqrt[3]{x}<2`), `(-\infty,8)`, "right"},
		{set("x^{1/2}<3"), "[0,9)", "right"},
		{set(`x^2<\pi`), `(-\sqrt\pi,\sqrt\pi)`, "right"},
		{set(`(\ln x)^2<1`), `(\frac1e,e)`, "right"},
		{set(`(\ln x)^2\ge 0`), `(0,\infty)`, "right"},
		{set(`|\ln x|\le 1`), `[\frac1e,e]`, "right"},
		{set(`|x-1|=3`), `\{-2,4\}`, "right"},
		{set(`|x-1|=-3`), `\emptyset`, "right"},
		{set(`|x-1|\ne 3`), `\mathbb{R}\setminus\{-2,4\}`, "right"},
		{set(`2x<\ln 3`), `(-\infty,\frac{\ln 3}{2})`, "right"},
		{set(`\pi x>1`), `(\frac1\pi,\infty)`, "right"},
		{set(`-\frac{\sqrt{x}}{2}>-1`), "[0,4)", "right"},
		{`2^x<8`, "x<3", "right"},
		{`\sqrt{x}<2`, `0\le x<4`, "right"},
		{set(`2^x+x<3`), `(-\infty,1)`, "undecided"},
		{set(`x e^x<1`), "(0,1)", "undecided"},
		{set(`\tan x<1`), "(0,1)", "undecided"},
		{set(`(-2)^x<1`), "(0,1)", "undecided"},
		{set(`1^x<2`), `\mathbb{R}`, "undecided"},
	})
}

func TestDefinitionsOfAFunctionAreComparedByTheirRightSides(t *testing.T) {
	pairs(t, [][3]string{
		{"f(x)=x^2", "f(x)=x^3", "wrong"},
		{"f(x)=x^2", "f(x)=x+1", "wrong"},
		{"f(x)=(x+1)^2", "f(x)=x^2+2x+1", "right"},
		{"f(x)=x^2", "y=x^2", "right"},
		{"f(2)=5", "f(2)=6", "wrong"},
		{"f(x)=x^2", "f(t)=t^2", "right"},
		{"f(x)=x^2", "f(t)=t^3", "wrong"},
		{"f(x)=x^2", "f(t)=x^2", "undecided"},
		{"f(x)=ax", "f(a)=ax", "undecided"}, // the same text, and another function
	})
}

// TestAntiderivatives: with + C on both sides, functions may differ by a constant, and by
// nothing else.
func TestAntiderivatives(t *testing.T) {
	pairs(t, [][3]string{
		{"x^2+C", "x^2+C", "right"},
		{"x^2+C", "x^2+5+C", "right"},
		{"x^2+C", "C-7+x^2", "right"},
		{"x^2+C", "x^2+c", "right"},
		{"x^2+C", "x^2+C_1", "right"},
		{"x^2+C", "2x^2+C", "wrong"},
		{"x^2+C", "x^2", "wrong"},
		{"x^2+C", "x^2+1", "wrong"},
		{`\ln(2x)+C`, `\ln x+C`, "right"},
		{`\sin^2 x+C`, `-\cos^2 x+C`, "right"},
		{`-\frac{1}{2}\cos 2x+C`, `\sin^2 x+C`, "right"},
		{`\sin^2 x+C`, `\cos^2 x+C`, "wrong"},
		{`\frac{1}{1+x}+C`, `-\frac{x}{1+x}+C`, "right"},
		{`\ln(ax)+C`, `\ln x+C`, "right"},
		{`\int 2x\,dx`, "x^2+C", "right"},
		{`\int 2x\,dx`, "x^3+C", "wrong"},
		{`\int 2x\,dx = x^2+C`, "x^2+4+C", "right"},
		{"y=x^2+C", "x^2-1+C", "right"},
		{`\frac{t^3}{3}+C`, `\frac{t^3+1}{3}+C`, "right"},
		{"A+B+C", "A+B+C+1", "wrong"}, // C is no constant of integration here
		{"ax^2+bx+c", "ax^2+bx+c+1", "wrong"},
		{"5+C", "6+C", "wrong"},
		{"Cx+C", "Cx+C+1", "wrong"},
		{"x^2+C", "x^2+k", "right"},
		{"x^2+c", "x^2+k", "wrong"},
	})
}

// TestInfiniteSums: sums of rational functions, alternating or not, have rigorous bounds: a
// value that differs in the 20th place is wrong. A sum that does not converge is undecided.
func TestInfiniteSums(t *testing.T) {
	sum := func(from, term string) string { return `\sum_{n=` + from + `}^{\infty} ` + term }
	pairs(t, [][3]string{
		{sum("1", `\frac{1}{n^2}`), `\frac{\pi^2}{6}`, "right"},
		{sum("1", `\frac{1}{n^2}`), "1.6449340668482264364", "wrong"}, // the next digit is 7
		{sum("1", `\frac{1}{n^2}`), `\frac{\pi^2}{6}+10^{-25}`, "wrong"},
		{sum("1", `\frac{1}{n^4}`), `\frac{\pi^4}{90}`, "right"},
		{sum("3", `\frac{1}{n^2}`), `\frac{\pi^2}{6}-\frac54`, "right"},
		{sum("0", `\frac{1}{(2n+1)^2}`), `\frac{\pi^2}{8}`, "right"},
		{sum("1", `\frac{1}{n(n+1)}`), "1", "right"},
		{sum("2", `\frac{1}{n^2-1}`), `\frac34`, "right"},
		{sum("1", `\left(\frac{1}{n}-\frac{1}{n+2}\right)`), `\frac32`, "right"},
		{sum("1", `\frac{1}{n^2+1}`), `\frac{\pi\coth\pi-1}{2}`, "right"},
		{sum("1", `\frac{2n+1}{n^2(n+1)^2}`), "1", "right"},
		{sum("1", `\frac{(-1)^{n+1}}{n}`), `\ln 2`, "right"},
		{sum("1", `\frac{(-1)^{n+1}}{n}`), `-\ln 2`, "wrong"},
		{sum("0", `\frac{(-1)^n}{2n+1}`), `\frac{\pi}{4}`, "right"},
		{sum("1", `\frac{(-1)^{n}}{n^2}`), `-\frac{\pi^2}{12}`, "right"},
		{sum("1", `\frac{1}{n^3}`), "1.2020569031595942853997", "wrong"},
		{sum("1", `\frac{1}{n}`), "5", "undecided"},
		{sum("1", `(-1)^n`), "0", "undecided"},
		{sum("1", `(-1)^n\frac{n}{n+1}`), "0", "undecided"},
		{sum("1", `\frac{1}{2^n}`), "1", "right"},
		{sum("1", `\frac{n}{2^n}`), "2", "right"},
		{`\sum_{i=1}^{\infty} \frac{1}{i^2}`, `\frac{\pi^2}{6}`, "right"},
		{"2" + sum("1", `\frac{1}{n^2}`), `\frac{\pi^2}{3}`, "right"},
		{sum("0", `\frac{1}{n^2}`), "1", "wrong"}, // not defined
		{sum("1", `\frac{1}{n\sqrt{n}}`), "2.6", "undecided"},
		{sum("1", `\frac{\sin n}{n}`), `\frac{\pi-1}{2}`, "undecided"},
	})
}

// TestImproperIntegrals: an integrand that falls fast enough is integrated over an infinite
// range and up to its singularities at the ends; another one is undecided.
func TestImproperIntegrals(t *testing.T) {
	pairs(t, [][3]string{
		{`\int_0^{\infty} e^{-x^2} dx`, `\frac{\sqrt{\pi}}{2}`, "right"},
		{`\int_{-\infty}^{\infty} e^{-x^2} dx`, `\sqrt{\pi}`, "right"},
		{`\int_{-\infty}^{\infty} \frac{1}{1+x^2} dx`, `\pi`, "right"},
		{`\int_{-\infty}^{0} \frac{1}{1+x^2} dx`, `\frac{\pi}{2}`, "right"},
		{`\int_1^{\infty} \frac{1}{x^2} dx`, "1", "right"},
		{`\int_0^{\infty} x^5 e^{-x} dx`, "120", "right"},
		{`\int_0^{\infty} \frac{x}{e^x-1} dx`, `\frac{\pi^2}{6}`, "right"},
		{`\int_{-\infty}^{1} e^{x} dx`, "e", "right"},
		{`\int_0^{\infty} e^{-x}\sin x dx`, `\frac12`, "undecided"}, // it oscillates: two steps do not agree
		{`\int_0^1 \frac{1}{\sqrt{x}} dx`, "2", "right"},
		{`\int_0^1 \frac{1}{\sqrt{1-x^2}} dx`, `\frac{\pi}{2}`, "right"},
		{`\int_0^1 \ln x dx`, "-1", "right"},
		{`\int_0^1 x^2 dx`, `\frac13`, "right"},
		{`\int_0^{\pi} \sin x dx`, "2", "right"},
		{`\int_0^{\infty} e^{-x} dx`, "2", "undecided"}, // approximated: no proof that it is wrong
		{`\int_1^{\infty} \frac{1}{x} dx`, "1", "undecided"},
		{`\int_1^{\infty} \frac{1}{\sqrt{x}} dx`, "-2", "undecided"},
		{`\int_0^{\infty} \frac{\sin x}{x} dx`, `\frac{\pi}{2}`, "undecided"},
		{`\int_{-1}^1 \frac{1}{x} dx`, "0", "undecided"},
		{`\int_{-1}^2 \frac{1}{x} dx`, `\ln 2`, "undecided"},
		{`\int_0^1 \frac{1}{x} dx`, "5", "undecided"},
		{`\int_0^3 \frac{1}{(x-1)^2} dx`, `-\frac32`, "undecided"},
	})
}

// TestTheOrderOfTheSidesDecidesNothing: not even where the budget ends.
func TestTheOrderOfTheSidesDecidesNothing(t *testing.T) {
	a, b := "K,C8", "i 0!3!2203!+i!2,1+3!2203!+2"
	if x, y := Equal(a, b, Options{}), Equal(b, a, Options{}); x != y {
		t.Errorf("%v one way, %v the other", x, y)
	}
}
