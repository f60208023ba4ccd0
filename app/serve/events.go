package serve

import (
	"encoding/json"
	"net/http"
	"sync"
)

// events writes server-sent events. Several replies write to one.
type events struct {
	mu    sync.Mutex
	w     http.ResponseWriter
	flush *http.ResponseController
	begun bool
}

func newEvents(w http.ResponseWriter) *events {
	return &events{w: w, flush: http.NewResponseController(w)}
}

// send writes one event; its error says that the client has gone.
func (e *events) send(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return e.line(b)
}

func (e *events) line(b []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.begun {
		h := e.w.Header()
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-cache")
		e.begun = true
	}
	if _, err := e.w.Write(append(append([]byte("data: "), b...), "\n\n"...)); err != nil {
		return err
	}
	return e.flush.Flush()
}

// end writes the last event: what went wrong, if something did, and the mark of the end.
func (e *events) end(err error) error {
	if err != nil {
		if !e.begun {
			return err // the status can still say it
		}
		_ = e.send(problemOf(err).body())
	}
	return e.line([]byte("[DONE]"))
}
