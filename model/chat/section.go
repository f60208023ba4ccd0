package chat

import (
	"fmt"
	"regexp"
	"strings"
)

// section is the shape that DeepSeek's and Kimi's calls share: a section of
// calls, each between markers of its own, a marker between name and arguments.
type section struct {
	open, shut           *regexp.Regexp // of the section
	begin, between, done *regexp.Regexp // of a call
	first                *regexp.Regexp // whichever comes first of open and begin
	// header is what stands before the marker between; it says the name, or that
	// the name comes next, and where the arguments begin.
	header func(before, text string, at int) (name string, args int)
	id     func(before string) string // the call's id, which stands there too; nil: there is none
	form   string
}

func (s *section) find(_ *reading, text string, at int) int { return findRegexp(s.first, text, at) }

// maxHeader is where a marker between name and arguments is looked for.
const maxHeader = 1024

// here is the length of a match at the very position, 0 if there is none.
func here(re *regexp.Regexp, text string, at int) int {
	// Markers are short: a window keeps the search from running on.
	loc := re.FindStringIndex(text[at:min(len(text), at+64)])
	if loc == nil || loc[0] != 0 {
		return 0
	}
	return loc[1]
}

func (s *section) read(r *reading, text string, at int) int {
	p := at + here(s.open, text, at)
	calls := 0
	for {
		next := skipBlanks(text, p)
		if n := here(s.shut, text, next); n > 0 {
			return next + n
		}
		n := here(s.begin, text, next)
		if n == 0 {
			if calls == 0 {
				raw := text[at:next]
				r.bad(raw, "no call follows its opening marker; write "+s.form)
				return next
			}
			return p
		}
		p = s.one(r, text, next, next+n)
		calls++
	}
}

// one reads the call that stands at a position and whose body begins at inner.
func (s *section) one(r *reading, text string, at, inner int) int {
	fail := func(reason string) int {
		end := len(text)
		if next := findRegexp(s.first, text, inner); next >= 0 {
			end = next
		}
		if loc := s.done.FindStringIndex(text[inner:end]); loc != nil {
			end = inner + loc[1]
		}
		r.bad(text[at:end], reason)
		return end
	}
	window := text[inner:min(len(text), inner+maxHeader)]
	sep, stop := s.between.FindStringIndex(window), s.done.FindStringIndex(window)
	switch {
	case stop != nil && (sep == nil || stop[0] < sep[0]):
		return fail("it has no arguments; write " + s.form)
	case sep == nil:
		return fail("it was cut off or has no arguments; write " + s.form)
	}
	name, p := s.header(text[inner:inner+sep[0]], text, inner+sep[1])
	if name == "" {
		return fail("it has no name; write " + s.form)
	}
	args, end, reason := firstArguments(text, p)
	if reason != "" {
		return fail(reason)
	}
	end = skipBlanks(text, end)
	end = skipBlanks(text, skipAny(text, end, "```"))
	if n := here(s.done, text, end); n > 0 {
		end += n
	} else if end < len(text) {
		return fail(fmt.Sprintf("there is text after the JSON object, from %q on; write %s", head(text[end:], 20), s.form))
	}
	r.call(name, args)
	if s.id != nil {
		r.msg.ToolCalls[len(r.msg.ToolCalls)-1].ID = s.id(text[inner : inner+sep[0]])
	}
	return end
}

// fenced skips a fence of code that the arguments stand in.
func fenced(text string, at int) int {
	at = skipBlanks(text, at)
	return skipBlanks(text, skipAny(text, at, "```json", "```"))
}

func trimmed(s string) string { return strings.Trim(s, blanks) }
