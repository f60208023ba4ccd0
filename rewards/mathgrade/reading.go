package mathgrade

import (
	"strings"

	"agentcli/rewards/mathexpr"
)

// reading is an answer as it is understood.
type reading struct {
	text     string // without dollars and spaces around it
	node     *mathexpr.Node
	err      error
	words    string // in lower case, without punctuation and wrappers
	isWords  bool   // it is words, not a formula
	choice   byte   // A to J, of a multiple-choice answer; 0: none
	rest     string // what follows the letter of a choice
	moment   string // a date or a time in one spelling
	hasLog   bool   // a logarithm without a base
	hasComma bool   // a comma between digits
}

// read reads an answer.
func read(s string, o Options) *reading {
	r := &reading{text: clean(s)}
	if r.words = wordsOf(r.text); r.words == "does not exist" && o.Profile != MathVerify {
		r.words = "dne"
	}
	r.isWords = isWords(r.text)
	r.moment = momentOf(r.text)
	r.choice, r.rest = choiceOf(r.text)
	formula := r.text
	if o.Profile != MathVerify {
		formula = respelled(r.text)
	}
	r.node, r.err = mathexpr.Parse(formula, mathexpr.Options{DecimalComma: o.DecimalComma})
	if r.err != nil {
		r.node = nil
		r.isWords = true
	} else if r.node.Kind == mathexpr.Text {
		r.isWords = true
	}
	if o.Profile != MathVerify && (r.words == "all real numbers" || r.words == "all reals") {
		r.node = &node{Kind: mathexpr.NamedSet, Name: "R"}
	}
	r.hasLog = strings.Contains(r.text, "log")
	for i := 1; i+1 < len(r.text); i++ {
		if r.text[i] == ',' && isDigit(r.text[i-1]) && isDigit(r.text[i+1]) {
			r.hasComma = true
			break
		}
	}
	return r
}

func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// clean drops what is around an answer: dollars, stars, a point at its end.
func clean(s string) string {
	for {
		before := s
		s = strings.TrimSpace(s)
		for _, d := range [...]string{"$$", "$", "**", "`", `\(`, `\[`, `"`} {
			s = strings.TrimPrefix(s, d)
		}
		for _, d := range [...]string{"$$", "$", "**", "`", `\)`, `\]`, `"`} {
			s = strings.TrimSuffix(s, d)
		}
		if n := len(s); n > 1 && (s[n-1] == '.' && !strings.HasSuffix(s, "...") || s[n-1] == ',' || s[n-1] == ';' || s[n-1] == ':') &&
			s[n-2] != '\\' {
			s = s[:n-1]
		}
		for _, w := range [...]string{`\displaystyle`, `\textbf{Answer:}`, `\rm `, `\bf `} {
			s = strings.TrimPrefix(s, w)
		}
		if s == before {
			return s
		}
	}
}

// wordsOf is a text in lower case, with single spaces and without LaTeX's wrappers,
// dollars and punctuation.
func wordsOf(s string) string {
	var b strings.Builder
	space := false
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '\\':
			j := i + 1
			for j < len(s) && isLetter(s[j]) {
				j++
			}
			switch name := s[i+1 : j]; name {
			case "text", "textbf", "textit", "textrm", "mathrm", "mbox", "mathbf", "mathit", "mathsf", "operatorname", "emph", "displaystyle",
				"left",
				"right", "quad", "qquad", "textsf", "texttt", "boldsymbol":
				i = j - 1
				space = space || b.Len() > 0
			case "":
				if i+1 < len(s) && strings.IndexByte(" ,;:!()[]", s[i+1]) >= 0 {
					i++
					space = space || b.Len() > 0
					continue
				}
				b.WriteByte(c)
			default:
				b.WriteString(s[i:j])
				i = j - 1
			}
		case c == ' ' || c == '\t' || c == '\n' || c == '~':
			space = b.Len() > 0
		case c == '{' || c == '}' || c == '$' || c == '"' || c == '*' || c == '`' || c == '.' && (i+1 == len(s) || !isDigit(s[i+1])):
		default:
			if space && c != ',' {
				b.WriteByte(' ')
			}
			space = false
			if c >= 'A' && c <= 'Z' {
				c |= 0x20
			}
			b.WriteByte(c)
		}
	}
	out := b.String()
	for _, article := range [...]string{"the ", "a ", "an "} {
		if rest, ok := strings.CutPrefix(out, article); ok && len(rest) > 1 {
			out = rest
		}
	}
	return strings.TrimRight(out, ".!")
}

// isWords reports whether an answer is words and not a formula: letters, of which
// there is a run of two, and no operator.
func isWords(s string) bool {
	if strings.HasPrefix(s, `\text{`) && strings.HasSuffix(s, "}") && strings.IndexByte(s, '}') == len(s)-1 {
		s = s[len(`\text{`) : len(s)-1]
	}
	run, longest := 0, 0
	for i := range len(s) {
		switch c := s[i]; {
		case isLetter(c) || c >= 0x80:
			run++
			longest = max(longest, run)
		case c == ' ' || c == '-' || c == '\'' || c == '.' || c == ',':
			run = 0
		default:
			return false
		}
	}
	return longest >= 2
}

// choiceOf is the letter of a multiple-choice answer: B, (B), B., B) 12, option B.
func choiceOf(s string) (letter byte, rest string) {
	for range 4 {
		before := s
		for _, w := range [...]string{`\text{`, `\textbf{`, `\mathrm{`, `\mathbf{`, `\textrm{`, `\boxed{`} {
			if inner, ok := strings.CutPrefix(s, w); ok {
				if i := strings.IndexByte(inner, '}'); i >= 0 {
					s = inner[:i] + inner[i+1:]
				}
			}
		}
		s = strings.TrimSpace(s)
		for _, w := range [...]string{"option ", "choice ", "answer ", "Option ", "Choice ", "Answer ", "Answer: "} {
			s = strings.TrimPrefix(s, w)
		}
		if s == before {
			break
		}
	}
	bracket := strings.HasPrefix(s, "(")
	s = strings.TrimPrefix(s, "(")
	if s == "" {
		return 0, ""
	}
	c := s[0]
	if bracket && c >= 'a' && c <= 'j' && len(s) > 1 && s[1] == ')' {
		c -= 0x20
	}
	if c < 'A' || c > 'J' {
		return 0, ""
	}
	switch s = s[1:]; {
	case s == "" && !bracket:
		return c, ""
	case strings.HasPrefix(s, ")"):
		if rest = strings.TrimLeft(s[1:], " ~\\}:."); rest != "" && strings.IndexByte("+-*/^=<>!_", rest[0]) >= 0 {
			return 0, "" // (A)+1 is a formula
		}
		return c, rest
	case !bracket && (strings.HasPrefix(s, ".") || strings.HasPrefix(s, ":")):
		return c, strings.TrimSpace(s[1:])
	}
	return 0, ""
}
