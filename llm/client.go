// Package llm talks to any server of the OpenAI chat API: OpenAI itself, vLLM,
// SGLang, llama.cpp, Ollama and their like. A Client satisfies agent.Model by
// shape. Tokens asks vLLM and SGLang in token ids, and satisfies chat.Sampler.
// Either takes replies in one piece or as a stream. It imports traj only, and
// go-openai, which no other package imports.
package llm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"agentcli/traj"

	openai "github.com/sashabaranov/go-openai"
)

// Defaults of Config.
const (
	DefaultRetries = 6
	DefaultTimeout = 10 * time.Minute

	firstBackoff  = 500 * time.Millisecond
	maxBackoff    = 30 * time.Second
	maxRetryAfter = 10 * time.Minute // a server that asks for more has given up on us
	silentRetries = 2                // while nothing has ever answered at that address
	maxMended     = 16               // a request has fewer parts that can be left out
)

// Config describes a server.
type Config struct {
	BaseURL string // up to and including /v1
	APIKey  string
	Model   string

	Retries   int           // after the first try; 0: DefaultRetries; < 0: none
	Timeout   time.Duration // of one try; 0: DefaultTimeout
	WantIDs   bool          // ask for token ids and log-probs
	Stream    bool          // take replies piece by piece, as server-sent events
	UserAgent string

	// KeepSpecial asks for special tokens in the replies' text, for formats of
	// calls that are made of them.
	KeepSpecial bool

	// Parse reads the tool calls out of a reply's text, for servers that leave
	// them there. nil: the text is taken as it is.
	Parse func(text string) (traj.Message, []traj.CallError)
	// InText writes the tools, the calls and their results into the messages'
	// text, for servers that take no tools; Parse then reads the calls. nil: such
	// a server's refusal is final.
	InText func(messages []traj.Message, tools []traj.ToolSpec) []traj.Message
	// Notice tells the user once about something that was left out of requests,
	// and now and then what is being waited for.
	Notice func(string)

	// OnRetry hears of every request that is tried again, and why: one of Reasons.
	// nil: nobody does.
	OnRetry func(reason string)

	Transport http.RoundTripper // nil: one of our own, with room for many connections
	Sleep     func(ctx context.Context, d time.Duration) error
	Now       func() time.Time
	Random    func() float64 // in [0,1)
}

// Validate reports what makes the configuration unusable.
func (c *Config) Validate() error {
	if !strings.HasPrefix(c.BaseURL, "http://") && !strings.HasPrefix(c.BaseURL, "https://") {
		return fmt.Errorf("the base URL %q does not begin with http:// or https://", c.BaseURL)
	}
	if c.Timeout < 0 {
		return fmt.Errorf("the time-out of a request is %v; it must not be negative", c.Timeout)
	}
	return nil
}

// Client asks one server for replies. It is safe for concurrent use.
type Client struct {
	c        Config
	api      *openai.Client
	http     *http.Client
	close    func()
	answered atomic.Bool // something that speaks HTTP is there
	tools    atomic.Pointer[encodedTools]

	mu      sync.Mutex
	refused map[string]bool // optional fields that this server does not take
	told    time.Time       // when the user last heard of a pause
}

