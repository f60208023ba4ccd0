package models

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"agentcli/agent"
	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/llm"
	"agentcli/media/processor"
	"agentcli/model/chat"
	"agentcli/model/tokenizer"
	"agentcli/model/weights"
	"agentcli/policy"
	"agentcli/traj"
)

// The values of --token-mode.
const (
	TokenModeChat        = "chat"
	TokenModeCompletions = "completions"
	TokenModeAuto        = "auto"
)

// serverLogprobs is what is known of a chat server's log-probs.
const serverLogprobs = "server: " + traj.LogprobsNotKnown

// openExact makes a model that asks the server in token ids. For auto it may be
// nil: then the server is asked in messages. Either way the user hears which.
func openExact(ctx context.Context, client *llm.Client, source *Source, o Options, notice func(string)) (agent.Model, error) {
	tokens, names, err := describeServer(ctx, client)
	if err != nil {
		return nil, err
	}
	m, hash, template, err := exactModel(ctx, tokens, names, o, notice)
	var probe []int32
	if err == nil {
		probe, _, err = m.Prompt(&traj.Request{Messages: []traj.Message{{Role: traj.RoleUser, Content: "Name any town."}}})
	}
	if err == nil {
		err = tokens.ProbeIDs(ctx, probe)
	}
	if err == nil && o.mayShow() {
		blind := m.openEyes(ctx, tokens, source, o)
		if o.Image != "" {
			err = blind
		} else {
			source.noImages = blind // tools' images are described then, rows with images refused
		}
	}
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case o.TokenMode == TokenModeCompletions:
		return nil, setting.Errorf("%s completions: %w", setting.Name("TokenMode"), err)
	case (o.Tokenizer != "" || o.Trained != "") && m == nil:
		return nil, err // what was named is not there
	default:
		if m != nil && o.mayShow() {
			if err := placeImages(client, source, m.folder, m.Tokenizer, hash, o); err != nil {
				source.Images = nil // what a reply has beside images is said with the first
			}
		}
		return nil, noteChatMode(ctx, client, source, err, notice)
	}
	if o.TokenMode == TokenModeAuto {
		notice(fmt.Sprintf("token mode completions: %s takes ids and returns them; rendered as %s", tokens.Where(), m.Renderer.Family()))
	}
	source.BarredIDs = m.barred
	source.TokenMode, source.TokenizerHash, source.TemplateHash = TokenModeCompletions, hash, template
	if source.Describe(m.Renderer); m.Parser != nil {
		source.ToolsInText = "" // they are written as the parser's format says
	}
	source.noteTools(o, m.Parser != nil && m.Parser.InText() != nil, notice)
	kind, err := tokens.ProbeLogprobs(ctx, probe)
	if err != nil {
		notice(fmt.Sprintf("what the server's log-probs are of is not known (%v)", err))
	}
	source.Logprobs = "server: " + kind
	return m, nil
}

// exactServer is a model behind a server that is asked in ids.
type exactServer struct {
	*chat.Exact
	tokens *llm.Tokens // its sampler
	folder string      // of its tokenizer
	barred []int32     // ids that are never drawn
	images *processor.Processor
}

// Served is a model behind servers that are asked in ids.
type Served interface {
	agent.Model
	// Servers asks them.
	Servers() *llm.Tokens
	// SetVersion is the version of the weights that replies carry from now on. Nothing is
	// sampled meanwhile.
	SetVersion(version int64)
}

var _ Served = (*exactServer)(nil)

// Servers implements Served.
func (m *exactServer) Servers() *llm.Tokens { return m.tokens }

// SetVersion implements Served.
func (m *exactServer) SetVersion(version int64) { m.Version = version }

// ImageGrid implements agent.ImageProcessor.
func (m *exactServer) ImageGrid(width, height int) (grid [3]int, tokens int, err error) {
	return gridOf(m.images, width, height)
}

// openEyes makes ready for images beside ids: the processor is that of the model, and the
// server is asked about one image.
func (m *exactServer) openEyes(ctx context.Context, tokens *llm.Tokens, source *Source, o Options) (err error) {
	v, err := Vision(m.folder)
	if err == nil {
		m.images, err = policy.OpenProcessor(m.folder, v, o.MinPixels, o.MaxPixels)
	}
	if err != nil {
		return setting.Errorf("%s %s: %w", setting.Name("Tokenizer"), m.folder, err)
	}
	m.Images = &chat.ImagePlaces{Token: v.ImageToken, Grid: m.images.Grid}
	defer func() {
		if err != nil {
			m.Images, m.images = nil, nil
		}
	}()
	probe, err := llm.ImageProbe()
	if err != nil {
		return err
	}
	prompt, spans, err := m.Prompt(&traj.Request{Messages: probe})
	if err != nil {
		return err
	}
	if err = tokens.ProbeImages(ctx, prompt, probe[0].Images, spans); err != nil {
		return fmt.Errorf("images beside ids: %w", err)
	}
	source.Images, source.ImageRule = m.images, json.RawMessage(m.images.Rule())
	return nil
}

