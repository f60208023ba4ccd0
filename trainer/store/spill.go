package store

import (
	"bufio"
	"errors"
	"sync"

	"agentcli/internal/malformed"
	"agentcli/internal/scratch"
	"agentcli/trainer/episode"
	"agentcli/traj"
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

	// Prepare makes the patches of an image whose file is at hand. It is set where there are
	// images, before they are read.
	Prepare func(*traj.Image) ([]float32, error)
	files   map[string]extent // of images, by their hashes

	columns *columns // what was computed of the episodes; nil: nothing yet
}

// extent is where a file of an image is.
type extent struct {
	at int64
	n  int
}

// NewSpill makes the temporary file, in TMPDIR.
func NewSpill() (*Spill, error) {
	f, err := newScratch()
	if err != nil {
		return nil, err
	}
	return &Spill{file: f, out: bufio.NewWriterSize(f, 1<<20), number: map[string]int{}, files: map[string]extent{}}, nil
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
	for i := range e.Images {
		if err := s.putFile(&e.Images[i].Image); err != nil {
			return err
		}
	}
	s.buf = appendBody(s.buf[:0], e.Body, s.numberOf)
	if _, err := s.out.Write(s.buf); err != nil {
		return scratchError(err)
	}
	e.BodySizes = e.Measure()
	e.Store, e.StoredAt, e.StoredBytes, e.Body = s, s.end, int32(len(s.buf)), nil
	s.end += int64(len(s.buf))
	return nil
}

// putFile writes the file of an image, or that of a crop's source, where it is not there yet.
func (s *Spill) putFile(im *traj.Image) error {
	hash, file := im.Hash, im.Bytes
	if im.Crop != nil {
		hash, file = im.Crop.Source, im.Crop.File
	}
	if _, have := s.files[hash]; have || file == nil {
		return nil
	}
	if _, err := s.out.Write(file); err != nil {
		return scratchError(err)
	}
	s.files[hash] = extent{s.end, len(file)}
	s.end += int64(len(file))
	return nil
}

// patches reads the file of an image and prepares it.
func (s *Spill) patches(im traj.Image) ([]float32, error) {
	hash := im.Hash
	if im.Crop != nil {
		hash = im.Crop.Source
	}
	at, have := s.files[hash]
	if !have {
		return nil, malformed.Errorf(malformed.Missing, "the file of image %.12s is not there", hash)
	}
	file := make([]byte, at.n)
	if _, err := s.file.ReadAt(file, at.at); err != nil {
		return nil, scratchError(err)
	}
	if im.Crop != nil {
		crop := *im.Crop
		crop.File, im.Crop = file, &crop
	} else {
		im.Bytes = file
	}
	return s.Prepare(&im)
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
	body := readBody(*b, s.names)
	for i := range body.Images {
		im := &body.Images[i]
		im.Patches = func() ([]float32, error) { return s.patches(im.Image) }
	}
	return body, nil
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
