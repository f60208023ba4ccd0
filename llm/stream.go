package llm

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"agentcli/internal/text"
	"agentcli/traj"
)

// watchStream makes a stream that is left, by stop, when it has begun and then stays
// silent for limit. Before its first byte the try's own time-out counts.
func watchStream(body io.Reader, limit time.Duration, stop func()) *watchedStream {
	return &watchedStream{Reader: body, limit: limit, stop: stop}
}

type watchedStream struct {
	io.Reader
	limit  time.Duration
	stop   func()
	timer  *time.Timer
	silent atomic.Bool
}

// Read implements io.Reader.
func (w *watchedStream) Read(b []byte) (int, error) {
	n, err := w.Reader.Read(b)
	switch {
	case n == 0 || w.limit <= 0:
	case w.timer == nil:
		w.timer = time.AfterFunc(w.limit, func() { w.silent.Store(true); w.stop() })
	default:
		w.timer.Reset(w.limit)
	}
	return n, err
}

// over ends the watch.
func (w *watchedStream) over() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

// inPieces is a reply that comes as a stream of events. done says afterwards whether
// it is whole, repeats whether its pieces repeat what came before.
type inPieces interface {
	add(data []byte) error
	done() bool
	repeats() bool
}

const repeated = "its pieces repeat all so far, which is too much of this length; " +
	"its replies come in one piece (started with --incremental-streaming-output it sends what is new alone)"

// streamed reads a stream of events: one that broke off is never kept, and asked for
// again.
func (rd *replyReader) streamed(body *watchedStream, x *exchange, b *body, s inPieces) *failure {
	defer body.over()
	n, size := 0, 0
	err := events(body, func(data []byte) error {
		n++
		if f := saidError(rd.server, data, x, b); f != nil {
			return f
		}
		if size += len(data); size > rd.longest {
			if !s.repeats() {
				return fmt.Errorf("the stream is longer than %d bytes", rd.longest)
			}
			rd.drop("stream", repeated)
			return &failure{err: traj.Mark(fmt.Errorf("%s: %s", rd.name, repeated), errNoReply), retry: true, now: true}
		}
		return s.add(data)
	})
	var f *failure
	switch {
	case errors.As(err, &f):
		return f
	case body.silent.Load():
		return &failure{err: traj.Mark(fmt.Errorf("%s sent nothing more of its stream for %v, after %d events", rd.name, rd.c.Idle, n),
			errNoReply), retry: true, slow: true, why: ReasonTimeout}
	case errors.Is(err, errEnough):
		return nil
	case err != nil:
		return &failure{err: traj.Mark(fmt.Errorf("%s broke the stream off after %d events (%s)", rd.name, n, rd.clean(err.Error())), errNoReply),
			retry: true}
	case !s.done():
		return &failure{err: traj.Mark(fmt.Errorf("%s ended the stream after %d events, before the reply's end", rd.name, n), errNoReply),
			retry: true}
	}
	return nil
}

// Error makes a failure pass through the reading of a stream.
func (f *failure) Error() string { return f.err.Error() }

// chatChunk is one event of a chat reply.
type chatChunk struct {
	Choices []struct {
		Index int `json:"index"`
		Delta *struct {
			Content          string `json:"content"`
			Reasoning        string `json:"reasoning"`
			ReasoningContent string `json:"reasoning_content"`
			ToolCalls        []struct {
				Index    *int   `json:"index"`
				ID       string `json:"id"`
				Function struct {
					Name      string `json:"name"`
					Arguments string `json:"arguments"`
				} `json:"function"`
			} `json:"tool_calls"`
		} `json:"delta"`
		FinishReason string        `json:"finish_reason"`
		Logprobs     *chatLogprobs `json:"logprobs"`
		ended
		routedExperts
	} `json:"choices"`
	Usage *usage `json:"usage"`
	versionFields
	sglangExtension
}

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
}

// chatStream takes a chat reply piece by piece.
func (rd *replyReader) chatStream(from *watchedStream, b *body, x *exchange) (*reply, *failure) {
	s := chatPieces{stops: b.sampling.Stop}
	if f := rd.streamed(from, x, b, &s); f != nil {
		return nil, f
	}
	if s.counted {
		s.ids = rd.counted(s.ids, s.output)
	}
	return s.whole(), nil
}

// chatPieces puts a chat reply together.
type chatPieces struct {
	reply
	stops              []string
	content, reasoning strings.Builder
	looked             int // up to where no stop string begins
	pieces             int
	counted            bool // the server said how many tokens there are
	spoke              bool // there was a piece of a message, if an empty one
}

func (s *chatPieces) add(data []byte) error {
	rest, ids := takeIDs(data)
	var chunk chatChunk
	if err := json.Unmarshal(rest, &chunk); err != nil {
		return fmt.Errorf("an event is not the API's JSON: %w: %s", err, excerpt(data))
	}
	if u := chunk.Usage; u != nil {
		s.prompt, s.output, s.counted = u.Prompt, u.Completion, true
	}
	if len(ids.prompt) > 0 && len(s.ids.prompt) == 0 {
		s.ids.prompt = ids.prompt
	}
	s.ids.sampled = append(s.ids.sampled, ids.sampled...)
	s.versions.add(chunk.versionFields, len(ids.sampled))
	s.experts = cmp.Or(chunk.Extension.Routed, s.experts)
	for i := range chunk.Choices {
		ch := &chunk.Choices[i]
		if ch.Index != 0 {
			continue
		}
		s.logprobs = append(s.logprobs, ch.Logprobs.list()...)
		s.experts = cmp.Or(ch.Routed, s.experts)
		if ch.FinishReason != "" {
			s.finish, s.stop = ch.FinishReason, slices.Clone(ch.what())
		}
		d := ch.Delta
		if d == nil {
			continue
		}
		s.spoke = true
		s.reasoning.WriteString(d.Reasoning)
		if d.Reasoning == "" {
			s.reasoning.WriteString(d.ReasoningContent)
		}
		for _, t := range d.ToolCalls {
			at := len(s.calls) - 1
			if t.Index != nil {
				at = *t.Index
			} else if t.ID != "" || at < 0 {
				at++
			}
			if at < 0 || at > len(s.calls) { // a gap: some servers do not count
				at = len(s.calls)
			}
			if at == len(s.calls) {
				s.calls = append(s.calls, traj.ToolCall{})
			}
			call := &s.calls[at]
			if t.ID != "" {
				call.ID = t.ID
			}
			call.Name += t.Function.Name
			call.Arguments += t.Function.Arguments
		}
		if d.Content != "" {
			s.pieces++
			s.content.WriteString(d.Content)
			if s.stopped() {
				return errEnough
			}
		}
	}
	return nil
}

func (s *chatPieces) done() bool    { return s.finish != "" && s.spoke }
func (s *chatPieces) repeats() bool { return false }

// stopped reports whether a stop string stands in the text, also across pieces:
// then the server does not look for it, and what it writes further is not wanted.
func (s *chatPieces) stopped() bool {
	all := s.content.String()
	at, _ := text.FirstOf(all[s.looked:], s.stops)
	if n := longest(s.stops); n > 0 {
		s.looked = max(s.looked, len(all)-n+1)
	}
	if at < 0 {
		return false
	}
	s.finish = traj.FinishStop
	return true
}

func longest(list []string) int {
	n := 0
	for _, s := range list {
		n = max(n, len(s))
	}
	return n
}

func (s *chatPieces) whole() *reply {
	r := s.reply
	r.content, r.reasoning = s.content.String(), s.reasoning.String()
	if !s.counted { // left early, or a server that does not count
		r.output = s.pieces
	}
	return &r
}
