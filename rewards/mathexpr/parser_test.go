package mathexpr

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// written writes a tree for comparison: kinds that have a sign by it, the others by
// their name.
func written(n *Node) string {
	var args []string
	for _, a := range n.Args {
		if a == nil {
			args = append(args, "-")
			continue
		}
		args = append(args, written(a))
	}
	list := strings.Join(args, " ")
	switch n.Kind {
	case Number:
		return n.Value.RatString()
	case Variable, Constant, Text, NamedSet:
		return n.Name
	case Sum:
		return "(+ " + list + ")"
	case Product:
		return "(* " + list + ")"
	case Negative:
		return "(- " + list + ")"
	case Quotient:
		return "(/ " + list + ")"
	case Power:
		return "(^ " + list + ")"
	case Tuple:
		return string(n.Open) + list + string(n.Close)
	case Relation:
		return "(" + strings.Join(n.Names, " ") + ": " + list + ")"
	case Matrix:
		return fmt.Sprintf("[%d: %s]", n.Columns, list)
	case Set:
		return "{" + list + "}"
	case List:
		return "list(" + list + ")"
	}
	return fmt.Sprintf("%d%s(%s)", n.Kind, n.Name, list)
}

func TestParseReadsEachSpellingAsOneTree(t *testing.T) {
	for want, spellings := range map[string][]string{
		"(/ 1 2)":       {`\frac12`, `\frac{1}{2}`, `\dfrac 12`, `\tfrac1{2}`, `{1 \over 2}`, "1/2", `1\div 2`, `\left(\frac{1}{2}\right)`},
		"(+ 3 (/ 1 2))": {`3\frac12`, `3\frac{1}{2}`, "3 1/2", `3 \dfrac{1}{2}`},
		"(* 3 (/ 3 2))": {`3\frac32`},
		"1234":          {"1,234", "1{,}234", `1\,234`, `1\!,234`, "1 234", "1234.0"},
		"list(12 34)":   {"12,34", "12, 34", "12; 34", `12 \text{ and } 34`, "12 or 34"},
		"1/3":           {`0.\overline{3}`, "0.(3)", "0.333...", `0.\bar{3}`},
		"3/2000":        {"1.5e-3", "0.0015"},
		"(- (^ 2 2))":   {"-2^2", "-2^{2}", "-2²", "-2**2"},
		"(^ 2 (^ 3 2))": {"2^3^2", "2^{3^2}"},
		"(* 2 x y)":     {"2xy", `2 \cdot x \cdot y`, "2*x*y", `2\,x\,y`},
		"(<= <: 1 x 2)": {`1\le x<2`, "1 <= x < 2", "1 ≤ x < 2"},
		"[1 2)":         {"[1,2)", `\left[1, 2\right)`},
		"{1 2}":         {`\{1,2\}`, `\left\{1, 2\right\}`, "{1, 2}"},
		"[2: 1 2 3 4]": {`\begin{pmatrix}1&2\\3&4\end{pmatrix}`, `\begin{bmatrix} 1 & 2 \\ 3 & 4 \\ \end{bmatrix}`,
			`\left(\begin{array}{cc}1&2\\3&4\end{array}\right)`},
		"(=: x 5)":            {"x=5", "$x = 5$", `x=\mathbf{5}`, "x == 5"},
		"Monday":              {`\text{Monday}`, "Monday"},
		"(* (+ x 1) (+ x 2))": {"(x+1)(x+2)", `(x+1)\times(x+2)`},
	} {
		for _, s := range spellings {
			n, err := Parse(s, Options{})
			if err != nil {
				t.Errorf("%s: %v", s, err)
			} else if got := written(n); got != want {
				t.Errorf("%s: %s, want %s", s, got, want)
			}
		}
	}
}

func TestParseRefusesWhatIsNoFormula(t *testing.T) {
	for _, s := range []string{"", "(", "1+", `\frac{1}`, "1 2 x )", `\begin{pmatrix}1&2\\3\end{pmatrix}`, "{}", "#", `\text{`, "= =",
		"4 and"} {
		if n, err := Parse(s, Options{}); !errors.Is(err, ErrSyntax) || n != nil {
			t.Errorf("%q: %v, %v", s, n, err)
		}
	}
	for name, s := range map[string]string{"length": strings.Repeat("1+", MaxBytes), "depth": strings.Repeat("(", maxDepth+1) + "1",
		"digits": strings.Repeat("7", maxDigits+1), "tokens": strings.Repeat("x+", maxTokens), "exponent": "1e99999"} {
		if n, err := Parse(s, Options{}); !errors.Is(err, ErrTooLarge) || n != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDecimalComma(t *testing.T) {
	n, err := Parse("1.234,5", Options{DecimalComma: true})
	if err != nil || written(n) != "2469/2" {
		t.Error(n, err)
	}
	if n, err = Parse("1,234", Options{CommaSeparates: true}); err != nil || written(n) != "list(1 234)" {
		t.Error(n, err)
	}
}

func TestUnitOf(t *testing.T) {
	for s, want := range map[string]string{"cm": "length 1/100", "square feet": "length2 145161/1562500", "cm^3": "volume 1/1000",
		"ml":   "volume 1/1000",
		"km/h": "speed 5/18", "miles per hour": "speed 1397/3125", "apples": " 1", "hours": "time 3600",
		"million km": "length 1000000000", "hundred thousand people": " 100000"} {
		if u := UnitOf(s); u.Dimension+" "+u.Factor.RatString() != want {
			t.Errorf("%s: %s %s, want %s", s, u.Dimension, u.Factor.RatString(), want)
		}
	}
}
