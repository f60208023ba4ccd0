package tokenizer

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"agentcli/internal/malformed"
)

// decoder turns tokens back into text. What a component of the file does to each
// token by itself is done once for the whole vocabulary; the others are stages
// that the tokens of one text go through.
type decoder struct {
	pieces [][]byte // by id: what the id stands for; nil: there is no such token
	texts  []string // the same, where there are stages
	stages []func() stage
	// plain: the text is the pieces' bytes side by side. Most models' are.
	plain bool
	// isByte marks the tokens <0x00> to <0xFF> where they stand for bytes.
	isByte []bool
}

// stage takes the tokens of one text in turn and hands out others. After end it
// serves another text.
type stage interface {
	add(token string, out func(string))
	end(out func(string))
}

// parseDecoder reads the field of tokenizer.json for a vocabulary.
func parseDecoder(raw json.RawMessage, v *vocabulary) (*decoder, error) {
	d := &decoder{pieces: make([][]byte, len(v.tokens))}
	if isNull(raw) {
		d.spell(v, nil)
		d.stages = append(d.stages, func() stage { return &spaced{} })
		d.texts = asTexts(d.pieces)
		return d, nil
	}
	var s step
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, err
	}
	flat, err := flattenDecoders(s, nil)
	if err != nil {
		return nil, err
	}
	if len(flat) == 1 && flat[0].Type == "ByteLevel" {
		for id, t := range v.decoded {
			if v.present[id] {
				d.pieces[id] = tokenBytes(t)
			}
		}
		d.plain = true
		return d, nil
	}
	// Fusing all tokens into one at the end changes nothing.
	for len(flat) > 0 && flat[len(flat)-1].Type == "Fuse" {
		flat = flat[:len(flat)-1]
	}
	var each []func(string) string
	var grows growth
	for i := 0; i < len(flat); i++ {
		s := flat[i]
		if err := grows.by(growthOf(s)); err != nil {
			return nil, err
		}
		// A Strip at the end of all that was fused need not wait for all of it.
		if s.Type == "Fuse" && i+2 == len(flat) && stripsStart(flat[i+1]) {
			c, start := flat[i+1].Content[0], flat[i+1].Start
			d.stages = append(d.stages, func() stage { return &stripStart{c: c, start: start, left: start} })
			break
		}
		f, newStage, err := decoderOf(s)
		switch {
		case err != nil:
			return nil, err
		case f != nil && d.stages == nil:
			each = append(each, f)
		case f != nil:
			d.stages = append(d.stages, func() stage { return perToken(f) })
		default:
			d.stages = append(d.stages, newStage)
		}
	}
	d.spell(v, each)
	if len(flat) > len(each) && flat[len(each)].Type == "ByteFallback" {
		d.isByte = make([]bool, len(v.tokens))
		for id, p := range d.pieces {
			if b, ok := byteToken(string(p)); ok && p != nil {
				d.pieces[id], d.isByte[id] = []byte{b}, true
			}
		}
	}
	d.plain = len(d.stages) == 0
	d.texts = asTexts(d.pieces)
	return d, nil
}

func asTexts(pieces [][]byte) []string {
	out := make([]string, len(pieces))
	for i, p := range pieces {
		out[i] = string(p)
	}
	return out
}

// stripsStart: it takes a character of one byte off the start, nothing off the end.
func stripsStart(s step) bool {
	return s.Type == "Strip" && len(s.Content) == 1 && s.Start >= 0 && s.Stop == 0
}

// spell sets the pieces: the tokens after what is done to each by itself.
func (d *decoder) spell(v *vocabulary, each []func(string) string) {
	for id, t := range v.decoded {
		if !v.present[id] {
			continue
		}
		for _, f := range each {
			t = f(t)
		}
		d.pieces[id] = []byte(t)
	}
}

