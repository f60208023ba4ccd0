package trainer

import (
	"bufio"
	"errors"
	"sync"

	"agentcli/internal/scratch"
	"agentcli/trainer/episode"
)

// shelf keeps the bodies of episodes in a file of its own, written once while the
// rows are read, so that memory holds an index of them alone and any minibatch is
// a few reads. The file has no name from the start: nothing is left of it,
// however the program ends.
type shelf struct {
	file   *scratch.File
	out    *bufio.Writer
	end    int64
	names  []string // texts that bodies share
	number map[string]int
	buf    []byte
	read   sync.Pool // of buffers

	columns *columns // what a session computed of the episodes; nil: nothing yet
}

func newScratch() (*scratch.File, error) {
	f, err := scratch.New("agentcli-train-*")
	if err != nil {
		return nil, scratchError(err)
	}
	return f, nil
}

// scratchError says what to do about a temporary file that cannot be used.
func scratchError(err error) error {
	return scratch.Explain(err, "what is trained on is kept there while the run lasts, and takes from half to three times its size in Parquet")
}

func newShelf() (*shelf, error) {
	f, err := newScratch()
	if err != nil {
		return nil, err
	}
	return &shelf{file: f, out: bufio.NewWriterSize(f, 1<<20), number: map[string]int{}}, nil
}

// put takes the body of an episode. The shelf must be settled before it is got
// again.
func (s *shelf) put(e *episode.Episode) error {
	s.buf = appendBody(s.buf[:0], e.Body, s.named)
	if _, err := s.out.Write(s.buf); err != nil {
		return scratchError(err)
	}
	e.BodySizes = e.Measure()
	e.Store, e.StoredAt, e.StoredBytes, e.Body = s, s.end, int32(len(s.buf)), nil
	s.end += int64(len(s.buf))
	return nil
}

// settle ends the putting.
func (s *shelf) settle() error {
	if err := s.out.Flush(); err != nil {
		return scratchError(err)
	}
	s.out, s.buf, s.number = nil, nil, nil
	return nil
}

func (s *shelf) named(text string) int {
	n, ok := s.number[text]
	if !ok {
		n = len(s.names)
		s.names, s.number[text] = append(s.names, text), n
	}
	return n
}

// ReadBody reads the body of an episode. It is safe for concurrent use.
func (s *shelf) ReadBody(e *episode.Episode) (*episode.Body, error) {
	b, err := s.bytes(s.file, e.StoredAt, int(e.StoredBytes))
	if err != nil {
		return nil, err
	}
	defer s.read.Put(b)
	return readBody(*b, s.names), nil
}

// shelfOf is where the body of an episode is; nil: it stays in memory.
func shelfOf(e *episode.Episode) *shelf {
	s, _ := e.Store.(*shelf)
	return s
}

// bytes reads from a file into a buffer that s.read takes back.
func (s *shelf) bytes(f *scratch.File, at int64, n int) (*[]byte, error) {
	b, ok := s.read.Get().(*[]byte)
	if !ok {
		b = &[]byte{}
	}
	if cap(*b) < n {
		*b = make([]byte, n)
	}
	*b = (*b)[:n]
	if _, err := f.ReadAt(*b, at); err != nil {
		return nil, scratchError(err)
	}
	return b, nil
}

// Close gives up the file, and what was computed of its episodes.
func (s *shelf) Close() error {
	err := s.file.Close()
	if s.columns != nil {
		err = errors.Join(err, s.columns.file.Close())
	}
	return err
}
