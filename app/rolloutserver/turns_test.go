package rolloutserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"agentcli/agent"
	"agentcli/engine"
	"agentcli/env"
	"agentcli/model/chat"
	"agentcli/model/chat/chattest"
	"agentcli/traj"
)

// scribbler draws words at random, and encodes them as no tokenizer would.
type scribbler struct {
	tok   chattest.Tokenizer
	r     *rand.Rand
	stops []int32
	drew  traj.Completion // last
}

// Sample implements chat.Sampler.
func (s *scribbler) Sample(context.Context, []int32, traj.Sampling, int64) (*traj.Completion, error) {
	c := traj.Completion{FinishReason: traj.FinishStop}
	for range 1 + s.r.IntN(5) {
		text := []string{"a word ", "世界 ", "é👋", "x", "So it is 7. "}[s.r.IntN(5)]
		for len(text) > 0 {
			id := s.tok.EncodeOrdinary(text)[0]
			part := s.tok.Decode([]int32{id}, false)
			if s.r.IntN(2) == 0 || !strings.HasPrefix(text, part) {
				id, part = int32(text[0]), text[:1]
			}
			c.IDs, text = append(c.IDs, id), text[len(part):]
		}
	}
	c.Text = s.tok.Decode(c.IDs, true)
	if s.r.IntN(4) > 0 {
		c.IDs, c.Ended = append(c.IDs, s.stops[s.r.IntN(len(s.stops))]), true
	}
	for range c.IDs {
		c.Logprobs = append(c.Logprobs, traj.Logprob(-s.r.ExpFloat64()))
	}
	s.drew = c
	return &c, nil
}

// written is what one message of the model must be of.
type written struct {
	ids      []int32 // sampled
	logprobs []float64
	text     string // with what was inserted
}

// chance is a scheduler that goes on in every way, and keeps what must come of it.
type chance struct {
	s         *scribbler
	turns     int // at most
	messages  []written
	open      bool
	rewritten bool
}

// Next implements engine.Scheduler.
func (c *chance) Next(_ context.Context, t engine.Turn) (engine.Next, error) {
	drew, ways := c.s.drew, 9
	if !c.open {
		c.messages = append(c.messages, written{})
	}
	m, whole := &c.messages[len(c.messages)-1], len(drew.IDs)
	keep := func(n int, text string) {
		m.ids = append(m.ids, drew.IDs[:n]...)
		for _, lp := range drew.Logprobs[:n] {
			m.logprobs = append(m.logprobs, float64(lp))
		}
		m.text += text
	}
	c.open = false
	way := c.s.r.IntN(ways)
	if t.Last || t.Number >= c.turns {
		way = 0
	}
	insert := []string{"[go on] ", "ü", "<result>世</result>"}[c.s.r.IntN(3)]
	switch {
	case way == 0:
		keep(whole, drew.Text)
		return engine.Next{Stop: traj.Answered}, nil
	case way < 4:
		keep(whole, drew.Text)
		return engine.Next{Messages: []traj.Message{{Role: traj.RoleUser, Content: "And " + insert}}}, nil
	case way < 6:
		if c.open = true; drew.Ended { // the turn is opened again
			whole--
		}
		keep(whole, drew.Text+insert)
		return engine.Next{Continue: insert}, nil
	case way < 8:
		at := 1 + c.s.r.IntN(len(drew.Text))
		for at < len(drew.Text) && !utf8.RuneStart(drew.Text[at]) {
			at++
		}
		n := 0 // the most tokens whose text is wholly before the cut
		for k, id := range drew.IDs {
			if text := c.s.tok.Decode(drew.IDs[:k+1], false); !slices.Contains(c.s.stops, id) && strings.HasPrefix(drew.Text[:at], text) {
				n = k + 1
			}
		}
		c.open = true
		keep(n, drew.Text[:at]+insert)
		return engine.Next{Cut: &at, Continue: insert}, nil
	}
	c.rewritten = true
	return engine.Next{History: append(slices.Clone(t.Messages), traj.Message{Role: traj.RoleUser, Content: "Once more"})}, nil
}

// nothing is an environment that says nothing.
type nothing struct{}

func (nothing) Reset(_ context.Context, t traj.Task) (traj.Observation, error) {
	return traj.Observation{Messages: t.Messages}, nil
}
func (nothing) Step(context.Context, traj.Action) (env.Result, error) { return env.Result{}, nil }
func (nothing) Close() error                                          { return nil }

