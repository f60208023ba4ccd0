package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"

	openai "github.com/sashabaranov/go-openai"
)

// caller asks one server: its requests are written by write, its replies read by
// read, and what goes wrong becomes a failure in classify.
type caller struct {
	*server
	write requestWriter
	read  replyReader
	api   *openai.Client
	http  *http.Client
	lane  lane // the pool's
	shown toolsShown
}

func newCaller(c Config, web *http.Client, answered *atomic.Bool) *caller {
	oc := openai.DefaultConfig(c.APIKey)
	oc.BaseURL, oc.HTTPClient = c.BaseURL, web
	model, _ := json.Marshal(c.Model) //nolint:errchkjson // a string
	s := newServer(c, answered)
	return &caller{server: s, write: requestWriter{server: s, model: model}, read: replyReader{server: s, longest: maxBody},
		api: openai.NewClientWithConfig(oc), http: web}
}

// chat sends a chat request once, through go-openai, which has no field for half of
// what is asked and of what comes back: the transport writes the body, and the reply
// is read from the exchange. A stream is read here.
func (c *caller) chat(ctx context.Context, b *body) (*reply, *failure) {
	x := &exchange{messages: b.messages, stream: c.streams()}
	fields := c.write.chatFields(b)
	if !x.stream {
		x.fields, x.ours = fields, true
		if _, err := c.api.CreateChatCompletion(context.WithValue(ctx, exchangeKey{}, x),
			openai.ChatCompletionRequest{Model: c.c.Model}); err != nil {
			return nil, classify(c.server, err, x, b)
		}
		return c.read.whole(x, b)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a stream that is left early ends at the server too
	resp, err := c.send(ctx, c.c.BaseURL+"/chat/completions", fields, x)
	if err != nil {
		return nil, classify(c.server, err, x, b)
	}
	defer resp.Body.Close()
	if !x.stream { // it came in one piece all the same
		return c.read.whole(x, b)
	}
	return c.read.chatStream(watchStream(resp.Body, c.c.Idle, cancel), b, x)
}

// once is one try, under its time-out.
func (c *caller) once(ctx context.Context, try func(context.Context, *caller) *failure) *failure {
	one, cancel := context.WithTimeout(ctx, c.c.Timeout)
	defer cancel()
	f := try(one, c)
	if f != nil && one.Err() != nil && ctx.Err() == nil {
		return &failure{err: fmt.Errorf("%s gave no reply within %v", c.name, c.c.Timeout), retry: true, slow: true, why: ReasonTimeout}
	}
	if f != nil {
		f.err = keyless(f.err, c.c.APIKey)
	}
	return f
}

// list asks for the models of the server, once.
func (c *caller) list(ctx context.Context) ([]Offer, *failure) {
	x := &exchange{wanted: "list of models"}
	if _, err := c.api.ListModels(context.WithValue(ctx, exchangeKey{}, x)); err != nil {
		return nil, classify(c.server, err, x, nil)
	}
	var list struct {
		Data []Offer `json:"data"`
	}
	if err := json.Unmarshal(x.body, &list); err != nil {
		return nil, classify(c.server, err, x, nil)
	}
	c.ours.Store(slices.ContainsFunc(list.Data, func(o Offer) bool { return o.Owner == Owner }))
	return list.Data, nil
}

// Owner is who `agentcli serve` says its model is owned by.
const Owner = "agentcli"

// Values of headers, which nobody writes to.
var (
	contentJSON   = []string{"application/json"}
	contentEvents = []string{"text/event-stream"}
)

// send posts fields as a JSON object. The caller closes the body, and reads it if
// it is a stream; what came in one piece is in x already.
func (c *caller) send(ctx context.Context, url string, fields map[string]json.RawMessage, x *exchange) (*http.Response, error) {
	x.fields = fields
	req, err := http.NewRequestWithContext(context.WithValue(ctx, exchangeKey{}, x), http.MethodPost, url, bytes.NewReader(x.encode()))
	if err != nil {
		return nil, err
	}
	req.Header["Content-Type"] = contentJSON
	if x.stream {
		req.Header["Accept"] = contentEvents
	} else {
		req.Header["Accept"] = contentJSON
	}
	if c.c.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+c.c.APIKey)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		resp.Body.Close()
		return nil, fmt.Errorf("status %d", resp.StatusCode)
	}
	return resp, nil
}

// get asks at an address; the reply is in x.
func (c *caller) get(ctx context.Context, url string, x *exchange) error {
	req, err := http.NewRequestWithContext(context.WithValue(ctx, exchangeKey{}, x), http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if c.c.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+c.c.APIKey)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}
