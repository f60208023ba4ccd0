package rewards

import (
	"errors"
	"math"
	"math/big"
	"regexp"
	"strings"
)

// An answer is read as an expression of numbers, letters, + - * / ^, LaTeX's
// \frac, \sqrt and \pi, functions, and products without a sign. Numbers stay
// exact rationals as long as the operations allow it.

// value is exact while r is set, else the float f.
type value struct {
	r *big.Rat
	f float64
}

func rational(r *big.Rat) value { f, _ := r.Float64(); return value{r, f} }
func float(f float64) value     { return value{nil, f} }

// maxBits bounds exact numbers; beyond it floats are good enough.
const maxBits = 4096

func (v value) checked() value {
	if v.r != nil && (v.r.Num().BitLen() > maxBits || v.r.Denom().BitLen() > maxBits) {
		return float(v.f)
	}
	return v
}

var errNotNumber = errors.New("not an expression")

// exactValue is the rational that s stands for, if it stands for one.
func exactValue(s string) (*big.Rat, bool) {
	v, letters, err := evaluate(s, 0)
	if err != nil || letters || v.r == nil {
		return nil, false
	}
	return v.r, true
}

// sameExpressions compares expressions: by their numbers, or, where letters or
// roots are in them, by their values at several points. Two expressions that
// agree to 12 digits at all of them are taken for equal.
func sameExpressions(a, b string, o Options) bool {
	if a == b {
		return true
	}
	if l, r, ok := equation(a); ok {
		l2, r2, ok := equation(b)
		return ok && (sameExpressions(l, l2, o) && sameExpressions(r, r2, o) || sameExpressions(l, r2, o) && sameExpressions(r, l2, o) ||
			sameExpressions("("+l+")-("+r+")", "("+l2+")-("+r2+")", o))
	}
	finite := false
	for point := range 4 {
		x, la, err := evaluate(a, point)
		if err != nil {
			return false
		}
		y, lb, err := evaluate(b, point)
		if err != nil || la != lb {
			return false
		}
		if x.r != nil && y.r != nil {
			if !equalNumbers(x.r, y.r, strings.HasSuffix(a, "%") != strings.HasSuffix(b, "%"), o) {
				return false
			}
			if !la {
				return true
			}
			finite = true
			continue
		}
		if math.IsNaN(x.f) || math.IsNaN(y.f) {
			if math.IsNaN(x.f) != math.IsNaN(y.f) {
				return false
			}
			continue
		}
		if math.IsInf(x.f, 0) || math.IsInf(y.f, 0) {
			if x.f != y.f {
				return false
			}
			continue
		}
		finite = true
		if o.FloatRounding > 0 && o.FloatRounding < 15 {
			if scale := math.Pow10(o.FloatRounding); math.Round(x.f*scale) != math.Round(y.f*scale) {
				return false
			}
			continue
		}
		if x.r != nil || y.r != nil {
			// An exact decimal against a root is right only if it is that number:
			// 1.414 is not \sqrt{2}.
			if math.Abs(x.f-y.f) > 1e-14*math.Max(math.Abs(x.f), math.Abs(y.f)) {
				return false
			}
			continue
		}
		if math.Abs(x.f-y.f) > 1e-12*math.Max(1, math.Max(math.Abs(x.f), math.Abs(y.f))) {
			return false
		}
	}
	return finite
}

// equation splits at a single equals sign.
func equation(s string) (l, r string, ok bool) {
	if strings.Count(s, "=") != 1 || strings.ContainsAny(s, "<>!") {
		return "", "", false
	}
	l, r, _ = strings.Cut(s, "=")
	return l, r, l != "" && r != ""
}

// evaluate reads and evaluates s; letters stand for fixed odd numbers that
// differ with point. A percent sign is dropped: equalNumbers knows both
// readings.
func evaluate(s string, point int) (v value, letters bool, err error) {
	if len(s) > 1000 {
		return value{}, false, errNotNumber
	}
	if thousands.MatchString(s) {
		s = strings.ReplaceAll(s, ",", "")
	}
	p := &expr{s: strings.TrimSuffix(s, "%"), point: point}
	v, err = p.sum(0)
	if err == nil && p.i != len(p.s) {
		err = errNotNumber
	}
	return v, p.letters, err
}

type expr struct {
	s       string
	i       int
	point   int
	letters bool
}

func (p *expr) peek(tok string) bool { return strings.HasPrefix(p.s[p.i:], tok) }

func (p *expr) take(tok string) bool {
	if p.peek(tok) {
		p.i += len(tok)
		return true
	}
	return false
}

const maxNesting = 60

func (p *expr) sum(depth int) (value, error) {
	if depth > maxNesting {
		return value{}, errNotNumber
	}
	v, err := p.product(depth)
	for err == nil {
		var w value
		switch {
		case p.take("+"):
			if w, err = p.product(depth); err == nil {
				v = add(v, w, 1)
			}
		case p.take("-"):
			if w, err = p.product(depth); err == nil {
				v = add(v, w, -1)
			}
		default:
			return v, nil
		}
	}
	return v, err
}

