package chat

import (
	"regexp"
	"strings"

	"agentcli/internal/text"
)

// A starting is what a text begins that is no mark, at the beginning of a line or where the
// content has blanks alone before it.
type starting int

const (
	startsNothing starting = iota
	mayStart               // more text is needed to say
	startsCall
	startsAnswer // react: the final answer
	startsHeader // gpt-oss: of a message
)

// startsWord says whether text begins with a word, which is startsCall, or may with more text.
func startsWord(said, word string) starting {
	switch {
	case strings.HasPrefix(said, word):
		return startsCall
	case strings.HasPrefix(word, said):
		return mayStart
	}
	return startsNothing
}

// startsLlama3 is llama3Start, but for what is a mark.
func startsLlama3(said string, line, blank bool) (starting, int) {
	inner := strings.TrimLeft(said[1:], " \t\n\f\r")
	switch {
	case said[0] == '{' && line:
		most := startsNothing
		for _, key := range []string{`"name"`, `"type"`, `"parameters"`, `"function"`} {
			switch startsWord(inner, key) {
			case startsCall:
				return startsCall, 0
			case mayStart:
				most = mayStart
			}
		}
		return most, 0
	case said[0] == '[' && blank:
		return startsPyCall(inner), 0
	}
	return startsNothing, 0
}

// startsLlama3Python is that, or a call in Python.
func startsLlama3Python(said string, line, blank bool) (starting, int) {
	if what, _ := startsLlama3(said, line, blank); what != startsNothing || !blank {
		return what, 0
	}
	return startsPyCall(said), 0
}

var pyCallee = regexp.MustCompile(`^[A-Za-z_][\w.]*`)

func startsPyCall(said string) starting {
	name := pyCallee.FindString(said)
	switch {
	case len(name) == len(said):
		return mayStart
	case name != "" && said[len(name)] == '(':
		return startsCall
	}
	return startsNothing
}

// startsMistral is a list of calls without its marker: the whole reply is one.
func startsMistral(said string, _, blank bool) (starting, int) {
	if said[0] != '[' || !blank {
		return startsNothing, 0
	}
	return startsWord(strings.TrimLeft(said[1:], blanks), "{"), 0
}

// startsReact is a line of Action or of Final Answer. n is where the line goes on behind the
// colon.
func startsReact(said string, line, _ bool) (what starting, n int) {
	if !line {
		return startsNothing, 0
	}
	name := strings.TrimLeft(said, "*")
	for word, what := range map[string]starting{"Action": startsCall, "Final Answer": startsAnswer} {
		switch startsWord(name, word) {
		case mayStart:
			return mayStart, 0
		case startsCall:
			behind := strings.TrimLeft(name[len(word):], "*")
			if behind == "" {
				return mayStart, 0
			}
			if behind[0] == ':' {
				return what, len(said) - len(behind) + 1
			}
		}
	}
	return startsNothing, 0
}

// streamFinal begins the final answer of react. What came before it is reasoning, as
// readReactFinal has it.
func streamFinal(s *Stream, at, n int) bool {
	s.keep(at)
	s.buf, s.answered = s.buf[n:], true
	if thought, ok := reactThought(s.before.String()); ok {
		s.beginThought()
		s.reasoning.push(thought)
		s.reasoning.end()
	}
	s.before.Reset()
	s.content.lead = true
	s.state = func(s *Stream) bool { // the asterisks behind the colon
		if s.buf = strings.TrimLeft(s.buf, "*"); s.buf != "" {
			s.state = verbatim
		}
		return true
	}
	return true
}

func verbatim(s *Stream) bool { return s.keep(len(s.buf)) }

// streamAnswer is the answer of the form search: the text up to its closing tag. The rest is
// left out.
func streamAnswer(s *Stream, at int) bool {
	s.keep(at)
	s.put(openAnswer)
	s.buf = s.buf[len(openAnswer):]
	s.state = func(s *Stream) bool {
		at := strings.Index(s.buf, closeAnswer)
		if at < 0 {
			return s.keep(len(s.buf) - text.Overlap(s.buf, closeAnswer))
		}
		s.keep(at + len(closeAnswer))
		s.state = func(s *Stream) bool {
			s.buf = ""
			return false
		}
		return true
	}
	return true
}