// The ids, the mask and the log-probs of a message are those of its turns, whatever a
// scheduler does between them, and whatever replies the prompt shows.
func TestTheIDsOfAMessageAreItsTurns(t *testing.T) {
	compared, refused, continued, cut := 0, 0, 0, 0
	for _, family := range chat.Families() {
		for seed := range uint64(100) {
			var tok chattest.Tokenizer
			r, err := chat.For(family, tok)
			if err != nil {
				t.Fatal(err)
			}
			s := &scribbler{tok: tok, r: rand.New(rand.NewPCG(seed, 1)), stops: r.StopIDs()}
			own := &chance{s: s, turns: 1 + s.r.IntN(6)}
			p := newPool()
			e, err := engine.New(engine.Config{Model: &chat.Exact{Renderer: r, Tokenizer: tok, Sampler: s, Policy: family}, Samples: 1, MaxTurns: 6,
				NewAgent:     func(traj.Task) (agent.Agent, error) { return agent.New(nil), nil },
				NewEnv:       func(traj.Task) (env.Environment, error) { return nothing{}, nil },
				NewScheduler: func(traj.Task) (engine.Scheduler, error) { return own, nil }, Observe: p.observe})
			if err != nil {
				t.Fatal(err)
			}
			task := traj.Task{ID: "t", Messages: []traj.Message{{Role: traj.RoleUser, Content: "Who?"}}}
			for range s.r.IntN(3) { // shots
				task.Messages = append(task.Messages, traj.Message{Role: traj.RoleAssistant, Content: "It is a shot."},
					traj.Message{Role: traj.RoleUser, Content: "And who?"})
			}
			var x *traj.Trajectory
			if _, err := e.Run(t.Context(), func(yield func(traj.Task, error) bool) { yield(task, nil) },
				func(one *traj.Trajectory) error { x = one; return nil }); err != nil || x.Termination.Infrastructure() {
				t.Fatal(err, x.Error)
			}
			name := fmt.Sprintf("%s, seed %d", family, seed)
			of := &played{x, p.turns[x.ID]}
			replies, err := of.replies()
			if own.rewritten {
				if refused++; !errors.Is(err, errTurns) {
					t.Fatalf("%s: a rewritten history gives %d replies, %v", name, len(replies), err)
				}
				if _, err := rolloutOutput(of); !errors.Is(err, errTurns) || strings.Contains(err.Error(), "\n") {
					t.Fatalf("%s: %v", name, err)
				}
				continue
			}
			if err != nil || len(replies) != len(own.messages) {
				t.Fatalf("%s: %d replies of %d: %v", name, len(replies), len(own.messages), err)
			}
			if len(x.Steps) > len(replies) {
				continued++
			}
			if len(x.Sequences) > 1 && x.Weighed() {
				cut++
			}
			for i, want := range own.messages {
				got := replies[i]
				var ids []int32
				for k, id := range got.ids {
					if got.mask[k] == 1 {
						ids = append(ids, id)
					}
				}
				if len(got.mask) != len(got.ids) || !slices.Equal(ids, want.ids) || !slices.Equal(got.logprobs, want.logprobs) {
					t.Fatalf("%s, message %d:\n%v are trained,\n%v were sampled", name, i, ids, want.ids)
				}
				if text := tok.Decode(got.ids, true); text != want.text {
					t.Fatalf("%s, message %d: the ids are of\n%q, the message is\n%q", name, i, text, want.text)
				}
			}
			checkOutput(t, name, of)
			compared++
		}
	}
	if compared < 200 || refused < 20 || continued < 50 || cut < 50 {
		t.Errorf("%d trajectories compared, %d refused, %d with continued replies, %d cut: shows too little", compared, refused, continued, cut)
	}
}

// checkOutput holds a RolloutOutput to what ms-swift asserts of it.
func checkOutput(t *testing.T, name string, p *played) {
	t.Helper()
	v, err := rolloutOutput(p)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var out struct {
		Messages []traj.Message `json:"messages"`
		IDs      [][]int32      `json:"response_token_ids"`
		Mask     [][]int        `json:"response_loss_mask"`
		Logprobs [][]float64    `json:"rollout_logprobs"`
		Infos    struct {
			Turns int `json:"num_turns"`
		} `json:"rollout_infos"`
	}
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if out.Infos.Turns != len(p.Steps) || len(out.IDs) != len(out.Mask) || len(out.IDs) != len(out.Logprobs) ||
		out.Messages[len(out.Messages)-1].Role != traj.RoleAssistant {
		t.Fatalf("%s: %s", name, b)
	}
	for i := range out.IDs {
		ones := 0
		for _, m := range out.Mask[i] {
			ones += m
		}
		if len(out.Mask[i]) != len(out.IDs[i]) || len(out.Logprobs[i]) != ones {
			t.Fatalf("%s, message %d: %d ids, %d masked in, %d log-probs", name, i, len(out.IDs[i]), ones, len(out.Logprobs[i]))
		}
	}
}
