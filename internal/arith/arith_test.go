package arith

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

var (
	strict = &Bounds{Bits: 64, Exponent: 20, PowerBits: 64, Factorial: 20, Strict: true}
	loose  = &Bounds{Bits: 64, Exponent: 20, PowerBits: 64, Factorial: 20}
)

func rat(a, b int64) Number { return Exact(big.NewRat(a, b)) }

// TestNumbersStayExactWithinTheBounds: and are floats, or errors, beyond them.
func TestNumbersStayExactWithinTheBounds(t *testing.T) {
	large := Int(1 << 62)
	for _, tc := range []struct {
		name string
		op   func(b *Bounds) (Number, error)
		want Number // of loose
		err  error  // of strict; nil: the same value
	}{
		{"sum", func(b *Bounds) (Number, error) { return b.Add(rat(1, 10), rat(1, 5)) }, rat(3, 10), nil},
		{"difference", func(b *Bounds) (Number, error) { return b.Sub(rat(1, 3), Int(1)) }, rat(-2, 3), nil},
		{"product", func(b *Bounds) (Number, error) { return b.Mul(rat(2, 3), rat(3, 2)) }, Int(1), nil},
		{"quotient", func(b *Bounds) (Number, error) { return b.Div(Int(2), Int(6)) }, rat(1, 3), nil},
		{"float", func(b *Bounds) (Number, error) { return b.Add(Int(1), Inexact(.5)) }, Inexact(1.5), nil},
		{"too many bits", func(b *Bounds) (Number, error) { return b.Mul(large, large) }, Inexact(0x1p124), ErrTooLarge},
		{"power", func(b *Bounds) (Number, error) { return b.Pow(rat(2, 3), Int(-3)) }, rat(27, 8), nil},
		{"root", func(b *Bounds) (Number, error) { return b.Pow(Int(2), rat(1, 2)) }, Inexact(math.Sqrt2), nil},
		{"exponent out of bounds", func(b *Bounds) (Number, error) { return b.Pow(Int(1), Int(21)) }, Inexact(1), nil},
		{"smallest exponent", func(b *Bounds) (Number, error) { return b.Pow(Int(2), Int(math.MinInt64)) }, Inexact(0), ErrTooSmall},
		{"exponent of many bits", func(b *Bounds) (Number, error) {
			return b.Pow(Int(2), Exact(new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), 63))))
		}, Inexact(math.Inf(1)), ErrTooLarge},
		{"pole", func(b *Bounds) (Number, error) { return b.Pow(Int(0), Int(-1)) }, Inexact(math.Inf(1)), ErrZeroDivision},
		{"root of a negative number", func(b *Bounds) (Number, error) { return b.Pow(Int(-2), rat(1, 2)) }, Inexact(math.NaN()), ErrNotReal},
		{"float zero", func(b *Bounds) (Number, error) { return b.Div(Int(1), Inexact(0)) }, Inexact(math.Inf(1)), ErrZeroDivision},
		{"infinite", func(b *Bounds) (Number, error) { return b.Mul(Inexact(1e300), Inexact(1e300)) }, Inexact(math.Inf(1)), ErrTooLarge},
		{"factorial", func(b *Bounds) (Number, error) { return b.Fact(Int(5)) }, Int(120), nil},
		{"factorial of zero", func(b *Bounds) (Number, error) { return b.Fact(Int(0)) }, Int(1), nil},
	} {
		v, err := tc.op(loose)
		if err != nil || !same(v, tc.want) {
			t.Errorf("%s: %v %v, %v, want %v %v", tc.name, v.Rat(), v.Float(), err, tc.want.Rat(), tc.want.Float())
		}
		v, err = tc.op(strict)
		if !errors.Is(err, tc.err) || err == nil && !same(v, tc.want) {
			t.Errorf("%s, strict: %v %v, %v, want %v", tc.name, v.Rat(), v.Float(), err, tc.err)
		}
	}
	for _, b := range []*Bounds{strict, loose} {
		if _, err := b.Div(Int(1), Int(0)); !errors.Is(err, ErrZeroDivision) {
			t.Errorf("division by an exact zero: %v", err)
		}
		if _, err := b.Fact(Int(21)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("factorial out of bounds: %v", err)
		}
		for _, v := range []Number{Int(-1), rat(1, 2), Inexact(3)} {
			if _, err := b.Fact(v); !errors.Is(err, ErrFactorial) {
				t.Errorf("factorial of %v: %v", v.Float(), err)
			}
		}
	}
}

func TestOnlySquaresOfRationalsHaveExactRoots(t *testing.T) {
	if r, ok := rat(9, 4).ExactSqrt(); !ok || !same(r, rat(3, 2)) {
		t.Errorf("%v %v", r.Rat(), ok)
	}
	for _, v := range []Number{Int(2), rat(4, 3), rat(3, 4), Int(-4), Inexact(4)} {
		if r, ok := v.ExactSqrt(); ok {
			t.Errorf("root of %v is %v", v.Float(), r.Rat())
		}
	}
}

func TestOperationsLeaveTheirOperands(t *testing.T) {
	x, y := rat(-9, 4), rat(2, 1)
	for _, op := range []func(Number, Number) (Number, error){loose.Add, loose.Sub, loose.Mul, loose.Div, loose.Pow} {
		if _, err := op(x, y); err != nil {
			t.Error(err)
		}
	}
	x.Neg()
	x.Abs()
	if !same(x, rat(-9, 4)) || !same(y, Int(2)) || x.Sign() != -1 || x.Cmp(y) != -1 || y.Cmp(Inexact(1)) != 1 {
		t.Errorf("%v %v", x.Rat(), y.Rat())
	}
}

func same(a, b Number) bool {
	if a.Rat() != nil || b.Rat() != nil {
		return a.Rat() != nil && b.Rat() != nil && a.Cmp(b) == 0
	}
	return math.IsNaN(a.Float()) && math.IsNaN(b.Float()) || a.Float() == b.Float()
}

// Product is big.Rat.Mul, in lowest terms, whatever divisors the numbers share.
func TestProductIsMul(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	number := func() *big.Int {
		n := big.NewInt(1)
		for range rnd.IntN(30) {
			n.Mul(n, new(big.Int).Exp(big.NewInt(int64(rnd.IntN(12))+2), big.NewInt(int64(rnd.IntN(60))), nil))
		}
		return n
	}
	rational := func() *big.Rat {
		r := new(big.Rat).SetFrac(number(), number())
		switch rnd.IntN(6) {
		case 0:
			return r.SetInt64(int64(rnd.IntN(5)) - 2)
		case 1:
			return r.SetInt(number())
		case 2:
			return r.Neg(r)
		}
		return r
	}
	for range 3000 {
		x, y := rational(), rational()
		keptX, keptY := x.RatString(), y.RatString()
		got, want := Product(x, y), new(big.Rat).Mul(x, y)
		if got.Cmp(want) != 0 || got.Denom().Cmp(want.Denom()) != 0 || got.IsInt() != want.IsInt() || got.Sign() != want.Sign() {
			t.Fatalf("%s · %s = %s, want %s", x.RatString(), y.RatString(), got.RatString(), want.RatString())
		}
		if x.RatString() != keptX || y.RatString() != keptY {
			t.Fatal("Product changed its numbers")
		}
		square := Lowest(new(big.Int).Mul(x.Num(), x.Num()), new(big.Int).Mul(x.Denom(), x.Denom()))
		if want := new(big.Rat).Mul(x, x); square.Cmp(want) != 0 || square.IsInt() != want.IsInt() {
			t.Fatalf("%s² = %s", x.RatString(), square.RatString())
		}
	}
}
