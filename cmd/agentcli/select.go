package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"agentcli/agent"
	"agentcli/app/rundir"
	"agentcli/internal/cachedir"
	"agentcli/internal/exit"
	"agentcli/internal/text"
	"agentcli/internal/version"
	"agentcli/llm"
	"agentcli/model/chat"
	"agentcli/traj"

	"github.com/urfave/cli/v2"
)

// modelSource is what a run's file says about its model.
type modelSource struct {
	Name          string    `json:"name"`
	Kind          string    `json:"kind"` // local or server
	BaseURL       addresses `json:"base_url,omitempty"`
	Version       int64     `json:"version,omitempty"`
	Fingerprint   string    `json:"fingerprint,omitempty"` // of the weights
	DType         string    `json:"dtype,omitempty"`       // of a local model
	TokenMode     string    `json:"token_mode,omitempty"`  // of a server, unless chat
	TokenizerHash string    `json:"tokenizer_hash,omitempty"`
	TemplateHash  string    `json:"template_hash,omitempty"`
	Logprobs      string    `json:"logprobs,omitempty"` // what the log-probs are of
}

func hashText(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// localOptions is how a local model is to be opened.
type localOptions struct {
	DType    string
	Device   string
	Threads  int
	Parallel int          // trajectories at once: how many sequences to expect
	Parser   *chat.Parser // nil: the model's own

	Temperature float64 // that it will be sampled at: what the log-probs are of
}

// openLocal opens a model folder or a .gguf. It is nil in a binary without
// libtorch; the file behind that build tag sets it.
var openLocal func(ctx context.Context, path string, o localOptions) (agent.Model, modelSource, io.Closer, error)

// modelOptions says which model to ask, and how to reach it.
type modelOptions struct {
	Model        string
	BaseURL      addresses
	APIKey       string
	Parser       string
	DType        string
	Device       string
	Threads      int
	Retries      int
	Parallel     int
	ModelTimeout time.Duration
	Patience     time.Duration // with a server that has answered and is gone now; 0: none
	StreamIdle   time.Duration // between two parts of a stream
	Tools        []traj.ToolSpec
	OnRetry      func(reason string)            // hears of requests to a server that are tried again; nil: nobody
	OnServers    func(func() []llm.ServerState) // is told how to look at the servers; nil: nobody
	InReply      bool                           // --continue-reply
	TokenMode    string                         // chat, completions or auto; "": chat
	Tokenizer    string
	Stream       bool
	Temperature  float64 // of the run; 0: greedy
	baseFromEnv  bool
	Answered     bool // the server has, in an earlier part of the run
}

func modelFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "model", Aliases: []string{"m"}, Category: "model", Usage: "a model folder, a .gguf, org/name on the hub, or the name of a server's model"},
		&cli.StringSliceFlag{Name: "base-url", Category: "model", Usage: "an OpenAI-compatible server, for example http://localhost:8000/v1 (or OPENAI_BASE_URL); several of one model, with commas or repeated, share the work"},
		// A flag, so that a run's config.yaml keeps what it began with, for --resume from another shell.
		&cli.StringFlag{Name: rundir.ServerFromEnv, Hidden: true, EnvVars: []string{"OPENAI_BASE_URL"}},
		&cli.StringFlag{Name: "parser", Category: "model", Value: "auto", Usage: "how tool calls are read out of a server's text: " + strings.Join(chat.Parsers(), ", ") + " (auto: by the model's name, if there are tools)"},
		&cli.StringFlag{Name: "token-mode", Category: "model", Value: modeChat, Usage: "how a server is asked: chat (messages), completions (token ids, made here: what was sampled is exactly what is kept), or auto"},
		&cli.StringFlag{Name: "tokenizer", Category: "model", Usage: "of a server's model, for completions: a folder, a .gguf or org/name on the hub (default: what the server calls its model)"},
		&cli.BoolFlag{Name: "stream", Category: "model", Usage: "take a server's replies piece by piece"},
		&cli.StringFlag{Name: "device", Category: "model", Usage: "of a local model: cpu, cuda or cuda:N (default: cpu)"},
		&cli.StringFlag{Name: "dtype", Category: "model", Usage: "of a local model: float32 or bfloat16 (default: the faster one)"},
		&cli.IntFlag{Name: "threads", Category: "model", Usage: "of a local model (default: one a core)"},
		&cli.IntFlag{Name: "retries", Category: "model", Value: llm.DefaultRetries, Usage: "further tries of a request that failed"},
		&cli.DurationFlag{Name: "model-timeout", Category: "model", Value: llm.DefaultTimeout, Usage: "of one request to a server, for example 10m"},
		&cli.DurationFlag{Name: "stream-timeout", Category: "model", Value: llm.DefaultIdle, Usage: "longest silence within a stream that has begun, for example 2m; 0 is no limit"},
		&cli.DurationFlag{Name: "patience", Category: "model", Value: llm.DefaultPatience, Usage: "how long a server is waited for that has answered before and is gone now, as one that restarts; 0: no longer than --retries"},
	}
}

var validDevice = regexp.MustCompile(`^(cpu|cuda(:[0-9]{1,3})?)?$`)

