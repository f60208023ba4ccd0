package mathgrade

import (
	"math/big"

	"agentcli/rewards/mathexpr"
)

// Bounds on the matrices that are worked out.
const (
	maxInverse = 5 // rows of a matrix that is inverted; a determinant has one more
	maxPower   = 64
	maxCells   = 400 // of a product
)

// sameMatrices compares matrices entry by entry; what is a matrix by sums, products, powers
// and inverses is worked out.
func (g collections) sameMatrices(a, b *node) (Verdict, bool) {
	g.beyond = false
	x, okX := g.matrixOf(a, 0)
	y, okY := g.matrixOf(b, 0)
	if !okX && !okY {
		return Wrong, false
	}
	if !okX || !okY {
		if okX && len(x.Args) == 1 && g.same(x.Args[0], b) == Right || okY && len(y.Args) == 1 && g.same(a, y.Args[0]) == Right {
			return Right, true
		}
		if g.beyond {
			return Undecided, true
		}
		return Wrong, true
	}
	if x.Columns != y.Columns || len(x.Args) != len(y.Args) {
		return Wrong, true
	}
	return g.inOrder(x.Args, y.Args), true
}

func isMatrix(n *node) bool { return n.Kind == mathexpr.Matrix && n.Name != "det" }

// hasMatrix reports whether a matrix, other than a determinant, is a part of arithmetic.
func hasMatrix(n *node) bool {
	switch n.Kind {
	case mathexpr.Sum, mathexpr.Product, mathexpr.Negative, mathexpr.Quotient, mathexpr.Power:
		for _, a := range n.Args {
			if isMatrix(a) || hasMatrix(a) {
				return true
			}
		}
	}
	return false
}

// matrixOf is the matrix that a formula of matrices and numbers stands for. Where ok is false
// there is none, or, if g.beyond was set, it is not worked out.
func (g collections) matrixOf(n *node, depth int) (*node, bool) {
	if depth > 20 {
		return g.notWorkedOut()
	}
	switch n.Kind {
	case mathexpr.Matrix:
		return n, isMatrix(n)
	case mathexpr.Negative:
		if m, ok := g.matrixOf(n.Args[0], depth+1); ok {
			return entrywise(m, func(e *node) *node { return &node{Kind: mathexpr.Negative, Args: []*node{e}} }), true
		}
	case mathexpr.Quotient:
		if m, ok := g.matrixOf(n.Args[0], depth+1); ok {
			return entrywise(m, func(e *node) *node { return &node{Kind: mathexpr.Quotient, Args: []*node{e, n.Args[1]}} }), true
		}
	case mathexpr.Power:
		if m, ok := g.matrixOf(n.Args[0], depth+1); ok {
			return g.power(m, n.Args[1])
		}
	case mathexpr.Product:
		return g.product(n.Args, depth)
	case mathexpr.Sum:
		first, ok := g.matrixOf(n.Args[0], depth+1)
		if !ok {
			return nil, false
		}
		for _, a := range n.Args[1:] {
			m, ok := g.matrixOf(a, depth+1)
			if !ok || m.Columns != first.Columns || len(m.Args) != len(first.Args) {
				return nil, false
			}
			sum := *first
			sum.Args = make([]*node, len(m.Args))
			for i := range m.Args {
				sum.Args[i] = &node{Kind: mathexpr.Sum, Args: []*node{first.Args[i], m.Args[i]}}
			}
			first = &sum
		}
		return first, true
	}
	return nil, false
}

// product multiplies the matrices among factors in their order, then by the numbers.
func (g collections) product(factors []*node, depth int) (*node, bool) {
	var m *node
	var scalars []*node
	for _, f := range factors {
		x, ok := g.matrixOf(f, depth+1)
		switch {
		case !ok && hasMatrix(f):
			return nil, false
		case !ok:
			scalars = append(scalars, f)
		case m == nil:
			m = x
		default:
			if m, ok = g.times(m, x); !ok {
				return nil, false
			}
		}
	}
	if m == nil || len(scalars) == 0 {
		return m, m != nil
	}
	return entrywise(m, func(e *node) *node {
		return &node{Kind: mathexpr.Product, Args: append([]*node{e}, scalars...)}
	}), true
}

