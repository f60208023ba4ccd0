package models

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"agentcli/agent"
	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/internal/version"
	"agentcli/llm"
	"agentcli/media/processor"
	"agentcli/model/chat"
	"agentcli/traj"
)

// clientConfig is how the servers are asked that the options name.
func clientConfig(o Options, notice func(string)) llm.Config {
	c := llm.Config{BaseURL: o.BaseURL[0], Also: o.BaseURL[1:], APIKey: o.APIKey, Model: o.Model,
		Retries: o.Retries, Timeout: o.ModelTimeout, Parallel: o.Parallel,
		Answered: o.Answered, WantIDs: true, WantExperts: o.RouterReplay, AskTools: true,
		Stream: o.Stream, UserAgent: "agentcli/" + version.String(),
		Notice: notice, OnRetry: o.OnRetry, MatchesGrammar: grammarMatcher()}
	if o.Retries == 0 {
		c.Retries = -1
	}
	if c.Patience, c.Idle = o.Patience, o.StreamIdle; c.Patience == 0 {
		c.Patience = -1
	}
	if c.Idle == 0 {
		c.Idle = -1
	}
	if s := UnencryptedKey(o.BaseURL, o.APIKey); s != "" && notice != nil {
		notice(s)
	}
	return c
}

// openSwiftRollout opens a `swift rollout` of ms-swift as the model. Its name is not known
// unless it is given: the format of its calls is then hermes.
func openSwiftRollout(o Options, notice func(string)) (agent.Model, Source, io.Closer, error) {
	fail := func(err error) (agent.Model, Source, io.Closer, error) { return nil, Source{}, nil, err }
	if o.TokenMode != "" && o.TokenMode != TokenModeChat || o.Tokenizer != "" || o.Stream {
		return fail(exit.Usagef("a swift rollout server is asked in messages, for whole replies: leave out %s, %s and %s",
			setting.Name("TokenMode"), setting.Name("Tokenizer"), setting.Name("Stream")))
	}
	o.BaseURL = ParseAddresses(o.SwiftRollout)
	o.Model = cmp.Or(o.Model, "swift-rollout")
	c := clientConfig(o, notice)
	show, err := readReplies(&c, o)
	if err != nil {
		return fail(exit.UsageError{Err: err})
	}
	client, err := llm.New(c)
	if err != nil {
		return fail(exit.UsageError{Err: err})
	}
	source := Source{Name: c.Model, Kind: "server", BaseURL: o.BaseURL.shown(), Logprobs: serverLogprobs,
		noImages: errSwiftText}
	return &TextToolsModel{Model: &llm.SwiftRollout{Client: client}, show: show}, source, client, nil
}

