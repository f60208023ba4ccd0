package album

import (
	"container/list"
	"context"
	"sync"
)

// MaxDecoding is how many pixels this process decodes, cuts and resizes at a time: twice
// media.DefaultMaxPixels. Decoders take 4 to 16 bytes a pixel, so that images take at most
// about 2 GB at a time, however many trajectories there are.
const MaxDecoding = 128_000_000

// decoding is the bound of this process.
var decoding = pixelBound{most: MaxDecoding}

// pixelBound lets images in while they have at most so many pixels together; others wait in
// the order in which they came. An image with more pixels than that is let in alone. It is
// safe for concurrent use.
type pixelBound struct {
	most int

	mu      sync.Mutex
	held    int       // at most most
	waiting list.List // of *waiter
}

type waiter struct {
	pixels int
	in     chan struct{} // closed when it is let in
}

// enter waits until an image of that many pixels is let in, or until ctx is done, whose error
// it gives. leave lets the next ones in.
func (b *pixelBound) enter(ctx context.Context, pixels int) (leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	pixels = min(pixels, b.most)
	leave = func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.held -= pixels
		b.admit()
	}
	b.mu.Lock()
	w := &waiter{pixels, make(chan struct{})}
	at := b.waiting.PushBack(w)
	b.admit()
	b.mu.Unlock()
	select {
	case <-w.in:
		return leave, nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	select {
	case <-w.in: // while ctx was done
		b.held -= pixels
	default:
		b.waiting.Remove(at)
	}
	b.admit()
	b.mu.Unlock()
	return nil, ctx.Err()
}

// admit lets those in who wait first and for whom there is room; mu is held.
func (b *pixelBound) admit() {
	for at := b.waiting.Front(); at != nil; at = b.waiting.Front() {
		w := at.Value.(*waiter)
		if w.pixels > b.most-b.held {
			return // who came later waits too: a large image is not passed by for ever
		}
		b.held += w.pixels
		b.waiting.Remove(at)
		close(w.in)
	}
}
