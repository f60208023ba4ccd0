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

// Eyes is how a server of chats shows images in the prompts that it renders, as vLLM does.
type Eyes struct {
	Sight
	// Render makes the ids of messages, with one Place for each image of their parts in order.
	Render func([]Message) []int32
	Twice  bool // ids that are expanded are expanded again
	First  bool // a message's images come before its texts, as with vLLM's content format string
	Loses  int  // that many images are left out, the last ones
}

// read renders the messages of a request, and expands their images.
func (e *Eyes) read(req *Request) error {
	messages := make([]Message, len(req.Messages))
	var parts []imagePart
	left := -e.Loses
	for i := range req.Messages {
		list, _ := req.Messages[i].Content.([]any)
		for _, p := range list {
			if isImage(p) {
				left++
			}
		}
	}
	for i, m := range req.Messages {
		if list, ok := m.Content.([]any); ok {
			var images, all []any
			for _, p := range list {
				switch {
				case !isImage(p):
					all = append(all, p)
					continue
				case left <= 0:
					continue
				case e.First:
					images = append(images, p)
				default:
					all = append(all, p)
				}
				left--
				var one imagePart
				if err := json.Unmarshal(marshal(p), &one); err != nil {
					return err
				}
				parts = append(parts, one)
			}
			m.Content = append(images, all...)
		}
		messages[i] = m
	}
	if err := e.see(req, parts); err != nil {
		return err
	}
	if err := e.expand(req, e.Render(messages)); err != nil || !e.Twice {
		return err
	}
	once := req.Prompt
	req.Prompt = nil
	return e.expand(req, once)
}

func isImage(part any) bool {
	p, _ := part.(map[string]any)
	return p["type"] == "image_url"
}

// imagePart is a part of a message, or one beside ids.
type imagePart struct {
	Type string `json:"type"`
	URL  struct {
		URL string `json:"url"`
	} `json:"image_url"`
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
	var parts []imagePart
	if json.Unmarshal(req.Fields["token_ids"], &ids) != nil || json.Unmarshal(req.Fields["content_parts"], &parts) != nil {
		return errors.New("token_ids and content_parts are wanted")
	}
	if err := s.see(req, parts); err != nil {
		return err
	}
	if err := s.expand(req, ids); err != nil {
		return err
	}
	return json.Unmarshal(req.Fields["sampling_params"], &req.Fields) // beside the others
}

// see reads the images of a request.
func (s *Sight) see(req *Request, parts []imagePart) error {
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
	return nil
}

// expand makes the prompt: each image stands at the next id for one.
func (s *Sight) expand(req *Request, ids []int32) error {
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
	return nil
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
	r.addExperts(choice, req)
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
