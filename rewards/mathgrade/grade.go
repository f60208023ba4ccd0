// Package mathgrade finds the answer in a reply and decides whether it is the gold
// answer as mathematics. docs/math-grader.md has its rules.
//
// It is in layer 1: it imports rewards/mathexpr, rewards/mathvalue and the standard
// library only. All functions are safe for concurrent use, and the same text has the
// same verdict on every machine: work is bounded by counting it, not by a clock.
package mathgrade

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"agentcli/rewards/mathexpr"
	"agentcli/rewards/mathvalue"
)

// Verdict is what Equal finds.
type Verdict uint8

// The verdicts.
const (
	Wrong     Verdict = iota
	Right             // the answers are equal
	Undecided         // neither was shown within the bounds on size and work
)

func (v Verdict) String() string { return [...]string{"wrong", "right", "undecided"}[v] }

// Profiles are the sets of rules that Options.Profile names.
const (
	Default    = "default"     // mathematically right
	MathVerify = "math-verify" // Math-Verify 0.9
	RLLM       = "rllm"        // rllm's math reward
	Minerva    = "minerva"     // Lewkowycz et al. 2022, with lm-evaluation-harness's equality
)

// Profiles lists the profiles.
var Profiles = []string{Default, MathVerify, RLLM, Minerva}

// Options choose the rules. The zero value is the default profile.
type Options struct {
	Profile string // "": Default
	// Tolerance > 0 takes numbers for equal that differ by at most so much of the larger one.
	Tolerance float64
	// Rounding > 0 rounds numbers to so many decimals before they are compared.
	Rounding int
	// DecimalComma reads 1.234,5 as 1234.5.
	DecimalComma bool
}

// Validate checks the options.
func (o Options) Validate() error {
	if o.Profile != "" && !slices.Contains(Profiles, o.Profile) {
		return fmt.Errorf("profile %q is unknown; the profiles are %s", o.Profile, strings.Join(Profiles, ", "))
	}
	if !(o.Tolerance >= 0 && o.Tolerance < 1) {
		return fmt.Errorf("math tolerance is %g, want a relative difference of at least 0 and below 1", o.Tolerance)
	}
	if o.Rounding < 0 || o.Rounding > 100 {
		return fmt.Errorf("rounding is %d decimals, want 0 to 100", o.Rounding)
	}
	return nil
}

// work is the budget of one comparison, in units of about a nanosecond.
const work = 12_000_000

// grader compares one pair of answers.
type grader struct {
	o       Options
	numbers mathvalue.Comparer
	budget  *mathvalue.Budget
	depth   int
	beyond  bool // a matrix was not worked out: see matrixOf
}

func newGrader(o Options) *grader {
	b := mathvalue.NewBudget(work)
	return &grader{o: o, budget: b, numbers: mathvalue.Comparer{Budget: b, Tolerance: o.Tolerance}}
}

// Equal decides whether an answer is the gold answer.
func Equal(gold, answer string, o Options) Verdict {
	switch o.Profile {
	case RLLM:
		return equalRLLM(gold, answer)
	case Minerva:
		return equalMinerva(gold, answer)
	}
	gold, answer = unboxed(gold), unboxed(answer)
	if gold == "" || answer == "" {
		return Wrong
	}
	if gold == answer {
		return Right
	}
	if len(gold) > mathexpr.MaxBytes || len(answer) > mathexpr.MaxBytes {
		return Undecided
	}
	if o.Profile != MathVerify && gold > answer {
		gold, answer = answer, gold // where the budget ends depends on the order of the work
	}
	return compare(gold, answer, o)
}

func compare(gold, answer string, o Options) Verdict {
	return newGrader(o).equal(read(gold, o), read(answer, o))
}

// unboxed is what is in the last box of an answer, or the answer.
func unboxed(s string) string {
	if b, ok := lastBoxed(s); ok {
		s = b
	}
	return strings.TrimSpace(s)
}

// equal compares two answers in each of their readings.
func (g *grader) equal(gold, answer *reading) Verdict {
	if v, decided := g.special(gold, answer); decided && g.o.Profile != MathVerify {
		return v
	}
	if g.o.Profile != MathVerify {
		if v, decided := equalAsNumerals(g, gold, answer); decided {
			return v
		}
	}
	v := Wrong
	if gold.node != nil && answer.node != nil {
		v = g.same(gold.node, answer.node)
		if v == Right {
			return Right
		}
		// log without a base is of base 10 for some and natural for others.
		if gold.hasLog || answer.hasLog {
			g.numbers.Natural = true
			if g.same(gold.node, answer.node) == Right {
				return Right
			}
			g.numbers.Natural = false
		}
	}
	if gold.isWords && answer.isWords || gold.node == nil || answer.node == nil {
		if gold.words != "" && gold.words == answer.words {
			return Right
		}
	}
	// 1,234 may be two numbers where the other answer is a list.
	if gold.hasComma || answer.hasComma {
		if w := g.equalAsLists(gold, answer); w != Wrong {
			return w
		}
	}
	if errors.Is(gold.err, mathexpr.ErrTooLarge) || errors.Is(answer.err, mathexpr.ErrTooLarge) || g.budget.Left() < 0 {
		return Undecided
	}
	return v
}

// equalAsLists reads commas between digits as separators, in one answer at a time
// against the other's usual reading.
func (g *grader) equalAsLists(gold, answer *reading) Verdict {
	try := func(list, other *reading) Verdict {
		if !list.hasComma || other.node == nil {
			return Wrong
		}
		switch other.node.Kind {
		case mathexpr.List, mathexpr.Set, mathexpr.Tuple:
		default:
			return Wrong
		}
		n, err := mathexpr.Parse(list.text, mathexpr.Options{CommaSeparates: true})
		if err != nil {
			return Wrong
		}
		return g.same(n, other.node)
	}
	if v := try(gold, answer); v != Wrong {
		return v
	}
	return try(answer, gold)
}
