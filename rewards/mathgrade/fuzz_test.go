package mathgrade

import (
	"errors"
	"strings"
	"testing"

	"agentcli/rewards/mathexpr"
)

// Fuzz these with -fuzzminimizetime 1x: by default the minimising of a find may take a
// minute, in which nothing else is tried.

var seeds = []string{`\frac{1}{2}`, `\sqrt{`, "((((", `\{1,2\}`, "1,234", `\begin{pmatrix}1&2\\3&4\end{pmatrix}`, "9^9^9^9", "1!!!!",
	`\boxed{\boxed{`,
	"-+-+1", `\pm\pm 1`, `\frac\frac`, "|1|", "%", "x<5", `(-\infty,2]\cup[3,4)`, `\sum_{k=1}^{9}k`, `\lim_{x\to0}\frac{\sin x}{x}`,
	`\int_0^1 x dx`, "3 1/2", "12:30", "May 5, 2024", "(B) 12", `5\text{ km}`, "50%", `90^\circ`, `x\equiv1\pmod{3}`, "3:4", "f(x)=x^2",
	"log 2",
	"1 and 2", `\mathbb{R}\setminus\{0\}`, `\{x\mid x>2\}`, "0.1(6)", `2\begin{bmatrix}1\end{bmatrix}`, "#### 42", `{"answer": "42"}`,
	"the answer is $x$.", "**7**", "½", "x²", "1.5e3", `\binom{5}{2}`, `\log_2 8`, "e^{i\\pi}", `\langle1,2\rangle`,
	`\begin{pmatrix}1&2\\3&4\end{pmatrix}^{-1}\begin{pmatrix}x\\y\end{pmatrix}`, `\{x\mid x^2-2x\le1\}`, `\{x\in\mathbb{Z}\mid x^2<5\}`,
	`\frac{x-1}{x+2}\ge0`, "x^2+C", `\int 2x\,dx`, `\sum_{n=1}^{\infty}\frac{1}{n^2}`, `\sum_{n=1}^{\infty}\frac{(-1)^n}{2n+1}`,
	`\int_0^{\infty}e^{-x^2}dx`}

func FuzzExtract(f *testing.F) {
	for _, s := range seeds {
		f.Add(s)
		f.Add("so it is " + s + ".")
	}
	f.Fuzz(func(t *testing.T, reply string) {
		answer, rule, ok := Extract(reply)
		if ok != (answer != "") || ok != (rule != "") {
			t.Errorf("%q: %q by %q, %v", reply, answer, rule, ok)
		}
		if again, _, _ := Extract(reply); again != answer {
			t.Errorf("%q: %q, then %q", reply, answer, again)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range seeds {
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, s string, comma bool) {
		n, err := mathexpr.Parse(s, mathexpr.Options{DecimalComma: comma})
		if (n == nil) != (err != nil) {
			t.Errorf("%q: %v, %v", s, n, err)
		}
		if err != nil && !errors.Is(err, mathexpr.ErrSyntax) && !errors.Is(err, mathexpr.ErrTooLarge) {
			t.Errorf("%q: %v", s, err)
		}
	})
}

func FuzzEqual(f *testing.F) {
	for i, s := range seeds {
		f.Add(s, s)
		f.Add(s, seeds[(i+1)%len(seeds)])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := Equal(a, b, Options{}), Equal(b, a, Options{})
		if x != y {
			t.Errorf("%q and %q: %v one way, %v the other", a, b, x, y)
		}
		if x != Undecided && a != b && max(len(a), len(b)) < mathexpr.MaxBytes {
			if v := compare(unboxed(b), unboxed(a), Options{}); v != x && v != Undecided && unboxed(a) != "" && unboxed(b) != "" &&
				unboxed(a) != unboxed(b) {
				t.Errorf("%q and %q: %v in another order of the work: %v", a, b, x, v)
			}
		}
		if v := Equal(a, a, Options{}); v != Right && strings.TrimSpace(a) != "" {
			if boxed, ok := lastBoxed(a); !ok || strings.TrimSpace(boxed) != "" {
				t.Errorf("%q is not itself: %v", a, v)
			}
		}
		for _, profile := range Profiles[1:] {
			Equal(a, b, Options{Profile: profile})
		}
	})
}
