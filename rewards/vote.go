package rewards

import (
	"fmt"
	"math"
	"sort"
	"strings"
)

// Vote is what an answer counts as in a vote among attempts: answers that the
// named reward takes for the same have the same vote. 1/2, \frac12 and 0.5 are
// one number to math.
func Vote(reward, answer string) string {
	switch reward {
	case "math":
		if len(answer) > maxAnswer {
			return answer
		}
		if n := normal(answer); n != "" {
			return canonical(n, maxVoteNesting)
		}
	case "em":
		return normalText(answer)
	}
	return strings.TrimSpace(answer)
}

// maxVoteNesting bounds tuples of tuples.
const maxVoteNesting = 4

// canonical is one way to write a normal form: a number as its fraction, a list
// element by element (sorted where order does not count), an expression as its
// values.
func canonical(s string, depth int) string {
	if r, ok := exactValue(s); ok {
		return r.RatString()
	}
	if wordOnly.MatchString(s) && len(s) > 1 {
		return strings.ToLower(s)
	}
	if plus, minus, ok := plusMinus(s); ok && depth > 0 {
		return canonical(plus+","+minus, depth-1)
	}
	if _, ok := matrix(s); ok {
		return s
	}
	if group, list := parts(s); depth > 0 && (len(list) > 1 || group == `\lbrace`) {
		for i := range list {
			list[i] = canonical(element(list[i]), depth-1)
		}
		if group == "" || group == `\lbrace` {
			group = ""
			sort.Strings(list)
		}
		return group + " " + strings.Join(list, " , ")
	} else if len(list) == 1 && list[0] != s && depth > 0 { // brackets around a single value
		return canonical(list[0], depth-1)
	}
	// Ten digits at three points: expressions that agree there are one.
	var b strings.Builder
	for point := range 3 {
		v, _, err := evaluate(s, point)
		if err != nil || math.IsNaN(v.Float()) || math.IsInf(v.Float(), 0) {
			return s
		}
		fmt.Fprintf(&b, " %.10g", v.Float())
	}
	return "=" + b.String()
}
