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
func startsWord(text, word string) starting {
	switch {
	case strings.HasPrefix(text, word):
		return startsCall
	case strings.HasPrefix(word, text):
		return mayStart
	}
	return startsNothing
}

// startsLlama3 is llama3Start, but for what is a mark.
func startsLlama3(text string, line, blank bool) (starting, int) {
	inner := strings.TrimLeft(text[1:], " \t\n\f\r")
	switch {
	case text[0] == '{' && line:
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
	case text[0] == '[' && blank:
		return startsPyCall(inner), 0
	}
	return startsNothing, 0
}

// startsLlama3Python is that, or a call in Python.
func startsLlama3Python(text string, line, blank bool) (starting, int) {
	if what, _ := startsLlama3(text, line, blank); what != startsNothing || !blank {
		return what, 0
	}
	return startsPyCall(text), 0
}

var pyCallee = regexp.MustCompile(`^[A-Za-z_][\w.]*`)

func startsPyCall(text string) starting {
	name := pyCallee.FindString(text)
	switch {
	case len(name) == len(text):
		return mayStart
	case name != "" && text[len(name)] == '(':
		return startsCall
	}
	return startsNothing
}

// startsMistral is a list of calls without its marker: the whole reply is one.
func startsMistral(text string, _, blank bool) (starting, int) {
	if text[0] != '[' || !blank {
		return startsNothing, 0
	}
	return startsWord(strings.TrimLeft(text[1:], blanks), "{"), 0
}

// startsReact is a line of Action or of Final Answer. n is where the line goes on behind the
// colon.
func startsReact(text string, line, _ bool) (what starting, n int) {
	if !line {
		return startsNothing, 0
	}
	name := strings.TrimLeft(text, "*")
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
				return what, len(text) - len(behind) + 1
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
