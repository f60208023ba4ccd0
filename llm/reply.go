package llm

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"agentcli/internal/text"
	"agentcli/traj"
)

// reply is a chat reply as it came over the wire, in one piece or in many.
type reply struct {
	content, reasoning string
	calls              []traj.ToolCall
	finish             string
	stop               json.RawMessage // what ended it: a string, an id, null; nil where the server does not say
	prompt, output     int             // tokens, as the server counts
	ids                tokenIDs
	logprobs           []*float64 // nil: none
	versions           tokenVersions
	experts            string // as the server encodes them; "": none
}

// chatReply is a chat reply in one piece; the ids of its first choice were taken out.
type chatReply struct {
	Choices []struct {
		FinishReason string `json:"finish_reason"`
		Message      *struct {
			Content          content `json:"content"`
			Reasoning        string  `json:"reasoning"`
			ReasoningContent string  `json:"reasoning_content"`
			ToolCalls        []struct {
				ID       string       `json:"id"`
				Function wireFunction `json:"function"`
			} `json:"tool_calls"`
		} `json:"message"`
		Logprobs *chatLogprobs `json:"logprobs"`
		ended
		routedExperts
	} `json:"choices"`
	Usage usage `json:"usage"`
	versionFields
	sglangExtension
}

// content is a message's text, which some servers send as a list of parts.
type content string

