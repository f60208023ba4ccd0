package store

import (
	"bufio"
	"errors"
	"sync"

	"agentcli/internal/scratch"
	"agentcli/trainer/episode"
)

// Spill keeps the bodies of episodes in a temporary file, written once while the rows are
// read. An index of about 200 bytes a row stays in memory, and a minibatch is a few reads.
// The file has no name from the start: nothing is left of it, however the program ends.
//
// One goroutine puts bodies; after Finish, any number may read them.
type Spill struct {
	file   *scratch.File
	out    *bufio.Writer
	end    int64
	names  []string // texts that bodies share
	number map[string]int
	buf    []byte
	read   sync.Pool // of buffers

	columns *columns // what was computed of the episodes; nil: nothing yet
}

// NewSpill makes the temporary file, in TMPDIR.
func NewSpill() (*Spill, error) {
	f, err := newScratch()
	if err != nil {
		return nil, err
	}
	return &Spill{file: f, out: bufio.NewWriterSize(f, 1<<20), number: map[string]int{}}, nil
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

// Put moves the body of an episode from memory to the file. It can be read after Finish.
func (s *Spill) Put(e *episode.Episode) error {
	s.buf = appendBody(s.buf[:0], e.Body, s.numberOf)
	if _, err := s.out.Write(s.buf); err != nil {
		return scratchError(err)
	}
	e.BodySizes = e.Measure()
	e.Store, e.StoredAt, e.StoredBytes, e.Body = s, s.end, int32(len(s.buf)), nil
	s.end += int64(len(s.buf))
	return nil
}

// Finish ends the putting.
func (s *Spill) Finish() error {
	if err := s.out.Flush(); err != nil {
		return scratchError(err)
	}
	s.out, s.buf, s.number = nil, nil, nil
	return nil
}

func (s *Spill) numberOf(text string) int {
	n, ok := s.number[text]
	if !ok {
		n = len(s.names)
		s.names, s.number[text] = append(s.names, text), n
	}
	return n
}

// ReadBody reads the body of an episode, without Streams. It is safe for concurrent use.
func (s *Spill) ReadBody(e *episode.Episode) (*episode.Body, error) {
	b, err := s.bytes(s.file, e.StoredAt, int(e.StoredBytes))
	if err != nil {
		return nil, err
	}
	defer s.read.Put(b)
	return readBody(*b, s.names), nil
}

// spillOf is where the body of an episode is; nil: it stays in memory.
func spillOf(e *episode.Episode) *Spill {
	s, _ := e.Store.(*Spill)
	return s
}

// bytes reads from a file into a buffer that s.read takes back.
func (s *Spill) bytes(f *scratch.File, at int64, n int) (*[]byte, error) {
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

// Close removes the file, and the columns of its episodes.
func (s *Spill) Close() error {
	return errors.Join(s.file.Close(), s.dropColumns())
}

// dropColumns forgets what was computed of the episodes.
func (s *Spill) dropColumns() error {
	if s.columns == nil {
		return nil
	}
	err := s.columns.file.Close()
	s.columns = nil
	return err
}