// noteChatMode says that the server is asked in messages, and what comes of it.
func noteChatMode(ctx context.Context, client *llm.Client, source *Source, why error, notice func(string)) error {
	ids, logprobs, err := client.ProbeChat(ctx)
	if errors.Is(err, traj.ErrFatal) || ctx.Err() != nil {
		return err
	}
	source.Logprobs = "server: " + logprobs
	gives := "which returns no token ids, so the file cannot be trained on"
	if ids {
		gives = "which returns token ids"
	}
	notice(fmt.Sprintf("token mode chat, %s (completions: %v)", gives, why))
	return nil
}

// describeServer finds out how the server takes ids, and by what names its model goes.
func describeServer(ctx context.Context, client *llm.Client) (*llm.Tokens, []string, error) {
	t := &llm.Tokens{Client: client}
	offers, err := client.Offers(ctx)
	if errors.Is(err, traj.ErrFatal) || errors.Is(err, traj.ErrGone) {
		return nil, nil, err
	}
	names := []string{client.Model()}
	for _, o := range offers {
		if o.ID == client.Model() {
			t.Window = o.Window
			names = append(names, o.Root)
		}
	}
	if path, ok := client.SGLang(ctx); ok {
		names = append(names, path)
	}
	return t, slices.Compact(names), nil
}

// exactModel puts the model's tokenizer and chat format before the server.
func exactModel(ctx context.Context, tokens *llm.Tokens, names []string, o Options, notice func(string)) (
	m *exactServer, hash, template string, err error) {
	fail := func(err error) (*exactServer, string, string, error) { return nil, "", "", err }
	path, err := findTokenizer(ctx, names, cmp.Or(o.Trained, o.Tokenizer), notice)
	if err != nil {
		return fail(err)
	}
	tok, err := tokenizer.Open(path)
	if err != nil {
		return fail(setting.Errorf("%s %s: %w", setting.Name("Tokenizer"), path, err))
	}
	r, err := Renderer(path, tok, o.ChatTemplate)
	if err != nil {
		return fail(setting.Errorf("%s %w; %s chat has the server render", setting.Name("Tokenizer"), err, setting.Name("TokenMode")))
	}
	tokens.Stops = r.StopIDs()
	barred := setModelFacts(tokens.Client, path)
	m = &exactServer{barred: barred, Exact: &chat.Exact{Renderer: r, Tokenizer: tok, Sampler: tokens,
		Policy: cmp.Or(o.Trained, tokens.Client.Model())},
		tokens: tokens, folder: path}
	if o.Parser != "" && o.Parser != chat.ParserAuto {
		if m.Parser, err = chat.ParserFor(o.Parser, o.Tools); err != nil {
			return fail(exit.UsageError{Err: err})
		}
	}
	template, err = TemplateOf(tok.ChatTemplate(), o.ChatTemplate)
	return m, tok.Hash(), HashText(template), err
}

// setModelFacts gives a client what the configuration in a folder says of the model: the ids that are never
// drawn, which it returns, and how many experts a token has in a layer.
func setModelFacts(client *llm.Client, folder string) (barred []int32) {
	c, err := weights.ReadConfig(folder)
	if err != nil { // the folder has a tokenizer alone
		return nil
	}
	var m llm.ModelFacts
	if c.Vision != nil {
		m.Barred = c.Vision.TokenIDs(c.VocabSize)
	}
	for i := range c.Layers {
		m.ActiveExperts = max(m.ActiveExperts, c.Layers[i].Experts.Active)
	}
	llm.SetFacts(client, m)
	return m.Barred
}

// findTokenizer gives the path of the tokenizer that is named, or of that of the
// first of the model's names that is a folder here or a model of the hub.
func findTokenizer(ctx context.Context, names []string, named string, notice func(string)) (string, error) {
	if named != "" {
		if _, err := os.Stat(named); err != nil && !IsHubName(named) {
			return "", exit.Usagef("%s %s: there is no such folder or file, and it is no org/name of the hub", setting.Name("Tokenizer"), named)
		}
		path, err := Find(ctx, named, false, notice)
		if err != nil {
			return "", setting.Errorf("%s %s: %w", setting.Name("Tokenizer"), named, err)
		}
		return path, nil
	}
	var last error
	for _, name := range names {
		if _, err := os.Stat(name); err == nil && name != "" {
			return name, nil
		}
		if !IsHubName(name) {
			continue
		}
		path, err := Find(ctx, name, false, notice)
		if err == nil {
			return path, nil
		}
		last = err
	}
	if last != nil {
		return "", setting.Errorf("the model's tokenizer is missing (%w); give it by %s DIR", last, setting.Name("Tokenizer"))
	}
	return "", exit.Usagef("the tokenizer of %q is not known: name its folder or org/name by %s", names[0], setting.Name("Tokenizer"))
}
