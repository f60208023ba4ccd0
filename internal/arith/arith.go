// Package arith is the arithmetic of the calculator tool and of the math
// reward: numbers are exact rationals as long as the operations and the bounds
// allow it, and 64-bit floats from there on. The two grammars belong to their
// packages. It is in layer 0 and imports the standard library only.
package arith

import (
	"errors"
	"math"
	"math/big"
)

// Errors that a caller may tell apart. Their texts are written for the model
// that reads the calculator's answer.
var (
	ErrTooLarge     = errors.New("the numbers become too large")
	ErrTooSmall     = errors.New("the result is too small")
	ErrNotReal      = errors.New("the result is not a real number")
	ErrZeroDivision = errors.New("division by zero")
	ErrFactorial    = errors.New("a factorial needs a whole number that is not negative")
)

// Number is an exact rational or a float. A Number does not change: operations
// return new ones. The zero value is the float 0.
type Number struct {
	r *big.Rat // nil: the number is the float f
	f float64
}

// Exact is the number r, which it keeps. It checks no bounds.
func Exact(r *big.Rat) Number { return Number{r: r} }

// Int is the whole number n.
func Int(n int64) Number { return Number{r: new(big.Rat).SetInt64(n)} }

// Inexact is the number f. It may be infinite or NaN.
func Inexact(f float64) Number { return Number{f: f} }

// Rat is the exact number, which the caller must not change. It is nil for a float.
func (v Number) Rat() *big.Rat { return v.r }

// Float is the nearest float.
func (v Number) Float() float64 {
	if v.r != nil {
		f, _ := v.r.Float64()
		return f
	}
	return v.f
}

// IsInt reports whether the number is exact and whole.
func (v Number) IsInt() bool { return v.r != nil && v.r.IsInt() }

// Int64 is the number if it is exact, whole and an int64.
func (v Number) Int64() (int64, bool) {
	if !v.IsInt() || !v.r.Num().IsInt64() {
		return 0, false
	}
	return v.r.Num().Int64(), true
}

// Sign is -1, 0 or 1. It is 0 for NaN.
func (v Number) Sign() int {
	if v.r != nil {
		return v.r.Sign()
	}
	return compare(v.f, 0)
}

// Cmp is -1, 0 or 1 for a < b, a = b and a > b. It is 0 where one is NaN.
func (v Number) Cmp(w Number) int {
	if v.r != nil && w.r != nil {
		return v.r.Cmp(w.r)
	}
	return compare(v.Float(), w.Float())
}

