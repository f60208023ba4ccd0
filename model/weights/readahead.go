package weights

import (
	"slices"
	"sync"

	"agentcli/internal/safego"
	"agentcli/model/gguf"
)

const (
	readAheadBytes = 256 << 20 // that are in memory before they are wanted
	readAheadPiece = 2 << 20
	readAheadQueue = 32 // pieces whose reading has begun and has not ended
)

// ReadAhead reads the tensors of a model from its files before they are wanted, in the order in which
// they are. Without it each page of a mapped file is waited for when it is first touched. It is safe for
// concurrent use; a nil one does nothing.
type ReadAhead struct {
	places map[string]int64 // where each tensor ends, in bytes of all before it and its own
	done   chan struct{}

	mu      sync.Mutex
	moved   sync.Cond
	reached int64 // bytes of the tensors that were wanted
	ended   bool
}

// NewReadAhead begins to read the tensors of those names. Close must be called before the model is closed.
func NewReadAhead(m *Model, names []string) *ReadAhead {
	r := &ReadAhead{places: map[string]int64{}, done: make(chan struct{})}
	r.moved.L = &r.mu
	var pieces [][]byte
	end := int64(0)
	for _, name := range names {
		for _, b := range m.source.mapped(name) {
			end += int64(len(b))
			pieces = slices.AppendSeq(pieces, slices.Chunk(b, readAheadPiece))
		}
		r.places[name] = end
	}
	go func() {
		defer close(r.done)
		defer safego.Into(new(error)) // whoever wants the bytes reads them all the same
		r.read(pieces)
	}()
	return r
}

func (r *ReadAhead) read(pieces [][]byte) {
	at, asked := int64(0), 0
	for i, piece := range pieces {
		if !r.wait(at) {
			return
		}
		for ; asked < min(i+readAheadQueue, len(pieces)); asked++ {
			gguf.WillNeed(pieces[asked])
		}
		gguf.Populate(piece)
		at += int64(len(piece))
	}
}

// wait waits until bytes from there on are to be read; false: none are any more.
func (r *ReadAhead) wait(at int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.ended && at >= r.reached+readAheadBytes {
		r.moved.Wait()
	}
	return !r.ended
}

// Reached says that a tensor is wanted now.
func (r *ReadAhead) Reached(name string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reached = max(r.reached, r.places[name])
	r.moved.Signal()
}

// Close ends the reading.
func (r *ReadAhead) Close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.ended = true
	r.moved.Signal()
	r.mu.Unlock()
	<-r.done
}