// times is the product of two matrices.
func (g collections) times(a, b *node) (*node, bool) {
	inner := a.Columns
	rows, columns := len(a.Args)/inner, b.Columns
	if inner*columns != len(b.Args) {
		return nil, false
	}
	if rows*columns > maxCells || !g.budget.Spend(int64(rows*columns*inner)*100) {
		return g.notWorkedOut()
	}
	out := &node{Kind: mathexpr.Matrix, Columns: columns, Args: make([]*node, 0, rows*columns)}
	for i := range rows {
		for j := range columns {
			sum := &node{Kind: mathexpr.Sum}
			for k := range inner {
				sum.Args = append(sum.Args, product(a.Args[i*inner+k], b.Args[k*columns+j]))
			}
			out.Args = append(out.Args, g.worked(sum))
		}
	}
	return out, true
}

// worked is the number that a formula is, where it is rational: products of products stay small.
func (g collections) worked(n *node) *node {
	if q, ok := g.numbers.Rational(n); ok {
		return &node{Kind: mathexpr.Number, Value: q}
	}
	return n
}

// power is a whole power, the inverse or, of the letter T, the transpose of a matrix.
func (g collections) power(m, exponent *node) (*node, bool) {
	if exponent.Kind == mathexpr.Variable && exponent.Name == "T" {
		return transposed(m), true
	}
	size := m.Columns
	q, ok := g.numbers.Rational(exponent)
	if size*size != len(m.Args) {
		return nil, false
	}
	if !ok || !q.IsInt() || !q.Num().IsInt64() {
		return g.notWorkedOut()
	}
	n := q.Num().Int64()
	if n > maxPower || n < -maxPower {
		return g.notWorkedOut()
	}
	if n < 0 {
		if m, ok = g.inverse(m); !ok {
			return nil, false
		}
		n = -n
	}
	out := identity(size)
	for range n {
		if out, ok = g.times(out, m); !ok {
			return nil, false
		}
	}
	return out, true
}

func (g collections) notWorkedOut() (*node, bool) {
	g.beyond = true
	return nil, false
}

func identity(size int) *node {
	out := &node{Kind: mathexpr.Matrix, Columns: size}
	for i := range size * size {
		v := int64(0)
		if i%(size+1) == 0 {
			v = 1
		}
		out.Args = append(out.Args, &node{Kind: mathexpr.Number, Value: big.NewRat(v, 1)})
	}
	return out
}

func transposed(m *node) *node {
	rows := len(m.Args) / m.Columns
	out := &node{Kind: mathexpr.Matrix, Columns: rows}
	for j := range m.Columns {
		for i := range rows {
			out.Args = append(out.Args, m.Args[i*m.Columns+j])
		}
	}
	return out
}

// inverse is the adjugate over the determinant (Cramer's rule). A singular matrix has none.
func (g collections) inverse(m *node) (*node, bool) {
	size := m.Columns
	if size > maxInverse {
		return g.notWorkedOut()
	}
	det := g.worked(determinant(m.Args, size))
	if q, ok := g.numbers.Rational(det); ok && q.Sign() == 0 {
		return nil, false
	}
	if size == 1 {
		return entrywise(m, func(e *node) *node { return g.worked(&node{Kind: mathexpr.Power, Args: []*node{e, minusOne}}) }), true
	}
	out := &node{Kind: mathexpr.Matrix, Columns: size}
	for i := range size {
		for j := range size {
			cofactor := determinant(without(m, j, i), size-1)
			if (i+j)%2 == 1 {
				cofactor = &node{Kind: mathexpr.Negative, Args: []*node{cofactor}}
			}
			out.Args = append(out.Args, g.worked(&node{Kind: mathexpr.Quotient, Args: []*node{cofactor, det}}))
		}
	}
	return out, true
}

var minusOne = &node{Kind: mathexpr.Number, Value: big.NewRat(-1, 1)}

func determinant(cells []*node, size int) *node {
	return &node{Kind: mathexpr.Matrix, Name: "det", Columns: size, Args: cells}
}

// without are the cells of a square matrix that are in neither the row nor the column.
func without(m *node, row, column int) (cells []*node) {
	for i, e := range m.Args {
		if i/m.Columns != row && i%m.Columns != column {
			cells = append(cells, e)
		}
	}
	return cells
}

func entrywise(m *node, f func(*node) *node) *node {
	out := *m
	out.Args = make([]*node, len(m.Args))
	for i, e := range m.Args {
		out.Args[i] = f(e)
	}
	return &out
}
