package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"agentcli/internal/safego"
	"agentcli/internal/setting"
	"agentcli/traj"
)

// SwiftRollout asks the server `swift rollout` of ms-swift (4.6, without a scheduler of its
// own) in messages: POST /infer/. It satisfies agent.Model by shape, and is safe for
// concurrent use.
//
// That server answers one request after the other, each when all of its replies are there
// (swift/pipelines/infer/rollout.py). So what is asked while it answers is sent together,
// in one request, which then waits for its longest reply.
type SwiftRollout struct {
	Client *Client // its base URL is the server's, without /v1

	mu      sync.Mutex
	waiting []*inference
	sending bool
	sent    []*inference // of sendWaiting alone
}

// inference is a reply that somebody waits for.
type inference struct {
	ctx     context.Context //nolint:containedctx // of who waits for it
	b       *body
	request json.RawMessage // a RolloutInferRequest
	config  string          // a RequestConfig, as JSON
	done    chan struct{}
	resp    *traj.Response
	err     error
}

// gathering is how long the first of several requests waits for the others.
const gathering = 5 * time.Millisecond

// Ready is Client.Ready.
func (s *SwiftRollout) Ready(ctx context.Context) error { return s.Client.Ready(ctx) }

// Generate asks for one reply. Tools, calls and results are written into the messages' text.
// No seed is sent: one for all would make the replies of a group the same.
func (s *SwiftRollout) Generate(ctx context.Context, req *traj.Request) (*traj.Response, error) {
	one, err := s.inference(ctx, req)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.waiting = append(s.waiting, one)
	begin := !s.sending
	s.sending = true
	s.mu.Unlock()
	if begin {
		go s.sendWaiting()
	}
	select {
	case <-one.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w", s.Client.pool.names(), ctx.Err())
	}
	if one.err == nil && req.MaxPrompt > 0 && one.resp.PromptTokens > req.MaxPrompt {
		return nil, fmt.Errorf("the prompt has %d tokens, the limit is %d: %w", one.resp.PromptTokens, req.MaxPrompt, traj.ErrPromptTooLong)
	}
	return one.resp, one.err
}

// inference writes a request as RolloutInferRequest and RequestConfig.
func (s *SwiftRollout) inference(ctx context.Context, req *traj.Request) (*inference, error) {
	if len(req.Sampling.StopIDs) > 0 {
		return nil, traj.Mark(setting.Errorf("a swift rollout server takes no %s", setting.Name("StopIDs")), traj.ErrFatal)
	}
	plain := *req
	if s.Client.c.InText != nil {
		plain.Messages = s.Client.c.InText(req.Messages, req.Tools)
	}
	plain.Tools, plain.Memo = nil, nil // both are of messages that are sent as they are
	write := &s.Client.pool.all[0].write
	b, err := write.body(&plain)
	if err != nil {
		return nil, err
	}
	if s.Client.c.Parse != nil && req.Form == nil {
		b.parse = func(text string) (traj.Message, []traj.CallError) { return s.Client.c.Parse(text, req.Tools) }
	}
	all := write.fields(b)
	config := map[string]json.RawMessage{"logprobs": rawTrue, "return_details": rawTrue, "n": rawOne}
	for _, field := range []string{"max_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "stop"} {
		if v, ok := all[field]; ok {
			config[field] = v
		}
	}
	raw, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	request := append(append([]byte(`{"messages":`), b.messages...), "]}"...)
	return &inference{ctx: ctx, b: b, request: request, config: string(raw), done: make(chan struct{})}, nil
}

// sendWaiting asks for what is waiting until nothing is.
func (s *SwiftRollout) sendWaiting() {
	defer safego.Catch(s.failed)
	for {
		_ = s.Client.c.Sleep(context.Background(), gathering)
		if s.sent = s.take(); s.sent == nil {
			return
		}
		s.answer(s.infer(s.sent))
	}
}

