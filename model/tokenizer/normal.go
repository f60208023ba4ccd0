package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"agentcli/internal/malformed"

	"golang.org/x/text/unicode/norm"
)

// normalizer is what is done to a text before it is cut, step by step.
type normalizer struct {
	steps []func(string) string
	names []string // of the steps, with their settings
	grows growth
}

// growth is how many times longer a text may become, by the steps so far.
type growth float64

// maxGrowth is what is still taken: a file's replacements may blow up a short
// text beyond any memory. Those in use stay below 100.
const maxGrowth = 1 << 14

// by notes one more step.
func (g *growth) by(factor int) error {
	*g = max(*g, 1) * growth(max(factor, 1))
	if *g > maxGrowth {
		return malformed.Errorf(malformed.Range, "a text may become more than %d times longer by it", maxGrowth)
	}
	return nil
}

// growthOf is the bound for one component.
func growthOf(s step) int {
	switch s.Type {
	case "Replace":
		if s.Pattern.String != nil && *s.Pattern.String != "" {
			return (len(s.Content) + len(*s.Pattern.String) - 1) / len(*s.Pattern.String)
		}
		return len(s.Content) + 1
	case "Prepend":
		return len(s.Prepend) + 1
	case "NFD", "NFKD", "NFC", "NFKC":
		return 3
	case "ByteLevel":
		return 2
	case "BertNormalizer", "Metaspace":
		return 3
	}
	return 1
}

// apply is the text in normal form.
func (n normalizer) apply(s string) string {
	for _, f := range n.steps {
		s = f(s)
	}
	return s
}

// String names the steps; the hash of a tokenizer depends on it.
func (n normalizer) String() string { return fmt.Sprint(n.names) }

// parseNormalizer reads the field of tokenizer.json.
func parseNormalizer(raw json.RawMessage) (normalizer, error) {
	var n normalizer
	if isNull(raw) {
		return n, nil
	}
	var s step
	if err := json.Unmarshal(raw, &s); err != nil {
		return n, err
	}
	return n, n.add(s)
}

// forms are Unicode's normal forms. The hash names them by number.
var forms = map[string]norm.Form{"NFC": norm.NFC, "NFD": norm.NFD, "NFKC": norm.NFKC, "NFKD": norm.NFKD}

func (n *normalizer) add(s step) error {
	if err := n.grows.by(growthOf(s)); err != nil {
		return err
	}
	if f, ok := forms[s.Type]; ok {
		n.put(fmt.Sprint(int(f)), func(t string) string {
			if f.IsNormalString(t) {
				return t
			}
			return normalise(f, t)
		})
		return nil
	}
	switch s.Type {
	case "Sequence":
		for _, inner := range s.Normalizers {
			if err := n.add(inner); err != nil {
				return err
			}
		}
	case "Lowercase":
		n.put(s.Type, lowercase)
	case "Strip":
		n.put(fmt.Sprint(s.Type, s.StripLeft, s.StripRight), func(t string) string {
			if s.StripLeft {
				t = strings.TrimLeftFunc(t, unicode.IsSpace)
			}
			if s.StripRight {
				t = strings.TrimRightFunc(t, unicode.IsSpace)
			}
			return t
		})
	case "StripAccents":
		n.put(s.Type, func(t string) string { return without(t, unicode.IsMark) })
	case "Nmt":
		n.put(s.Type, nmt)
	case "Prepend":
		n.put(s.Type+s.Prepend, func(t string) string {
			if t == "" {
				return t
			}
			return s.Prepend + t
		})
	case "Replace":
		f, err := replacer(s)
		if err != nil {
			return err
		}
		n.put(fmt.Sprintf("%s(%s,%q)", s.Type, s.Pattern.text(), s.Content), f)
	case "BertNormalizer":
		n.put(fmt.Sprint(s.Type, s.CleanText, s.ChineseChars, stripsAccents(s), s.Lowercase), bertNormalizer(s))
	case "Precompiled":
		m, err := parseCharsMap(s.CharsMap)
		if err != nil {
			return err
		}
		n.put(s.Type+s.CharsMap, m.apply)
	case "ByteLevel":
		n.put(s.Type, byteLetters)
	default:
		return unknownType(s.Type, "normalizer")
	}
	return nil
}

func (n *normalizer) put(name string, f func(string) string) {
	n.names = append(n.names, name)
	n.steps = append(n.steps, f)
}

// unknownType is the error for a component that the tokenizers library does not
// have either, or that came after version 0.23.
func unknownType(kind, what string) error {
	return malformed.Errorf(malformed.Unsupported, "type %q is no %s of the tokenizers library up to 0.23", kind, what)
}

// replacer is what the component Replace does, as a normaliser and as a decoder.
func replacer(s step) (func(string) string, error) {
	find, err := s.Pattern.finder()
	if err != nil {
		return nil, err
	}
	if s.Pattern.String != nil {
		old := *s.Pattern.String
		if old == "" {
			return nil, malformed.Errorf(malformed.Unsupported, "Replace of an empty text")
		}
		return func(t string) string {
			return strings.ReplaceAll(t, old, s.Content)
		}, nil
	}
	return func(t string) string {
		var b strings.Builder
		find(t, func(p string, matched bool) {
			if matched {
				p = s.Content
			}
			b.WriteString(p)
		})
		return b.String()
	}, nil
}

