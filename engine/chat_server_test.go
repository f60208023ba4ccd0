package engine

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"agentcli/agent"
	"agentcli/internal/text"
	"agentcli/llm"
	"agentcli/llm/llmtest"
	"agentcli/model/chat"
	"agentcli/traj"

	"pgregory.net/rapid"
)

// chatServer gives the babbler as a server of chat completions, and the client that asks it.
type chatServer struct {
	*babbler
	renderer chat.Renderer
	withIDs  bool // it answers with the ids of the prompt and of the reply, as vLLM does
	native   bool // it reads calls and thinking out of the text itself
	stream   bool
	special  bool // the client asks for special tokens in the text

	// By seed:
	wrote map[int64]string       // what a scheduler may cut back: the reply's text
	apart map[int64]string       // the thinking that the server took out of it
	last  map[int64]traj.Message // of the request, where the reply goes on with it
}

// open starts the server and gives a client.
func (s *chatServer) open(t *rapid.T, p *chat.Parser) (agent.Model, func()) {
	server := llmtest.Start(s.answer)
	c := llm.Config{BaseURL: server.BaseURL(), Model: "m", WantIDs: true, Stream: s.stream, KeepSpecial: s.special}
	if p != nil && !s.native {
		c.Parse = func(text string, offered []traj.ToolSpec) (traj.Message, []traj.CallError) {
			return p.For(offered).ParseInText(text)
		}
	}
	client, err := llm.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return client, func() { _ = client.Close(); server.Close() }
}

// answer renders the messages by the chat template, draws, and answers as vLLM does.
func (s *chatServer) answer(r *llmtest.Request) llmtest.Reply {
	opt := chat.Options{AddGenerationPrompt: string(r.Fields["add_generation_prompt"]) != "false",
		ContinueFinal: string(r.Fields["continue_final_message"]) == "true"}
	if opt.AddGenerationPrompt == opt.ContinueFinal {
		return llmtest.Reply{Status: 400, Error: "Cannot set both `continue_final_message` and `add_generation_prompt` to True."}
	}
	messages, tools, err := s.read(r)
	if err != nil {
		return llmtest.Reply{Status: 400, Error: err.Error()}
	}
	_, prompt, err := s.renderer.Render(messages, tools, opt)
	if err != nil {
		return llmtest.Reply{Status: 400, Error: err.Error()}
	}
	var stop []string
	_ = json.Unmarshal(r.Fields["stop"], &stop)
	c, err := s.Sample(context.Background(), prompt, traj.Sampling{Stop: stop}, r.Int("seed"))
	if err != nil {
		return llmtest.Reply{Status: 500, Error: err.Error()}
	}
	visible := c.IDs
	if n := len(visible); slices.Contains(s.stops, visible[n-1]) && c.FinishReason == traj.FinishStop {
		visible = visible[:n-1]
	}
	reply := llmtest.Reply{Finish: c.FinishReason, PromptTokens: len(prompt), OutputTokens: len(c.IDs),
		Content: s.tok.Decode(visible, string(r.Fields["skip_special_tokens"]) != "false")}
	if at, found := text.FirstOf(reply.Content, stop); at >= 0 {
		reply.Content, reply.Stop = reply.Content[:at], found
	}
	stopped, _ := reply.Stop.(string)
	wrote := reply.Content + stopped
	if s.native {
		m, _ := s.renderer.Parse(s.tok.Encode(reply.Content, false))
		reply.Content, reply.Reasoning = m.Content, m.Reasoning
		for i, call := range m.ToolCalls {
			reply.Calls = append(reply.Calls, llmtest.NewCall("call_"+string(rune('a'+i)), call.Name, call.Arguments))
		}
		if len(reply.Calls) > 0 && reply.Finish == traj.FinishStop {
			reply.Finish = traj.FinishToolCalls
		}
		if wrote = reply.Content; len(reply.Calls) == 0 {
			wrote += stopped
		}
	}
	s.mu.Lock()
	s.wrote[r.Int("seed")], s.apart[r.Int("seed")] = wrote, reply.Reasoning
	if opt.ContinueFinal {
		s.last[r.Int("seed")] = messages[len(messages)-1]
	}
	s.mu.Unlock()
	if s.withIDs {
		reply.PromptIDs, reply.IDs = prompt, c.IDs
	}
	for _, lp := range c.Logprobs {
		x := -9999.0
		if lp.Known() {
			x = float64(lp)
		}
		reply.Logprobs = append(reply.Logprobs, x)
	}
	return reply
}