// New returns a client; it does not connect yet.
func New(c Config) (*Client, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.BaseURL = strings.TrimRight(c.BaseURL, "/")
	switch {
	case c.Retries == 0:
		c.Retries = DefaultRetries
	case c.Retries < 0:
		c.Retries = 0
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Notice == nil {
		c.Notice = func(string) {}
	}
	if c.Sleep == nil {
		c.Sleep = sleep
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Random == nil {
		c.Random = rand.Float64
	}
	cl := &Client{c: c, close: func() {}, refused: map[string]bool{}}
	if c.Transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 1<<16   // the engine bounds how many there are
		t.ReadBufferSize, t.WriteBufferSize = 2<<10, 2<<10 // of thousands of connections; bodies pass in one piece
		c.Transport, cl.close = t, t.CloseIdleConnections
	}
	oc := openai.DefaultConfig(c.APIKey)
	oc.BaseURL = c.BaseURL
	cl.http = &http.Client{Transport: &transport{next: c.Transport, agent: c.UserAgent}}
	oc.HTTPClient = cl.http
	cl.api = openai.NewClientWithConfig(oc)
	return cl, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close lets idle connections go.
func (c *Client) Close() error { c.close(); return nil }

// Model is the name that the server knows the model by.
func (c *Client) Model() string { return c.c.Model }

// Generate asks for one reply and retries what may pass.
func (c *Client) Generate(ctx context.Context, req *traj.Request) (*traj.Response, error) {
	b, err := c.body(req)
	if err != nil {
		return nil, err
	}
	var resp *traj.Response
	err = c.retry(ctx, func(ctx context.Context) *failure {
		if !b.inText && !c.has("tools") { // found out by this request, or by another
			clamp := b.clamp
			if b, err = c.body(req); err != nil {
				return &failure{err: err}
			}
			b.clamp = clamp
		}
		rp, f := c.chat(ctx, b)
		if f == nil {
			resp, f = c.response(b, rp)
		}
		return f
	})
	if err != nil {
		return nil, err
	}
	if req.MaxPrompt > 0 && resp.PromptTokens > req.MaxPrompt {
		return nil, fmt.Errorf("the prompt has %d tokens, the limit is %d: %w", resp.PromptTokens, req.MaxPrompt, traj.ErrPromptTooLong)
	}
	return resp, nil
}

// chat sends a chat request once.
func (c *Client) chat(ctx context.Context, b *body) (*reply, *failure) {
	x := &exchange{fields: c.fields(b), messages: b.messages, stream: c.streams()}
	if x.stream {
		return c.chatStream(ctx, b, x)
	}
	r, err := c.api.CreateChatCompletion(context.WithValue(ctx, exchangeKey{}, x), b.request)
	if err != nil {
		return nil, c.classify(err, x, b)
	}
	return c.whole(&r, x)
}

// failure is one try's end: what to tell, and whether another try makes sense.
type failure struct {
	err   error
	retry bool
	now   bool          // at once: the request itself was mended
	after time.Duration // not sooner than this
	quick bool          // no API answers there: give up early if none ever has
	why   string        // one of Reasons; "": ReasonReply
}

// retry runs try until it succeeds or a further try is pointless.
func (c *Client) retry(ctx context.Context, try func(context.Context) *failure) error {
	mended := 0
	for n := 0; ; n++ {
		f := c.once(ctx, try)
		if f == nil {
			c.answered.Store(true)
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", c.c.BaseURL, ctx.Err())
		}
		if f.now && mended < maxMended {
			mended++
			n--
			continue
		}
		if f.quick && !c.answered.Load() && n >= min(silentRetries, c.c.Retries) {
			return traj.Mark(f.err, traj.ErrFatal)
		}
		if !f.retry {
			return f.err
		}
		if n >= c.c.Retries {
			if n > 0 {
				return fmt.Errorf("%w (after %d tries)", f.err, n+1)
			}
			return f.err
		}
		if f.after > maxRetryAfter {
			return fmt.Errorf("%w (the server asks to wait %v, which is too long)", f.err, f.after)
		}
		d := c.wait(n, f.after)
		if c.c.OnRetry != nil {
			c.c.OnRetry(f.reason())
		}
		if n > 0 { // the first hiccup is nobody's concern
			c.waits(f.err, d)
		}
		if err := c.c.Sleep(ctx, d); err != nil {
			return fmt.Errorf("%s: %w", c.c.BaseURL, err)
		}
	}
}

func (c *Client) once(ctx context.Context, try func(context.Context) *failure) *failure {
	one, cancel := context.WithTimeout(ctx, c.c.Timeout)
	defer cancel()
	f := try(one)
	if f != nil && one.Err() != nil && ctx.Err() == nil {
		return &failure{err: fmt.Errorf("%s gave no reply within %v", c.c.BaseURL, c.c.Timeout), retry: true, why: ReasonTimeout}
	}
	return f
}

// waits tells the user what is being waited for, every now and then.
func (c *Client) waits(err error, d time.Duration) {
	c.mu.Lock()
	now := c.c.Now()
	quiet := !c.told.IsZero() && now.Sub(c.told) < 10*time.Second
	if !quiet {
		c.told = now
	}
	c.mu.Unlock()
	if !quiet {
		c.c.Notice(fmt.Sprintf("%v; trying again in %v", err, d.Round(100*time.Millisecond)))
	}
}

// wait is the pause before try n+1: exponential with jitter, so that many
// clients do not come back at one moment, and never shorter than the server
// asked for.
func (c *Client) wait(n int, after time.Duration) time.Duration {
	d := firstBackoff << min(n, 10)
	d = min(d, maxBackoff)
	d = d/2 + time.Duration(c.c.Random()*float64(d/2))
	if after > 0 {
		return max(after+time.Duration(c.c.Random()*float64(after)/10), d)
	}
	return d
}

// drop remembers that the server does not take a field, and says so once.
func (c *Client) drop(field, meaning string) {
	if c.first(field) && meaning != "" {
		c.c.Notice(fmt.Sprintf("%s does not take %s: %s", c.c.BaseURL, field, meaning))
	}
}

// tell says something about the server once.
func (c *Client) tell(what, text string) {
	if c.first(what) {
		c.c.Notice(c.c.BaseURL + " " + text)
	}
}

func (c *Client) first(what string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.refused[what]
	c.refused[what] = true
	return !known
}

func (c *Client) has(field string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.refused[field]
}

var errNoReply = errors.New("no usable reply")
