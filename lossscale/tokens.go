package lossscale

import (
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
	}
	return weights
}

// Trajectory gives the weight of each token of each sequence, [sequences][tokens]: that of
// Tokens for the replies, which are the stretches of sampled tokens, and 1 between them.
// What a reply answers are the messages before it that no reply is between.
func (r *Rules) Trajectory(v Vocabulary, t *traj.Trajectory) [][]float64 {
	all, replies := make([][]float64, len(t.Sequences)), 0
	for i := range t.Sequences {
		all[i] = make([]float64, len(t.Sequences[i].TokenIDs))
		eachReply(&t.Sequences[i], func(int, int) { replies++ })
	}
	said := Queries(t.Messages)
	k := max(len(said)-replies, 0) // worked examples are messages, and no replies
	for i := range t.Sequences {
		for at := range all[i] {
			all[i][at] = 1
		}
		eachReply(&t.Sequences[i], func(from, to int) {
			var queries []string
			if len(said) > 0 {
				queries = said[min(k, len(said)-1)]
			}
			copy(all[i][from:to], r.Tokens(v, t.Sequences[i].TokenIDs[from:to], queries))
			k++
		})
	}
	return all
}

// eachReply calls f for each stretch of sampled tokens.
func eachReply(s *traj.Sequence, f func(from, to int)) {
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

// LastReply is where the last stretch of sampled tokens begins, by sequence and token; -1
// where nothing was sampled.
func LastReply(sequences []traj.Sequence) (sequence, token int) {
	sequence = -1
	for i := range sequences {
		eachReply(&sequences[i], func(from, _ int) { sequence, token = i, from })
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
