package rewards

import (
	"strings"
	"testing"
)

// TestMathIsBounded: the longest answers of the worst kinds end. What is bounded
// takes a fraction of a second; what is not never ends, and runs into the
// time-out of go test, whose trace names the case.
func TestMathIsBounded(t *testing.T) {
	list := func(e string, n int) string { return strings.TrimSuffix(strings.Repeat(e+",", n), ",") }
	rep := strings.Repeat
	for name, p := range map[string][2]string{
		"factorials": {list("x"+rep("400!", 240), 4), list("x"+rep("399!", 240), 4)},
		"sums":       {list("x"+rep("+1/399!", 130), 4), list("x"+rep("+1/397!", 130), 4)},
		"binomials":  {"x+" + rep(`\binom{999}{500}`, 60), "x-" + rep(`\binom{999}{500}`, 60)},
		"powers":     {"x" + rep("+3^999/7^999", 80), "x" + rep("+3^998/7^999", 80)},
		"pairs":      {list("x+399!", 200), list("x+398!", 200)},
		"nested":     {rep("(", 2000) + "1" + rep(")", 2000), rep("(2,", 900) + "1" + rep(")", 900)},
		"sets":       {rep(`\{1,`, 400) + "1" + rep(`\}`, 400), rep(`\{2,`, 400) + "1" + rep(`\}`, 400)},
		"signs":      {rep(`\pm±\mp1,`, 300), rep(`\mp±\pm2,`, 300)},
		"roots":      {"x" + rep(`\sqrt{399!/397!}`, 60), "y" + rep(`\sqrt{399!/397!}`, 60)},
		"units":      {"1 " + rep("ab ", 1300), rep(`x\in`, 900) + "1"},
		"boxes":      {rep(`\boxed{`, 100000), rep("1,234 ", 170000)},
	} {
		t.Log(name)
		extract(p[0], Options{})
		extract(p[1], Options{})
		equalAnswers(p[0], p[1], Options{})
		Vote("math", p[0])
	}
}
