package eval

import (
	"bufio"
	"bytes"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// Spool is room outside memory, as a temporary file is.
type Spool interface {
	io.WriterAt
	io.ReaderAt
}

// store keeps problems as records, and gives them in order. What memory holds does
// not grow with them where there is a Spool: a piece is set aside when it is full,
// sorted when the report is made, and the sorted pieces are merged. Where the Spool
// fails, memory takes what would have gone there.
//
// A record is its length, then what Problem.write made.
type store struct {
	open   func() (Spool, error) // asked once, when there is something to set aside; nil: memory it is
	notice func(string)
	spool  Spool // nil: none yet, or none any more
	end    int64 // of what is on the spool

	full    int // length of a piece
	order   ordering
	piece   []byte
	pieces  []extent // set aside, in the order of add
	scratch []byte
}

// extent is a part of a store.
type extent struct {
	spool Spool  // nil: in memory
	mem   []byte // then
	at, n int64  // else
}

func (e extent) reader() io.Reader {
	if e.spool == nil {
		return bytes.NewReader(e.mem)
	}
	return io.NewSectionReader(e.spool, e.at, e.n)
}

const (
	pieceSize = 512 << 10 // some 8,000 problems
	// Readers of pieces share mergeRoom, and each has at least leastRoom.
	mergeRoom, leastRoom = 2 << 20, 4 << 10
)

// add keeps a problem, or a part of one.
func (s *store) add(p *Problem) {
	s.scratch = p.write(s.scratch[:0])
	s.order.see(recordID(s.scratch))
	s.piece = append(binary.AppendUvarint(s.piece, uint64(len(s.scratch))), s.scratch...)
	if len(s.piece) >= s.full {
		s.setAside()
	}
}

// setAside ends a piece that is full.
func (s *store) setAside() {
	if s.spool == nil && s.open != nil {
		var err error
		if s.spool, err = s.open(); err != nil {
			s.spool = nil
			s.failed(err)
		}
		s.open = nil
	}
	if s.spool != nil {
		if _, err := s.spool.WriteAt(s.piece, s.end); err != nil {
			s.failed(err)
		} else {
			s.pieces = append(s.pieces, extent{spool: s.spool, at: s.end, n: int64(len(s.piece))})
			s.end += int64(len(s.piece))
			s.piece = s.piece[:0]
			return
		}
	}
	s.last()
}

// last ends the piece that is not full: memory has room for that one.
func (s *store) last() {
	if len(s.piece) > 0 {
		s.pieces = append(s.pieces, extent{mem: slices.Clone(s.piece)})
		s.piece = s.piece[:0]
	}
}

// failed goes on without a spool. What is on it can still be read.
func (s *store) failed(err error) {
	s.spool = nil
	if s.notice != nil {
		s.notice(fmt.Sprintf("the report's problems are kept in memory: %v", err))
	}
}

// sorted gives all records in order, one a problem, each after what finish says of
// it: 8 bytes.
func (s *store) sorted(finish func(*Problem) float64) (list Problems, err error) {
	s.last()
	for _, e := range s.pieces {
		if err := s.sort(e); err != nil {
			return list, err
		}
	}
	if s.spool != nil {
		out := io.NewOffsetWriter(s.spool, s.end)
		b := bufio.NewWriterSize(out, 64<<10)
		written, err := s.merge(b, finish, &list)
		if err == nil {
			written = b.Flush()
		}
		switch {
		case err != nil:
			return list, err
		case written == nil:
			n, _ := out.Seek(0, io.SeekCurrent)
			list.records = extent{spool: s.spool, at: s.end, n: n}
			s.end += n
			return list, nil
		}
		s.failed(written)
	}
	var b bytes.Buffer
	list = Problems{}
	_, err = s.merge(&b, finish, &list)
	list.records = extent{mem: b.Bytes()}
	return list, err
}

// sort brings the records of one piece into order, where they are.
func (s *store) sort(e extent) error {
	b := e.mem
	if e.spool != nil {
		b = slices.Grow(s.piece[:0], int(e.n))[:e.n]
		s.piece = b[:0]
		if _, err := e.spool.ReadAt(b, e.at); err != nil {
			return err
		}
	}
	var records [][]byte // with their lengths
	for rest := b; len(rest) > 0; {
		n, w := binary.Uvarint(rest)
		records = append(records, rest[:w+int(n)])
		rest = rest[w+int(n):]
	}
	// Of the same problem what came first is first.
	compare := func(a, b []byte) int { return s.order.compare(idOf(a), idOf(b)) }
	if slices.IsSortedFunc(records, compare) {
		return nil
	}
	slices.SortStableFunc(records, compare)
	in := bytes.Join(records, nil)
	if e.spool == nil {
		copy(e.mem, in)
		return nil
	}
	_, err := e.spool.WriteAt(in, e.at)
	return err
}

// idOf is the id of the problem of a record with its length.
func idOf(b []byte) []byte {
	_, w := binary.Uvarint(b)
	return recordID(b[w:])
}

// source is a sorted piece that is merged.
type source struct {
	number int
	in     *bufio.Reader
	record []byte // without its length
}

// next reads a record; io.EOF: there is no more.
func (s *source) next() (err error) {
	s.record, err = readRecord(s.in, s.record, 0)
	return err
}

// readRecord reads the length of a record, and the record with more bytes before it,
// into a buffer.
func readRecord(in *bufio.Reader, b []byte, more int) ([]byte, error) {
	n, err := binary.ReadUvarint(in)
	if err != nil {
		return b, err
	}
	b = slices.Grow(b[:0], int(n)+more)[:int(n)+more]
	if _, err = io.ReadFull(in, b); errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}

// sources is a heap.
type sources struct {
	order *ordering
	list  []*source
}

func (h *sources) Len() int { return len(h.list) }
func (h *sources) Less(i, j int) bool {
	a, b := h.list[i], h.list[j]
	if c := h.order.compare(recordID(a.record), recordID(b.record)); c != 0 {
		return c < 0
	}
	return a.number < b.number
}
func (h *sources) Swap(i, j int) { h.list[i], h.list[j] = h.list[j], h.list[i] }
func (h *sources) Push(x any)    { h.list = append(h.list, x.(*source)) }
func (h *sources) Pop() any {
	last := h.list[len(h.list)-1]
	h.list = h.list[:len(h.list)-1]
	return last
}

// merge writes the records of the sorted pieces in order. What could not be written
// is told apart from what could not be read.
func (s *store) merge(out io.Writer, finish func(*Problem) float64, list *Problems) (written, err error) {
	h := &sources{order: &s.order}
	for i, e := range s.pieces {
		x := &source{number: i, in: bufio.NewReaderSize(e.reader(), max(leastRoom, min(64<<10, mergeRoom/len(s.pieces))))}
		if err := x.next(); err != nil {
			return nil, err
		}
		h.list = append(h.list, x)
	}
	heap.Init(h)
	var id, record, head []byte
	var p, q Problem
	for h.Len() > 0 {
		id = append(id[:0], recordID(h.list[0].record)...)
		parts := 0
		for ; h.Len() > 0 && bytes.Equal(recordID(h.list[0].record), id); parts++ {
			x := h.list[0]
			if parts == 0 {
				p.read(x.record, true)
			} else {
				q.read(x.record, true)
				p.merge(&q)
			}
			switch err := x.next(); {
			case err == nil:
				heap.Fix(h, 0)
			case errors.Is(err, io.EOF):
				heap.Pop(h)
			default:
				return nil, err
			}
		}
		value := finish(&p)
		record = p.write(record[:0])
		list.n++
		head = binary.AppendUvarint(head[:0], uint64(len(record)))
		head = binary.LittleEndian.AppendUint64(head, math.Float64bits(value))
		for _, b := range [][]byte{head, record} {
			if _, err := out.Write(b); err != nil {
				return err, nil
			}
		}
	}
	return nil, nil
}