func modelOptionsOf(c *cli.Context) (modelOptions, error) {
	o := modelOptions{Model: c.String("model"), BaseURL: addressesOf(c.StringSlice("base-url")...), APIKey: os.Getenv("OPENAI_API_KEY"),
		Parser: c.String("parser"), DType: c.String("dtype"), Device: c.String("device"), Threads: c.Int("threads"),
		Retries: c.Int("retries"), ModelTimeout: c.Duration("model-timeout"), Patience: c.Duration("patience"), StreamIdle: c.Duration("stream-timeout"),
		TokenMode: c.String("token-mode"), Tokenizer: c.String("tokenizer"), Stream: c.Bool("stream")}
	switch o.TokenMode {
	case modeChat, modeCompletions, modeAuto:
	default:
		return o, exit.Usagef("--token-mode %q is unknown; it is chat, completions or auto", o.TokenMode)
	}
	if len(o.BaseURL) == 0 {
		o.BaseURL = addressesOf(c.String(rundir.ServerFromEnv))
		o.baseFromEnv = len(o.BaseURL) > 0
	}
	if err := checkComputation(o.DType, o.Device, o.Threads); err != nil {
		return o, err
	}
	if o.Parser != chat.ParserAuto {
		p, err := chat.ParserFor(o.Parser, nil)
		if err != nil {
			return o, exit.Usagef("--parser %q is unknown; it is one of %s", o.Parser, strings.Join(chat.Parsers(), ", "))
		}
		o.Parser = p.Name()
	}
	if o.Retries < 0 {
		return o, exit.Usagef("--retries is %d; it must not be negative", o.Retries)
	}
	for _, name := range []string{"patience", "stream-timeout"} {
		if d := c.Duration(name); d < 0 {
			return o, exit.Usagef("--%s is %v; it must not be negative", name, d)
		}
	}
	if o.ModelTimeout <= 0 {
		return o, exit.Usagef("--model-timeout is %v; it must be positive", o.ModelTimeout)
	}
	return o, nil
}

// checkComputation refuses what a local model cannot be computed with.
func checkComputation(dtype, device string, threads int) error {
	switch dtype {
	case "", "auto", "float32", "f32", "fp32", "bfloat16", "bf16", "float64":
	default:
		return exit.Usagef("--dtype %q is unknown; it is float32 or bfloat16", dtype)
	}
	if !validDevice.MatchString(device) {
		return exit.Usagef("--device %q is unknown; it is cpu, cuda or cuda:N", device)
	}
	if threads < 0 {
		return exit.Usagef("--threads is %d; it must not be negative", threads)
	}
	return nil
}

// openModel finds the model that the options name.
func openModel(ctx context.Context, o modelOptions, notice func(string)) (agent.Model, modelSource, io.Closer, error) {
	local := false
	if o.Model != "" && (len(o.BaseURL) == 0 || o.baseFromEnv) {
		if _, err := os.Stat(o.Model); err == nil {
			local = true
			if o.baseFromEnv {
				notice(fmt.Sprintf("%s is here, so OPENAI_BASE_URL is not used; --base-url asks the server", o.Model))
			}
		}
	}
	if len(o.BaseURL) > 0 && !local {
		return openServer(ctx, o, notice)
	}
	if o.TokenMode == modeCompletions || o.Tokenizer != "" || o.Stream {
		return nil, modelSource{}, nil, exit.Usagef("--token-mode completions, --tokenizer and --stream are for servers (--base-url): a local model is always asked in token ids")
	}
	var parser *chat.Parser
	if o.InReply {
		var err error
		if parser, err = chat.ParserFor(o.Parser, o.Tools); err != nil {
			return nil, modelSource{}, nil, exit.UsageError{Err: err}
		}
	} else if o.Parser != "" && o.Parser != chat.ParserAuto && o.Parser != chat.ParserHermes {
		return nil, modelSource{}, nil, exit.Usagef("--parser %s is for servers: a local model's calls are read as its chat format writes them; --tools none offers it no tools", o.Parser)
	}
	path := o.Model
	if path == "" {
		path = defaultModelPath()
		if _, err := os.Stat(path); err != nil {
			return nil, modelSource{}, nil, exit.Usagef("no model is named: give a server by --base-url (or OPENAI_BASE_URL), " +
				"a model folder or .gguf by --model, or run `make setup`, which fetches a small one")
		}
		if openLocal != nil {
			notice("no model is named: taking " + path)
		}
	} else if !local && !isHubName(path) {
		return nil, modelSource{}, nil, exit.Usagef("there is no model folder or file %q; for a server's model add --base-url (or OPENAI_BASE_URL)", path)
	}
	if openLocal == nil {
		return nil, modelSource{}, nil, fmt.Errorf("this binary was built without local models, so it cannot open %s: "+
			"build the full one with `make build`, or name a server by --base-url", path)
	}
	path, err := findModel(ctx, path, true, notice)
	if err != nil {
		return nil, modelSource{}, nil, fmt.Errorf("%w (for a server's model add --base-url)", err)
	}
	return openLocal(ctx, path, localOptions{DType: o.DType, Device: o.Device, Threads: o.Threads, Parallel: o.Parallel, Parser: parser,
		Temperature: o.Temperature})
}

