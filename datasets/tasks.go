package datasets

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"agentcli/traj"
)

// generators make the problems of generated datasets; their entries in registry say how
// these are asked and scored.
var generators = []generator{
	{name: "arith", levels: 3, space: arithSpace, make: arithMake, examples: arithExamples, turns: calculatorTurns},
	{name: "lastword", levels: 3, space: wordsSpace, make: wordsMake, examples: wordsExamples, turns: plainTurns},
	{name: "chain", levels: 3, space: chainSpace, make: chainMake, examples: chainExamples, turns: calculatorTurns},
	{name: "countdown", levels: 3, space: countdownSpace, make: countdownMake, examples: countdownExamples, turns: plainTurns},
	{name: "knights", levels: 3, space: knightsSpace, make: knightsMake, examples: knightsExamples, turns: plainTurns},
	{name: "letters", levels: 3, space: lettersSpace, make: lettersMake, examples: lettersExamples, turns: plainTurns},
	{name: "largest", levels: 3, space: largestSpace, make: largestMake, examples: largestExamples, turns: plainTurns},
	{name: "findfact", levels: 3, space: factSpace, make: factMake, examples: factExamples, turns: searchTurns, corpus: factCorpus},
	{name: "fineprint", levels: 4, space: fineSpace, make: fineMake, examples: func(int) []made { return nil }, turns: plainTurns,
		splits: fineDemonstrations},
}

// calculatorTurns are the turns of a worked example with tool calls, in the
// shape that reference runs were measured with: the call alone, the tool's
// bare result, the bare answer.
func calculatorTurns(m made) []traj.Message {
	turns := []traj.Message{{Role: traj.RoleUser, Content: m.question}}
	for _, c := range m.steps {
		turns = append(turns,
			traj.Message{Role: traj.RoleAssistant,
				ToolCalls: []traj.ToolCall{{Name: "calculator", Arguments: `{"expression": "` + c.expression + `"}`}}},
			traj.Message{Role: traj.RoleTool, Name: "calculator", Content: c.result})
	}
	return append(turns, traj.Message{Role: traj.RoleAssistant, Content: m.answer})
}

func plainTurns(m made) []traj.Message {
	return []traj.Message{{Role: traj.RoleUser, Content: m.question}, {Role: traj.RoleAssistant, Content: cmp.Or(m.reply, m.answer)}}
}

// arith. Level 1: two numbers of two digits, differences not below 0. Level 2:
// three digits with two, differences of either sign. Level 3: three numbers,
// a product and a sum or difference.

func arithSpace(level int) uint64 {
	switch level {
	case 1:
		return 3 * 90 * 90
	case 2:
		return 3 * 900 * 90
	}
	return 2 * 90 * 90 * 900
}

func arithMake(level int, i uint64) (made, bool) {
	switch level {
	case 1, 2:
		op := "+-*"[i%3]
		i /= 3
		b := int64(i%90) + 10
		a := int64(i/90) + 10
		if level == 2 {
			a += 90
			if op == '-' && i%2 == 1 {
				a, b = b, a
			}
		} else if op == '-' && a < b {
			return made{}, false // below 0
		}
		return arithProblem(a, op, b), true
	}
	op := "+-"[i%2]
	i /= 2
	a, b, c := int64(i%90)+10, int64(i/90%90)+10, int64(i/8100)+100
	sign := int64(1)
	if op == '-' {
		sign = -1
	}
	return made{id: fmt.Sprintf("%d*%d%c%d", a, b, op, c), key: fmt.Sprintf("%d*%d%c%d", min(a, b), max(a, b), op, c),
		question: fmt.Sprintf("What is %d * %d %c %d?", a, b, op, c), answer: strconv.FormatInt(a*b+sign*c, 10)}, true
}

func arithProblem(a int64, op byte, b int64) made {
	var r int64
	x, y := a, b
	switch op {
	case '+':
		r, x, y = a+b, min(a, b), max(a, b)
	case '-':
		r = a - b
	case '*':
		r, x, y = a*b, min(a, b), max(a, b)
	}
	e := fmt.Sprintf("%d%c%d", a, op, b)
	return made{id: e, key: fmt.Sprintf("%d%c%d", x, op, y), question: fmt.Sprintf("What is %d %c %d?", a, op, b),
		answer: strconv.FormatInt(r, 10), steps: []call{{e, strconv.FormatInt(r, 10)}}}
}

// arithExamples have a number of one digit, which no problem has.
func arithExamples(level int) []made {
	out := []made{arithProblem(12, '*', 7), arithProblem(35, '+', 8), arithProblem(64, '-', 9), arithProblem(6, '*', 48),
		arithProblem(5, '+', 71), arithProblem(83, '-', 4), arithProblem(21, '*', 3), arithProblem(9, '+', 56)}
	if level == 3 {
		for i, e := range [][3]int64{{12, 7, 3}, {35, 8, 20}, {6, 48, 5}, {21, 3, 40}} {
			op, r := "+-"[i%2], e[0]*e[1]+e[2]
			if op == '-' {
				r = e[0]*e[1] - e[2]
			}
			x := fmt.Sprintf("%d*%d%c%d", e[0], e[1], op, e[2])
			out[i] = made{id: x, key: x, question: fmt.Sprintf("What is %d * %d %c %d?", e[0], e[1], op, e[2]),
				answer: strconv.FormatInt(r, 10), steps: []call{{x, strconv.FormatInt(r, 10)}}}
		}
		out = out[:4]
	}
	return out
}

