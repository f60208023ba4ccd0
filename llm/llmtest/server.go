// Package llmtest is an OpenAI-compatible server for tests: its replies are
// scripted, it can give token ids as vLLM does, and it can misbehave in every
// way that real ones do. It imports the standard library only.
package llmtest

import (
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
	N        int // counted from 0
	Model    string
	Messages []Message
	Fields   map[string]json.RawMessage // all of the body
	Header   http.Header
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
	s := &Server{script: script}
	s.Server = httptest.NewServer(s)
	return s
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
			return Reply{Status: http.StatusBadRequest, Error: `"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set`}
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
	switch hr.URL.Path {
	case "/v1/models":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"object":"list","data":[{"id":"mock","object":"model"}]}`)
		return
	case "/v1/chat/completions":
	default:
		http.Error(w, `{"error":{"message":"no such route"}}`, http.StatusNotFound)
		return
	}
	req := Request{Header: hr.Header}
	if err := json.NewDecoder(hr.Body).Decode(&req.Fields); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_ = json.Unmarshal(req.Fields["model"], &req.Model)
	_ = json.Unmarshal(req.Fields["messages"], &req.Messages)
	s.mu.Lock()
	req.N = len(s.requests)
	s.requests = append(s.requests, req)
	s.mu.Unlock()
	s.write(w, hr, &req, s.script(&req))
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
	default:
		body = marshal(r.completion(req))
	}
	w.Header().Set("Content-Type", "application/json")
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

func (r *Reply) completion(req *Request) map[string]any {
	message := map[string]any{"role": "assistant", "content": r.Content}
	if r.Reasoning != "" {
		message["reasoning"] = r.Reasoning
	}
	if r.ReasoningContent != "" {
		message["reasoning_content"] = r.ReasoningContent
	}
	finish := r.Finish
	if len(r.Calls) > 0 {
		message["tool_calls"] = r.Calls
		if finish == "" {
			finish = "tool_calls"
		}
	}
	if finish == "" {
		finish = "stop"
	}
	choice := map[string]any{"index": 0, "message": message, "finish_reason": finish}
	out := map[string]any{
		"id": fmt.Sprint("chatcmpl-", req.N), "object": "chat.completion", "model": req.Model,
		"choices": []any{choice},
		"usage": map[string]int{"prompt_tokens": r.PromptTokens, "completion_tokens": r.OutputTokens,
			"total_tokens": r.PromptTokens + r.OutputTokens},
	}
	if req.Has("return_token_ids") && r.IDs != nil {
		choice["token_ids"] = r.IDs
		out["prompt_token_ids"] = r.PromptIDs
	}
	if req.Has("logprobs") && r.Logprobs != nil {
		var content []any
		for _, p := range r.Logprobs {
			content = append(content, map[string]any{"token": "t", "logprob": p, "bytes": []int{116}, "top_logprobs": []any{}})
		}
		choice["logprobs"] = map[string]any{"content": content}
	}
	return out
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // a test's own mistake
	}
	return b
}
