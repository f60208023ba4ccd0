// Package llmtest is an OpenAI-compatible server for tests: its replies are
// scripted, it can give token ids as vLLM does, and it can misbehave in every
// way that real ones do. It imports the standard library only.
package llmtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// Message is a message as it came over the wire.
type Message struct {
	Role       string `json:"role"`
	Content    any    `json:"content"`
	ToolCallID string `json:"tool_call_id"`
	ToolCalls  []Call `json:"tool_calls"`
}

// Text is the content, if it is text.
func (m Message) Text() string { s, _ := m.Content.(string); return s }

// Call is a native tool call.
type Call struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// NewCall returns a call of a function.
func NewCall(id, name, arguments string) Call {
	c := Call{ID: id, Type: "function"}
	c.Function.Name, c.Function.Arguments = name, arguments
	return c
}

// Request is what the client sent.
type Request struct {
	N        int    // counted from 0
	Path     string // Chat, Completions or Generate
	Model    string
	Messages []Message
	Prompt   []int32                    // of Completions, Generate, Inference and Options.Eyes, with images expanded
	Images   []Image                    // of Inference and Options.Eyes
	Fields   map[string]json.RawMessage // all of the body; of Generate sampling_params too
	Header   http.Header
	Left     <-chan struct{} // closed when the client has gone away
}

// The addresses that the server answers at.
const (
	Chat        = "/v1/chat/completions"
	Completions = "/v1/completions"        // as vLLM does
	Generate    = "/generate"              // as SGLang does
	Infer       = "/infer/"                // as ms-swift's swift rollout does
	Inference   = "/inference/v1/generate" // as vLLM does, with images beside ids
)

// Int is a field's number; 0 where there is none.
func (r *Request) Int(field string) int64 {
	var n int64
	_ = json.Unmarshal(r.Fields[field], &n)
	return n
}

// Last is the text of the last message.
func (r *Request) Last() string {
	if len(r.Messages) == 0 {
		return ""
	}
	return r.Messages[len(r.Messages)-1].Text()
}

// Has reports whether the body has a field.
func (r *Request) Has(field string) bool { _, ok := r.Fields[field]; return ok }

// Reply is what the server answers.
type Reply struct {
	Content          string
	Reasoning        string // as "reasoning"
	ReasoningContent string // as "reasoning_content"
	Calls            []Call
	Finish           string // "" is stop, or tool_calls

	// PromptIDs and IDs are sent if the client asked for them and they are set.
	PromptIDs []int32
	IDs       []int32
	Logprobs  []float64
	Scores    []float64 // of the prompt's tokens, where the client asks for them; the first is sent as null
	Texts     []string  // of those tokens; nil: t and the id
	Experts   string    // that were chosen, in base64, where the client asks for them; a stream of OpenAI's API has none, as with vLLM
	Stop      any       // what ended it: a stop string or a stop id; vLLM's stop_reason, SGLang's matched

	// Of a stream: the pieces that the content comes in (nil: one a rune), and
	// where its bytes are sent off, so that a reader sees borders there.
	Pieces  []string
	Borders []int
	NoDone  bool // it ends before its last events

	PromptTokens, OutputTokens int

	Delay  time.Duration
	Status int         // other than 0 and 200: an error
	Error  string      // its message, in OpenAI's shape
	Header http.Header // added to the reply
	Raw    *string     // the body, as it is
	Cut    int         // > 0: the connection is cut after so many bytes
	Reset  bool        // the connection is closed without a reply
}

// Text is a plain reply.
func Text(s string) Reply { return Reply{Content: s, PromptTokens: 10, OutputTokens: 5} }

// Server is a running server.
type Server struct {
	*httptest.Server
	mu       sync.Mutex
	requests []Request
	script   func(*Request) Reply
	o        Options
}

// Options say what a server is beside one of chat completions. Its list of models
// tells Window and Root where they are set.
type Options struct {
	Completions bool   // has /v1/completions
	SGLang      bool   // has /generate and /model_info
	Swift       bool   // is a `swift rollout`: has /infer/ and /get_engine_type/, and nothing of the OpenAI API
	Inference   *Sight // has /inference/v1/generate
	Eyes        *Eyes  // chats have the ids of the prompts that it renders
	Incremental bool   // SGLang: the pieces of a stream hold what is new alone
	Window      int
	Root        string // where it has its model from
}

// NewWith is New with options.
func NewWith(t testing.TB, o Options, script func(*Request) Reply) *Server {
	t.Helper()
	s := StartWith(o, script)
	t.Cleanup(s.Close)
	return s
}

// StartWith is Start with options.
func StartWith(o Options, script func(*Request) Reply) *Server {
	s := &Server{script: script, o: o}
	s.Server = httptest.NewServer(s)
	return s
}

// New starts a server that answers by the script until the test ends. The
// script is called by several goroutines at once.
func New(t testing.TB, script func(*Request) Reply) *Server {
	t.Helper()
	s := Start(script)
	t.Cleanup(s.Close)
	return s
}

// Start is New without a test to end it; the caller closes the server.
func Start(script func(*Request) Reply) *Server {
	return StartWith(Options{}, script)
}

// Sequence answers with one reply after the other, and goes on with the last.
func Sequence(replies ...Reply) func(*Request) Reply {
	return func(r *Request) Reply { return replies[min(r.N, len(replies)-1)] }
}

