package llm

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"agentcli/media/album"
	"agentcli/traj"
)

// inferencePath is where vLLM takes ids and images, beside /v1.
const inferencePath = "/inference/v1/generate"

// sight is what a prompt with images is beside its ids. vLLM expands one id an image itself;
// ids that are expanded already it would expand again, without a word.
type sight struct {
	short []int32 // the prompt, with one id for each image
	parts json.RawMessage
	spans []traj.ImageSpan
}

// ErrOtherImageSize says that the server makes another number of tokens of an image.
var ErrOtherImageSize = errors.New("another size of an image")

// sighted is a prompt with images, whose spans say where in it they are expanded.
func sighted(prompt []int32, images []traj.Image, spans []traj.ImageSpan) (*sight, error) {
	x := &sight{spans: spans}
	var parts []any
	at := 0
	for _, span := range spans {
		url, err := dataURI(&images[span.Image])
		if err != nil {
			return nil, err
		}
		parts = append(parts, imagePart(url))
		x.short = append(append(x.short, prompt[at:span.Start]...), prompt[span.Start])
		at = span.Start + span.Tokens
	}
	x.short = append(x.short, prompt[at:]...)
	var err error
	x.parts, err = json.Marshal(parts)
	return x, err
}

func imagePart(url string) map[string]any {
	return map[string]any{"type": "image_url", "image_url": map[string]string{"url": url}}
}

// dataURI is an image as a URI with its file in it: its own, or a PNG of a crop.
func dataURI(im *traj.Image) (string, error) {
	file, err := album.File(im)
	if err != nil {
		return "", fmt.Errorf("an image of the conversation: %w", err)
	}
	return "data:" + http.DetectContentType(file) + ";base64," + base64.StdEncoding.EncodeToString(file), nil
}

// inferenceParams are the fields of vLLM's sampling_params, by our names for them.
var inferenceParams = []string{"temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens", "stop",
	"stop_token_ids", "seed", "structured_outputs", "logit_bias"}

// request is one to /inference/v1/generate; the second are the fields within sampling_params.
func (x *sight) request(w *requestWriter, b *body) (f, params map[string]json.RawMessage) {
	all := w.fields(b)
	params = map[string]json.RawMessage{"skip_special_tokens": rawFalse}
	for _, name := range inferenceParams {
		if v, ok := all[name]; ok {
			params[name] = v
		}
	}
	if _, ok := all["logprobs"]; ok {
		params["logprobs"] = json.RawMessage("0") // of the sampled token alone
	}
	inner, err := json.Marshal(params)
	if err != nil { // raw JSON of our own making
		inner = json.RawMessage("{}")
	}
	f = map[string]json.RawMessage{"model": w.model, "token_ids": encodeIDs(x.short), "content_parts": x.parts,
		"sampling_params": inner, "return_token_ids": rawTrue}
	if w.c.WantExperts {
		f["return_routed_experts"] = rawTrue
	}
	return f, params
}

// inferencePieces reads the reply, which comes in one piece.
type inferencePieces struct{ s sampledPieces }

func (p *inferencePieces) add(data []byte) error {
	rest, ids := takeIDs(data)
	var reply struct {
		Choices []struct {
			FinishReason string `json:"finish_reason"`
			Logprobs     *struct {
				Content []struct {
					Logprob *float64 `json:"logprob"`
				} `json:"content"`
			} `json:"logprobs"`
			routedExperts
		} `json:"choices"`
		Places struct {
			Image []struct {
				Length int `json:"length"`
			} `json:"image"`
		} `json:"mm_placeholders"`
		versionFields
	}
	if err := json.Unmarshal(rest, &reply); err != nil {
		return fmt.Errorf("not the API's JSON: %w: %s", err, excerpt(data))
	}
	p.s.prompt, p.s.ids = ids.prompt, ids.sampled
	p.s.saw(reply.Version)
	p.s.versions.add(reply.versionFields, len(ids.sampled))
	for _, place := range reply.Places.Image {
		p.s.sizes = append(p.s.sizes, place.Length)
	}
	if len(reply.Choices) == 0 {
		return nil
	}
	ch := &reply.Choices[0]
	p.s.finish, p.s.experts = ch.FinishReason, ch.Routed
	if ch.Logprobs != nil {
		for _, x := range ch.Logprobs.Content {
			p.s.logprobs = append(p.s.logprobs, x.Logprob)
		}
	}
	return nil
}

func (p *inferencePieces) done() bool           { return p.s.finish != "" }
func (p *inferencePieces) repeats() bool        { return false }
func (p *inferencePieces) take() *sampledPieces { return &p.s }

// used makes sure that a server used the prompt with its images as we expand them.
func (x *sight) used(server string, p *sampledPieces, prompt []int32) error {
	if p.prompt == nil {
		return fatal(fmt.Errorf("%s does not return the ids of the prompt that it used (vLLM's return_token_ids): "+
			"its images may be of any size", server), errNoIDs)
	}
	for k, span := range x.spans {
		if k < len(p.sizes) && p.sizes[k] != span.Tokens {
			return traj.Mark(fmt.Errorf("%s %w", server, differingImage(p.sizes[k], k+1, span.Tokens)), traj.ErrFatal)
		}
	}
	if !slices.Equal(p.prompt, prompt) {
		return fatal(fmt.Errorf("%s was given a prompt of %d ids with %d images and used another, of %d: "+
			"its replies do not belong to what was asked", server, len(prompt), len(x.spans), len(p.prompt)), errOtherPrompt)
	}
	return nil
}
