package env

import (
	"errors"
	"fmt"
	"math"
	"math/big"
)

var errByZero = errors.New("division by zero")

// apply is one operator: exact while both sides are and the result can be.
func apply(op string, a, b number) (number, error) {
	if op == "**" {
		return pow(a, b)
	}
	if (op == "/" || op == "//" || op == "%") && b.sign() == 0 {
		return number{}, errByZero
	}
	if a.r == nil || b.r == nil {
		x, y := a.float(), b.float()
		switch op {
		case "+":
			return inexact(x + y)
		case "-":
			return inexact(x - y)
		case "*":
			return inexact(x * y)
		case "/":
			return inexact(x / y)
		case "//":
			return inexact(math.Floor(x / y))
		}
		return inexact(x - y*math.Floor(x/y))
	}
	r := new(big.Rat)
	switch op {
	case "+":
		r.Add(a.r, b.r)
	case "-":
		r.Sub(a.r, b.r)
	case "*":
		r.Mul(a.r, b.r)
	case "/":
		r.Quo(a.r, b.r)
	default: // a - b*floor(a/b), with the sign of b, as Python has it
		q := new(big.Rat).SetInt(floor(new(big.Rat).Quo(a.r, b.r)))
		if op == "//" {
			r = q
		} else {
			r.Sub(a.r, q.Mul(q, b.r))
		}
	}
	return exact(r)
}

func floor(r *big.Rat) *big.Int {
	// Euclidean division rounds down because a denominator is positive.
	return new(big.Int).Div(r.Num(), r.Denom())
}

func pow(a, b number) (number, error) {
	if a.sign() == 0 && b.sign() < 0 {
		return number{}, errByZero
	}
	if a.r == nil || b.r == nil || !b.r.IsInt() {
		if a.sign() == 0 && b.sign() > 0 {
			return number{r: new(big.Rat)}, nil
		}
		// An exact root stays exact: 16**0.5, 9**1.5.
		if a.r != nil && b.r != nil && b.r.Denom().Cmp(big.NewInt(2)) == 0 {
			if root, ok := sqrtExact(a.r); ok {
				return pow(number{r: root}, number{r: new(big.Rat).SetInt(b.r.Num())})
			}
		}
		return inexact(math.Pow(a.float(), b.float()))
	}
	if a.r.IsInt() && a.r.Num().IsInt64() {
		if n := a.r.Num().Int64(); n >= -1 && n <= 1 { // 0, 1 and -1 stay small however large the exponent
			if n == -1 && b.r.Num().Bit(0) == 0 {
				n = 1
			}
			if n == 0 && b.sign() == 0 {
				n = 1
			}
			return number{r: new(big.Rat).SetInt64(n)}, nil
		}
	}
	bits := max(a.r.Num().BitLen(), a.r.Denom().BitLen())
	if !b.r.Num().IsInt64() {
		return number{}, errTooLarge
	}
	n := b.r.Num().Int64()
	abs := n
	if abs < 0 {
		abs = -abs
	}
	if abs < 0 || abs > maxBits || int64(bits)*abs > 2*maxBits {
		return inexactPow(a, b)
	}
	e := big.NewInt(abs)
	r := new(big.Rat).SetFrac(new(big.Int).Exp(a.r.Num(), e, nil), new(big.Int).Exp(a.r.Denom(), e, nil))
	if n < 0 {
		r.Inv(r)
	}
	return exact(r)
}

// inexactPow is the float of a power too long to write out, like 1.05**400.
func inexactPow(a, b number) (number, error) {
	f := math.Pow(a.float(), b.float())
	if f == 0 {
		return number{}, errors.New("the result is too small")
	}
	return inexact(f)
}

func factorial(v number) (number, error) {
	if v.r == nil || !v.r.IsInt() || v.r.Sign() < 0 {
		return number{}, errors.New("a factorial needs a whole number that is not negative")
	}
	if v.r.Cmp(new(big.Rat).SetInt64(maxFactorial)) > 0 {
		return number{}, errTooLarge
	}
	return exact(new(big.Rat).SetInt(new(big.Int).MulRange(1, v.r.Num().Int64())))
}

func sqrtExact(r *big.Rat) (*big.Rat, bool) {
	if r.Sign() < 0 {
		return nil, false
	}
	n, d := new(big.Int).Sqrt(r.Num()), new(big.Int).Sqrt(r.Denom())
	root := new(big.Rat).SetFrac(n, d)
	return root, new(big.Rat).Mul(root, root).Cmp(r) == 0
}

type function struct {
	min, max int
	do       func([]number) (number, error)
}

var functions map[string]function