// read are the messages and tools of a request.
func (s *chatServer) read(r *llmtest.Request) (messages []traj.Message, tools []traj.ToolSpec, err error) {
	var list []struct {
		llmtest.Message
		Name      string `json:"name"`
		Reasoning string `json:"reasoning"`
	}
	if err := json.Unmarshal(r.Fields["messages"], &list); err != nil {
		return nil, nil, err
	}
	for _, m := range list {
		own := traj.Message{Role: m.Role, Content: m.Text(), Name: m.Name, ToolCallID: m.ToolCallID, Reasoning: m.Reasoning}
		for _, c := range m.ToolCalls {
			own.ToolCalls = append(own.ToolCalls, traj.ToolCall{ID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments})
		}
		messages = append(messages, own)
	}
	var given []struct {
		Function traj.ToolSpec `json:"function"`
	}
	if r.Has("tools") {
		err = json.Unmarshal(r.Fields["tools"], &given)
	}
	for _, g := range given {
		tools = append(tools, g.Function)
	}
	return messages, tools, err
}

// checkChat holds a trajectory that a chat server sampled against what it drew, and what
// it was asked.
func (s *chatServer) checkChat(t *rapid.T, x *traj.Trajectory, m *moody) {
	if s.withIDs {
		s.checkScheduled(t, x, m, "chat")
	} else if len(x.Sequences) > 0 {
		t.Fatalf("%d sequences of a server that gives no ids", len(x.Sequences))
	}
	for turn, step := range x.Steps {
		drew := s.drew[onTheWire(turnSeed(x.Seed, turn))]
		if step.CompletionTokens != len(drew.ids) || step.PromptTokens != len(drew.prompt) {
			t.Fatalf("turn %d: %d tokens behind %d, %d were drawn behind %d", turn, step.CompletionTokens, step.PromptTokens,
				len(drew.ids), len(drew.prompt))
		}
		if !s.withIDs && step.Sequence >= 0 {
			t.Fatalf("turn %d: a span of ids, of a server that gives none", turn)
		}
		if turn >= len(m.said) {
			continue
		}
		said := m.said[turn]
		s.checkSaid(t, x, turn, said)
		if want := s.wrote[onTheWire(turnSeed(x.Seed, turn))]; said.text != want {
			t.Fatalf("turn %d: the scheduler was shown %q, the server wrote %q", turn, said.text, want)
		}
		if said.next.Cut == nil && said.next.Continue == "" || said.refused || turn+1 == len(x.Steps) {
			continue
		}
		kept := said.text + said.inserted
		if said.next.Cut != nil {
			kept = kept[:*said.next.Cut]
		}
		// What the template makes of it (Qwen3's writes thinking anew), model/chat's tests say.
		shown, ok := s.last[onTheWire(turnSeed(x.Seed, turn+1))]
		if want := kept + said.next.Continue; !ok || !strings.HasSuffix(shown.Content, want) || len(shown.ToolCalls) > 0 {
			t.Fatalf("turn %d: the model goes on with %+v, want %q", turn, shown, want)
		}
		if apart := s.apart[onTheWire(turnSeed(x.Seed, turn))]; !strings.HasSuffix(shown.Reasoning, apart) {
			t.Fatalf("turn %d: the model goes on behind the thinking %q, the server took %q out of the reply", turn, shown.Reasoning, apart)
		}
	}
}

// TestASchedulersTurnsAreTheirOwnWithAChatServer: the client asks in messages. The server
// writes every prompt anew, and returns ids and log-probs, or none.
func TestASchedulersTurnsAreTheirOwnWithAChatServer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawScheduled(t)
		s := &chatServer{babbler: d.babbler, renderer: d.renderer, wrote: map[int64]string{}, apart: map[int64]string{},
			last:    map[int64]traj.Message{},
			withIDs: rapid.Bool().Draw(t, "with ids"),
			native:  rapid.Bool().Draw(t, "native"), stream: rapid.Bool().Draw(t, "stream"), special: rapid.Bool().Draw(t, "special")}
		s.stopsAlways = true // what a server that looks for no stop strings loses, llm's own tests say
		asked, done := s.open(t, d.parser)
		defer done()
		d.play(t, asked, s.checkChat)
	})
}
