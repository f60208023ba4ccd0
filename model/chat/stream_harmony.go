package chat

import (
	"bytes"
	"regexp"
	"strings"

	"agentcli/internal/text"
)

// harmonyStream is where in gpt-oss's messages a stream is.
type harmonyStream struct {
	begun  bool   // the header has a text, or its mark
	mark   string // <|start|>, where the header has it
	header strings.Builder
	apart  bool   // the message, unless it is blank, is in a line of its own
	lead   []byte // its text so far, while apart
	blank  int    // how many bytes of that are spaces
}

const harmonyStart, harmonyMessage = "<|start|>", "<|message|>"

var (
	harmonyMarks = []string{harmonyStart, "<|channel|>", harmonyMessage, "<|constrain|>"}
	harmonyEnds  = []string{"<|end|>", "<|call|>", "<|return|>", harmonyStart, "<|channel|>"}

	// harmonyMayOpen is a text that harmonyOpening may fit with more text behind it.
	harmonyMayOpen = regexp.MustCompile(`^(?:a|as|ass|assi|assis|assist|assista|assistan|(?:assistant)?\s*(?:t|to|(?:to=\S*\s*)?))$`)
)

// startsHarmony is the rest of a header that began in the prompt. n is where its mark is.
func startsHarmony(said string, _, blank bool) (what starting, n int) {
	if !blank {
		return startsNothing, 0
	}
	if loc := harmonyMark.FindStringIndex(said); loc != nil {
		if loc[0] > 0 && harmonyOpening.MatchString(said[:loc[0]]) {
			return startsHeader, loc[0]
		}
		return startsNothing, 0
	}
	most := 0
	for _, m := range harmonyMarks {
		most = max(most, text.Overlap(said, m))
	}
	if most < len(said) && harmonyMayOpen.MatchString(said[:len(said)-most]) || harmonyMayOpen.MatchString(said) {
		return mayStart, 0
	}
	return startsNothing, 0
}

// harmonyOpens begins the first header with what stands before its mark, n bytes behind a
// position.
func harmonyOpens(s *Stream, at, n int) bool {
	s.put(s.buf[:at])
	s.buf = s.buf[at:]
	if s.region > 0 || !harmonyOpening.MatchString(string(s.content.held)+s.buf[:n]) { // it is content
		s.put(s.buf[:n])
		s.buf = s.buf[n:]
	}
	return harmonyBegins(s, 0)
}

// harmonyBegins begins the first header at a position.
func harmonyBegins(s *Stream, at int) bool {
	s.keep(at)
	if s.region == 0 && s.out > 0 && harmonyOpening.Match(s.content.held) && len(s.content.text) == 0 {
		s.buf = string(s.content.held) + s.buf // blanks of the header
		s.content.drop()
		s.out = 0
	}
	s.nextHeader()
	return true
}

func (s *Stream) nextHeader() {
	s.harmony.begun, s.harmony.mark = false, ""
	s.harmony.header.Reset()
	s.state = inHeader
}

// inHeader reads the header of a message, or the bare text between two.
func inHeader(s *Stream) bool {
	h := &s.harmony
	if !h.begun {
		switch startsWord(s.buf, harmonyStart) {
		case mayStart:
			return false
		case startsCall:
			h.mark, s.buf = harmonyStart, s.buf[len(harmonyStart):]
		}
		h.begun = true
	}
	at, mark := len(s.buf)-max(text.Overlap(s.buf, harmonyStart), text.Overlap(s.buf, harmonyMessage)), ""
	for _, m := range []string{harmonyStart, harmonyMessage} {
		if i := strings.Index(s.buf, m); i >= 0 && i < at {
			at, mark = i, m
		}
	}
	h.header.WriteString(s.buf[:at])
	if s.buf = s.buf[at:]; mark == "" {
		return false
	}
	start, header, to := h.mark, h.header.String(), ""
	h.mark = ""
	h.header.Reset()
	if m := harmonyTo.FindStringSubmatch(header); m != nil {
		to = m[1]
	}
	switch {
	case mark == harmonyStart && to != "" && to != "assistant",
		mark == harmonyMessage && to != "" && to != "assistant" && to != "user":
		s.buf = start + header + s.buf
		return s.silence(0)
	case mark == harmonyStart:
		if !strings.Contains(header, "<|") {
			h.beginContent(s.out)
			h.content(s, header)
			h.endContent(s)
		}
		s.nextHeader()
		return true
	}
	s.buf = s.buf[len(mark):]
	if m := harmonyChannel.FindStringSubmatch(header); m != nil && m[1] == "analysis" {
		s.beginThought()
		s.state = func(s *Stream) bool { return inBody(s, s.reasoning.push, s.reasoning.end) }
		return true
	}
	h.beginContent(s.out)
	s.state = func(s *Stream) bool {
		return inBody(s, func(text string) { h.content(s, text) }, func() { h.endContent(s) })
	}
	return true
}

// inBody reads a message up to its end.
func inBody(s *Stream, add func(string), end func()) bool {
	at, mark, held := len(s.buf), "", 0
	for _, m := range harmonyEnds {
		if i := strings.Index(s.buf, m); i >= 0 && i < at {
			at, mark = i, m
		}
		held = max(held, text.Overlap(s.buf, m))
	}
	if mark == "" {
		at -= held
	}
	add(s.buf[:at])
	if s.buf = s.buf[at:]; mark == "" {
		return false
	}
	end()
	if mark != harmonyStart && mark != "<|channel|>" { // those begin the next header
		s.buf = s.buf[len(mark):]
	}
	s.nextHeader()
	return true
}

// beginContent, content and endContent add a message as addHarmonyContent does: behind other
// content, where it is not blank, in a line of its own.
func (h *harmonyStream) beginContent(out int) { h.apart, h.lead, h.blank = out > 0, h.lead[:0], 0 }

func (h *harmonyStream) content(s *Stream, said string) {
	if !h.apart {
		s.put(said)
		return
	}
	h.lead = append(h.lead, said...)
	n := len(h.lead) - incomplete(h.lead)
	if len(bytes.TrimLeftFunc(h.lead[h.blank:n], contentSpace)) == 0 {
		h.blank = n
		return
	}
	s.put("\n" + string(h.lead))
	h.apart = false
}

func (h *harmonyStream) endContent(s *Stream) {
	if !h.apart {
		return
	}
	if len(bytes.TrimSpace(h.lead)) > 0 {
		s.put("\n")
	}
	s.put(string(h.lead))
}
