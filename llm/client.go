// Package llm talks to any server of the OpenAI chat API: OpenAI itself, vLLM,
// SGLang, llama.cpp, Ollama and their like. A Client satisfies agent.Model by
// shape. Tokens asks vLLM and SGLang in token ids, and satisfies chat.Sampler.
// Either takes replies in one piece or as a stream. It imports traj only, and
// go-openai, which no other package imports.
package llm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"agentcli/internal/text"
	"agentcli/traj"
)

// Defaults of Config.
const (
	DefaultRetries = 6
	DefaultTimeout = 10 * time.Minute
	// DefaultPatience is as long as a large model takes to be loaded again.
	DefaultPatience = 10 * time.Minute
	// DefaultIdle is longer than a server holds pieces back: for a whole tool call,
	// or while it is full.
	DefaultIdle = 2 * time.Minute
)

// Config describes a server.
type Config struct {
	BaseURL string   // up to and including /v1
	Also    []string // further servers of the same model; requests are spread over all of them
	APIKey  string
	Model   string

	// FullSeeds sends seeds of 64 bits, which `agentcli serve` draws with as a local model does.
	FullSeeds bool

	// Answered says that the servers have answered before, in an earlier part of a
	// run that is resumed: one that is gone is waited for from the first request on.
	Answered bool

	Retries  int           // after the first try; 0: DefaultRetries; < 0: none
	Parallel int           // requests that may come at once: up to there a server that was overloaded is tried again; 0: not known
	Timeout  time.Duration // of one try; 0: DefaultTimeout
	Patience time.Duration // how long a server is waited for that has answered before and is gone now; 0: DefaultPatience; < 0: not at all
	Idle     time.Duration // between two parts of a stream that has begun; 0: DefaultIdle; < 0: no limit
	WantIDs  bool          // ask for token ids and log-probs
	// WantExperts asks which experts a mixture-of-experts model chose for the tokens. A reply in
	// ids without them is an error of kind ErrNoExperts.
	WantExperts bool
	Stream      bool // take replies piece by piece, as server-sent events
	UserAgent   string

	// AskTools has sawTools ask a server whether its chat template shows the tools.
	AskTools bool

	// KeepSpecial asks for special tokens in the replies' text, for formats of
	// calls that are made of them.
	KeepSpecial bool

	// Parse reads the tool calls out of a reply's text, for servers that leave
	// them there; offered are the tools of the request. nil: the text is taken as it is.
	Parse func(text string, offered []traj.ToolSpec) (traj.Message, []traj.CallError)
	// InText writes the tools, the calls and their results into the messages'
	// text, for servers that take no tools; Parse then reads the calls. nil: such
	// a server's refusal is final.
	InText func(messages []traj.Message, tools []traj.ToolSpec) []traj.Message
	// MatchesGrammar reports whether a whole text matches the grammar of a request; nil: replies are not checked.
	MatchesGrammar func(g *traj.Grammar, text string) bool
	// Notice tells the user once about something that was left out of requests,
	// and now and then what is being waited for.
	Notice func(string)

	// OnRetry hears of every request that is tried again, there or elsewhere, and
	// why: one of Reasons. nil: nobody does.
	OnRetry func(reason string)

	Transport http.RoundTripper // nil: one of our own, with room for many connections
	Sleep     func(ctx context.Context, d time.Duration) error
	Now       func() time.Time
	Random    func() float64 // in [0,1)
}

// Validate reports what makes the configuration unusable.
func (c *Config) Validate() error {
	for _, u := range append([]string{c.BaseURL}, c.Also...) {
		if !strings.HasPrefix(u, "http://") && !strings.HasPrefix(u, "https://") {
			return fmt.Errorf("the base URL %q does not begin with http:// or https://", text.Address(u))
		}
		if parsed, err := url.Parse(u); err != nil || parsed.Host == "" {
			return fmt.Errorf("the base URL %q is no address; want http://HOST:PORT/v1", text.Address(u))
		}
		if strings.ContainsAny(u, "?#") {
			return fmt.Errorf("the base URL %s has a question mark or # in it, behind which no path can stand; a key belongs into OPENAI_API_KEY",
				text.Address(u))
		}
	}
	if c.Timeout < 0 {
		return fmt.Errorf("the time-out of a request is %v; it must not be negative", c.Timeout)
	}
	return nil
}

