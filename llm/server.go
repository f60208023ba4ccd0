package llm

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"agentcli/internal/text"
)

// server is what is known of one server: how it is asked, and what it was found to
// take. It is safe for concurrent use.
type server struct {
	c        Config       // its BaseURL is this server's
	name     string       // the address, as messages have it
	answered *atomic.Bool // the client's
	sglang   atomic.Bool  // Client.SGLang found it to be one
	ours     atomic.Bool  // it is `agentcli serve`
	places   *ImagePlaces // of the images in its prompts; nil: not known

	activeExperts int             // of a token in a layer; 0: not known
	barred        json.RawMessage // logit_bias of the ids that are never drawn; nil: none

	mu      sync.Mutex
	refused map[string]bool // optional fields that this server does not take, and what else was said of it once
	grammar grammarSupport
}

func newServer(c Config, answered *atomic.Bool) *server {
	return &server{c: c, name: text.Address(c.BaseURL), answered: answered, refused: map[string]bool{}}
}

// root is the server's address without the API's version.
func (s *server) root() string { return strings.TrimSuffix(s.c.BaseURL, "/v1") }

// clean makes a server's words fit for a line, and takes our key out of them.
func (s *server) clean(words string) string { return oneLine(withoutKey(words, s.c.APIKey)) }

// streams reports whether replies are asked for piece by piece.
func (s *server) streams() bool { return s.c.Stream && s.has("stream") }

// thoughts says in which fields this server takes past reasoning.
func (s *server) thoughts() thoughts {
	return thoughts{reasoning: s.has("reasoning"), reasoningContent: s.has("reasoning_content")}
}

// inText reports whether tools are written into the messages for this server.
func (s *server) inText() bool { return s.c.InText != nil && !s.has("tools") }

// drop remembers that the server does not take a field, and says so once.
func (s *server) drop(field, meaning string) {
	if s.first(field) && meaning != "" {
		s.c.Notice(fmt.Sprintf("%s does not take %s: %s", s.name, field, meaning))
	}
}

// tell says something about the server once.
func (s *server) tell(what, message string) {
	if s.first(what) {
		s.c.Notice(s.name + " " + message)
	}
}

// first reports whether a field, or a word about the server, comes up for the first time.
func (s *server) first(what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.refused[what]
	s.refused[what] = true
	return !known
}

// has reports whether the server takes a field, as far as is known.
func (s *server) has(field string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.refused[field]
}
