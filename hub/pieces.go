package hub

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"agentcli/internal/safego"
	"agentcli/internal/text"

	"github.com/cenkalti/backoff/v5"
)

// A large file comes in pieces, some at once: defaultPiece bytes each, parallelPieces of them.
const (
	defaultPiece   = 8 << 20
	parallelPieces = 4
)

// errNoRanges: the server ignores the ranges of requests.
var errNoRanges = errors.New("the server sends no pieces")

// piece is a part of a file on its way.
type piece struct {
	from, to int64
	data     bytes.Buffer
	done     chan error
}

// pieces is a transfer of a file in pieces.
type pieces struct {
	h    *Hub
	r    Repo
	file string
	m    meta
	f    *os.File

	silent   *time.Timer // ends the transfer
	mu       sync.Mutex
	received int64
}

// transfer appends what is missing of f behind its first have bytes. The pieces come side by
// side and are written in their order. So f is the beginning of the file at any time, and
// another try goes on behind it.
func (x *pieces) transfer(ctx context.Context, have int64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var workers sync.WaitGroup
	defer workers.Wait()
	defer cancel(nil)
	limit := cmp.Or(x.h.Stall, defaultStall)
	x.received = have
	x.silent = time.AfterFunc(limit, func() { cancel(errSilent) })
	defer x.silent.Stop()
	size := cmp.Or(x.h.Piece, defaultPiece)
	var under []*piece // under way, the first one first
	for next := have; next < x.m.size || len(under) > 0; {
		if next < x.m.size && len(under) < parallelPieces {
			p := &piece{from: next, to: min(next+size, x.m.size), done: make(chan error, 1)}
			next = p.to
			under = append(under, p)
			workers.Go(func() {
				defer safego.Catch(func(err error) { p.done <- backoff.Permanent(err) })
				p.done <- x.fetch(ctx, p)
			})
			continue
		}
		p := under[0]
		under = under[1:]
		if err := <-p.done; err != nil {
			if errors.Is(context.Cause(ctx), errSilent) {
				return fmt.Errorf("%w for %v", errSilent, limit)
			}
			return err
		}
		if _, err := x.f.WriteAt(p.data.Bytes(), p.from); err != nil {
			return backoff.Permanent(fmt.Errorf("%s, file %s: %w", x.r, x.file, err))
		}
	}
	return nil
}

// came counts bytes of any piece.
func (x *pieces) came(n int64) {
	x.silent.Reset(cmp.Or(x.h.Stall, defaultStall))
	x.mu.Lock()
	defer x.mu.Unlock()
	x.received += n
	if x.h.Progress != nil {
		x.h.Progress(x.file, x.received, x.m.size)
	}
}

// fetch brings the bytes of a piece.
func (x *pieces) fetch(ctx context.Context, p *piece) error {
	resp, err := get(ctx, x.h, x.m.url, fmt.Sprintf("bytes=%d-%d", p.from, p.to-1))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests:
		return fmt.Errorf("the server answered %s", resp.Status)
	case resp.StatusCode != http.StatusPartialContent,
		!strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", p.from)):
		return errNoRanges
	}
	before := int64(0)
	body := &counter{r: resp.Body, report: func(n int64) {
		x.came(n - before)
		before = n
	}}
	if _, err := io.CopyN(&p.data, body, p.to-p.from); err != nil {
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	return nil
}

// get asks for a file, or the range of it, and follows redirects.
func get(ctx context.Context, h *Hub, u, byteRange string) (*http.Response, error) {
	for hop := 0; ; hop++ {
		req, err := h.request(ctx, http.MethodGet, u)
		if err != nil {
			return nil, backoff.Permanent(err)
		}
		if byteRange != "" {
			req.Header.Set("Range", byteRange)
		}
		resp, err := h.client().Do(req)
		if err != nil {
			return nil, text.WithoutAddress(err)
		}
		loc, lerr := resp.Location()
		if isRedirect := resp.StatusCode >= 300 && resp.StatusCode < 400 && lerr == nil; !isRedirect || hop > 5 {
			return resp, nil
		}
		resp.Body.Close()
		u = loc.String()
	}
}
