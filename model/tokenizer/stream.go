package tokenizer

// Stream decodes ids as they come and hands out complete characters only. It
// serves one goroutine. Where tokens stand for bytes of characters (byte
// fallback), a run of them is held back until it ends.
type Stream struct {
	t    *Tokenizer
	skip bool
	tail []byte

	run  *decoding // where the text is not simply the tokens' bytes
	text []byte
}

// NewStream starts a stream; skipSpecial as in Decode.
func (t *Tokenizer) NewStream(skipSpecial bool) *Stream {
	s := &Stream{t: t, skip: skipSpecial}
	if !t.dec.plain {
		s.run = t.dec.run(func(p string) { s.text = append(s.text, p...) })
	}
	return s
}

// Add takes one id and returns the text that is complete now, perhaps none.
// All that Add and the last Flush return is together what Decode returns.
func (s *Stream) Add(id int32) string {
	if s.skip && s.t.vocab.special[id] {
		return ""
	}
	if s.run != nil {
		s.run.add(id)
		return s.take()
	}
	s.tail = append(s.tail, s.t.Bytes(id)...)
	n := completeUpTo(s.tail)
	out := lossy(s.tail[:n])
	s.tail = append(s.tail[:0], s.tail[n:]...)
	return out
}

// Flush returns what is left as text, U+FFFD for a character that never got
// complete, and starts afresh.
func (s *Stream) Flush() string {
	if s.run != nil {
		s.run.end()
		return s.take()
	}
	out := lossy(s.tail)
	s.tail = s.tail[:0]
	return out
}

func (s *Stream) take() string {
	out := string(s.text)
	s.text = s.text[:0]
	return out
}