func openServer(ctx context.Context, o Options, notice func(string)) (agent.Model, Source, io.Closer, error) {
	fail := func(err error) (agent.Model, Source, io.Closer, error) { return nil, Source{}, nil, err }
	if err := checkOpenFiles(o.Parallel); err != nil {
		return fail(err)
	}
	c := clientConfig(o, notice)
	show, err := readReplies(&c, o)
	if err != nil {
		return fail(exit.UsageError{Err: err})
	}
	if o.Model == "" || len(o.BaseURL) > 1 {
		by := setting.Name("Model").String() + " NAME"
		if o.Trained != "" {
			by = ""
		}
		if c.Model, err = agreedModel(ctx, &c, by); err != nil {
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
	source := Source{Name: cmp.Or(o.Trained, c.Model), Kind: "server", BaseURL: o.BaseURL.shown(), Logprobs: serverLogprobs}
	if o.OnServers != nil {
		o.OnServers(client.Servers)
	}
	if o.Image != "" {
		if err := client.ProbeImage(ctx); err != nil {
			_ = client.Close()
			if errors.Is(err, llm.ErrNoImages) {
				err = o.noImages(text.Line(err))
			}
			return fail(err)
		}
	}
	if o.TokenMode == TokenModeCompletions || o.TokenMode == TokenModeAuto {
		m, err := openExact(ctx, client, &source, o, notice)
		switch {
		case err != nil:
			_ = client.Close()
			return fail(err)
		case m != nil:
			return m, source, client, nil
		}
	}
	if o.Tokenizer != "" && (o.TokenMode == "" || o.TokenMode == TokenModeChat) && (o.mayShow() || o.RouterReplay) {
		folder, err := findTokenizer(ctx, nil, o.Tokenizer, notice)
		if err == nil {
			source.BarredIDs = setModelFacts(client, folder)
			if o.mayShow() {
				err = placeChatImages(client, &source, folder, o)
			}
		}
		if err != nil {
			if o.Image != "" || folder == "" && o.RouterReplay {
				_ = client.Close()
				return fail(err)
			}
			notice(text.Line(err)) // the tools may give no image
		}
	}
	if o.Image == "" && o.RowImages {
		source.eyes = &eyes{ask: client.ProbeImage}
	}
	if o.Image == "" && o.ToolImages {
		switch err := client.ProbeImage(ctx); {
		case errors.Is(err, llm.ErrNoImages):
			source.noImages = err
		case err != nil:
			_ = client.Close()
			return fail(err)
		}
	}
	return &TextToolsModel{Model: client, show: show, images: source.Images}, source, client, nil
}

// agreedModel is the name of the model that every server offers: the one that is
// configured, or the only one. by is how the user names one; "": nobody can.
func agreedModel(ctx context.Context, of *llm.Config, by string) (string, error) {
	c := *of
	if len(c.Also) > 0 && !c.Answered {
		c.Notice, c.OnRetry = nil, nil // the run itself will say who is not there
	}
	client, err := llm.New(c)
	if err != nil {
		return "", exit.UsageError{Err: err}
	}
	defer client.Close()
	names, err := client.Common(ctx)
	of.FullSeeds = client.Ours()
	switch {
	case errors.Is(err, llm.ErrOtherModel):
		return "", exit.UsageError{Err: err}
	case errors.Is(err, traj.ErrGone):
		return "", err
	case c.Model != "": // who has no list of models may have the model all the same
		return c.Model, ctx.Err()
	case err != nil && by == "":
		return "", err
	case err != nil:
		return "", fmt.Errorf("%w (asked for the list of its models; %s leaves that question out)", err, by)
	case len(names) != 1 && by == "":
		return "", exit.Usagef("%s offers %d models (%s); start a server of one model", c.BaseURL, len(names), text.FirstFew(names, 5))
	case len(names) != 1:
		return "", exit.Usagef("%s offers %d models (%s); name one with %s", c.BaseURL, len(names),
			text.FirstFew(names, 5), by)
	}
	return names[0], nil
}

// readReplies sets how the replies' text is read. It returns how the tools are to
// be shown, where no server shows them so.
func readReplies(c *llm.Config, o Options) (show inText, err error) {
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
	c.Parse = func(text string, offered []traj.ToolSpec) (traj.Message, []traj.CallError) {
		return p.For(offered).ParseInText(text)
	}
	c.InText, c.KeepSpecial = chat.InText, p.NeedsSpecial()
	return p.InText(), nil
}

type inText func([]traj.Message, []traj.ToolSpec) []traj.Message

// TextToolsModel is a server that is asked in messages. The tools of a form that it does
// not know are shown to it in the messages' text alone.
type TextToolsModel struct {
	agent.Model
	show   inText               // of a request without a form of its own; nil: the server shows the tools
	images *processor.Processor // of the server's model; nil: not known
}

// ImageGrid implements agent.ImageProcessor.
func (m *TextToolsModel) ImageGrid(width, height int) (grid [3]int, tokens int, err error) {
	return gridOf(m.images, width, height)
}

// Ready is the server's.
func (m *TextToolsModel) Ready(ctx context.Context) error { return agent.Ready(ctx, m.Model) }

// Generate asks for a reply to the conversation, in text where its form is to be shown so.
func (m *TextToolsModel) Generate(ctx context.Context, req *traj.Request) (*traj.Response, error) {
	show := m.show
	if req.Form != nil {
		show = req.Form.InText()
	}
	if show == nil {
		return m.Model.Generate(ctx, req)
	}
	r := *req
	r.Messages, r.Tools = show(req.Messages, req.Tools), nil
	r.Memo, r.PrefixMessages = nil, 0 // the messages are not the conversation's own
	return m.Model.Generate(ctx, &r)
}
