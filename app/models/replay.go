package models

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"agentcli/agent"
	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/model/chat"
	"agentcli/model/tokenizer"
	"agentcli/traj"
)

// ReplayPrefix before a model's folder names a model that says the replies of its tasks
// (datasets.Replies) in the tokens and the chat format of that model. It needs no libtorch. Its
// trajectories are demonstrations to train the model with: their ids are those that its own
// rollouts have.
const ReplayPrefix = "replay:"

// replay is that model. It is safe for concurrent use.
type replay struct{ chat.Exact }

// openReplay opens the tokenizer and the image processor of a model's folder.
func openReplay(folder string, o Options) (agent.Model, Source, io.Closer, error) {
	fail := func(err error) (agent.Model, Source, io.Closer, error) { return nil, Source{}, nil, err }
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return fail(exit.Usagef("%s %s%s: there is no such model folder", setting.Name("Model"), ReplayPrefix, folder))
	}
	tok, err := tokenizer.Open(folder)
	if err != nil {
		return fail(err)
	}
	r, err := Renderer(folder, tok, o.ChatTemplate)
	if err != nil {
		return fail(err)
	}
	template, err := TemplateOf(tok.ChatTemplate(), o.ChatTemplate)
	if err != nil {
		return fail(err)
	}
	print, err := Fingerprint(folder)
	if err != nil {
		return fail(err)
	}
	name, err := filepath.Abs(folder)
	if err != nil {
		return fail(err)
	}
	source := Source{Name: name, Kind: "replay", Fingerprint: print, TokenizerHash: tok.Hash(), TemplateHash: HashText(template)}
	source.Describe(r)
	m := &replay{chat.Exact{Renderer: r, Tokenizer: tok, Sampler: script{tok, r}, Policy: name}}
	if source.Images, source.noImages = ImageProcessor(folder, o.MinPixels, o.MaxPixels); source.Images != nil {
		v, err := Vision(folder)
		if err != nil {
			return fail(err)
		}
		m.Images = &chat.ImagePlaces{Token: v.ImageToken, Grid: source.Images.Grid}
	}
	return m, source, nil, nil
}

type replyKey struct{}

// Generate says the request's reply. Without one no task of the run can have any.
func (m *replay) Generate(ctx context.Context, req *traj.Request) (*traj.Response, error) {
	if req.Reply == nil {
		return nil, traj.Mark(errors.New("the task has no replies to be said: name a dataset with demonstrations, such as "+
			"the splits places, crops and traces of fineprint, or rows with a column replies"), traj.ErrFatal)
	}
	return m.Exact.Generate(context.WithValue(ctx, replyKey{}, *req.Reply), req)
}

// script is the Sampler of a replay: what it draws is the reply of the context.
type script struct {
	tok      *tokenizer.Tokenizer
	renderer chat.Renderer
}

var _ chat.ImageSampler = script{}

// Sample implements chat.Sampler.
func (s script) Sample(ctx context.Context, _ []int32, _ traj.Sampling, _ int64) (*traj.Completion, error) {
	reply, ok := ctx.Value(replyKey{}).(string)
	stops := s.renderer.StopIDs()
	if !ok || len(stops) == 0 {
		return nil, fmt.Errorf("there is no reply, or nothing that ends one (%d tokens)", len(stops))
	}
	return &traj.Completion{IDs: append(s.tok.EncodeOrdinary(reply), stops[0]), FinishReason: traj.FinishStop, Ended: true}, nil
}

// SampleImages implements chat.ImageSampler.
func (s script) SampleImages(ctx context.Context, prompt []int32, _ []traj.Image, _ []traj.ImageSpan, sampling traj.Sampling, seed int64) (
	*traj.Completion, error) {
	return s.Sample(ctx, prompt, sampling, seed)
}
