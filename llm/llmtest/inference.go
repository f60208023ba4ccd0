package llmtest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg" // images of requests
	_ "image/png"
	"strings"
)

// Sight is how a server expands images in prompts of ids, as vLLM does.
type Sight struct {
	Place  int32                       // the id that stands for an image
	Tokens func(width, height int) int // of an image
	Most   int                         // images of a prompt; 0: any number
}

// Image is one of a request.
type Image struct {
	Width, Height int
	Offset        int // of its first token in the prompt
	Tokens        int
}

// read expands a prompt: each image stands at the next id for one. Ids that the client has
// expanded stay where they are, as with vLLM, and nothing is said of them.
func (s *Sight) read(req *Request) error {
	var ids []int32
	var parts []struct {
		Type string `json:"type"`
		URL  struct {
			URL string `json:"url"`
		} `json:"image_url"`
	}
	if json.Unmarshal(req.Fields["token_ids"], &ids) != nil || json.Unmarshal(req.Fields["content_parts"], &parts) != nil {
		return errors.New("token_ids and content_parts are wanted")
	}
	if s.Most > 0 && len(parts) > s.Most {
		return fmt.Errorf("At most %d image(s) may be provided in one prompt.", s.Most) // vLLM's words
	}
	for _, p := range parts {
		_, data, ok := strings.Cut(p.URL.URL, ";base64,")
		file, err := base64.StdEncoding.DecodeString(data)
		if p.Type != "image_url" || !ok || err != nil {
			return errors.New("a part is no image with a data URI")
		}
		c, _, err := image.DecodeConfig(bytes.NewReader(file))
		if err != nil {
			return err
		}
		req.Images = append(req.Images, Image{Width: c.Width, Height: c.Height, Tokens: s.Tokens(c.Width, c.Height)})
	}
	next := 0
	for _, id := range ids {
		if id != s.Place || next == len(req.Images) {
			req.Prompt = append(req.Prompt, id)
			continue
		}
		req.Images[next].Offset = len(req.Prompt)
		for range req.Images[next].Tokens {
			req.Prompt = append(req.Prompt, id)
		}
		next++
	}
	if next < len(req.Images) {
		return fmt.Errorf("Failed to apply prompt replacement for mm_items['image'][%d]", next) // vLLM's words
	}
	return json.Unmarshal(req.Fields["sampling_params"], &req.Fields) // beside the others
}

// afterImages is a reply of Inference.
func afterImages(r *Reply, req *Request) any {
	choice := map[string]any{"index": 0, "finish_reason": r.finish(), "token_ids": r.IDs, "logprobs": nil}
	if req.Has("logprobs") && r.Logprobs != nil {
		var content []any
		for i, lp := range r.Logprobs {
			content = append(content, map[string]any{"token_id": r.IDs[i], "logprob": lp, "rank": 1, "top_logprobs": []any{}})
		}
		choice["logprobs"] = map[string]any{"content": content}
	}
	out := map[string]any{"request_id": fmt.Sprint("gen-", req.N), "output_mode": "tokens", "choices": []any{choice}}
	if req.Has("return_token_ids") {
		places := []any{}
		for _, im := range req.Images {
			places = append(places, map[string]any{"offset": im.Offset, "length": im.Tokens})
		}
		out["prompt_token_ids"], out["mm_placeholders"] = req.Prompt, map[string]any{"image": places}
	}
	return out
}
