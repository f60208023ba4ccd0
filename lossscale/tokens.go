package lossscale

import (
	"slices"
	"strings"

	"agentcli/traj"
)

// Vocabulary says what token ids stand for; tokenizer.Tokenizer is one.
type Vocabulary interface {
	Bytes(id int32) []byte // possibly a part of a UTF-8 character; nil of an id that is none
	Special(id int32) bool // a control token, such as that which ends a turn
}

// Tokens gives the weight of each token of one reply: that of the piece in which its first
// byte is. A token of no bytes weighs what the text at its place does. The control tokens
// at the end of the reply are not in its text, and weigh 1. The slice is [ids].
func (r *Rules) Tokens(v Vocabulary, ids []int32, queries []string) []float64 {
	weights := make([]float64, len(ids))
	end := len(ids)
	for end > 0 && v.Special(ids[end-1]) {
		end--
		weights[end] = 1
	}
	var reply strings.Builder
	starts := make([]int, end) // of the tokens, in bytes
	for i, id := range ids[:end] {
		starts[i] = reply.Len()
		reply.Write(v.Bytes(id))
	}
	pieces, before := r.Pieces(reply.String(), queries), 0 // bytes before the first of pieces
	for i, at := range starts {
		for len(pieces) > 0 && at >= before+len(pieces[0].Text) {
			before += len(pieces[0].Text)
			pieces = pieces[1:]
		}
		weights[i] = 1
		if len(pieces) > 0 {
			weights[i] = pieces[0].Weight
		}
		next := reply.Len()
		if i+1 < end {
			next = starts[i+1]
		}
		if changesWithin(pieces, next-before) {
			r.rounded.Tokens++
		}
	}
	r.rounded.Of += end
	return weights
}

// changesWithin reports whether the first bytes of pieces, from the first piece on, weigh
// different things.
func changesWithin(pieces []Piece, n int) bool {
	for i := range pieces {
		if n -= len(pieces[i].Text); n <= 0 {
			return false
		}
		if i+1 < len(pieces) && pieces[i+1].Weight != pieces[0].Weight {
			return true
		}
	}
	return false
}

// Trajectory gives the weight of each token of each sequence, [sequences][tokens]: that of
// Tokens for what was sampled, and 1 for the rest. A reply is one message of the model: what
// was inserted into it, as a scheduler or a search environment does, belongs to its text.
// What it answers are the messages before it that no other reply is between. Sequences whose
// tokens weigh 0 already, such as those of what was cut off, are passed over.
func (r *Rules) Trajectory(v Vocabulary, t *traj.Trajectory) [][]float64 {
	all, total := make([][]float64, len(t.Sequences)), 0
	replies := make([][]span, len(t.Sequences))
	for i := range t.Sequences {
		s := &t.Sequences[i]
		all[i] = slices.Repeat([]float64{1}, len(s.TokenIDs))
		if len(s.Weights) == 0 || slices.Max(s.Weights) > 0 {
			replies[i] = repliesOf(v, s)
			total += len(replies[i])
		}
	}
	said := Queries(t.Messages)
	k := max(len(said)-total, 0) // worked examples are messages, and no replies
	for i := range t.Sequences {
		s := &t.Sequences[i]
		for _, at := range replies[i] {
			var queries []string
			if len(said) > 0 {
				queries = said[min(k, len(said)-1)]
			}
			for j, w := range r.Tokens(v, s.TokenIDs[at.from:at.to], queries) {
				if s.LossMask[at.from+j] {
					all[i][at.from+j] = w
				}
			}
			k++
		}
	}
	return all
}

// span are the tokens from one place to before another.
type span struct{ from, to int }

// repliesOf are where the replies of a sequence stand. Between two of them the template
// writes a control token, if only that which begins a turn.
func repliesOf(v Vocabulary, s *traj.Sequence) (all []span) {
	eachStretch(s, func(from, to int) {
		n := len(all) - 1
		if n >= 0 && !v.Special(s.TokenIDs[all[n].to-1]) && !slices.ContainsFunc(s.TokenIDs[all[n].to:from], v.Special) {
			all[n].to = to
			return
		}
		all = append(all, span{from, to})
	})
	return all
}

// eachStretch calls f for each stretch of sampled tokens.
func eachStretch(s *traj.Sequence, f func(from, to int)) {
	for from := 0; from < len(s.LossMask); from++ {
		if !s.LossMask[from] {
			continue
		}
		to := from
		for to < len(s.LossMask) && s.LossMask[to] {
			to++
		}
		f(from, to)
		from = to
	}
}

// AllMask says which tokens of a sequence a policy loss takes with the strategy All: those from the
// first sampled one on, but for images.
func AllMask(s *traj.Sequence) []bool {
	all := make([]bool, len(s.LossMask))
	if first := slices.Index(s.LossMask, true); first >= 0 {
		image := s.ImageMask()
		for t := first; t < len(all); t++ {
			all[t] = image == nil || !image[t]
		}
	}
	return all
}

// LastReply is where the last stretch of sampled tokens begins, by sequence and token: what
// the last model call gave. It is -1 where nothing was sampled.
func LastReply(sequences []traj.Sequence) (sequence, token int) {
	sequence = -1
	for i := range sequences {
		eachStretch(&sequences[i], func(from, _ int) { sequence, token = i, from })
	}
	return sequence, token
}

// Queries are, for each message of the model, what it answers: the texts of the messages
// since its last one, without the system's.
func Queries(messages []traj.Message) (all [][]string) {
	var now []string
	for _, m := range messages {
		switch m.Role {
		case traj.RoleAssistant:
			all = append(all, now)
			now = nil
		case traj.RoleSystem:
		default:
			now = append(now, m.Content)
		}
	}
	return all
}
