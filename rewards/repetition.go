package rewards

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"unicode"

	"agentcli/traj"
)

// RepetitionSettings are the settings of repetition.
type RepetitionSettings struct {
	N          *int     `json:"n,omitempty"`           // words of an n-gram; nil: 3
	MaxPenalty *float64 `json:"max_penalty,omitempty"` // at most 0; nil: −1
}

// Validate checks the settings.
func (s RepetitionSettings) Validate() error {
	if s.N != nil && (*s.N < 1 || *s.N > 1000) {
		return fmt.Errorf("n is %d, want 1 to 1000", *s.N)
	}
	if s.MaxPenalty != nil && *s.MaxPenalty > 0 {
		return fmt.Errorf("max_penalty is %g, want 0 or less", *s.MaxPenalty)
	}
	return nil
}

const usualNGram = 3

// repetitionReward is the penalty of arXiv 2502.03373, appendix C.2, as its program has it:
// the share of n-grams that have occurred before, times the largest penalty. Words are
// those between white space, in lower case; a Han or kana character is a word of its own.
type repetitionReward struct{ s RepetitionSettings }

func newRepetition(o Options) (Reward, error) { return repetitionReward{o.Repetition}, nil }

func (repetitionReward) Name() string { return "repetition" }

func (r repetitionReward) Score(_ context.Context, t *traj.Trajectory) (Score, error) {
	if t.Termination.Infrastructure() {
		return Score{}, nil
	}
	n, most := usualNGram, -1.0
	if r.s.N != nil {
		n = *r.s.N
	}
	if r.s.MaxPenalty != nil {
		most = *r.s.MaxPenalty
	}
	value := repeated(written(t), n) * most
	if value == 0 {
		value = 0 // not −0
	}
	return shape("repetition", value), nil
}

// written is the text that the model has written: thinking and replies, without what an
// environment put into them.
func written(t *traj.Trajectory) string {
	var b strings.Builder
	for _, m := range t.Messages[min(len(t.Task.Messages), len(t.Messages)):] {
		if m.Role != traj.RoleAssistant {
			continue
		}
		for _, s := range []string{m.Reasoning, ownWords(m.Content)} {
			if s != "" {
				b.WriteString(s)
				b.WriteByte('\n')
			}
		}
	}
	return b.String()
}

// maxWords is how many words, from the beginning, repeated looks at.
const maxWords = 1 << 20

var wordSeed = maphash.MakeSeed()

// repeated is the share of a text's n-grams of words that have occurred before, 0 to 1.
func repeated(text string, n int) float64 {
	words := wordHashes(text)
	if len(words) < n {
		return 0
	}
	grams := make([]uint64, len(words)-n+1)
	for i := range grams {
		h := uint64(14695981039346656037) // FNV-1a over the words' hashes
		for _, w := range words[i : i+n] {
			h = (h ^ w) * 1099511628211
			h ^= h >> 29
		}
		grams[i] = h
	}
	total := len(grams)
	slices.Sort(grams)
	return 1 - float64(len(slices.Compact(grams)))/float64(total)
}

func wordHashes(text string) []uint64 {
	var words []uint64
	start := -1
	flush := func(end int) {
		if start >= 0 {
			words = append(words, maphash.String(wordSeed, strings.ToLower(text[start:end])))
			start = -1
		}
	}
	for i, r := range text {
		switch {
		case len(words) >= maxWords:
			return words
		case unicode.IsSpace(r):
			flush(i)
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana):
			flush(i)
			words = append(words, maphash.String(wordSeed, string(r)))
		case start < 0:
			start = i
		}
	}
	flush(len(text))
	return words
}
