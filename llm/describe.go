package llm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"math"
	"slices"

	"agentcli/internal/safego"
	"agentcli/media"
	"agentcli/media/album"
	"agentcli/traj"
)

// Offer is a model that a server offers.
type Offer struct {
	ID     string `json:"id"`
	Root   string `json:"root"`          // where the server has it from: a folder of its own, org/name; "": it does not say
	Owner  string `json:"owned_by"`      // "": it does not say
	Window int    `json:"max_model_len"` // tokens of prompt and reply; 0: it does not say
}

// Offers lists the models of a server; of several those that any has, with the
// smallest window.
func (c *Client) Offers(ctx context.Context) ([]Offer, error) {
	lists, err := c.lists(ctx)
	if err != nil {
		return nil, err
	}
	var all []Offer
	for _, o := range slices.Concat(lists...) {
		i := slices.IndexFunc(all, func(p Offer) bool { return p.ID == o.ID })
		switch {
		case i < 0:
			all = append(all, o)
		case all[i].Window == 0 || o.Window > 0 && o.Window < all[i].Window:
			all[i].Window = o.Window
		}
	}
	return all, nil
}

// Models lists the names of the models of a server.
func (c *Client) Models(ctx context.Context) ([]string, error) {
	list, err := c.Offers(ctx)
	return ids(list), err
}

// Ours reports whether every server is `agentcli serve`, as far as their lists of models say.
func (c *Client) Ours() bool {
	return !slices.ContainsFunc(c.pool.all, func(at *caller) bool { return !at.ours.Load() })
}

// ErrOtherModel is wrapped where servers do not serve the same model.
var ErrOtherModel = errors.New("the servers serve different models")

// Common lists the models that every server offers, in the order of the first. A
// server that cannot be reached, or has no list, is not asked: no server at all is
// an error, and so is one that lacks the model of the configuration, or has none
// in common with the others.
func (c *Client) Common(ctx context.Context) ([]string, error) {
	lists, err := c.lists(ctx)
	if err != nil {
		return nil, err
	}
	var common []string
	var named string // whose list is the first
	for i, at := range c.pool.all {
		if len(lists[i]) == 0 {
			continue
		}
		offers := ids(lists[i])
		if m := c.c.Model; m != "" && !slices.Contains(offers, m) {
			return nil, traj.Mark(fmt.Errorf("%s does not offer the model %s (it offers %s); all servers of a run must serve the same one",
				at.name, m, few(offers)), ErrOtherModel)
		}
		if named == "" {
			named, common = at.name, offers
			continue
		}
		both := slices.DeleteFunc(slices.Clone(common), func(m string) bool { return !slices.Contains(offers, m) })
		if len(both) == 0 {
			return nil, traj.Mark(fmt.Errorf("%s offers %s, and not %s as %s does; all servers of a run must serve the same model",
				at.name, few(offers), few(common), named), ErrOtherModel)
		}
		common = both
	}
	return common, nil
}

// lists asks every server for its models, once; nil for one that has no list.
// Where none has, the error is the first one's.
func (c *Client) lists(ctx context.Context) ([][]Offer, error) {
	p := c.pool
	out := make([][]Offer, len(p.all))
	if len(p.all) == 1 {
		err := c.retry(ctx, func(ctx context.Context, at *caller) (f *failure) {
			out[0], f = at.list(ctx)
			return f
		})
		return out, err
	}
	p.mu.Lock()
	seq := p.seq
	p.mu.Unlock()
	fails, err := c.listEach(ctx, out)
	for err == nil && c.c.Patience > 0 && c.c.Answered &&
		!slices.ContainsFunc(fails, func(f *failure) bool { return f == nil || !f.unreachable }) {
		if err = p.await(ctx, p.all[0], seq, fails[0].err); err == nil {
			fails, err = c.listEach(ctx, out)
		}
	}
	if err != nil {
		return nil, err
	}
	for i, at := range p.all {
		if f := fails[i]; f != nil && f.unreachable {
			p.mu.Lock()
			say := p.bury(at, at.c.Now(), f.err)
			p.mu.Unlock()
			if say != "" {
				at.c.Notice(say)
			}
		}
	}
	if !slices.Contains(fails, nil) {
		return nil, fails[0].err
	}
	return out, nil
}

// listEach asks every server for its models, at once, and says how each failed.
func (c *Client) listEach(ctx context.Context, out [][]Offer) ([]*failure, error) {
	p := c.pool
	fails := make([]*failure, len(p.all))
	done := make(chan struct{})
	for i, at := range p.all {
		go func() {
			defer safego.Catch(func(err error) { fails[i] = &failure{err: err}; done <- struct{}{} })
			fails[i] = at.once(ctx, func(ctx context.Context, at *caller) (f *failure) {
				out[i], f = at.list(ctx)
				return f
			})
			done <- struct{}{}
		}()
	}
	for range p.all {
		<-done
	}
	return fails, ctx.Err()
}

// each calls do with a context whose requests go to one server, for every server
// that is not left out.
func (c *Client) each(ctx context.Context, do func(context.Context) error) error {
	for _, at := range c.pool.all {
		c.pool.mu.Lock()
		dead := at.lane.dead
		c.pool.mu.Unlock()
		if dead {
			continue
		}
		if err := do(pinned(ctx, at)); err != nil {
			return err
		}
	}
	return nil
}

// SGLang reports whether the server is one, which has an address /generate beside
// the OpenAI API, and where it has its model from. Of several servers each is asked,
// and Tokens asks each as it wants to be; model is that of the first that is one.
func (c *Client) SGLang(ctx context.Context) (model string, ok bool) {
	c.pool.kinds.Store(true)
	_ = c.each(ctx, func(ctx context.Context) error {
		at, _ := ctx.Value(pinKey{}).(*caller)
		if m := at.findSGLang(ctx); m != "" && !ok {
			model, ok = m, true
		}
		return nil
	})
	return model, ok
}

