package chat

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"agentcli/internal/text"
	"agentcli/traj"
)

// Stream reads a reply as it comes, and gives what of its reasoning and content is certain.
// What it has given is always a prefix of what ParseAfter reads of the whole reply, however
// the reply is cut into pieces. Once a call may have begun nothing more is given: what it is
// the end says. Its cost is linear in the reply's length. It is for one goroutine.
type Stream struct {
	p     *Parser
	open  string      // the tag that the prompt left open; "": none
	tags  [][2]string // of thinking: those that may open one next
	marks []streamMark
	first string // the bytes that begin marks
	state func(s *Stream) bool
	buf   string // what is not decided

	line   bool // the content's next byte is the first of a line, blanks aside
	blank  bool // the content has blanks alone so far
	out    int  // bytes of content
	region int  // of them, before the last thought's end

	thoughts           int
	shut               string // ends the thought that is open
	reasoning, content shown
	marker             string          // of content that drops markers: what may be one
	before             strings.Builder // react: the text before the final answer
	answered           bool            // react: it has come
	harmony            harmonyStream
	call               []byte // the text from the first call on
}

// streamMark is a text at which the content may end.
type streamMark struct {
	text string
	then func(s *Stream, at int) bool // the mark stands at a position of buf
}

// maxStart is how many bytes are held to find out whether they begin a call. Beyond that
// they are taken for one.
const maxStart = 256

// Stream is a reader of one reply. open is the tag of thinking that the prompt leaves open,
// so that the reply begins inside it; "" is none.
func (p *Parser) Stream(open string) *Stream {
	s := &Stream{p: p, open: open, tags: p.tags(), state: (*Stream).atStart, line: true, blank: true,
		reasoning: newShown(lineFeed), content: newShown(contentSpace)}
	switch {
	case open != "":
		s.tags = [][2]string{p.pair(open)}
	case p.paired:
		s.state = (*Stream).inText
	}
	s.setMarks()
	return s
}

// silentStream is one of a form that it does not know: all is given at the end.
func silentStream() *Stream {
	return &Stream{state: (*Stream).inCall, reasoning: newShown(lineFeed), content: newShown(contentSpace)}
}

// setMarks makes the list of marks.
func (s *Stream) setMarks() {
	s.marks = s.marks[:0]
	for _, tag := range s.tags {
		s.marks = append(s.marks, streamMark{tag[0], func(s *Stream, at int) bool { return s.think(at, tag) }})
	}
	for _, m := range s.p.begins {
		s.marks = append(s.marks, streamMark{m, (*Stream).silence})
	}
	switch s.p.name {
	case ParserSearch:
		s.marks = append(s.marks, streamMark{openAnswer, streamAnswer})
	case ParserGPTOSS:
		for _, m := range harmonyMarks {
			s.marks = append(s.marks, streamMark{m, harmonyBegins})
		}
	}
	s.first = ""
	for _, m := range s.marks {
		if strings.IndexByte(s.first, m.text[0]) < 0 {
			s.first += m.text[:1]
		}
	}
}

// Add takes the next text of the reply, which may be cut anywhere, and gives what is certain
// now and was not before.
func (s *Stream) Add(said string) (reasoning, content string) {
	s.buf += said
	for s.buf != "" && s.state(s) {
	}
	return s.reasoning.take(), s.content.take()
}

// Rest is what of the whole message, as ParseAfter reads it, was not given.
func (s *Stream) Rest(m *traj.Message) (reasoning, content string) {
	return s.reasoning.rest(m.Reasoning), s.content.rest(m.Content)
}

// Text is the reply's content with its calls as they were written: whoever reads calls
// himself finds them there, broken ones too.
func (s *Stream) Text() string {
	h := &s.harmony
	return s.before.String() + s.content.all() + s.marker + h.mark + h.header.String() + string(s.call) + s.buf
}

// atStart waits until it is clear whether a reply begins with a tag: the opening one, which the
// prompt may have already, or a closing one behind a prompt that opened nothing.
func (s *Stream) atStart() bool {
	rest := strings.TrimLeftFunc(s.buf, unicode.IsSpace)
	switch {
	case len(s.buf) > maxStart && len(rest) < utf8.UTFMax:
		return s.silence(0)
	case !utf8.FullRuneInString(rest):
		return false
	case s.open == "":
		for _, tag := range s.tags {
			switch startsWord(rest, tag[1]) {
			case mayStart:
				return false
			case startsCall:
				s.beginThought()
				s.buf, s.state = rest[len(tag[1]):], (*Stream).afterThought
				return true
			}
		}
		s.state = (*Stream).inText
		return true
	}
	switch startsWord(rest, s.open) {
	case mayStart:
		return false
	case startsCall:
		s.state = (*Stream).inText
	default:
		s.think(0, s.tags[0])
	}
	return true
}