func init() {
	many := 1000
	float := func(f func(float64) float64) function {
		return function{1, 1, func(a []number) (number, error) { return inexact(f(a[0].float())) }}
	}
	circular := func(f func(float64) float64) function {
		return float(func(x float64) float64 {
			y := f(x)
			if math.Abs(y) < 1e-15 { // sin(pi) is 0 to every digit that we show
				return 0
			}
			return y
		})
	}
	functions = map[string]function{
		"sqrt": {1, 1, func(a []number) (number, error) {
			if a[0].sign() < 0 {
				return number{}, errors.New("the square root of a negative number is not real")
			}
			if a[0].r != nil {
				if root, ok := sqrtExact(a[0].r); ok {
					return exact(root)
				}
			}
			return inexact(math.Sqrt(a[0].float()))
		}},
		"abs": {1, 1, func(a []number) (number, error) {
			if a[0].sign() < 0 {
				return negate(a[0]), nil
			}
			return a[0], nil
		}},
		"min":   {1, many, func(a []number) (number, error) { return extreme(a, -1), nil }},
		"max":   {1, many, func(a []number) (number, error) { return extreme(a, 1), nil }},
		"floor": {1, 1, func(a []number) (number, error) { return rounded(a[0], math.Floor, floor) }},
		"ceil": {1, 1, func(a []number) (number, error) {
			return rounded(a[0], math.Ceil, func(r *big.Rat) *big.Int {
				n := floor(new(big.Rat).Neg(r))
				return n.Neg(n)
			})
		}},
		"round":     {1, 2, round},
		"factorial": {1, 1, func(a []number) (number, error) { return factorial(a[0]) }},
		"pow":       {2, 2, func(a []number) (number, error) { return pow(a[0], a[1]) }},
		"sin":       circular(math.Sin),
		"cos":       circular(math.Cos),
		"tan":       circular(math.Tan),
		"asin":      float(math.Asin),
		"acos":      float(math.Acos),
		"atan":      float(math.Atan),
		"exp":       float(math.Exp),
		"ln":        {1, 1, func(a []number) (number, error) { return logarithm(a[0], math.Log) }},
		"log10":     {1, 1, func(a []number) (number, error) { return logarithm(a[0], math.Log10) }},
		"log2":      {1, 1, func(a []number) (number, error) { return logarithm(a[0], math.Log2) }},
		"log": {1, 2, func(a []number) (number, error) {
			if len(a) == 1 {
				return logarithm(a[0], math.Log10)
			}
			x, err := logarithm(a[0], math.Log)
			if err != nil {
				return number{}, err
			}
			b, err := logarithm(a[1], math.Log)
			if err != nil {
				return number{}, err
			}
			if b.f == 0 {
				return number{}, errByZero
			}
			y := x.f / b.f
			if n := math.Round(y); a[0].r != nil && a[1].r != nil && math.Abs(y-n) < 1e-9 {
				// log(8, 2) is 3, not 2.9999…
				if w, err := pow(a[1], number{r: new(big.Rat).SetInt64(int64(n))}); err == nil && w.r != nil && w.r.Cmp(a[0].r) == 0 {
					return number{r: new(big.Rat).SetInt64(int64(n))}, nil
				}
			}
			return inexact(y)
		}},
	}
}

func logarithm(v number, f func(float64) float64) (number, error) {
	if v.sign() <= 0 {
		return number{}, errors.New("the logarithm needs a positive number")
	}
	return inexact(f(v.float()))
}

func extreme(a []number, sign int) number {
	best := a[0]
	for _, v := range a[1:] {
		if compare(v, best) == sign {
			best = v
		}
	}
	return best
}

func compare(a, b number) int {
	if a.r != nil && b.r != nil {
		return a.r.Cmp(b.r)
	}
	x, y := a.float(), b.float()
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

func rounded(v number, f func(float64) float64, r func(*big.Rat) *big.Int) (number, error) {
	if v.r != nil {
		return exact(new(big.Rat).SetInt(r(v.r)))
	}
	return inexact(f(v.f))
}

// round rounds half to even, as Python does; the second argument is the number
// of decimals.
func round(a []number) (number, error) {
	scale := new(big.Rat).SetInt64(1)
	if len(a) == 2 {
		if a[1].r == nil || !a[1].r.IsInt() || !a[1].r.Num().IsInt64() || a[1].r.Num().Int64() > 100 || a[1].r.Num().Int64() < -100 {
			return number{}, fmt.Errorf("round needs a whole number of decimals from -100 to 100")
		}
		p, err := pow(number{r: new(big.Rat).SetInt64(10)}, a[1])
		if err != nil {
			return number{}, err
		}
		scale = p.r
	}
	v := a[0].r
	if v == nil {
		if v = new(big.Rat).SetFloat64(a[0].f); v == nil {
			return number{}, errTooLarge
		}
	}
	v = new(big.Rat).Mul(v, scale)
	n := floor(v)
	half := new(big.Rat).Sub(v, new(big.Rat).SetInt(n)).Cmp(big.NewRat(1, 2))
	if half > 0 || half == 0 && n.Bit(0) == 1 {
		n.Add(n, big.NewInt(1))
	}
	return exact(new(big.Rat).Quo(new(big.Rat).SetInt(n), scale))
}
