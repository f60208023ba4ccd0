package llm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"agentcli/internal/setting"
	"agentcli/internal/workclock"
	"agentcli/traj"
)

// Tokens asks a server in ids and is answered in ids: vLLM's /v1/completions, or
// SGLang's own /generate. It satisfies chat.Sampler by shape, and is safe for
// concurrent use.
type Tokens struct {
	Client *Client
	SGLang bool    // ask /generate of every server; else of those that Client.SGLang found to be SGLang
	Window int     // tokens of prompt and reply; 0: not known
	Stops  []int32 // ids that end a reply in this model's chat format

	// Accept is asked about each reply before it counts: the version of the weights that drew
	// it, as its server counts them; "": the server does not say. A reply with an error is asked
	// for again: at once where that is ErrStale, never where it is traj.ErrFatal. nil: all
	// replies count.
	Accept func(ctx context.Context, server, version string) error

	adapter atomic.Pointer[string]
}

// SetAdapter has replies drawn by an adapter of the servers; "": by their model. Versions are the names of adapters then:
// that of a reply is the one that its server says drew it. Score asks the model itself.
func (t *Tokens) SetAdapter(name string) { t.adapter.Store(&name) }

// adapterName is the one that draws replies; "": none.
func (t *Tokens) adapterName() string {
	if name := t.adapter.Load(); name != nil {
		return *name
	}
	return ""
}

// noAdapter is the version of a server without the adapter that was asked for.
const noAdapter = "none"

// ErrStale is in an error of Tokens.Accept: other weights are to draw the reply, and the
// server has them now.
var ErrStale = errors.New("the reply was drawn by other weights")

// accepted asks Tokens.Accept about a reply.
func (t *Tokens) accepted(ctx context.Context, server string, p *sampledPieces) *failure {
	if t.Accept == nil {
		return nil
	}
	defer workclock.Wait(ctx)()
	version := p.version
	if name := t.adapterName(); name != "" {
		version = cmp.Or(p.model, name) // a server without it refuses
	}
	err := t.Accept(ctx, server, version)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrStale):
		return &failure{err: err, retry: true, now: true}
	}
	return &failure{err: err, retry: !errors.Is(err, traj.ErrFatal)}
}

// Ready is Client.Ready.
func (t *Tokens) Ready(ctx context.Context) error { return t.Client.Ready(ctx) }

// Where says at which addresses the servers are asked.
func (t *Tokens) Where() string {
	var openai, own bool
	for _, at := range t.Client.pool.all {
		if t.SGLang || at.sglang.Load() {
			own = true
		} else {
			openai = true
		}
	}
	switch {
	case !own:
		return "/v1/completions"
	case !openai:
		return "SGLang's /generate"
	}
	return "/v1/completions, or SGLang's /generate,"
}

// Sample draws one continuation of prompt, and retries what may pass.
func (t *Tokens) Sample(ctx context.Context, prompt []int32, s traj.Sampling, seed int64) (*traj.Completion, error) {
	return t.sample(ctx, prompt, nil, s, seed)
}

// SampleImages implements chat.ImageSampler by vLLM's /inference/v1/generate. It fails with
// traj.ErrFatal where the prompt that the server used is not this one: ErrOtherImageSize is
// in the error where its images are of other sizes.
func (t *Tokens) SampleImages(ctx context.Context, prompt []int32, images []traj.Image, spans []traj.ImageSpan,
	s traj.Sampling, seed int64) (*traj.Completion, error) {
	if t.SGLang {
		return nil, traj.Mark(errors.New("SGLang's /generate takes no images beside ids"), traj.ErrFatal)
	}
	x, err := sighted(prompt, images, spans)
	if err != nil {
		return nil, err
	}
	return t.sample(ctx, prompt, x, s, seed)
}