// lastword: the words are common, short and each one token with its space in
// most vocabularies. Level 1 has four of them, level 2 six, level 3 ten.
var words = strings.Fields(`apple river chair stone bread cloud horse table light water
green house music paper plant train glass field ocean sugar night dream heart smile
tiger lemon queen knife beach storm salt moon fire bird tree book milk door hand ring
gold wind fish rain snow road star wood leaf king ship bell cake lamp wolf frog`)

func wordsCount(level int) int { return [...]int{4, 6, 10}[level-1] }

func wordsSpace(level int) uint64 {
	n := uint64(1)
	for range wordsCount(level) {
		n *= uint64(len(words) - shotWords)
	}
	return n
}

// shotWords are the last words of the vocabulary: only worked examples use them.
const shotWords = 16

func wordsMake(level int, i uint64) (made, bool) {
	n := uint64(len(words) - shotWords)
	var w []string
	for range wordsCount(level) {
		c := words[i%n]
		i /= n
		for _, have := range w {
			if have == c {
				return made{}, false
			}
		}
		w = append(w, c)
	}
	return wordsProblem(w), true
}

func wordsProblem(w []string) made {
	id := strings.Join(w, "-")
	return made{id: id, key: id, question: "What is the last word of this list: " + strings.Join(w, ", ") + "?", answer: w[len(w)-1]}
}

func wordsExamples(level int) []made {
	pool := words[len(words)-shotWords:]
	n := wordsCount(level)
	var out []made
	for i := range 4 {
		var w []string
		for k := range n {
			w = append(w, pool[(i*5+k)%len(pool)])
		}
		out = append(out, wordsProblem(w))
	}
	return out
}

// chain: start with a number and change it in 2, 3 or 4 steps (the level plus
// one). The steps are drawn from the problem's number.

func chainSpace(level int) uint64 {
	n := uint64(90)
	for range level + 1 {
		n *= 3 * 88
	}
	return n
}

func chainMake(level int, i uint64) (made, bool) {
	start := int64(i%90) + 10
	i /= 90
	var steps []chainStep
	for range level + 1 {
		op := "+-*"[i%3]
		i /= 3
		n := int64(i%88) + 11
		i /= 88
		if op == '*' {
			if n > 18 {
				return made{}, false
			}
			n -= 9 // 2 to 9
		}
		steps = append(steps, chainStep{op, n})
	}
	return chainProblem(start, steps)
}

type chainStep struct {
	op byte
	n  int64
}

func chainProblem(start int64, steps []chainStep) (made, bool) {
	var q strings.Builder
	fmt.Fprintf(&q, "Start with %d.", start)
	id := strconv.FormatInt(start, 10)
	v := start
	var calls []call
	for _, s := range steps {
		was := v
		switch s.op {
		case '+':
			fmt.Fprintf(&q, " Add %d.", s.n)
			v += s.n
		case '-':
			fmt.Fprintf(&q, " Subtract %d.", s.n)
			v -= s.n
		case '*':
			fmt.Fprintf(&q, " Multiply by %d.", s.n)
			v *= s.n
		}
		if v < 0 || v > 999999 {
			return made{}, false
		}
		calls = append(calls, call{fmt.Sprintf("%d%c%d", was, s.op, s.n), strconv.FormatInt(v, 10)})
		id += string(s.op) + strconv.FormatInt(s.n, 10)
	}
	q.WriteString(" What is the result?")
	return made{id: id, key: id, question: q.String(), answer: strconv.FormatInt(v, 10), steps: calls}, true
}

// chainExamples start below 10, where no problem does.
func chainExamples(level int) []made {
	var out []made
	for i := range 3 {
		var steps []chainStep
		for k := range level + 1 {
			steps = append(steps, chainStep{"*+-"[(i+k)%3], []int64{6, 25, 3, 14}[(i+k)%4]})
		}
		if m, ok := chainProblem(int64(7+i), steps); ok {
			out = append(out, m)
		}
	}
	return out
}

// largest: three, four or six different numbers of two digits (three at level
// 3). The same numbers in another order are the same problem.

func largestCount(level int) int { return [...]int{3, 4, 6}[level-1] }

func largestSpan(level int) uint64 {
	if level == 3 {
		return 900
	}
	return 90
}

func largestSpace(level int) uint64 {
	n := uint64(1)
	for range largestCount(level) {
		n *= largestSpan(level)
	}
	return n
}

func largestMake(level int, i uint64) (made, bool) {
	span := largestSpan(level)
	first := 10
	if level == 3 {
		first = 100
	}
	var numbers []int
	for range largestCount(level) {
		v := int(i%span) + first
		i /= span
		if slices.Contains(numbers, v) {
			return made{}, false
		}
		numbers = append(numbers, v)
	}
	return largestProblem(numbers), true
}

func largestProblem(numbers []int) made {
	text := make([]string, len(numbers))
	for i, v := range numbers {
		text[i] = strconv.Itoa(v)
	}
	sorted := slices.Clone(text)
	slices.Sort(sorted)
	return made{id: strings.Join(text, "-"), key: strings.Join(sorted, "-"),
		question: "Which is the largest of these numbers: " + strings.Join(text, ", ") + "?", answer: strconv.Itoa(slices.Max(numbers))}
}

// largestExamples have a number of one digit, which no problem has, and their
// largest number in different places.
func largestExamples(level int) []made {
	var out []made
	for _, numbers := range [][]int{{52, 7, 31, 18, 44, 26}, {9, 64, 20, 33, 71, 12}, {15, 8, 73, 47, 60, 29}, {86, 40, 5, 22, 91, 38}} {
		out = append(out, largestProblem(numbers[:largestCount(level)]))
	}
	return out
}
