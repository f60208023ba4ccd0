package parquet

import (
	"context"
	"iter"
	"sync"

	"agentcli/internal/malformed"
	"agentcli/internal/safego"
	"agentcli/traj"
)

// A row group's decoded rows wait in parts of at most so many rows or bytes, and
// at most so many parts of each: reading ahead takes little memory, however large
// the row groups of a file are.
const (
	partRows  = 64
	partBytes = 1 << 20
	partsHeld = 16
)

// RowsAhead is Rows with the same rows in the same order, whose row groups are
// decoded ahead of who takes them, `workers` of them at a time.
func (r *Reader) RowsAhead(ctx context.Context, workers int, cols ...string) iter.Seq2[*traj.Trajectory, error] {
	have, err := r.wanted(cols)
	if err != nil {
		return func(yield func(*traj.Trajectory, error) bool) { yield(nil, err) }
	}
	return scanAhead(ctx, r.t, have, max(workers, 1), r.images().decode, func(t *traj.Trajectory) int { return int(sizeOf(t)) })
}

// part is some rows of a row group; the rows come before the error.
type part[T any] struct {
	rows []T
	err  error
}

// scanAhead is scan by several goroutines, one a row group. None of them is left
// when the iteration ends.
func scanAhead[T any](ctx context.Context, t *Table, cols []string, workers int, decode func([]*node) (T, error),
	size func(T) int) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		var work sync.WaitGroup
		defer work.Wait()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		// The one that is being read from is in nobody's queue.
		queue := make(chan chan part[T], workers-1)
		work.Go(func() {
			defer close(queue)
			defer safego.Catch(func(err error) {
				out := make(chan part[T], 1)
				out <- part[T]{err: err}
				close(out)
				select {
				case queue <- out:
				case <-ctx.Done():
				}
			})
			first := int64(0)
			for g := range t.pq.NumRowGroups() {
				out := make(chan part[T], partsHeld)
				select {
				case queue <- out:
				case <-ctx.Done():
					return
				}
				from := first
				work.Go(func() {
					defer close(out)
					defer safego.Catch(func(err error) {
						select {
						case out <- part[T]{err: err}:
						case <-ctx.Done():
						}
					})
					decodeGroup(ctx, t, cols, g, from, decode, size, out)
				})
				first += t.pq.MetaData().RowGroup(g).NumRows()
			}
		})
		for out := range queue {
			for p := range out {
				for _, v := range p.rows {
					if !yield(v, nil) {
						return
					}
				}
				if p.err != nil {
					yield(none, p.err)
					return
				}
			}
			if err := ctx.Err(); err != nil {
				yield(none, err)
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(none, err)
		}
	}
}

// decodeGroup sends the rows of one row group, of which the first is the file's
// row number `first`, counted from 0.
func decodeGroup[T any](ctx context.Context, t *Table, cols []string, g int, first int64,
	decode func([]*node) (T, error), size func(T) int, out chan<- part[T]) {
	var p part[T]
	bytes := 0
	send := func() bool {
		select {
		case out <- p:
			p, bytes = part[T]{}, 0
			return true
		case <-ctx.Done():
			return false
		}
	}
	var nodes []*node
	var rows int64
	err := guard(nil, func() (err error) {
		if nodes, err = t.nodes(cols); err != nil {
			return err
		}
		rows, err = openGroup(t, g, nodes)
		return err
	})
	if err != nil {
		p.err = &malformed.Error{Path: t.path, Row: int(first + 1), Err: err}
		send()
		return
	}
	for i := range rows {
		if ctx.Err() != nil {
			return
		}
		var v T
		if err := guard(nil, func() (err error) { v, err = decode(nodes); return err }); err != nil {
			p.err = &malformed.Error{Path: t.path, Row: int(first + i + 1), Err: err}
			send()
			return
		}
		p.rows = append(p.rows, v)
		if bytes += size(v); (len(p.rows) == partRows || bytes >= partBytes) && !send() {
			return
		}
	}
	if len(p.rows) > 0 {
		send()
	}
}

// openGroup points the nodes at row group number g, and gives its number of rows.
func openGroup(t *Table, g int, nodes []*node) (rows int64, err error) {
	rg := t.pq.RowGroup(g)
	for _, nd := range nodes {
		nd.eachLeaf(func(c *cursor) {
			if err == nil {
				err = c.open(t.pq, rg)
			}
		})
	}
	return rg.NumRows(), err
}
