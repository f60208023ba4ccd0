package engine

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"

	"agentcli/traj"
)

// A journal is an append-only file of records, each the length of its payload
// and its CRC-32C (four bytes each, little endian) and the payload, which is
// JSON. The first record is the header, every other a finished trajectory.
//
// Append returns when the record is on disk. Records that arrive while the disk
// is busy are written and synced together.

const (
	journalVersion = 1
	maxRecord      = 1 << 30
	recordHead     = 8
)

// ErrOtherRun is wrapped where a journal belongs to a run with other settings.
var ErrOtherRun = errors.New("the journal is of a run with other settings")

// ErrInUse is wrapped where another process writes the journal.
var ErrInUse = errors.New("the journal is in use by another run")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// written is where a record is, or why it is not.
type written struct {
	at  int64
	err error
}

type journalHeader struct {
	Journal int    `json:"agentcli_journal"`
	Config  string `json:"config"`
}

// Journal keeps a run's finished trajectories. It is safe for concurrent use.
type Journal struct {
	path     string
	file     *os.File
	finished *finished
	attempts int   // the most that a task may have in it: the highest number of one, and 1
	in, out  int64 // tokens of all trajectories in it when it was opened, the failed ones too

	mu      sync.Mutex
	wake    sync.Cond
	pending [][]byte
	waiting []chan written
	closing bool
	size    int64 // of the whole records in the file
	err     error // the first that broke the file
	ended   chan struct{}
}

// CreateJournal begins a journal in a new file. config is the hash of the run's
// configuration; only a run of the same can resume it.
func CreateJournal(path, config string) (*Journal, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%s exists: another run is in that folder; choose another --output, or go on with it by --resume %s", path, filepath.Dir(path))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot begin the journal: %w", err)
	}
	j, err := newJournal(path, f)
	if err != nil {
		return nil, err
	}
	head, err := json.Marshal(journalHeader{journalVersion, config})
	if err == nil {
		_, err = j.appendBytes(head)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		_ = j.Close()
		return nil, err
	}
	return j, nil
}

// OpenJournal goes on with a journal. A torn last record, which a crash leaves
// behind, is dropped with a notice; an unknown or another run's journal is
// refused.
func OpenJournal(path, config string, notice func(string)) (*Journal, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot resume: %w", err)
	}
	j, err := newJournal(path, f)
	if err != nil {
		return nil, err
	}
	if err := j.load(config, notice); err != nil {
		_ = j.Close()
		return nil, err
	}
	return j, nil
}

func newJournal(path string, f *os.File) (*Journal, error) {
	if err := lockFile(f); err != nil {
		_ = f.Close()
		return nil, traj.Mark(fmt.Errorf("%s is in use by another run: %w", path, err), ErrInUse)
	}
	j := &Journal{path: path, file: f, ended: make(chan struct{})}
	j.finished = newFinished(j.idAt)
	j.wake.L = &j.mu
	go j.write()
	return j, nil
}