// sample is Sample of a prompt with images; nil: without.
func (t *Tokens) sample(ctx context.Context, prompt []int32, images *sight, s traj.Sampling, seed int64) (*traj.Completion, error) {
	c := t.Client
	if t.Window > 0 {
		room := t.Window - len(prompt)
		if room < 1 {
			return nil, fmt.Errorf("%w: %d tokens, the server's window is %d", traj.ErrPromptTooLong, len(prompt), t.Window)
		}
		if s.MaxTokens == 0 || room < s.MaxTokens {
			s.MaxTokens = room
		}
	}
	if s.MaxTokens == 0 {
		// Left open it would be 16 with vLLM and 128 with SGLang.
		return nil, traj.Mark(setting.Errorf("%s does not say how long its window is; give the longest reply by %s",
			c.pool.all[0].name, setting.Name("MaxTokens")), traj.ErrFatal)
	}
	for _, id := range t.Stops {
		if !slices.Contains(s.StopIDs, id) {
			s.StopIDs = append(s.StopIDs[:len(s.StopIDs):len(s.StopIDs)], id)
		}
	}
	b := &body{sampling: s, seed: seed, inIDs: true}
	var out *traj.Completion
	err := c.retry(ctx, func(ctx context.Context, at *caller) *failure {
		p, f := t.once(ctx, at, b, prompt, images)
		if f != nil && errors.Is(f.err, ErrNoModel) && t.Accept != nil && t.adapterName() != "" { // it was started again
			if f = t.accepted(ctx, at.name, &sampledPieces{model: noAdapter}); f == nil {
				f = &failure{err: fmt.Errorf("%s has the adapter %s again", at.name, t.adapterName()), retry: true, now: true}
			}
			return f
		}
		if f == nil && images != nil {
			if err := images.used(at.name, p, prompt); err != nil {
				return &failure{err: err}
			}
		}
		if f == nil {
			out, f = at.read.completion(p, b, prompt)
		}
		if f == nil {
			f = t.accepted(ctx, at.name, p)
		}
		if f == nil && t.Accept == nil { // who accepts replies counts on its own
			out.Versions = p.versions.of(len(p.ids))
		}
		return f
	})
	return out, err
}

// pieces puts a reply in ids together, of one piece or of many.
type pieces interface {
	inPieces
	take() *sampledPieces
}

// sampledPieces is what a reply in ids consists of.
type sampledPieces struct {
	ids        []int32
	logprobs   []*float64
	prompt     []int32 // as the server saw it; nil: it does not say
	promptN, n int     // tokens, as the server counts; 0: it does not
	text       string
	finish     string
	stop       json.RawMessage
	sizes      []int  // tokens of the prompt's images, as the server counts
	amiss      bool   // a piece that counts the tokens so far did not fit the ids so far
	message    string // why it was broken off
	brokenOff  int    // the status that goes with it
	version    string // of the weights; "": the server does not say
	model      string // that drew it, by the server's word; "": it does not say
	versions   tokenVersions
	experts    string // as the server encodes them; "": none
}

// saw takes the version that a piece of a reply names. Pieces of several versions make one that
// no server has.
func (p *sampledPieces) saw(raw json.RawMessage) {
	version := strings.Trim(string(raw), `"`)
	switch {
	case version == "", version == "null", version == p.version:
	case p.version == "":
		p.version = version
	default:
		p.version += "+" + version
	}
}

func (t *Tokens) once(ctx context.Context, c *caller, b *body, prompt []int32, images *sight) (*sampledPieces, *failure) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	x := &exchange{stream: c.streams(), wanted: "completions", whole: true}
	url, fields, s := c.c.BaseURL+"/completions", c.write.completionFields(b, prompt), pieces(&completionPieces{})
	switch {
	case images != nil:
		x.wanted, x.stream = inferencePath, false
		url, s = c.root()+inferencePath, &inferencePieces{}
		fields, x.nested = images.request(&c.write, b)
	case t.SGLang || c.sglang.Load():
		x.wanted = "/generate"
		url, s = c.root()+"/generate", &sglangPieces{}
		fields, x.nested = c.write.generateFields(b, prompt)
	}
	name := t.adapterName()
	if name != "" {
		fields[adapterField(x.wanted)] = quoted(name)
	}
	resp, err := c.send(ctx, url, fields, x)
	if err != nil {
		return nil, classify(c.server, err, x, b)
	}
	defer resp.Body.Close()
	if !x.stream {
		if f := saidError(c.server, x.body, x, b); f != nil {
			return nil, f
		}
		if err := s.add(x.body); err != nil {
			return nil, classify(c.server, err, x, b)
		}
		if !s.done() {
			return nil, unfinished(c.server, x.body)
		}
		return s.take(), nil
	}
	if f := c.read.streamed(watchStream(resp.Body, c.c.Idle, cancel), x, b, s); f != nil {
		return nil, f
	}
	return s.take(), nil
}