// inText reads content up to the next mark.
func (s *Stream) inText() bool {
	t := s.buf
	for j := 0; j < len(t); {
		c, size := t[j], 1
		space := strings.IndexByte(" \t\n\v\f\r", c) >= 0
		if s.blank && c >= utf8.RuneSelf {
			if !utf8.FullRuneInString(t[j:]) {
				return s.keep(j)
			}
			var r rune
			r, size = utf8.DecodeRuneInString(t[j:])
			space = unicode.IsSpace(r)
		}
		if s.p.starts != nil && (s.line || s.blank) && !space {
			if decided, more := s.start(j); decided {
				return more
			}
		}
		if strings.IndexByte(s.first, c) >= 0 {
			for _, m := range s.marks {
				switch {
				case strings.HasPrefix(t[j:], m.text):
					return m.then(s, j)
				case strings.HasPrefix(m.text, t[j:]):
					return s.keep(j)
				}
			}
		}
		s.line = c == '\n' || s.line && (c == ' ' || c == '\t')
		s.blank = s.blank && space
		j += size
	}
	return s.keep(len(t))
}

// start asks the format whether something other than a mark begins at a position.
func (s *Stream) start(at int) (decided, more bool) {
	switch what, n := s.p.starts(s.buf[at:], s.line, s.blank); {
	case what == startsCall || what == mayStart && len(s.buf)-at > maxStart:
		return true, s.silence(at)
	case what == mayStart:
		return true, s.keep(at)
	case what == startsAnswer && !s.answered:
		return true, streamFinal(s, at, n)
	case what == startsHeader:
		return true, harmonyOpens(s, at, n)
	}
	return false, false
}

// keep takes what is before a position of buf for content. More text is needed for the rest.
func (s *Stream) keep(at int) bool {
	s.put(s.buf[:at])
	s.buf = s.buf[at:]
	return false
}

// put adds content.
func (s *Stream) put(said string) {
	s.out += len(said)
	switch {
	case s.p.name == react.name && !s.answered:
		s.before.WriteString(said)
	case len(s.p.drops) > 0:
		s.content.push(s.dropMarkers(said))
	default:
		s.content.push(said)
	}
}

// dropMarkers leaves out the format's markers, as its finish does.
func (s *Stream) dropMarkers(said string) string {
	said = s.marker + said
	s.marker = ""
	var b strings.Builder
next:
	for {
		at := strings.IndexByte(said, '<')
		if at < 0 {
			break
		}
		b.WriteString(said[:at])
		said = said[at:]
		for _, m := range s.p.drops {
			switch {
			case strings.HasPrefix(said, m):
				said = said[len(m):]
				continue next
			case strings.HasPrefix(m, said):
				s.marker = said
				return b.String()
			}
		}
		b.WriteByte('<')
		said = said[1:]
	}
	return b.String() + said
}

// think begins a thought, whose tag stands at a position of buf, or did in the prompt.
func (s *Stream) think(at int, tag [2]string) bool {
	s.keep(at)
	s.buf = strings.TrimPrefix(s.buf, tag[0])
	if len(s.tags) > 1 { // the first tag decides which ones count
		s.tags = [][2]string{tag}
		s.setMarks()
	}
	s.shut, s.state = tag[1], (*Stream).inThought
	s.beginThought()
	return true
}

func (s *Stream) beginThought() {
	if s.thoughts++; s.thoughts > 1 {
		s.reasoning.text = append(s.reasoning.text, '\n')
	}
	s.reasoning.lead = true
}

// inThought reads reasoning up to its closing tag.
func (s *Stream) inThought() bool {
	at := strings.Index(s.buf, s.shut)
	if at < 0 {
		at = len(s.buf) - text.Overlap(s.buf, s.shut)
		s.reasoning.push(s.buf[:at])
		s.buf = s.buf[at:]
		return false
	}
	s.reasoning.push(s.buf[:at])
	s.reasoning.end()
	s.buf, s.state = s.buf[at+len(s.shut):], (*Stream).afterThought
	return true
}

// afterThought skips the line feeds behind a thought.
func (s *Stream) afterThought() bool {
	if s.buf = strings.TrimLeft(s.buf, "\n"); s.buf == "" {
		return false
	}
	s.line, s.region, s.state = true, s.out, (*Stream).inText
	return true
}

// silence takes what follows for a call.
func (s *Stream) silence(at int) bool {
	s.keep(at)
	s.state = (*Stream).inCall
	return true
}

func (s *Stream) inCall() bool {
	s.call = append(s.call, s.buf...)
	s.buf = ""
	return false
}