// Client asks a server for replies, or several of the same model: see pool. It is
// safe for concurrent use.
type Client struct {
	c        Config
	pool     *pool
	close    func()
	answered atomic.Bool             // something that speaks HTTP is there
	refused  atomic.Pointer[failure] // the key was; every further request would be, too
	prompts  continuity

	mu   sync.Mutex
	told time.Time // when the user last heard of a pause
}

// New returns a client; it does not connect yet.
func New(c Config) (*Client, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	switch {
	case c.Retries == 0:
		c.Retries = DefaultRetries
	case c.Retries < 0:
		c.Retries = 0
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Patience == 0 {
		c.Patience = DefaultPatience
	}
	if c.Idle == 0 {
		c.Idle = DefaultIdle
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
	cl := &Client{close: func() {}}
	cl.answered.Store(c.Answered)
	if c.Transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 1<<16   // the engine bounds how many there are
		t.ReadBufferSize, t.WriteBufferSize = 2<<10, 2<<10 // of thousands of connections; bodies pass in one piece
		c.Transport, cl.close = t, t.CloseIdleConnections
	}
	web := &http.Client{Transport: &transport{next: c.Transport, agent: c.UserAgent}}
	cl.pool = newPool(c.Model)
	for _, u := range append([]string{c.BaseURL}, c.Also...) {
		c.BaseURL = strings.TrimRight(u, "/")
		if !slices.ContainsFunc(cl.pool.all, func(o *caller) bool { return o.c.BaseURL == c.BaseURL }) {
			cl.pool.all = append(cl.pool.all, newCaller(c, web, &cl.answered))
		}
	}
	cl.c = cl.pool.all[0].c
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

// Close lets idle connections go, and ends what asks after dead servers.
func (c *Client) Close() error {
	c.pool.close()
	c.close()
	return nil
}

// Model is the name that the server knows the model by.
func (c *Client) Model() string { return c.c.Model }

// Servers is the state of every server, in the order of the configuration.
func (c *Client) Servers() []ServerState { return c.pool.states() }

// PlaceImages has the ids of chat replies kept beside images: which of them stand for an image is
// read from the prompt that the server returns. Where these are others than places says, the
// reply has no ids, its ImagesDiffer is true, and Config.Notice hears of it once. It is called
// before the first request.
func (c *Client) PlaceImages(places *ImagePlaces) {
	for _, at := range c.pool.all {
		at.places = places
	}
}

// Ready waits during an outage. It fails with ctx, or with traj.ErrGone when
// Config.Patience is spent meanwhile.
func (c *Client) Ready(ctx context.Context) error { return c.pool.ready(ctx) }

// Generate asks for one reply and retries what may pass.
func (c *Client) Generate(ctx context.Context, req *traj.Request) (*traj.Response, error) {
	return generate(ctx, c, req, false)
}

// generate is Client.Generate; quiet: nothing is said of images that the server shows otherwise.
func generate(ctx context.Context, c *Client, req *traj.Request, quiet bool) (*traj.Response, error) {
	b, err := c.pool.all[0].write.body(req)
	if err != nil {
		return nil, err
	}
	b.quiet = quiet
	var resp *traj.Response
	err = c.retry(ctx, func(ctx context.Context, at *caller) *failure {
		if b.inText != at.inText() || b.thoughts != at.thoughts() { // found out by this request, or by another; or a server that differs
			clamp, open := b.clamp, b.open
			if b, err = at.write.body(req); err != nil {
				return &failure{err: err}
			}
			b.clamp, b.open, b.quiet = clamp, open, quiet
		}
		rp, f := at.chat(ctx, b)
		if f == nil {
			f = at.sawTools(ctx, b, rp)
		}
		if f == nil {
			resp, f = at.read.response(b, rp)
		}
		return f
	})
	if err != nil {
		return nil, err
	}
	c.prompts.check(req, resp, c.c.Notice)
	if req.MaxPrompt > 0 && resp.PromptTokens > req.MaxPrompt {
		return nil, fmt.Errorf("the prompt has %d tokens, the limit is %d: %w", resp.PromptTokens, req.MaxPrompt, traj.ErrPromptTooLong)
	}
	return resp, nil
}