// UnmarshalJSON implements json.Unmarshaler.
func (c *content) UnmarshalJSON(b []byte) error {
	if b[0] != '[' {
		return json.Unmarshal(b, (*string)(c))
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(b, &parts); err != nil {
		return err
	}
	for _, p := range parts {
		*c += content(p.Text)
	}
	return nil
}

type chatLogprobs struct {
	Content []struct {
		Logprob *float64 `json:"logprob"`
	} `json:"content"`
}

func (l *chatLogprobs) list() []*float64 {
	if l == nil {
		return nil
	}
	out := make([]*float64, 0, len(l.Content))
	for _, t := range l.Content {
		out = append(out, t.Logprob)
	}
	return out
}

// ended is how vLLM and SGLang say what ended a reply: a stop string, a stop id.
type ended struct {
	StopReason  json.RawMessage `json:"stop_reason"`
	MatchedStop json.RawMessage `json:"matched_stop"`
}

func (e ended) what() json.RawMessage {
	if len(e.MatchedStop) > 0 {
		return e.MatchedStop
	}
	return e.StopReason
}

// replyReader reads the replies of one server, and makes sure that they are what was
// asked for.
type replyReader struct {
	*server
	longest int // bytes of a stream
}

// whole reads a reply that came in one piece.
func (rd *replyReader) whole(x *exchange, b *body) (*reply, *failure) {
	if x.status/100 != 2 { // a redirect, which go-openai takes for a reply
		return nil, classify(rd.server, fmt.Errorf("status %d", x.status), x, b)
	}
	if f := saidError(rd.server, x.body, x, b); f != nil {
		return nil, f
	}
	var r chatReply
	if err := json.Unmarshal(x.body, &r); err != nil {
		var at *json.SyntaxError
		if errors.As(err, &at) && at.Offset >= int64(len(x.body)) {
			err = io.ErrUnexpectedEOF
		}
		return nil, classify(rd.server, err, x, nil)
	}
	if len(r.Choices) == 0 {
		return nil, &failure{err: traj.Mark(fmt.Errorf("%s answered without choices: %s", rd.name, rd.clean(excerpt(x.body))), errNoChoices),
			retry: true}
	}
	first := &r.Choices[0]
	if first.FinishReason == "" || first.Message == nil {
		return nil, unfinished(rd.server, x.body)
	}
	m := first.Message
	rp := &reply{content: string(m.Content), reasoning: m.Reasoning, finish: first.FinishReason, stop: first.what(),
		prompt: r.Usage.Prompt, output: r.Usage.Completion, ids: x.ids, logprobs: first.Logprobs.list()}
	if rp.reasoning == "" {
		rp.reasoning = m.ReasoningContent
	}
	rp.experts = cmp.Or(first.Routed, r.Extension.Routed)
	rp.versions.add(r.versionFields, len(rp.ids.sampled))
	rp.ids = rd.counted(rp.ids, rp.output)
	for _, call := range m.ToolCalls {
		rp.calls = append(rp.calls, traj.ToolCall{ID: call.ID, Name: call.Function.Name, Arguments: call.Function.Arguments})
	}
	return rp, nil
}

// counted are the ids of a reply, or none where the server counts other than it
// sent: some versions leave out the ids of pieces that their parsers hold back.
func (rd *replyReader) counted(ids tokenIDs, output int) tokenIDs {
	if n := len(ids.sampled); n > 0 && output > 0 && n != output {
		rd.tell("ids of pieces", fmt.Sprintf("sent %d ids of %d tokens; such replies are kept without ids", n, output))
		return tokenIDs{}
	}
	return ids
}

// unfinished is a reply without a finish_reason, which may be a part of one, or
// without what the model said.
func unfinished(s *server, body []byte) *failure {
	return &failure{err: traj.Mark(fmt.Errorf("%s answered without a finish_reason, or without a message: %s", s.name, excerpt(body)),
		errUnfinished), retry: true}
}

// brokenOff reports a finish_reason that ends no reply of the model's. A reply that
// the server gave up is asked for again: abort (vLLM, SGLang), error (routers),
// insufficient_system_resource (DeepSeek), network_error (Z.ai). One that a content
// filter cut off or withheld (content_filter; sensitive with Z.ai) says nothing about
// the policy either, and asking again would give the same: it is an error.
func brokenOff(s *server, finish string) *failure {
	switch {
	case finish == "abort", finish == "error", finish == "insufficient_system_resource", finish == "network_error":
		return &failure{err: traj.Mark(fmt.Errorf("%s broke the reply off (finish_reason %s)", s.name, finish), errBrokenOff), retry: true}
	case strings.HasPrefix(finish, "content_filter"), finish == "sensitive":
		return &failure{
			err: traj.Mark(fmt.Errorf("%s: a content filter of the server's cut the reply off (finish_reason %s)", s.name, text.Cut(finish, 40)),
				errFiltered)}
	}
	return nil
}

// errFiltered: a content filter kept the model's reply back.
var errFiltered = errors.New("the reply was filtered")

// response is what the model said: the text up to a stop string, and the calls in it.
func (rd *replyReader) response(b *body, rp *reply) (*traj.Response, *failure) {
	if f := recordGrammarSupport(rd.server, b); f != nil {
		return nil, f
	}
	if f := brokenOff(rd.server, rp.finish); f != nil {
		return nil, f
	}
	r := &traj.Response{
		Message:      traj.Message{Role: traj.RoleAssistant, Content: rp.content, Reasoning: rp.reasoning},
		FinishReason: rp.finish, PromptTokens: rp.prompt, OutputTokens: rp.output, Policy: rd.c.Model,
	}
	stop := ""
	if json.Unmarshal(rp.stop, &stop) != nil || !slices.Contains(b.sampling.Stop, stop) {
		stop = ""
	}
	if at, s := text.FirstOf(rp.content, b.sampling.Stop); at >= 0 {
		// The server did not look for it, or left it in the text.
		if at+len(s) < len(rp.content) && len(rp.ids.sampled) > 0 {
			rd.tell("stop strings",
				"does not stop at stop strings: what it wrote behind one is cut off here, and the ids of such a reply are left out")
			rp.ids = tokenIDs{}
		}
		r.Message.Content, stop, r.FinishReason = rp.content[:at], s, traj.FinishStop
	}
	switch {
	case len(rp.calls) > 0:
		r.Message.ToolCalls = rp.calls
	case b.parse != nil:
		r.Raw = r.Message.Content + stop
		m, errs := b.parse(r.Message.Content)
		if rp.reasoning != "" && m.Reasoning == "" {
			m.Reasoning, r.Apart = rp.reasoning, true
		}
		m.Role = traj.RoleAssistant
		r.Message, r.CallErrors = m, errs
		if len(m.ToolCalls) > 0 && r.FinishReason == traj.FinishStop {
			r.FinishReason = traj.FinishToolCalls
		}
	default:
		r.Raw, r.Apart = r.Message.Content+stop, rp.reasoning != ""
	}
	if r.FinishReason == "function_call" {
		r.FinishReason = traj.FinishToolCalls
	}
	checkGrammar(rd, b, rp.content, rp.finish, stop)
	placeImages(rd, b, &rp.ids, r)
	if len(rp.ids.prompt) > 0 && len(rp.ids.sampled) > 0 {
		r.PromptIDs, r.SampledIDs = rp.ids.prompt, rp.ids.sampled
		r.PromptTokens, r.OutputTokens = len(r.PromptIDs), len(r.SampledIDs)
		r.Logprobs = rd.aligned(rp.logprobs, len(r.SampledIDs))
		var f *failure
		if r.Experts, f = readExperts(rd, rp.experts, len(r.PromptIDs)+len(r.SampledIDs)); f != nil {
			return nil, f
		}
		if all := rp.versions.of(len(r.SampledIDs)); all != nil {
			r.PolicyVersion = slices.Min(all)
			if len(all) > 1 {
				r.Versions = all
			}
		}
	}
	return r, nil
}

// lowest is what vLLM writes for a log-prob of minus infinity, which JSON lacks.
const lowest = -9999

// aligned are the log-probs of n sampled tokens, or nil where the server sent
// another number of them: which token has none is not known.
func (rd *replyReader) aligned(list []*float64, n int) []traj.Logprob {
	if m := len(list); m != n || m == 0 {
		if m > 0 {
			rd.tell("aligned logprobs", fmt.Sprintf("sent %d log-probs for %d tokens; they are left out", m, n))
		}
		return nil
	}
	out := make([]traj.Logprob, n)
	for i := range out {
		out[i] = traj.NoLogprob()
		if list[i] != nil && *list[i] > lowest {
			out[i] = traj.Logprob(*list[i])
		}
	}
	return out
}