var (
	errNoProbe = errors.New("the server gives no log-probs")
	errLogits  = errors.New("they are above 0, so they are none; start vLLM without --logprobs-mode raw_logits or processed_logits")
)

// ProbeIDs has one token sampled after a prompt: an error says that the server
// does not take ids or gives none. Every server is asked.
func (t *Tokens) ProbeIDs(ctx context.Context, prompt []int32) error {
	cool := 1.0
	return t.Client.each(ctx, func(ctx context.Context) error {
		_, err := t.Sample(ctx, prompt, traj.Sampling{Temperature: &cool, MaxTokens: 1}, 1)
		return err
	})
}

// ProbeImages has one token sampled after a prompt with images: an error says that the server
// does not take them beside ids. Every server is asked.
func (t *Tokens) ProbeImages(ctx context.Context, prompt []int32, images []traj.Image, spans []traj.ImageSpan) error {
	cool := 1.0
	return t.Client.each(ctx, func(ctx context.Context) error {
		_, err := t.SampleImages(ctx, prompt, images, spans, traj.Sampling{Temperature: &cool, MaxTokens: 1}, 1)
		return err
	})
}

// ProbeLogprobs finds out what the server's log-probs are of. vLLM gives those of
// the model itself unless --logprobs-mode says otherwise, SGLang those after
// temperature. Two requests for the likeliest token, at temperature 1 and at 2,
// tell them apart: the model's own number is the same in both, that after the cut
// to one token is 0.
func (t *Tokens) ProbeLogprobs(ctx context.Context, prompt []int32) (string, error) {
	kind := ""
	err := t.Client.each(ctx, func(ctx context.Context) error {
		k, err := probeLogprobs(func(s traj.Sampling) ([]traj.Logprob, error) {
			c, err := t.Sample(ctx, prompt, s, 1)
			if err != nil {
				return nil, err
			}
			return c.Logprobs, nil
		})
		if err == nil && kind != "" && kind != k {
			err = fmt.Errorf("of one server they are %s, of another %s", kind, k)
		}
		kind = k
		return err
	})
	if err != nil {
		kind = traj.LogprobsNotKnown
	}
	return kind, err
}

// ProbeChat reports whether the server returns ids with chat replies, and what
// their log-probs are of.
func (c *Client) ProbeChat(ctx context.Context) (ids bool, logprobs string, err error) {
	ask := func(s traj.Sampling) ([]traj.Logprob, error) {
		r, err := c.Generate(ctx, &traj.Request{Messages: []traj.Message{{Role: traj.RoleUser, Content: "Name any town."}}, Sampling: s, Seed: 1})
		if err != nil {
			return nil, err
		}
		ids = len(r.SampledIDs) > 0
		return r.Logprobs, nil
	}
	cool := 1.0
	if _, err = ask(traj.Sampling{Temperature: &cool, MaxTokens: 1}); err != nil || !ids {
		return ids, traj.LogprobsNotKnown, err
	}
	if logprobs, err = probeLogprobs(ask); errors.Is(err, errNoProbe) {
		err = nil
	}
	return ids, logprobs, err
}

// ErrNoImages says that the server answers text, and no image.
var ErrNoImages = errors.New("the server's model takes no images")

// ProbeImage asks with a small image, and where that fails with text alone. It fails with
// ErrNoImages, with traj.ErrFatal, or as ctx does; any other fault the run will meet itself.
func (c *Client) ProbeImage(ctx context.Context) error {
	probe, err := ImageProbe()
	if err != nil {
		return err
	}
	ask := func(messages []traj.Message) error {
		_, err := generate(ctx, c, &traj.Request{Messages: messages, Sampling: traj.Sampling{MaxTokens: 1}, Seed: 1}, true)
		return err
	}
	why := ask(probe)
	if why == nil || ctx.Err() != nil || errors.Is(why, traj.ErrFatal) {
		return errors.Join(ctx.Err(), why)
	}
	if err := ask([]traj.Message{{Role: traj.RoleUser, Content: "Name any colour."}}); err != nil {
		return nil //nolint:nilerr // it is no matter of images
	}
	return traj.Mark(fmt.Errorf("%w: %w", ErrNoImages, why), ErrNoImages)
}

// ImageProbe is a question about a small image.
func ImageProbe() ([]traj.Message, error) {
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 56, 56))); err != nil { // no model's smallest size is larger
		return nil, err
	}
	im, err := album.Open(b.Bytes(), "", media.Limits{})
	return []traj.Message{{Role: traj.RoleUser, Content: traj.ImageMark + "Name any colour.", Images: []traj.Image{im}}}, err
}

func probeLogprobs(ask func(traj.Sampling) ([]traj.Logprob, error)) (string, error) {
	var lp [2]float64
	for i, temperature := range []float64{1, 2} { // 2 is the highest that OpenAI's API allows, and vLLM
		list, err := ask(traj.Sampling{Temperature: &temperature, TopK: 1, MaxTokens: 1})
		if err != nil {
			return traj.LogprobsNotKnown, err
		}
		if len(list) == 0 || !list[0].Known() {
			return traj.LogprobsNotKnown, errNoProbe
		}
		if lp[i] = float64(list[0]); lp[i] > 1e-3 {
			return traj.LogprobsNotKnown, errLogits
		}
	}
	switch {
	case lp[0] > -1e-6 && lp[1] > -1e-6:
		return traj.LogprobsAfterCuts, nil
	case math.Abs(lp[0]-lp[1]) <= 1e-3:
		return traj.LogprobsOfModel, nil
	}
	return traj.LogprobsAfterTemp, nil
}
