package rows

import (
	"slices"

	"agentcli/internal/malformed"
	"agentcli/lossscale"
	"agentcli/trainer/episode"
	"agentcli/traj"
)

// messageLoss is what a message of a row of text says of its own loss, as in ms-swift: its
// keys loss and loss_scale. Of messages that are not the model's it is passed over.
type messageLoss struct {
	train *bool    // loss: whether it is trained on, whatever the strategy is; nil: it does not say
	scale *float64 // loss_scale: its weight, in place of the rules'; nil: it does not say
}

// messageLosses reads those of a list of messages; nil where there is no such list.
func messageLosses(v any) ([]messageLoss, error) {
	list, _ := v.([]any)
	all := make([]messageLoss, len(list))
	for i, m := range list {
		fields, _ := m.(map[string]any) // ReadMessages refuses what is none
		switch loss := fields["loss"].(type) {
		case nil:
		case bool:
			all[i].train = &loss
		default:
			return nil, malformed.Field("loss", malformed.Type, "message %d: %v is neither true nor false", i, loss)
		}
		if fields["loss_scale"] == nil {
			continue
		}
		w, err := numeric(fields["loss_scale"])
		if err == nil && w < 0 {
			err = malformed.Errorf(malformed.Range, "%v is below 0", w)
		}
		if err != nil {
			return nil, malformed.Field("loss_scale", malformed.Range, "message %d: %w", i, err)
		}
		all[i].scale = &w
	}
	return all, nil
}

// replyWeights are what decides the weights of a conversation's turns: the row's weight,
// one for all or one for each turn, and what its messages say themselves. Both may be nil.
type replyWeights struct {
	row []float64
	own []messageLoss // [messages]
}

// weigh gives the turns of a conversation their weights: the row's times that of the
// message itself or, where that has none, of the rules.
func (r *textReader) weigh(e *episode.Episode, msgs []traj.Message, replies []reply, w replyWeights) error {
	switch n := len(w.row); {
	case n == 1:
		w.row = slices.Repeat(w.row, len(replies))
	case n != 0 && n != len(replies):
		return malformed.Field("weight", malformed.Mismatch,
			"it has another number of entries than the row has assistant turns that are trained on")
	}
	own := func(k int) messageLoss {
		if i := replies[k].message; i < len(w.own) {
			return w.own[i]
		}
		return messageLoss{}
	}
	last := len(replies) - 1
	for k := range last { // else no turn before the last one is trained on anyway
		e.OwnLoss = e.OwnLoss || r.o.LastRound && isTrue(own(k).train)
	}
	weights := make([][]float64, len(e.Sequences))
	for i := range weights {
		weights[i] = slices.Repeat([]float64{1}, len(e.Sequences[i].TokenIDs))
	}
	queries := lossscale.Queries(msgs)
	for k, at := range replies {
		trained := own(k).train == nil || *own(k).train
		if e.OwnLoss {
			trained = isTrue(own(k).train) || k == last && own(k).train == nil
		}
		ids := e.Sequences[at.sequence].TokenIDs[at.start:at.end]
		of := weights[at.sequence][at.start:at.end]
		switch scale := own(k).scale; {
		case !trained:
			clear(of)
		case scale != nil:
			r.scaleReply(of, ids, *scale)
		case r.o.Weigh != nil:
			copy(of, r.o.Weigh.Tokens(r.vocabulary, ids, queries[countAssistants(msgs[:at.message])]))
		}
		if w.row != nil {
			for t := range of {
				of[t] *= w.row[k]
			}
		}
	}
	for i := range weights {
		multiply(&e.Sequences[i], weights[i])
	}
	if r.o.weighsNothing(e) {
		return errNothingSaid
	}
	return nil
}

// scaleReply gives a turn one weight. The token that ends it weighs 1, as under the rules,
// unless nothing of the turn is to be trained on.
func (r *textReader) scaleReply(of []float64, ids []int32, scale float64) {
	stops := r.Renderer.StopIDs()
	for t := range of {
		of[t] = scale
	}
	if n := len(ids); scale > 0 && n > 0 && slices.Contains(stops, ids[n-1]) {
		of[n-1] = 1
	}
}

func isTrue(b *bool) bool { return b != nil && *b }

func countAssistants(msgs []traj.Message) (n int) {
	for _, m := range msgs {
		if m.Role == traj.RoleAssistant {
			n++
		}
	}
	return n
}