// failed is the end of sendWaiting by a panic.
func (s *SwiftRollout) failed(err error) {
	s.answer(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sending = len(s.waiting) > 0; s.sending {
		go s.sendWaiting()
	}
}

// answer tells those who wait for what was sent; with an error, that.
func (s *SwiftRollout) answer(err error) {
	for _, one := range s.sent {
		if err != nil {
			one.err = err
		}
		close(one.done)
	}
	s.sent = nil
}

// take takes what waits and is sampled alike; nil: nothing waits.
func (s *SwiftRollout) take() (batch []*inference) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var rest []*inference
	for _, one := range s.waiting {
		switch {
		case one.ctx.Err() != nil: // nobody waits any more
		case len(batch) == 0 || batch[0].config == one.config:
			batch = append(batch, one)
		default:
			rest = append(rest, one)
		}
	}
	s.waiting = rest
	s.sending = batch != nil
	return batch
}

// infer asks for a batch. Its replies are in it where there is no error.
func (s *SwiftRollout) infer(batch []*inference) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	over := make(chan struct{})
	defer close(over)
	go func() { // it is given up when nobody waits for any of it
		defer safego.Catch(nil)
		for _, one := range batch {
			select {
			case <-one.ctx.Done():
			case <-over:
				return
			}
		}
		cancel()
	}()
	requests := []byte{'['}
	for i, one := range batch {
		if i > 0 {
			requests = append(requests, ',')
		}
		requests = append(requests, one.request...)
	}
	fields := map[string]json.RawMessage{"infer_requests": append(requests, ']'), "request_config": json.RawMessage(batch[0].config),
		"use_tqdm": rawFalse}
	return s.Client.retry(ctx, func(ctx context.Context, at *caller) *failure {
		x := &exchange{wanted: "/infer/", whole: true}
		resp, err := at.send(ctx, at.c.BaseURL+"/infer/", fields, x)
		if err != nil {
			return classify(at.server, err, x, batch[0].b)
		}
		resp.Body.Close()
		return s.read(&at.read, x.body, batch)
	})
}

// errInferred is in the error of an answer that is not of what was asked.
var errInferred = errors.New("not a list of RolloutOutput, one for each request")

// read reads the answer to a batch: a list of RolloutOutput, in the order of the requests.
func (*SwiftRollout) read(rd *replyReader, data []byte, batch []*inference) *failure {
	var list []struct {
		Response *struct {
			Prompt  []int32 `json:"prompt_token_ids"`
			Usage   usage   `json:"usage"`
			Choices []struct {
				Message struct {
					Content content `json:"content"`
				} `json:"message"`
				FinishReason string        `json:"finish_reason"`
				Logprobs     *chatLogprobs `json:"logprobs"`
				IDs          []int32       `json:"token_ids"`
			} `json:"choices"`
		} `json:"response"`
	}
	if err := json.Unmarshal(data, &list); err != nil || len(list) != len(batch) {
		return &failure{err: traj.Mark(fmt.Errorf("%s answered /infer/ with %s", rd.name, excerpt(data)), errInferred)}
	}
	for i := range list {
		r := list[i].Response
		if r == nil || len(r.Choices) != 1 || r.Choices[0].FinishReason == "" {
			return &failure{err: traj.Mark(fmt.Errorf("%s answered request %d of %d without a whole reply", rd.name, i, len(batch)), errInferred)}
		}
		ch := &r.Choices[0]
		rp := &reply{content: string(ch.Message.Content), finish: ch.FinishReason, prompt: r.Usage.Prompt, output: r.Usage.Completion,
			ids: rd.counted(tokenIDs{r.Prompt, ch.IDs}, r.Usage.Completion), logprobs: ch.Logprobs.list()}
		var f *failure
		if batch[i].resp, f = rd.response(batch[i].b, rp); f != nil {
			return f
		}
	}
	return nil
}