// load reads the file once, to know what is finished and where it ends.
func (j *Journal) load(config string, notice func(string)) error {
	first := true
	end, torn, err := j.scan(func(offset int64, payload []byte) error {
		if first {
			first = false
			var h journalHeader
			if json.Unmarshal(payload, &h) != nil || h.Journal == 0 {
				return fmt.Errorf("%s is not a journal of agentcli", j.path)
			}
			if h.Journal > journalVersion {
				return fmt.Errorf("%s is a journal of version %d; this program reads up to %d", j.path, h.Journal, journalVersion)
			}
			if h.Config != config {
				return traj.Mark(fmt.Errorf("%s belongs to a run with other settings; resume with the settings in %s, or start anew with another --output",
					j.path, filepath.Join(filepath.Dir(j.path), "config.yaml")), ErrOtherRun)
			}
			return nil
		}
		var t struct {
			ID          string           `json:"id"`
			Attempt     int              `json:"attempt"`
			Termination traj.Termination `json:"termination"`
			Steps       []struct {
				In  int64 `json:"prompt_tokens"`
				Out int64 `json:"completion_tokens"`
			} `json:"steps"`
		}
		if err := json.Unmarshal(payload, &t); err != nil {
			return fmt.Errorf("%s: the record at byte %d is not a trajectory: %w", j.path, offset, err)
		}
		for _, s := range t.Steps {
			j.in, j.out = j.in+s.In, j.out+s.Out
		}
		if t.Termination.Infrastructure() {
			j.finished.forget(t.ID) // to be tried again
		} else {
			j.finished.put(t.ID, offset)
			j.attempts = max(j.attempts, t.Attempt+1)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if first {
		return fmt.Errorf("%s has no whole header: it is not a journal of agentcli, or nothing of its run was finished", j.path)
	}
	if torn {
		if notice != nil {
			notice(fmt.Sprintf("%s: dropped an unfinished record at byte %d; its trajectory is run again", j.path, end))
		}
		if err := j.file.Truncate(end); err != nil {
			return fmt.Errorf("cannot mend the journal: %w", err)
		}
	}
	j.mu.Lock()
	j.size = end
	j.mu.Unlock()
	return nil
}

// scan calls do for every whole record, and says where the last one ends and
// whether something follows it.
func (j *Journal) scan(do func(offset int64, payload []byte) error) (end int64, torn bool, err error) {
	st, err := j.file.Stat()
	if err != nil {
		return 0, false, fmt.Errorf("cannot read the journal: %w", err)
	}
	r := bufio.NewReaderSize(io.NewSectionReader(j.file, 0, st.Size()), 1<<20)
	head := make([]byte, recordHead)
	var payload []byte
	for {
		if _, err := io.ReadFull(r, head); err != nil {
			return end, !errors.Is(err, io.EOF), nil //nolint:nilerr // a short head is a torn record, not a failure
		}
		n := int64(binary.LittleEndian.Uint32(head))
		if n > maxRecord || end+recordHead+n > st.Size() {
			return end, true, nil
		}
		if int64(cap(payload)) < n {
			payload = make([]byte, n)
		}
		payload = payload[:n]
		if _, err := io.ReadFull(r, payload); err != nil {
			return end, true, fmt.Errorf("cannot read the journal %s: %w", j.path, err)
		}
		if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
			return end, true, nil
		}
		if err := do(end, payload); err != nil {
			return end, false, err
		}
		end += recordHead + n
	}
}

// Finished reports whether a trajectory needs no further attempt.
func (j *Journal) Finished(id string) bool { return j.finished.at(id) > 0 }

// Spent is how many tokens of prompts and replies the run took before it was
// resumed.
func (j *Journal) Spent() (in, out int64) { return j.in, j.out }

// Replay gives the finished trajectories of the run that is resumed, in the
// order in which they ended. Call it before the first Append.
func (j *Journal) Replay(do func(*traj.Trajectory) error) error {
	if j.finished.n == 0 {
		return nil
	}
	_, _, err := j.scan(func(offset int64, payload []byte) error {
		if offset == 0 {
			return nil
		}
		var t traj.Trajectory
		if err := json.Unmarshal(payload, &t); err != nil {
			return fmt.Errorf("%s: the record at byte %d is not a trajectory: %w", j.path, offset, err)
		}
		if !j.finished.has(t.ID, offset) {
			return nil
		}
		return do(&t)
	})
	return err
}

// Append returns when the trajectory is on disk.
func (j *Journal) Append(t *traj.Trajectory) error {
	_, err := j.keep(t)
	return err
}

// keep is Append; it says where the record is.
func (j *Journal) keep(t *traj.Trajectory) (int64, error) {
	b, err := json.Marshal(t)
	if err != nil {
		return 0, fmt.Errorf("cannot write %s into the journal: %w", t.ID, err)
	}
	return j.appendBytes(b)
}

// at reads the trajectory whose record begins at an offset.
func (j *Journal) at(offset int64) (*traj.Trajectory, error) {
	fail := func(err error) (*traj.Trajectory, error) {
		return nil, fmt.Errorf("cannot read the journal %s at byte %d: %w", j.path, offset, err)
	}
	head := make([]byte, recordHead)
	if _, err := j.file.ReadAt(head, offset); err != nil {
		return fail(err)
	}
	n := binary.LittleEndian.Uint32(head)
	if n > maxRecord {
		return fail(errors.New("there is no record"))
	}
	payload := make([]byte, n)
	if _, err := j.file.ReadAt(payload, offset+recordHead); err != nil {
		return fail(err)
	}
	if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
		return fail(errors.New("the record is damaged"))
	}
	var t traj.Trajectory
	if err := json.Unmarshal(payload, &t); err != nil {
		return fail(err)
	}
	return &t, nil
}

func (j *Journal) appendBytes(payload []byte) (int64, error) {
	if len(payload) > maxRecord {
		return 0, fmt.Errorf("a record of %d bytes is too long for the journal", len(payload))
	}
	record := make([]byte, recordHead, recordHead+len(payload))
	binary.LittleEndian.PutUint32(record, uint32(len(payload)))
	binary.LittleEndian.PutUint32(record[4:], crc32.Checksum(payload, castagnoli))
	record = append(record, payload...)
	done := make(chan written, 1)
	j.mu.Lock()
	if j.closing || j.err != nil {
		err := j.err
		j.mu.Unlock()
		if err == nil {
			err = errors.New("the journal is closed")
		}
		return 0, err
	}
	j.pending = append(j.pending, record)
	j.waiting = append(j.waiting, done)
	j.wake.Signal()
	j.mu.Unlock()
	w := <-done
	return w.at, w.err
}

// write is the only goroutine that writes: it takes all that waits, and syncs
// once for all of it.
func (j *Journal) write() {
	defer close(j.ended)
	for {
		j.mu.Lock()
		for len(j.pending) == 0 && !j.closing {
			j.wake.Wait()
		}
		batch, waiting, at := j.pending, j.waiting, j.size
		j.pending, j.waiting = nil, nil
		j.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		n, err := j.writeBatch(batch, at)
		j.mu.Lock()
		for _, b := range batch[:n] {
			j.size += int64(len(b))
		}
		if j.err == nil {
			j.err = err
		}
		j.mu.Unlock()
		for i, w := range waiting {
			if i < n {
				w <- written{at, nil}
			} else {
				w <- written{at, err}
			}
			at += int64(len(batch[i]))
		}
	}
}

// writeBatch writes records from an offset on, and says how many of them are on
// disk: where there is room for some only, these are kept.
func (j *Journal) writeBatch(batch [][]byte, at int64) (n int, err error) {
	if _, err = j.file.WriteAt(bytes.Join(batch, nil), at); err == nil {
		n = len(batch)
	} else { // os does not say how much of it was written
		n, err = j.writeSingly(batch, at)
	}
	if serr := j.file.Sync(); serr != nil {
		return 0, fmt.Errorf("cannot write the journal %s: %w", j.path, serr)
	}
	return n, err
}

// writeSingly writes as many records as there is room for, and leaves whole ones only.
func (j *Journal) writeSingly(batch [][]byte, at int64) (n int, err error) {
	for _, b := range batch {
		if _, err = j.file.WriteAt(b, at); err != nil {
			err = fmt.Errorf("cannot write the journal: %w", err)
			break
		}
		at += int64(len(b))
		n++
	}
	_ = j.file.Truncate(at)
	return n, err
}

// Sync reports whether everything so far is safely written.
func (j *Journal) Sync() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// Close writes what waits and closes the file.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closing {
		j.mu.Unlock()
		return nil
	}
	j.closing = true
	j.wake.Signal()
	j.mu.Unlock()
	<-j.ended
	if err := j.file.Close(); err != nil && j.err == nil {
		return fmt.Errorf("cannot close the journal: %w", err)
	}
	return j.err
}

// syncDir makes a new file's name as durable as its content.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("cannot begin the journal: %w", err)
	}
	defer d.Close()
	_ = d.Sync() // not every file system can
	return nil
}