// without is the text without the characters of a kind.
func without(s string, drop func(rune) bool) string {
	if strings.IndexFunc(s, drop) < 0 {
		return s
	}
	return strings.Map(func(r rune) rune {
		if drop(r) {
			return -1
		}
		return r
	}, s)
}

// lowercase goes by single characters, as Rust's char::to_lowercase: a Greek
// sigma at the end of a word is like any other.
func lowercase(s string) string {
	if strings.ContainsRune(s, 'İ') {
		s = strings.ReplaceAll(s, "İ", "i\u0307")
	}
	return strings.Map(unicode.ToLower, s)
}

// nmt drops control characters and makes others spaces, after SentencePiece's
// rules of the same name.
func nmt(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 1 && r <= 8, r == 0xb, r >= 0xe && r <= 0x1f, r == 0x7f, r == 0x8f, r == 0x9f:
			return -1
		case r == '\t', r == '\n', r == '\f', r == '\r', r == 0x1680, r >= 0x200b && r <= 0x200f, r == 0x2028, r == 0x2029,
			r == metaspace, r == 0xfeff, r == 0xfffd:
			return ' '
		}
		return r
	}, s)
}

// byteLetters writes the bytes of a text in GPT-2's letters.
func byteLetters(s string) string {
	var b strings.Builder
	b.Grow(2 * len(s))
	for i := 0; i < len(s); i++ {
		b.WriteRune(byteRune[s[i]])
	}
	return b.String()
}

func bertNormalizer(s step) func(string) string {
	strip := stripsAccents(s)
	return func(t string) string {
		if s.CleanText {
			t = strings.Map(func(r rune) rune {
				switch {
				case unicode.IsSpace(r):
					return ' '
				case r == 0 || r == utf8.RuneError || isOther(r):
					return -1
				}
				return r
			}, t)
		}
		if s.ChineseChars {
			t = spacedHan(t)
		}
		if strip {
			t = without(normalise(norm.NFD, t), func(r rune) bool { return unicode.Is(unicode.Mn, r) })
		}
		if s.Lowercase {
			t = lowercase(t)
		}
		return t
	}
}

// isOther is a control character but a tab or a line end, a format character or
// one of private use.
func isOther(r rune) bool {
	if r == '\t' || r == '\n' || r == '\r' {
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co)
}

// spacedHan puts spaces around Chinese characters.
func spacedHan(s string) string {
	if strings.IndexFunc(s, isHan) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if isHan(r) {
			b.WriteByte(' ')
			b.WriteRune(r)
			b.WriteByte(' ')
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// isHan are the blocks that BERT takes for Chinese.
func isHan(r rune) bool {
	return r >= 0x4e00 && r <= 0x9fff || r >= 0x3400 && r <= 0x4dbf || r >= 0x20000 && r <= 0x2a6df || r >= 0x2a700 && r <= 0x2b73f ||
		r >= 0x2b740 && r <= 0x2b81f || r >= 0x2b920 && r <= 0x2ceaf || r >= 0xf900 && r <= 0xfaff || r >= 0x2f800 && r <= 0x2fa1f
}

// The package norm cuts runs of more than 30 combining marks with a joiner of
// its own (the stream-safe format), which the reference does not.
const streamSafe = 30

// normalise is the plain normal form of Unicode, of any text.
func normalise(f norm.Form, s string) string {
	if !longMarks(s) {
		return f.String(s)
	}
	decompose, composed := norm.NFD, f == norm.NFC || f == norm.NFKC
	if f == norm.NFKC || f == norm.NFKD {
		decompose = norm.NFKD
	}
	var rs []rune
	for _, r := range s {
		rs = append(rs, []rune(decompose.String(string(r)))...)
	}
	for i := 0; i < len(rs); {
		j := i
		for j < len(rs) && ccc(rs[j]) != 0 {
			j++
		}
		slices.SortStableFunc(rs[i:j], func(a, b rune) int { return int(ccc(a)) - int(ccc(b)) })
		i = j + 1
	}
	if composed {
		rs = compose(rs)
	}
	return string(rs)
}

// compose is the canonical composition of an ordered decomposition.
func compose(rs []rune) []rune {
	out := rs[:0:0]
	starter, last := -1, -1 // place of the last starter; class of what followed it
	for _, r := range rs {
		c := int(ccc(r))
		if starter >= 0 && last < c || starter == len(out)-1 && starter >= 0 {
			if x := norm.NFC.String(string([]rune{out[starter], r})); utf8.RuneCountInString(x) == 1 {
				out[starter], _ = utf8.DecodeRuneInString(x)
				continue
			}
		}
		out = append(out, r)
		if last = c; c == 0 {
			starter, last = len(out)-1, -1
		}
	}
	return out
}

func ccc(r rune) uint8 {
	if r < 0x300 {
		return 0
	}
	return norm.NFC.PropertiesString(string(r)).CCC()
}

func longMarks(s string) bool {
	n := 0
	for _, r := range s {
		if r < 0x300 {
			n = 0
			continue
		}
		// What is no starter in a decomposition counts too.
		if p := norm.NFD.PropertiesString(string(r)); p.CCC() != 0 || p.TrailCCC() != 0 && n > 0 {
			if n++; n >= streamSafe-4 {
				return true
			}
		} else {
			n = 0
		}
	}
	return false
}
