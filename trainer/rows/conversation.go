package rows

import (
	"errors"
	"slices"
	"strings"

	"agentcli/model/chat"
	"agentcli/trainer/episode"
	"agentcli/traj"
)

// Format makes token sequences of conversations, as the model's own chat template
// writes them.
type Format struct {
	Renderer  chat.Renderer
	Tokenizer chat.Tokenizer
}

// errNothingSaid is a conversation without an assistant turn to train on.
var errNothingSaid = errors.New("there is no assistant turn to train on")

// reply is where one assistant turn stands: its number among the messages, and its tokens.
type reply struct{ message, sequence, start, end int }

// sequences renders a conversation so that the assistant turns from message number
// `from` on are trained on, each with the token that ends it, and nothing else is.
// It is token-exact to sampling: a turn's context is what the model would be
// prompted with there, the ids so far and a bridge to the new turn. Where the
// template rewrites what came before, a new sequence begins.
func (f *Format) sequences(msgs []traj.Message, from int, tools []traj.ToolSpec) ([]traj.Sequence, []reply, error) {
	var t traj.Trajectory
	var replies []reply
	told := 0 // messages that the last sequence holds
	for i, m := range msgs {
		if m.Role != traj.RoleAssistant || i < from || i == 0 {
			continue
		}
		prompt, said, err := f.turn(msgs[:i+1], tools)
		if err != nil {
			return nil, nil, err
		}
		if n := len(t.Sequences); n > 0 {
			if ids, ok := f.Renderer.Bridge(t.Sequences[n-1].TokenIDs, msgs[told:i],
				chat.Options{AddGenerationPrompt: true, Before: msgs[:told], Tools: tools}); ok {
				prompt = ids
			}
		}
		seq, start, end, err := t.Record(prompt, nil, said, nil)
		if err != nil {
			return nil, nil, err
		}
		replies = append(replies, reply{i, seq, start, end})
		told = i + 1
	}
	if len(replies) == 0 {
		return nil, nil, errNothingSaid
	}
	return t.Sequences, replies, nil
}

// turn gives the prompt of the last message, and that message as a reply to it.
func (f *Format) turn(msgs []traj.Message, tools []traj.ToolSpec) (prompt, said []int32, err error) {
	last := len(msgs) - 1
	asked, prompt, err := f.Renderer.Render(msgs[:last], tools, chat.Options{AddGenerationPrompt: true})
	if err != nil {
		return nil, nil, err
	}
	_, whole, err := f.Renderer.Render(msgs, tools, chat.Options{})
	if err != nil {
		return nil, nil, err
	}
	ends := func(id int32) bool { return slices.Contains(f.Renderer.StopIDs(), id) }
	if len(whole) > len(prompt) && slices.Equal(whole[:len(prompt)], prompt) {
		said = whole[len(prompt):]
		if i := slices.IndexFunc(said, ends); i >= 0 {
			return prompt, said[:i+1], nil
		}
		// Nothing ends the conversation's last reply, as in GLM's template: a model does.
		return prompt, append(slices.Clone(said), f.Renderer.StopIDs()[0]), nil
	}
	end := len(whole) - 1
	for end >= 0 && !ends(whole[end]) {
		end--
	}
	// The reply's first characters have joined the prompt's last token, which a
	// model that is prompted cannot do: the reply is encoded by itself.
	open, _, err := f.Renderer.Render(msgs, tools, chat.Options{ContinueFinal: true})
	if err != nil {
		return nil, nil, err
	}
	text, ok := strings.CutPrefix(open, asked)
	if !ok || end < 0 {
		return nil, nil, errors.New("the chat template does not write this reply behind its prompt")
	}
	return prompt, append(f.Tokenizer.EncodeOrdinary(text), whole[end]), nil
}

// conversation makes an episode of a conversation, in which every turn from message number
// `from` on weighs 1, and says where those turns are.
func (f *Format) conversation(id string, msgs []traj.Message, from int, tools []traj.ToolSpec) (*episode.Episode, []reply, error) {
	if !chat.Describe(f.Renderer).Reasons {
		msgs = slices.Clone(msgs)
		for i := range msgs {
			msgs[i].Reasoning = "" // the template passes over it
		}
	}
	seqs, replies, err := f.sequences(msgs, from, tools)
	if err != nil {
		return nil, nil, err
	}
	e := &episode.Episode{ID: id, Group: id,
		Body: &episode.Body{Sequences: seqs, Turns: len(replies), LastRound: replies[len(replies)-1].start}}
	for i := range seqs {
		e.Sampled += seqs[i].Sampled()
	}
	e.Prompt = slices.Index(seqs[0].LossMask, true)
	return e, replies, nil
}
