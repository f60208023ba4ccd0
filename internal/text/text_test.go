package text

import (
	"errors"
	"testing"
)

func TestText(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{OneLine(" a\n\tb\r\n c\u00a0"), "a b c"},
		{OneLine(""), ""},
		{Line(nil), ""},
		{Line(errors.New("a\nb")), "a b"},
		{Cut("äöü", 3), "äöü"},
		{Cut("äöü!", 3), "äöü…"},
		{Name("model.norm", 10), "model.norm"},
		{Name("model.norms", 10), "model.norm…"},
		{Name("a\x1b[2J", 10), `"a\x1b[2J"`},
		{Name("\xff", 10), `"\xff"`},
		{Harmless("a\x1b[2J\tb\r\nc\u009b1m\u202ed\x7f\u2066é"), "a\ufffd[2J\tb\ufffd\nc\ufffd1m\ufffdd\ufffd\ufffdé"},
		{Harmless("\xff"), "\ufffd"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

func TestTheEndOfATextThatMayBeginAMark(t *testing.T) {
	for _, c := range []struct {
		s, mark string
		want    int
	}{{"a <", "<tool>", 1}, {"a <to", "<tool>", 3}, {"a <tool>", "<tool>", 0}, {"", "x", 0}, {"aa", "aab", 2}, {"ab", "b", 0}} {
		if got := Overlap(c.s, c.mark); got != c.want {
			t.Errorf("%q, %q: %d", c.s, c.mark, got)
		}
	}
}
