package lossscale

import (
	"regexp"
	"strings"
)

// rule is one set of patterns.
type rule struct {
	name    string
	own     bool // of a file of the user's
	queries []*key
	keys    []*key

	keyword bool           // the keys are keywords with two weights, else patterns with one
	any     *regexp.Regexp // finds any of the keys, the first of the list where several match at one place
}

// key is a pattern or keyword with its weights.
type key struct {
	text    string
	start   *regexp.Regexp // of a pattern: it, at the beginning of a text
	weights []float64      // one, of the match; or two, of a keyword and of what follows it
	matches int
}

// cut cuts a text as ms-swift's calculate_loss_scale does.
func (r *rule) cut(reply string, queries []string) []Piece {
	for _, k := range r.queries {
		for _, q := range queries {
			if strings.Contains(q, k.text) {
				k.matches++
				return []Piece{{reply, k.weights[0]}}
			}
		}
	}
	var pieces []Piece
	add := func(part string, weight float64) {
		if part != "" {
			pieces = append(pieces, Piece{part, weight})
		}
	}
	if r.keyword {
		after, done := 1., 0
		for _, at := range r.any.FindAllStringIndex(reply, -1) {
			add(reply[done:at[0]], after)
			k := r.keywordOf(reply[at[0]:at[1]])
			k.matches++
			add(k.text, k.weights[0])
			after, done = k.weights[1], at[1]
		}
		add(reply[done:], after)
		return pieces
	}
	// A piece has the weight of the first pattern that matches at its beginning. Between two
	// matches only an anchor can: ^ holds at the beginning of each piece, as in ms-swift.
	done := 0
	weigh := func(part string) {
		for _, k := range r.keys {
			if part != "" && k.start.MatchString(part) {
				k.matches++
				add(part, k.weights[0])
				return
			}
		}
		add(part, 1)
	}
	for _, at := range r.any.FindAllStringIndex(reply, -1) {
		weigh(reply[done:at[0]])
		weigh(reply[at[0]:at[1]])
		done = at[1]
	}
	weigh(reply[done:])
	return pieces
}

func (r *rule) keywordOf(word string) *key {
	for _, k := range r.keys {
		if k.text == word {
			return k
		}
	}
	return &key{text: word, weights: []float64{1, 1}} // any finds keys only
}

// unmatched are the patterns that matched nothing; some reports whether another did.
func (r *rule) unmatched() (none []string, some bool) {
	for _, list := range [][]*key{r.queries, r.keys} {
		for _, k := range list {
			if k.matches == 0 {
				none = append(none, k.text)
			}
			some = some || k.matches > 0
		}
	}
	return none, some
}