// adapterField is the field of requests that names an adapter.
func adapterField(wanted string) string {
	if wanted == "/generate" {
		return "lora_path"
	}
	return "model"
}

func quoted(s string) json.RawMessage {
	b, _ := json.Marshal(s) // of a string it never fails
	return b
}

// What makes a server useless for prompts of token ids.
var (
	errNoIDs       = errors.New("no token ids")
	errOtherPrompt = errors.New("another prompt was used")
)

// completion makes sure that what came back is what was asked for.
func (rd *replyReader) completion(p *sampledPieces, b *body, prompt []int32) (*traj.Completion, *failure) {
	base := rd.name
	if f := recordGrammarSupport(rd.server, b); f != nil {
		return nil, f
	}
	if p.finish == "abort" && p.brokenOff >= 400 {
		x := &exchange{status: p.brokenOff, body: []byte(p.message)}
		return nil, classify(rd.server, fmt.Errorf("aborted"), x, b)
	}
	if f := brokenOff(rd.server, p.finish); f != nil {
		return nil, f
	}
	refuse := func(kind error, format string, args ...any) (*traj.Completion, *failure) {
		return nil, &failure{err: fatal(setting.Errorf(format, args...), kind)}
	}
	if len(p.ids) == 0 && p.n == 0 && p.text == "" { // the end of a turn is a token too
		return nil, &failure{err: traj.Mark(fmt.Errorf("%s sampled nothing (finish_reason %s)", base, p.finish), errNoReply), retry: true}
	}
	if len(p.ids) == 0 {
		return refuse(errNoIDs, "%s returns no token ids (vLLM since 0.10.2 and SGLang do); leave %s out", base, setting.Name("llm.Tokens"))
	}
	if p.prompt != nil && !slices.Equal(p.prompt, prompt) || p.prompt == nil && p.promptN > 0 && p.promptN != len(prompt) {
		n := p.promptN
		if p.prompt != nil {
			n = len(p.prompt)
		}
		return refuse(errOtherPrompt,
			"%s was given a prompt of %d ids and used another, of %d: its replies do not belong to what was asked",
			base, len(prompt), n)
	}
	if p.amiss && p.n == len(p.ids) {
		return nil, &failure{err: traj.Mark(fmt.Errorf("%s sent pieces whose ids do not fit its count of tokens", base), errIDCount), retry: true}
	}
	if p.n > 0 && p.n != len(p.ids) {
		return nil, &failure{err: traj.Mark(fmt.Errorf("%s sampled %d tokens and sent the ids of %d", base, p.n, len(p.ids)), errIDCount),
			retry: true}
	}
	out := &traj.Completion{IDs: p.ids, Text: p.text, FinishReason: p.finish}
	out.Logprobs = rd.aligned(p.logprobs, len(p.ids))
	var f *failure
	if out.Experts, f = readExperts(rd, p.experts, len(prompt)+len(p.ids)); f != nil {
		return nil, f
	}
	if n := len(p.ids); n > 0 && p.finish == traj.FinishStop {
		var id int32
		switch {
		case json.Unmarshal(p.stop, &out.StopString) == nil && out.StopString != "":
		case json.Unmarshal(p.stop, &id) == nil && id == p.ids[n-1]:
			out.Ended = true
		default:
			out.Ended = slices.Contains(b.sampling.StopIDs, p.ids[n-1]) || len(b.sampling.Stop) == 0
		}
	}
	checkGrammar(rd, b, p.text, p.finish, out.StopString)
	return out, nil
}

// encodeIDs is ids as a JSON array.
func encodeIDs(ids []int32) json.RawMessage {
	out := make([]byte, 0, 7*len(ids)+2)
	out = append(out, '[')
	for i, id := range ids {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, int64(id), 10)
	}
	return append(out, ']')
}
