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
		{a + pmatrix(`1&2&3`), "1", "undecided"}, // no product
		{a + "^2", pmatrix(`7&10\\15&22`), "right"},
		{b + "^{10}", pmatrix(`34&55\\55&89`), "right"},
		{a + "^{-1}", pmatrix(`-2&1\\3/2&-1/2`), "right"},
		{a + "^{-1}" + a, pmatrix(`1&0\\0&1`), "right"},
		{pmatrix(`a&b\\c&d`) + "^{-1}", `\frac{1}{ad-bc}` + pmatrix(`d&-b\\-c&a`), "right"},
		{pmatrix(`1&2&0\\0&1&3\\2&0&1`) + "^{-1}", `\frac{1}{13}` + pmatrix(`1&-2&6\\6&1&-3\\-2&4&1`), "right"},
		{pmatrix(`1&2\\2&4`) + "^{-1}", pmatrix(`1&2\\2&4`), "undecided"}, // singular
		{pmatrix(`1&2&3\\4&5&6`) + "^T", pmatrix(`1&4\\2&5\\3&6`), "right"},
		{a + "^0", pmatrix(`1&0\\0&1`), "right"},
		{a + "^n", a, "undecided"},
		{a + "^{100}", a, "undecided"},
		{a + "+" + b, pmatrix(`1&3\\4&5`), "right"},
		{a, "5", "wrong"},
	})
}