func (p *expr) product(depth int) (value, error) {
	neg := false
	for {
		if p.take("-") {
			neg = !neg
		} else if !p.take("+") {
			break
		}
	}
	v, err := p.power(depth)
	for err == nil && p.i < len(p.s) {
		var w value
		switch {
		case p.take("*"):
			for p.take("-") {
				neg = !neg
			}
			if w, err = p.power(depth); err == nil {
				v = mul(v, w)
			}
			continue
		case p.take("/"):
			for p.take("-") {
				neg = !neg
			}
			if w, err = p.power(depth); err == nil {
				v, err = div(v, w)
			}
			continue
		}
		c := p.s[p.i]
		if c != '(' && c != '\\' && c != '{' && !letter(c) && !digit(c) || p.peek(`\rbrace`) || p.peek(`\cup`) || p.peek(`\in`) && !p.peek(`\infty`) {
			break
		}
		if w, err = p.power(depth); err == nil {
			v = mul(v, w)
		}
	}
	if neg {
		v = mul(v, rational(big.NewRat(-1, 1)))
	}
	return v, err
}

func (p *expr) power(depth int) (value, error) {
	v, err := p.atom(depth + 1)
	if err != nil {
		return v, err
	}
	for p.i < len(p.s) {
		switch {
		case p.take("!"):
			if v, err = factorial(v); err != nil {
				return v, err
			}
		case p.take("^"):
			neg := p.take("-")
			var e value
			if e, err = p.atom(depth + 1); err != nil {
				return v, err
			}
			if neg {
				e = mul(e, rational(big.NewRat(-1, 1)))
			}
			return pow(v, e), nil
		default:
			return v, nil
		}
	}
	return v, nil
}

var functions = map[string]func(float64) float64{
	`\sin`: math.Sin, `\cos`: math.Cos, `\tan`: math.Tan, `\ln`: math.Log, `\exp`: math.Exp,
	`\arcsin`: math.Asin, `\arccos`: math.Acos, `\arctan`: math.Atan, `\log`: math.Log10,
	`\cot`: func(x float64) float64 { return 1 / math.Tan(x) }, `\sec`: func(x float64) float64 { return 1 / math.Cos(x) },
	`\csc`: func(x float64) float64 { return 1 / math.Sin(x) },
}

func (p *expr) atom(depth int) (value, error) {
	if p.i >= len(p.s) || depth > maxNesting {
		return value{}, errNotNumber
	}
	c := p.s[p.i]
	switch {
	case digit(c) || c == '.':
		return p.number()
	case c == '(' || c == '[':
		p.i++
		v, err := p.sum(depth)
		if err == nil && !p.take(map[byte]string{'(': ")", '[': "]"}[c]) {
			err = errNotNumber
		}
		return v, err
	case c == '{':
		return p.braces(depth)
	case c == '|':
		p.i++
		v, err := p.sum(depth)
		if err == nil && !p.take("|") {
			err = errNotNumber
		}
		if v.r != nil {
			return rational(new(big.Rat).Abs(v.r)), err
		}
		return float(math.Abs(v.f)), err
	case letter(c):
		if p.take("sqrt") {
			v, err := p.atom(depth + 1)
			return root(v, 2), err
		}
		if p.take("pi") {
			return float(math.Pi), nil
		}
		p.i++
		name := string(c)
		if p.i+1 < len(p.s) && p.s[p.i] == '_' {
			name += p.s[p.i : p.i+2]
			p.i += 2
		}
		return p.variable(name), nil
	case c != '\\':
		return value{}, errNotNumber
	}
	j := p.i + 1
	for j < len(p.s) && letter(p.s[j]) {
		j++
	}
	name := p.s[p.i:j]
	p.i = j
	switch name {
	case `\frac`:
		n, err := p.braces(depth)
		if err != nil {
			return n, err
		}
		d, err := p.braces(depth)
		if err != nil {
			return d, err
		}
		return div(n, d)
	case `\sqrt`:
		degree := 2
		if p.i+2 < len(p.s) && p.s[p.i] == '[' && p.s[p.i+2] == ']' && digit(p.s[p.i+1]) {
			degree = int(p.s[p.i+1] - '0')
			p.i += 3
		}
		v, err := p.atom(depth + 1)
		return root(v, degree), err
	case `\pi`:
		return float(math.Pi), nil
	case `\infty`:
		return float(math.Inf(1)), nil
	case `\binom`:
		n, err := p.braces(depth)
		if err != nil {
			return n, err
		}
		k, err := p.braces(depth)
		if err != nil || n.r == nil || k.r == nil || !n.r.IsInt() || !k.r.IsInt() || n.f < 0 || n.f > 1000 || k.f < 0 || k.f > n.f {
			return value{}, errNotNumber
		}
		return rational(new(big.Rat).SetInt(new(big.Int).Binomial(n.r.Num().Int64(), k.r.Num().Int64()))).checked(), nil
	case `\alpha`, `\beta`, `\gamma`, `\theta`, `\phi`, `\lambda`, `\mu`, `\omega`:
		return p.variable(name), nil
	}
	f, ok := functions[name]
	if !ok {
		return value{}, errNotNumber
	}
	e := value{}
	raised := p.take("^")
	if raised {
		var err error
		if e, err = p.atom(depth + 1); err != nil {
			return e, err
		}
	}
	v, err := p.power(depth)
	if err != nil {
		return v, err
	}
	v = float(f(v.f))
	if raised {
		v = pow(v, e)
	}
	return v, nil
}

