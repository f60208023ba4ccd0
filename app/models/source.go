package models

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"agentcli/grammar/form"
	"agentcli/internal/setting"
	"agentcli/llm"
	"agentcli/media/processor"
	"agentcli/model/chat"
	"agentcli/traj"
)

// Source is what a run's file says about its model.
type Source struct {
	Name          string    `json:"name"`
	Kind          string    `json:"kind"` // local or server
	BaseURL       Addresses `json:"base_url,omitempty"`
	Version       int64     `json:"version,omitempty"`
	Fingerprint   string    `json:"fingerprint,omitempty"` // of the weights
	DType         string    `json:"dtype,omitempty"`       // of a local model
	TokenMode     string    `json:"token_mode,omitempty"`  // of a server, unless chat
	TokenizerHash string    `json:"tokenizer_hash,omitempty"`
	TemplateHash  string    `json:"template_hash,omitempty"`
	ChatFormat    string    `json:"chat_format,omitempty"`   // the renderer: a family, or "template"
	ToolsInText   string    `json:"tools_in_text,omitempty"` // the format in which tools are written into the messages
	Logprobs      string    `json:"logprobs,omitempty"`      // what the log-probs are of
	// BarredIDs are ids of images that are never drawn, of a server as far as it takes a logit_bias:
	// log-probs are of the other ids.
	BarredIDs  []int32 `json:"barred_ids,omitempty"`
	Multimodal string  `json:"multimodal,omitempty"` // the model_type of a model whose language model this is

	// ImageRule is how the images of the run are prepared (processor.Rule); nil: the run has
	// none, or a server prepares them.
	ImageRule json.RawMessage `json:"image_rule,omitempty"`
	// Images prepares images as a local model sees them; nil: noImages says why there is none,
	// or a server prepares them.
	Images   *processor.Processor `json:"-"`
	noImages error
	// Notes say how a local model was opened where a user may not expect it, one sentence each.
	Notes []string `json:"-"`
	eyes  *eyes    // nil: noImages says whether the model takes images

	described chat.Description // of the renderer
}

// TextAlone says why the model is shown no images of tools; nil: it is shown them.
func (s *Source) TextAlone() error { return s.noImages }

// TakesImages says why the model takes no images of rows that nobody knew of when it was
// opened; nil: it takes them. A server is asked at the first call. It is safe for concurrent use.
func (s *Source) TakesImages(ctx context.Context) error {
	if s.noImages != nil || s.eyes == nil {
		return s.noImages
	}
	return s.eyes.open(ctx)
}

// eyes find out whether a server takes images.
type eyes struct {
	ask   func(context.Context) error
	mu    sync.Mutex
	known bool
	why   error
}

func (e *eyes) open(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.known {
		e.why = e.ask(ctx)
		e.known = e.why == nil || errors.Is(e.why, llm.ErrNoImages)
	}
	return e.why
}

// HashText is the SHA-256 of a chat template.
func HashText(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// Describe notes what the renderer does.
func (s *Source) Describe(r chat.Renderer) {
	s.described = chat.Describe(r)
	s.ChatFormat, s.ToolsInText = s.described.Renderer, s.described.ToolsInText
}

// CheckGrammar says why the model's replies cannot be held to a grammar, tools being those that
// it is offered.
func (s *Source) CheckGrammar(g *traj.Grammar, tools []traj.ToolSpec) error {
	switch {
	case s.Kind == "server" && g.Kind != traj.GrammarTools: // its text was compiled when it was read
		return nil
	case s.Kind == "server":
		return fmt.Errorf("%s %s needs a local model: servers write calls in their own way", setting.Name("Grammar"), g.Kind)
	case len(tools) == 0 && g.Kind == traj.GrammarTools:
		return fmt.Errorf("%s %s has no effect without tools; add some with %s", setting.Name("Grammar"), g.Kind, setting.Name("Tools"))
	}
	offered := *g
	offered.Tools = tools
	_, err := form.Of(&offered, s.described)
	return err
}

// noteTools says where a chat template ignores the tools that are offered. inText: a parser
// writes them into the messages.
func (s *Source) noteTools(o Options, inText bool, notice func(string)) {
	switch by := s.described.ToolsShownBy; {
	case len(o.Tools) == 0:
		s.ToolsInText = ""
	case by != "" && !inText:
		notice(fmt.Sprintf("the model's chat template ignores tools, and the chat format %s does not write them into the messages; "+
			"%s %s shows them to the model", s.ChatFormat, setting.Name("ChatTemplate"), by))
	case s.ToolsInText != "":
		notice(fmt.Sprintf("the model's chat template ignores tools: they are written into the messages, in the format %s", s.ToolsInText))
	}
}