// WithoutToolParser refuses tools in a request as vLLM does that was started
// without --enable-auto-tool-choice, and answers by the script otherwise.
func WithoutToolParser(script func(*Request) Reply) func(*Request) Reply {
	return func(r *Request) Reply {
		choice := string(r.Fields["tool_choice"])
		if r.Has("tools") && (choice == "" || choice == `"auto"`) {
			return Reply{Status: http.StatusBadRequest,
				Error: `"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set`}
		}
		return script(r)
	}
}

// BaseURL is what a client is given.
func (s *Server) BaseURL() string { return s.URL + "/v1" }

// Requests are the chat requests so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	switch path := hr.URL.Path; {
	case s.o.Swift:
		s.swift(w, hr)
		return
	case path == "/v1/models":
		w.Header().Set("Content-Type", "application/json")
		model := map[string]any{"id": "mock", "object": "model"}
		if s.o.Window > 0 {
			model["max_model_len"] = s.o.Window
		}
		if s.o.Root != "" {
			model["root"] = s.o.Root
		}
		_, _ = w.Write(marshal(map[string]any{"object": "list", "data": []any{model}}))
		return
	case path == "/model_info" && s.o.SGLang:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(marshal(map[string]any{"model_path": cmp.Or(s.o.Root, "mock"), "is_generation": true}))
		return
	case path == Chat, path == Completions && s.o.Completions, path == Generate && s.o.SGLang,
		path == Inference && s.o.Inference != nil:
	default:
		http.Error(w, `{"error":{"message":"no such route"}}`, http.StatusNotFound)
		return
	}
	req := Request{Header: hr.Header, Path: hr.URL.Path, Left: hr.Context().Done()}
	if err := json.NewDecoder(hr.Body).Decode(&req.Fields); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_ = json.Unmarshal(req.Fields["model"], &req.Model)
	_ = json.Unmarshal(req.Fields["messages"], &req.Messages)
	_ = json.Unmarshal(req.Fields["prompt"], &req.Prompt)
	if req.Path == Generate {
		_ = json.Unmarshal(req.Fields["input_ids"], &req.Prompt)
		_ = json.Unmarshal(req.Fields["sampling_params"], &req.Fields) // beside the others
	}
	var err error
	switch {
	case req.Path == Inference:
		err = s.o.Inference.read(&req)
	case req.Path == Chat && s.o.Eyes != nil:
		err = s.o.Eyes.read(&req)
	}
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write(marshal(map[string]any{"error": map[string]any{"message": err.Error(), "type": "BadRequestError", "code": 400}}))
		return
	}
	s.mu.Lock()
	req.N = len(s.requests)
	s.requests = append(s.requests, req)
	s.mu.Unlock()
	r := s.script(&req)
	if req.Path == Chat && s.o.Eyes != nil && r.PromptIDs == nil {
		r.PromptIDs, r.PromptTokens, r.OutputTokens = req.Prompt, len(req.Prompt), len(r.IDs)
	}
	s.write(w, hr, &req, r)
}

func (s *Server) write(w http.ResponseWriter, hr *http.Request, req *Request, r Reply) {
	if r.Delay > 0 {
		select {
		case <-time.After(r.Delay):
		case <-hr.Context().Done():
			return
		}
	}
	for k, v := range r.Header {
		w.Header()[k] = v
	}
	if r.Reset {
		panic(http.ErrAbortHandler)
	}
	var body []byte
	switch {
	case r.Raw != nil:
		body = []byte(*r.Raw)
	case r.Status != 0 && r.Status != http.StatusOK:
		body = marshal(map[string]any{"error": map[string]any{"message": r.Error, "type": "error", "code": nil}})
	case string(req.Fields["stream"]) == "true":
		s.stream(w, req, r)
		return
	case req.Path == Completions:
		body = marshal(r.inIDs(req))
	case req.Path == Inference:
		body = marshal(afterImages(&r, req))
	case req.Path == Generate:
		body = marshal(r.generated(len(r.IDs), false, true, req))
	default:
		body = marshal(r.completion(req, s.o.SGLang))
	}
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	if r.Cut > 0 {
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		body = body[:min(r.Cut, len(body))]
	}
	if r.Status != 0 {
		w.WriteHeader(r.Status)
	}
	_, _ = w.Write(body)
	if r.Cut > 0 {
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		panic(http.ErrAbortHandler)
	}
}

func (r *Reply) completion(req *Request, sglang bool) map[string]any {
	message := map[string]any{"role": "assistant", "content": r.Content}
	if r.Reasoning != "" {
		message["reasoning"] = r.Reasoning
	}
	if r.ReasoningContent != "" {
		message["reasoning_content"] = r.ReasoningContent
	}
	if len(r.Calls) > 0 {
		message["tool_calls"] = r.Calls
	}
	choice := map[string]any{"index": 0, "message": message, "finish_reason": r.finish(), "stop_reason": r.Stop}
	out := map[string]any{
		"id": fmt.Sprint("chatcmpl-", req.N), "object": "chat.completion", "model": req.Model,
		"choices": []any{choice},
		"usage":   r.usage(req),
	}
	if req.Has("return_token_ids") && r.IDs != nil {
		choice["token_ids"] = r.IDs
		out["prompt_token_ids"] = r.PromptIDs
	}
	if req.Has("logprobs") && r.Logprobs != nil {
		choice["logprobs"] = chatLogprobs(r.Logprobs)
	}
	experts := choice
	if sglang { // has them beside the choices
		experts = map[string]any{}
		out["sglext"] = experts
	}
	r.addExperts(experts, req)
	return out
}

func (r *Reply) addExperts(to map[string]any, req *Request) {
	if r.Experts != "" && req.Has("return_routed_experts") {
		to["routed_experts"] = r.Experts
	}
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // a test's own mistake
	}
	return b
}