func (p *expr) braces(depth int) (value, error) {
	if depth > maxNesting || !p.take("{") {
		return value{}, errNotNumber
	}
	v, err := p.sum(depth + 1)
	if err == nil && !p.take("}") {
		err = errNotNumber
	}
	return v, err
}

// properFraction is what makes a mixed fraction of the number before it.
var properFraction = regexp.MustCompile(`^\\frac\{(\d{1,50})\}\{(\d{0,49}[1-9]\d{0,49})\}`)

// number reads a decimal exactly; a whole number right before a fraction of
// whole numbers is a mixed fraction.
func (p *expr) number() (value, error) {
	from := p.i
	for p.i < len(p.s) && (digit(p.s[p.i]) || p.s[p.i] == '.') {
		p.i++
	}
	text := p.s[from:p.i]
	r, ok := new(big.Rat).SetString(text)
	if !ok || len(text) > 400 {
		return value{}, errNotNumber
	}
	v := rational(r)
	if m := properFraction.FindStringSubmatch(p.s[p.i:]); m != nil && !strings.Contains(text, ".") {
		if f, ok := new(big.Rat).SetString(m[1] + "/" + m[2]); ok && f.Cmp(big.NewRat(1, 1)) < 0 {
			p.i += len(m[0])
			return rational(f.Add(f, r)), nil
		}
	}
	return v, nil
}

// variable gives a letter its value: positive, so that roots are real, and
// without a simple relation to any other.
func (p *expr) variable(name string) value {
	if name == "i" { // the imaginary unit is only compared by its place
		name = "i!"
	}
	p.letters = true
	h := uint64(14695981039346656037) + uint64(p.point)*0x9e3779b97f4a7c15
	for i := 0; i < len(name); i++ {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return float(0.5 + float64(h>>11)/(1<<53)*2)
}

func digit(c byte) bool  { return c >= '0' && c <= '9' }
func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

func add(a, b value, sign int64) value {
	if a.r != nil && b.r != nil {
		return rational(new(big.Rat).Add(a.r, new(big.Rat).Mul(b.r, big.NewRat(sign, 1)))).checked()
	}
	return float(a.f + float64(sign)*b.f)
}

func mul(a, b value) value {
	if a.r != nil && b.r != nil {
		return rational(new(big.Rat).Mul(a.r, b.r)).checked()
	}
	return float(a.f * b.f)
}

func div(a, b value) (value, error) {
	if b.r != nil && b.r.Sign() == 0 {
		return value{}, errNotNumber
	}
	if a.r != nil && b.r != nil {
		return rational(new(big.Rat).Quo(a.r, b.r)).checked(), nil
	}
	return float(a.f / b.f), nil
}

func pow(a, e value) value {
	if a.r != nil && e.r != nil && e.r.IsInt() && e.r.Num().IsInt64() {
		n := e.r.Num().Int64()
		size := int64(max(a.r.Num().BitLen(), a.r.Denom().BitLen()))
		if n >= -1000 && n <= 1000 && size*max(n, -n) <= maxBits && (n >= 0 || a.r.Sign() != 0) {
			k := big.NewInt(max(n, -n))
			r := new(big.Rat).SetFrac(new(big.Int).Exp(a.r.Num(), k, nil), new(big.Int).Exp(a.r.Denom(), k, nil))
			if n < 0 {
				r.Inv(r)
			}
			return rational(r)
		}
	}
	return float(math.Pow(a.f, e.f))
}

func root(a value, n int) value {
	if n == 2 && a.r != nil && a.r.Sign() >= 0 { // an exact root stays exact
		p, q := new(big.Int).Sqrt(a.r.Num()), new(big.Int).Sqrt(a.r.Denom())
		if new(big.Int).Mul(p, p).Cmp(a.r.Num()) == 0 && new(big.Int).Mul(q, q).Cmp(a.r.Denom()) == 0 {
			return rational(new(big.Rat).SetFrac(p, q))
		}
	}
	if n == 2 {
		return float(math.Sqrt(a.f))
	}
	if n == 3 {
		return float(math.Cbrt(a.f))
	}
	return float(math.Pow(a.f, 1/float64(n)))
}

func factorial(a value) (value, error) {
	if a.r == nil || !a.r.IsInt() || a.r.Sign() < 0 || a.f > 400 {
		return value{}, errNotNumber
	}
	return rational(new(big.Rat).SetInt(new(big.Int).MulRange(1, max(1, a.r.Num().Int64())))).checked(), nil
}