func openServer(ctx context.Context, o modelOptions, notice func(string)) (agent.Model, modelSource, io.Closer, error) {
	fail := func(err error) (agent.Model, modelSource, io.Closer, error) { return nil, modelSource{}, nil, err }
	if err := checkOpenFiles(o.Parallel); err != nil {
		return fail(err)
	}
	c := llm.Config{BaseURL: o.BaseURL[0], Also: o.BaseURL[1:], APIKey: o.APIKey, Model: o.Model, Retries: o.Retries, Timeout: o.ModelTimeout, Parallel: o.Parallel,
		Answered: o.Answered, WantIDs: true, AskTools: true, Stream: o.Stream, UserAgent: "agentcli/" + version.String(), Notice: notice, OnRetry: o.OnRetry}
	if o.Retries == 0 {
		c.Retries = -1
	}
	if c.Patience, c.Idle = o.Patience, o.StreamIdle; c.Patience == 0 {
		c.Patience = -1
	}
	if c.Idle == 0 {
		c.Idle = -1
	}
	if s := openKey(o.BaseURL, o.APIKey); s != "" && notice != nil {
		notice(s)
	}
	show, err := readReplies(&c, o)
	if err != nil {
		return fail(exit.UsageError{Err: err})
	}
	if o.Model == "" || len(o.BaseURL) > 1 {
		if c.Model, err = agreedModel(ctx, c); err != nil {
			return fail(err)
		}
		if show, err = readReplies(&c, o); err != nil {
			return fail(exit.UsageError{Err: err})
		}
	}
	client, err := llm.New(c)
	if err != nil {
		return fail(exit.UsageError{Err: err})
	}
	source := modelSource{Name: c.Model, Kind: "server", BaseURL: o.BaseURL.shown(), Logprobs: serverLogprobs}
	if o.OnServers != nil {
		o.OnServers(client.Servers)
	}
	if o.TokenMode == modeCompletions || o.TokenMode == modeAuto {
		m, err := inTokens(ctx, client, &source, o, notice)
		switch {
		case err != nil:
			_ = client.Close()
			return fail(err)
		case m != nil:
			return m, source, client, nil
		}
	}
	if show != nil {
		return &shownInText{client, show}, source, client, nil
	}
	return client, source, client, nil
}

// agreedModel is the name of the model that every server offers: the one that is
// configured, or the only one.
func agreedModel(ctx context.Context, c llm.Config) (string, error) {
	if len(c.Also) > 0 && !c.Answered {
		c.Notice, c.OnRetry = nil, nil // the run itself will say who is not there
	}
	client, err := llm.New(c)
	if err != nil {
		return "", exit.UsageError{Err: err}
	}
	defer client.Close()
	names, err := client.Common(ctx)
	switch {
	case errors.Is(err, llm.ErrOtherModel):
		return "", exit.UsageError{Err: err}
	case errors.Is(err, traj.ErrGone):
		return "", err
	case c.Model != "": // who has no list of models may have the model all the same
		return c.Model, ctx.Err()
	case err != nil:
		return "", fmt.Errorf("%w (asked for the list of its models; --model NAME leaves that question out)", err)
	case len(names) != 1:
		return "", exit.Usagef("%s offers %d models (%s); name one with --model", c.BaseURL, len(names), text.FirstFew(names, 5))
	}
	return names[0], nil
}

// readReplies sets how the replies' text is read. It returns how the tools are to
// be shown, where no server shows them so.
func readReplies(c *llm.Config, o modelOptions) (show inText, err error) {
	name := o.Parser
	switch {
	case name == chat.ParserNone, (name == chat.ParserAuto || name == "") && len(o.Tools) == 0:
		return nil, nil
	case name == chat.ParserAuto, name == "":
		name = chat.AutoParser(c.Model)
	}
	p, err := chat.ParserFor(name, o.Tools)
	if err != nil {
		return nil, err
	}
	c.Parse, c.InText, c.KeepSpecial = p.ParseInText, chat.InText, p.NeedsSpecial()
	return p.InText(), nil
}

type inText func([]traj.Message, []traj.ToolSpec) []traj.Message

// shownInText is a server to which the tools are shown in the prompt alone.
type shownInText struct {
	agent.Model
	show inText
}

// Ready is the server's.
func (m *shownInText) Ready(ctx context.Context) error { return agent.Ready(ctx, m.Model) }

// Generate asks for a reply to the conversation in text.
func (m *shownInText) Generate(ctx context.Context, req *traj.Request) (*traj.Response, error) {
	r := *req
	r.Messages, r.Tools = m.show(req.Messages, req.Tools), nil
	r.Memo, r.PrefixMessages = nil, 0 // the messages are not the conversation's own
	return m.Model.Generate(ctx, &r)
}

// defaultModelPath is the small model that set-up fetches.
func defaultModelPath() string {
	return cachedir.Path("models", "SmolLM2-135M-Instruct.Q4_1.gguf")
}
