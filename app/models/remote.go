package models

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"agentcli/internal/exit"
	"agentcli/internal/malformed"
	"agentcli/internal/safego"
	"agentcli/internal/setting"
	"agentcli/internal/version"
	"agentcli/llm"
	"agentcli/model/tokenizer"
	"agentcli/model/weights"
	"agentcli/policy"
	"agentcli/trainer"
	"agentcli/traj"

	"golang.org/x/sync/errgroup"
)

// FrozenModel is asked before the first update, and never trained.
type FrozenModel interface {
	trainer.Scorer
	Close()
}

// remoteAtOnce are the texts that a server is given at once to score.
const remoteAtOnce = 16

// IsServer reports whether a model's name is the address of a server.
func IsServer(name string) bool {
	return strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://")
}

// Remote is a model behind a server, asked for the log-probs of given ids.
type Remote struct {
	ctx    context.Context //nolint:containedctx // of the run: a Scorer is asked without one
	tokens *llm.Tokens
	tok    *tokenizer.Tokenizer
	force  bool
	note   func(string, ...any)
	agreed bool // the server's tokens are known to be ours, or nobody minds
}

// OpenRemote reads URL or URL#MODEL. tok is the tokenizer of the policy.
func OpenRemote(ctx context.Context, address string, tok *tokenizer.Tokenizer, force bool, note func(string, ...any)) (*Remote, error) {
	url, model, _ := strings.Cut(address, "#")
	c := llm.Config{BaseURL: url, Model: model, APIKey: os.Getenv("OPENAI_API_KEY"), Parallel: remoteAtOnce,
		UserAgent: "agentcli/" + version.String(),
		Notice:    func(text string) { note("%s", text) }}
	if s := UnencryptedKey([]string{url}, c.APIKey); s != "" {
		note("%s", s)
	}
	if model == "" {
		var err error
		if c.Model, err = agreedModel(ctx, &c, "URL#MODEL"); err != nil {
			return nil, err
		}
	}
	client, err := llm.New(c)
	if err != nil {
		return nil, exit.UsageError{Err: err}
	}
	tokens, _, err := describeServer(ctx, client)
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	return &Remote{ctx: ctx, tokens: tokens, tok: tok, force: force, note: note}, nil
}

// Close lets the connections go.
func (r *Remote) Close() { _ = r.tokens.Client.Close() }

// Forward asks for the log-probs of a batch's wanted tokens. There is no entropy.
func (r *Remote) Forward(b policy.Batch) (policy.Outputs, error) {
	if b.Images != nil {
		return policy.Outputs{}, malformed.Field("images", malformed.Unsupported, "a server gives log-probs of text alone")
	}
	for _, t := range b.Temperature {
		if t != 1 {
			return policy.Outputs{}, ErrRemoteTemperature(t)
		}
	}
	all := make([]*llm.Scored, len(b.Sequences))
	g, ctx := errgroup.WithContext(r.ctx)
	g.SetLimit(remoteAtOnce)
	for i := range b.Sequences {
		g.Go(func() (err error) {
			defer safego.Into(&err)
			all[i], err = r.tokens.Score(ctx, b.Sequences[i])
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return policy.Outputs{}, err
	}
	var out policy.Outputs
	for i, s := range all {
		if err := r.agree(b.Sequences[i], s.Texts); err != nil {
			return policy.Outputs{}, err
		}
		for t, want := range b.Want[i] {
			if want && t > 0 {
				out.Logprobs = append(out.Logprobs, s.Logprobs[t])
			}
		}
	}
	r.agreed = true
	return out, nil
}

// ErrRemoteTemperature is the error of rows at another temperature: a server scores a prompt at temperature 1 alone.
func ErrRemoteTemperature(t float64) error {
	return traj.Mark(setting.Errorf("rows sampled at temperature %g are scored at that temperature, "+
		"and a server gives the log-probs of a prompt at temperature 1 only; name a folder with the model, or roll out with %s 1",
		t, setting.Name("Temperature")), ErrTemperature)
}

// ErrTemperature is in the error of ErrRemoteTemperature.
var ErrTemperature = errors.New("another temperature than the server scores at")

// ErrOtherTokens is the error of another tokenizer: the ids of the policy mean other words to the server.
var ErrOtherTokens = errors.New("the server has another tokenizer than the policy: the same ids mean other words to it")

// agree is sameTokens until one batch was looked at, or --force has let it pass.
func (r *Remote) agree(ids []int32, texts []string) error {
	if r.agreed {
		return nil
	}
	err := r.sameTokens(ids, texts)
	if err == nil {
		return nil
	}
	if !r.force {
		return setting.Errorf("%w (%s asks it all the same)", err, setting.Name("Force"))
	}
	r.agreed = true
	return exit.Override(true, r.note, err, err.Error(), "")
}

// sameTokens compares what the server calls the tokens with what they are to the
// policy. Pieces of characters, and the blanks that some servers leave out, say
// nothing.
func (r *Remote) sameTokens(ids []int32, texts []string) error {
	known, other := 0, ""
	differ := 0
	for i, text := range texts {
		own := r.tok.Decode(ids[i:i+1], false)
		a, b := strings.TrimSpace(text), strings.TrimSpace(own)
		if a == "" || b == "" || strings.ContainsRune(a, '\uFFFD') || strings.ContainsRune(b, '\uFFFD') {
			continue
		}
		known++
		if a != b {
			differ++
			other = fmt.Sprintf("token %d is %q here and %q there", ids[i], own, text)
		}
	}
	if 2*differ > known {
		return fmt.Errorf("%w; %s", ErrOtherTokens, other)
	}
	return nil
}

// OpenTokenizer opens the tokenizer of a model folder or file.
func OpenTokenizer(path string) (*tokenizer.Tokenizer, error) {
	m, err := weights.Open(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	return tokenizer.Open(m.TokenizerPath())
}