func flattenDecoders(s step, out []step) ([]step, error) {
	if s.Type != "Sequence" {
		if len(out) == maxSteps {
			return nil, malformed.Errorf(malformed.Range, "more than %d steps", maxSteps)
		}
		return append(out, s), nil
	}
	var err error
	for _, inner := range s.Decoders {
		if out, err = flattenDecoders(inner, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// decoderOf gives what a component does to each token by itself, or a stage.
func decoderOf(s step) (func(string) string, func() stage, error) {
	switch s.Type {
	case "Replace":
		f, err := replacer(s)
		return f, nil, err
	case "Strip":
		c, n := utf8.DecodeRuneInString(s.Content)
		if n == 0 || n != len(s.Content) {
			return nil, nil, malformed.Errorf(malformed.Range, "Strip: content %q is not one character", s.Content)
		}
		if s.Start < 0 || s.Stop < 0 {
			return nil, nil, malformed.Errorf(malformed.Range, "Strip: start %d, stop %d", s.Start, s.Stop)
		}
		return func(t string) string { return strip(t, c, s.Start, s.Stop) }, nil, nil
	case "ByteFallback":
		return nil, func() stage { return &fallbackBytes{} }, nil
	case "Fuse":
		return nil, func() stage { return &fuse{} }, nil
	case "ByteLevel":
		return nil, func() stage { return &letterBytes{} }, nil
	case "Metaspace":
		mark, n := utf8.DecodeRuneInString(s.Replacement)
		if n == 0 || n != len(s.Replacement) {
			return nil, nil, malformed.Errorf(malformed.Range, "Metaspace: replacement %q is not one character", s.Replacement)
		}
		scheme, err := s.prependScheme()
		return nil, func() stage { return &unspace{mark: string(mark), keep: scheme == "never"} }, err
	case "WordPiece":
		prefix := "##"
		if s.Prefix != nil {
			prefix = *s.Prefix
		}
		clean := s.Cleanup == nil || *s.Cleanup
		return nil, func() stage { return &joinWords{prefix: prefix, clean: clean} }, nil
	case "BPEDecoder":
		suffix := "</w>"
		if s.Suffix != nil {
			suffix = *s.Suffix
		}
		return nil, func() stage { return &suffixed{suffix: suffix} }, nil
	case "CTC":
		c := ctc{pad: "<pad>", delimiter: "|", clean: s.Cleanup == nil || *s.Cleanup}
		if s.PadToken != nil {
			c.pad = *s.PadToken
		}
		if s.WordDelimiter != nil {
			c.delimiter = *s.WordDelimiter
		}
		return nil, func() stage { x := c; return &x }, nil
	}
	return nil, nil, unknownType(s.Type, "decoder")
}

// strip takes up to start characters c off the start of a token, and up to stop
// off its end.
func strip(t string, c rune, start, stop int) string {
	w := utf8.RuneLen(c)
	for ; start > 0 && strings.HasPrefix(t, string(c)); start-- {
		t = t[w:]
	}
	for ; stop > 0 && strings.HasSuffix(t, string(c)); stop-- {
		t = t[:len(t)-w]
	}
	return t
}

// byteToken reads <0x0A>. The library takes any six bytes of that form, with
// letters of either case, and a sign before a single digit.
func byteToken(t string) (byte, bool) {
	if len(t) != 6 || t[:3] != "<0x" || t[5] != '>' {
		return 0, false
	}
	hex := func(c byte) int { return strings.IndexByte("0123456789abcdef", c|0x20) }
	hi, lo := hex(t[3]), hex(t[4])
	if t[3] < '0' || t[4] < '0' || lo < 0 {
		if t[3] == '+' && lo >= 0 {
			return byte(lo), true
		}
		return 0, false
	}
	if hi < 0 {
		return 0, false
	}
	return byte(hi<<4 | lo), true
}

// decode is the text of ids.
func (d *decoder) decode(ids []int32, skip func(int32) bool) string {
	b := make([]byte, 0, 4*len(ids))
	if d.plain {
		for _, id := range ids {
			if !skip(id) && id >= 0 && int(id) < len(d.pieces) {
				b = append(b, d.pieces[id]...)
			}
		}
		return lossy(b)
	}
	r := d.run(func(s string) { b = append(b, s...) })
	for _, id := range ids {
		if !skip(id) {
			r.add(id)
		}
	}
	r.end()
	return string(b)
}

// decoding is a text on its way through a decoder's stages.
type decoding struct {
	d      *decoder
	stages []stage
	in     []func(string) // in[i] gives a token to stage i; the last is the text
}

func (d *decoder) run(out func(string)) *decoding {
	r := &decoding{d: d, in: make([]func(string), len(d.stages)+1)}
	r.in[len(d.stages)] = out
	r.stages = make([]stage, len(d.stages))
	for i := len(d.stages) - 1; i >= 0; i-- {
		s, next := d.stages[i](), r.in[i+1]
		r.stages[i] = s
		r.in[i] = func(t string) { s.add(t, next) }
	}
	return r
}

func (r *decoding) add(id int32) {
	if id < 0 || int(id) >= len(r.d.pieces) || r.d.pieces[id] == nil {
		return
	}
	if f, ok := r.first(); ok {
		f.piece(r.d.texts[id], r.d.isByte[id], r.in[1])
		return
	}
	r.in[0](r.d.texts[id])
}

// first is the stage that joins byte tokens, where it is the first.
func (r *decoding) first() (*fallbackBytes, bool) {
	if r.d.isByte == nil {
		return nil, false
	}
	f, ok := r.stages[0].(*fallbackBytes)
	return f, ok
}

func (r *decoding) end() {
	for i, s := range r.stages {
		s.end(r.in[i+1])
	}
}

// perToken is a stage that changes each token by itself.
type perToken func(string) string

func (f perToken) add(t string, out func(string)) { out(f(t)) }
func (f perToken) end(func(string))               {}

// spaced puts a space between tokens: what a file without a decoder asks for.
type spaced struct{ begun bool }

func (s *spaced) add(t string, out func(string)) {
	if s.begun {
		t = " " + t
	}
	s.begun = true
	out(t)
}

func (s *spaced) end(func(string)) { s.begun = false }

// fallbackBytes makes characters of the bytes that byte tokens stand for. A run
// of them that is no UTF-8 is one U+FFFD for each byte.
type fallbackBytes struct{ run []byte }

func (f *fallbackBytes) add(t string, out func(string)) {
	b, ok := byteToken(t)
	if ok {
		t = string([]byte{b})
	}
	f.piece(t, ok, out)
}

// piece takes a token that stands for a byte, or any other.
func (f *fallbackBytes) piece(t string, isByte bool, out func(string)) {
	if isByte {
		f.run = append(f.run, t...)
		return
	}
	f.end(out)
	out(t)
}

func (f *fallbackBytes) end(out func(string)) {
	if len(f.run) == 0 {
		return
	}
	if utf8.Valid(f.run) {
		out(string(f.run))
	} else {
		for range f.run {
			out("\uFFFD")
		}
	}
	f.run = f.run[:0]
}

// fuse makes one token of all.
type fuse struct{ b bytes.Buffer }

func (f *fuse) add(t string, _ func(string)) { f.b.WriteString(t) }
func (f *fuse) end(out func(string)) {
	out(f.b.String())
	f.b.Reset()
}

// stripStart takes characters off the start of the text.
type stripStart struct {
	c           byte
	start, left int
}

func (s *stripStart) add(t string, out func(string)) {
	for s.left > 0 && t != "" {
		if t[0] != s.c {
			s.left = 0
			break
		}
		t = t[1:]
		s.left--
	}
	if t != "" {
		out(t)
	}
}

func (s *stripStart) end(func(string)) { s.left = s.start }

// letterBytes reads the tokens' letters as bytes and makes one token of all.
type letterBytes struct{ b []byte }

func (l *letterBytes) add(t string, _ func(string)) { l.b = append(l.b, tokenBytes(t)...) }
func (l *letterBytes) end(out func(string)) {
	out(lossy(l.b))
	l.b = l.b[:0]
}

// unspace makes spaces of ▁; those of the first token are dropped, unless keep.
type unspace struct {
	mark  string
	keep  bool
	begun bool
}

func (u *unspace) add(t string, out func(string)) {
	to := " "
	if !u.begun && !u.keep {
		to = ""
	}
	u.begun = true
	out(strings.ReplaceAll(t, u.mark, to))
}

func (u *unspace) end(func(string)) { u.begun = false }

// joinWords puts a space before each token that does not continue a word.
type joinWords struct {
	prefix string
	clean  bool
	begun  bool
}

func (j *joinWords) add(t string, out func(string)) {
	if j.begun {
		if rest, ok := strings.CutPrefix(t, j.prefix); ok {
			t = rest
		} else {
			t = " " + t
		}
	}
	j.begun = true
	if j.clean {
		t = cleanUp(t)
	}
	out(t)
}

func (j *joinWords) end(func(string)) { j.begun = false }

// cleanUp takes spaces before punctuation and contractions away, in the
// library's order.
func cleanUp(t string) string {
	for _, r := range [][2]string{{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"},
		{" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}} {
		t = strings.ReplaceAll(t, r[0], r[1])
	}
	return t
}

// suffixed makes spaces of the marks that end words; that of the last token is
// dropped.
type suffixed struct {
	suffix, last string
	begun        bool
}

func (s *suffixed) add(t string, out func(string)) {
	if s.begun {
		out(s.replace(s.last, " "))
	}
	s.last, s.begun = t, true
}

func (s *suffixed) end(out func(string)) {
	if s.begun {
		out(s.replace(s.last, ""))
	}
	s.begun = false
}

// replace is Rust's str::replace, which finds an empty suffix between all
// characters.
func (s *suffixed) replace(t, with string) string { return strings.ReplaceAll(t, s.suffix, with) }

// ctc drops repeated tokens and the padding between them.
type ctc struct {
	pad, delimiter, last string
	clean, begun         bool
}

func (c *ctc) add(t string, out func(string)) {
	if c.begun && t == c.last {
		return
	}
	c.last, c.begun = t, true
	t = strings.ReplaceAll(t, c.pad, "")
	if c.clean {
		t = strings.ReplaceAll(cleanUp(t), c.delimiter, " ")
	}
	if t != "" {
		out(t)
	}
}

func (c *ctc) end(func(string)) { c.begun = false }
