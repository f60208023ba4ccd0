package judge

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Names of the rubrics in DeepEyes' form (verl/utils/reward_score/vl_agent.py): seven worked
// examples and "Judgement:" 1 or 0; a report with "Equivalence Judgement", TRUE or FALSE.
const (
	DeepEyes     = "deepeyes"
	DeepEyesMath = "deepeyes-math"
)

// Forms of an answer beside "VERDICT: …" and "SCORE: …".
type answerForm int

const (
	_           answerForm = iota // VERDICT or SCORE, as the text asks
	judgement                     // 1 or 0
	equivalence                   // TRUE or FALSE
)

const deepEyesText = "You compare two answers to a question about an image. [Question] is the question, [Standard Answer] is the right " +
	"answer, and [Model Answer] is what a model answered.\n" + fenced +
	"The judgement is 1 where the two answers say the same, and 0 where they differ. The words need not be equal: \"green\" says the same " +
	"as \"it is green\". Where there are several standard answers, it is enough that one says the same. " +
	"Write the judgement, 1 or 0, and nothing else.\n\n" + deepEyesExamples +
	"[Question]: {question}\n[Standard Answer]: {answer}\n[Model Answer]: {response}\nJudgement:"

// What the examples show: a short answer (a property, a place, yes, no), a paraphrase, the
// opposite, and another property.
const deepEyesExamples = `[Question]: Is the umbrella red or black?
[Standard Answer]: The umbrella is black.
[Model Answer]: black
Judgement: 1

[Question]: Where is the bicycle, to the left or to the right of the bench?
[Standard Answer]: The bicycle is to the right of the bench.
[Model Answer]: right
Judgement: 1

[Question]: Is the dog small and white?
[Standard Answer]: Yes, the dog is small and white.
[Model Answer]: Yes
Judgement: 1

[Question]: Is the candle on the shelf?
[Standard Answer]: No, the candle is on the table.
[Model Answer]: no
Judgement: 1

[Question]: Who carries the ladder?
[Standard Answer]: The woman carries the ladder.
[Model Answer]: The person in the image carries it.
Judgement: 1

[Question]: Is the door both open and green?
[Standard Answer]: Yes, the door is both open and green.
[Model Answer]: No.
Judgement: 0

[Question]: What colour is the boat in front of the bridge?
[Standard Answer]: The boat in front of the bridge is white.
[Model Answer]: The boat in front of the bridge is yellow.
Judgement: 0

`

const deepEyesMathText = "# CONTEXT\nA problem has a reference answer, and a student has answered it.\n" + fenced +
	"# OBJECTIVE\nDecide whether the student's final answer is equivalent to the reference answer. " +
	"Compare what expressions mean, LaTeX included: relations, variables, operations, units. The notation need not be equal.\n\n" +
	"# RESPONSE\n## Equivalence Judgement\nTRUE or FALSE\n\n" +
	"# ATTENTION\n- The reference answer is right. Where there are several, it is enough that one is equivalent.\n" +
	"- The judgement is FALSE also where the student's answer is almost right.\n- Write the heading and TRUE or FALSE, and nothing else.\n\n" +
	"**Problem**:\n{question}\n\n**Reference Answer**:\n{answer}\n\n**Student's Final Answer**:\n{response}"

var (
	judgementLabel   = regexp.MustCompile("(?i)\\bjud(?:ge|g|e)ment\\b[\\s*_`]*:")
	equivalenceLabel = regexp.MustCompile(`(?i)\b(?:equivalence\s+)?judge?ment\b`)
	firstDigit       = regexp.MustCompile("^[\\s*_`\"'(\\[]*([01])")
	anyDigit         = regexp.MustCompile(`\b[01]\b`)
	firstTruth       = regexp.MustCompile("(?i)^[\\s*_#:`\"'(\\[]*\\b(true|false)\\b")
	anyTruth         = regexp.MustCompile(`(?i)\b(true|false)\b`)
)

// markup is what a judge puts around its answer.
const markup = " \t\r\n*_`\"'()[]."

// readJudgement reads 1 or 0 behind the last "Judgement:", or where the reply, or its first
// line, is that alone. DeepEyes takes any 1 behind the label for right, so "Judgement: 0, there
// is 1 dog" and "Judgement: 10" are; a reply like "1." is wrong.
func readJudgement(reply string) (opinion, bool) {
	if answer, _, more := strings.Cut(reply, "[Question]"); more { // a model that goes on with examples of its own
		if o, ok := readJudgement(answer); ok {
			return o, true
		}
	}
	if labels := judgementLabel.FindAllStringIndex(reply, -1); len(labels) > 0 {
		return digitAt(reply[labels[len(labels)-1][1]:])
	}
	first, rest, _ := strings.Cut(strings.TrimSpace(reply), "\n")
	if anyDigit.MatchString(rest) {
		return opinion{}, false
	}
	return binary(strings.Trim(first, markup), "1", "0")
}

// digitAt reads the 1 or 0 that a text begins with. It is none of 10, 1.5, 1/2 or "1 or 0".
func digitAt(s string) (opinion, bool) {
	at := firstDigit.FindStringSubmatchIndex(s)
	if at == nil {
		return opinion{}, false
	}
	rest := strings.TrimLeft(s[at[3]:], "*_`\"')]")
	next, size := utf8.DecodeRuneInString(rest)
	after, _ := utf8.DecodeRuneInString(rest[size:])
	switch {
	case unicode.IsLetter(next) || unicode.IsDigit(next), strings.ContainsRune(".,", next) && unicode.IsDigit(after), isChoice(rest):
		return opinion{}, false
	}
	return binary(s[at[2]:at[3]], "1", "0")
}

// isChoice reports whether a text goes on with another choice: "or 0", "/0".
func isChoice(rest string) bool {
	rest = strings.ToLower(strings.TrimLeft(rest, markup))
	return strings.HasPrefix(rest, "or ") || strings.HasPrefix(rest, "/") || strings.HasPrefix(rest, "|") || strings.HasPrefix(rest, "?")
}

// readEquivalence reads TRUE or FALSE behind the last heading, or where the reply is that
// alone. DeepEyes looks for the letters anywhere, so "untrue" and "not true" are right.
func readEquivalence(reply string) (opinion, bool) {
	labels := equivalenceLabel.FindAllStringIndex(reply, -1)
	if len(labels) == 0 {
		return binary(strings.ToUpper(strings.Trim(reply, markup)), "TRUE", "FALSE")
	}
	s := reply[labels[len(labels)-1][1]:]
	at := firstTruth.FindStringSubmatchIndex(s)
	if at == nil || isChoice(s[at[3]:]) {
		return opinion{}, false
	}
	word := strings.ToUpper(s[at[2]:at[3]])
	for _, other := range anyTruth.FindAllString(s[at[3]:], -1) {
		if strings.ToUpper(other) != word {
			return opinion{}, false
		}
	}
	return binary(word, "TRUE", "FALSE")
}

// binary is the opinion of one of two words.
func binary(word, right, wrong string) (opinion, bool) {
	switch word {
	case right:
		return opinion{Right, 1}, true
	case wrong:
		return opinion{Wrong, 0}, true
	}
	return opinion{}, false
}