func compare(x, y float64) int {
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// Neg is -v.
func (v Number) Neg() Number {
	if v.r != nil {
		return Exact(new(big.Rat).Neg(v.r))
	}
	return Inexact(-v.f)
}

// Abs is |v|.
func (v Number) Abs() Number {
	if v.r != nil {
		return Exact(new(big.Rat).Abs(v.r))
	}
	return Inexact(math.Abs(v.f))
}

// Lowest is num/den, which have no common divisor; den is positive. It keeps neither.
// big.Rat.SetFrac would look for a divisor.
func Lowest(num, den *big.Int) *big.Rat {
	r := big.NewRat(1, 2)
	r.Num().Set(num)
	r.Denom().Set(den)
	return r
}

// largeWords is the size in words of a number from which on Product looks for common divisors
// before it multiplies.
const largeWords = 8

// Product is x·y. Of large numbers it removes the common divisors of each numerator and the
// other denominator before it multiplies. big.Rat.Mul looks for them in the products, in
// quadratic time even where one number is small.
func Product(x, y *big.Rat) *big.Rat {
	size := max(len(x.Num().Bits()), len(x.Denom().Bits()), len(y.Num().Bits()), len(y.Denom().Bits()))
	if size < largeWords || x.IsInt() && y.IsInt() {
		return new(big.Rat).Mul(x, y)
	}
	if x.Sign() == 0 || y.Sign() == 0 {
		return new(big.Rat)
	}
	a, d := withoutCommonDivisor(x.Num(), y.Denom())
	c, b := withoutCommonDivisor(y.Num(), x.Denom())
	r := big.NewRat(1, 2)
	r.Num().Mul(a, c)
	r.Denom().Mul(b, d)
	return r
}

// withoutCommonDivisor are x and y without the divisors that both have.
func withoutCommonDivisor(x, y *big.Int) (a, b *big.Int) {
	g := new(big.Int).GCD(nil, nil, x, y)
	if len(g.Bits()) == 1 && g.Bits()[0] == 1 {
		return x, y
	}
	return new(big.Int).Quo(x, g), new(big.Int).Quo(y, g)
}

// ExactSqrt is the square root where it is rational.
func (v Number) ExactSqrt() (Number, bool) {
	if v.r == nil || v.r.Sign() < 0 {
		return Number{}, false
	}
	n, d := new(big.Int).Sqrt(v.r.Num()), new(big.Int).Sqrt(v.r.Denom())
	if new(big.Int).Mul(n, n).Cmp(v.r.Num()) != 0 || new(big.Int).Mul(d, d).Cmp(v.r.Denom()) != 0 {
		return Number{}, false
	}
	return Exact(new(big.Rat).SetFrac(n, d)), true
}

// Bounds keep an expression cheap whatever it says. They are constant: their
// methods may be called concurrently.
type Bounds struct {
	Bits      int   // of a numerator or denominator
	Exponent  int64 // of a power that is worked out exactly
	PowerBits int64 // of the base times the exponent of such a power
	Factorial int64 // largest number whose factorial is worked out
	// Strict makes errors of a number beyond Bits, an infinite one, one that is
	// not real, a division by a float zero, a negative power of zero, and a power
	// that is too small for a float. Without it, a number beyond Bits becomes a
	// float, which may be infinite or NaN.
	Strict bool
}

// Exact is the number r if it is within the bounds.
func (b *Bounds) Exact(r *big.Rat) (Number, error) {
	if r.Num().BitLen() <= b.Bits && r.Denom().BitLen() <= b.Bits {
		return Exact(r), nil
	}
	if b.Strict {
		return Number{}, ErrTooLarge
	}
	return Inexact(Exact(r).Float()), nil
}

// Inexact is the number f if the bounds allow it.
func (b *Bounds) Inexact(f float64) (Number, error) {
	switch {
	case b.Strict && math.IsNaN(f):
		return Number{}, ErrNotReal
	case b.Strict && math.IsInf(f, 0):
		return Number{}, ErrTooLarge
	}
	return Inexact(f), nil
}

// Add is x + y.
func (b *Bounds) Add(x, y Number) (Number, error) {
	if x.r != nil && y.r != nil {
		return b.Exact(new(big.Rat).Add(x.r, y.r))
	}
	return b.Inexact(x.Float() + y.Float())
}

// Sub is x - y.
func (b *Bounds) Sub(x, y Number) (Number, error) {
	if x.r != nil && y.r != nil {
		return b.Exact(new(big.Rat).Sub(x.r, y.r))
	}
	return b.Inexact(x.Float() - y.Float())
}

// Mul is x·y.
func (b *Bounds) Mul(x, y Number) (Number, error) {
	if x.r != nil && y.r != nil {
		return b.Exact(Product(x.r, y.r))
	}
	return b.Inexact(x.Float() * y.Float())
}

// Div is x/y.
func (b *Bounds) Div(x, y Number) (Number, error) {
	if y.Sign() == 0 && (y.r != nil || b.Strict) {
		return Number{}, ErrZeroDivision
	}
	if x.r != nil && y.r != nil {
		return b.Exact(new(big.Rat).Quo(x.r, y.r))
	}
	return b.Inexact(x.Float() / y.Float())
}

// Pow is x to the power of y: exact for a whole exponent within the bounds.
func (b *Bounds) Pow(x, y Number) (Number, error) {
	pole := x.Sign() == 0 && y.Sign() < 0
	if pole && b.Strict {
		return Number{}, ErrZeroDivision
	}
	if x.r == nil || !y.IsInt() || pole {
		return b.Inexact(math.Pow(x.Float(), y.Float()))
	}
	if n, ok := y.Int64(); ok {
		abs := max(n, -n) // negative for the smallest int64
		bits := int64(max(x.r.Num().BitLen(), x.r.Denom().BitLen()))
		if abs >= 0 && abs <= b.Exponent && bits*abs <= b.PowerBits {
			e := big.NewInt(abs)
			r := new(big.Rat).SetFrac(new(big.Int).Exp(x.r.Num(), e, nil), new(big.Int).Exp(x.r.Denom(), e, nil))
			if n < 0 {
				r.Inv(r)
			}
			return b.Exact(r)
		}
	} else if b.Strict {
		return Number{}, ErrTooLarge
	}
	f := math.Pow(x.Float(), y.Float())
	if f == 0 && b.Strict {
		return Number{}, ErrTooSmall
	}
	return b.Inexact(f)
}

// Fact is v!.
func (b *Bounds) Fact(v Number) (Number, error) {
	if !v.IsInt() || v.r.Sign() < 0 {
		return Number{}, ErrFactorial
	}
	n, ok := v.Int64()
	if !ok || n > b.Factorial {
		return Number{}, ErrTooLarge
	}
	return b.Exact(new(big.Rat).SetInt(new(big.Int).MulRange(1, n)))
}
