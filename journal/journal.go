// Package journal keeps the finished trajectories of a run on disk: an
// append-only file that a killed run leaves behind and a resumed one goes on
// with. Append returns when the trajectory is synced. No record that can be read
// is ever lost: damage is stepped over, and the damaged file is kept.
//
// It is in layer 1 and knows trajectories, not who plays them.
package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"agentcli/internal/filesys"
	"agentcli/internal/setting"
	"agentcli/traj"

	"github.com/klauspost/compress/zstd"
)

// Journal is an open journal. It is safe for concurrent use, but for Replay,
// Index and Finished, which belong to one goroutine.
type Journal struct {
	path     string
	file     filesys.File
	appender *appender
	index    *Index
	images   *images
	attempts int   // the highest attempt number in it, and 1
	in, out  int64 // tokens of all trajectories in it when it was opened, the failed ones too

	encoder *zstd.Encoder
	decoder *zstd.Decoder
}

// Create begins a journal in a new file; notice is told, in one line, what the
// user should know. It fails with ErrExists where there is a journal.
func Create(sys filesys.FS, path string, h Header, notice func(string)) (*Journal, error) {
	if err := h.hashFiles(); err != nil {
		return nil, fmt.Errorf("cannot begin the journal: %w", err)
	}
	f, err := sys.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil, traj.Mark(setting.Errorf("%s exists: another run is in that folder; choose another folder, or go on with that run: %s %s",
			path, setting.Name("journal.Open"), filepath.Dir(path)), ErrExists)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot begin the journal: %w", err)
	}
	if err := lock(f, path, notice); err != nil {
		_ = f.Close()
		return nil, err
	}
	j, err := newJournal(path, f)
	if err == nil {
		err = j.appender.begin(h)
	}
	if err == nil {
		if err = sys.SyncDir(filepath.Dir(path)); err != nil {
			err = fmt.Errorf("cannot begin the journal: %w", err)
		}
	}
	if err != nil {
		_ = j.Close()
		_ = sys.Remove(path) // it is ours, and holds nothing: the folder can be used again
		return nil, err
	}
	return j, nil
}

// Open goes on with a journal. Half a record at its end, as a crash leaves one,
// is passed over with a notice. Where records are missing, the good ones are
// written into a new file, the damaged one is kept as journal.broken beside it,
// and a notice says so; a file of version 1 is brought to the present version
// likewise and kept as journal.v1. It fails with ErrInUse, ErrNotJournal,
// ErrNewer, or with ErrOtherRun (a *ChangedError where it is known what changed).
func Open(sys filesys.FS, path string, h Header, notice func(string)) (*Journal, error) {
	if notice == nil {
		notice = func(string) {}
	}
	f, err := sys.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot resume: %w", err)
	}
	if err := lock(f, path, notice); err != nil {
		_ = f.Close()
		return nil, err
	}
	was, s, err := read(f, nil)
	var changed []string
	if err == nil {
		changed, err = same(was, &h, s.layout.version)
	}
	if err != nil {
		_ = f.Close()
		return nil, naming(path, err)
	}
	for _, name := range changed {
		notice(fmt.Sprintf("%s has changed since the run began; every row that was played is compared with the journal", name))
	}
	if s.layout.version == 1 || s.lost() {
		kept, err := rewrite(sys, path, f, s, h)
		if err != nil {
			_ = f.Close()
			return nil, err
		}
		notice(rewritten(path, kept, s))
		old := f
		if f, err = sys.OpenFile(path, os.O_RDWR, 0); err == nil {
			err = lock(f, path, func(string) {})
		}
		_ = old.Close()
		if err != nil {
			return nil, err
		}
	} else if n := s.tail(); n > 0 {
		notice(fmt.Sprintf("%s: passed over %d bytes of an unfinished record at byte %d; its trajectory is played again", path, n, s.end))
	}
	j, err := newJournal(path, f)
	if err == nil {
		err = j.load()
	}
	if err == nil {
		j.appender.header, err = headerRecord(h)
	}
	if err != nil {
		_ = j.Close()
		return nil, err
	}
	return j, nil
}

// lock takes the journal's lock. On a file system without locks it goes on.
func lock(f filesys.File, path string, notice func(string)) error {
	err := f.Lock()
	switch {
	case errors.Is(err, filesys.ErrLocked):
		return traj.Mark(fmt.Errorf("%s is in use by another run: %w", path, err), ErrInUse)
	case errors.Is(err, filesys.ErrNoLocks):
		if notice != nil {
			notice(fmt.Sprintf("%s: this file system has no locks; see to it that no second run writes into the folder", path))
		}
	case err != nil:
		return fmt.Errorf("cannot lock the journal: %w", err)
	}
	return nil
}

// naming puts the journal's path in front of what is wrong with it.
func naming(path string, err error) error {
	var changed *ChangedError
	switch {
	case errors.As(err, &changed):
		return fmt.Errorf("%s belongs to a run with other settings: %w", path, err)
	case errors.Is(err, ErrOtherRun):
		return traj.Mark(fmt.Errorf("%s belongs to a run with other settings; resume with the settings in %s, or start anew in another folder",
			path, filepath.Join(filepath.Dir(path), "config.yaml")), ErrOtherRun)
	}
	return fmt.Errorf("%s: %w", path, err)
}

func newJournal(path string, f filesys.File) (*Journal, error) {
	j := &Journal{path: path, file: f, appender: newAppender(path, f), images: newImages()}
	j.index = newIndex(j.idAt)
	var err error
	if j.encoder, err = newEncoder(); err == nil {
		j.decoder, err = newDecoder()
	}
	return j, err
}

// newEncoder makes an encoder of the journal's own: its channels must not
// outlive the test bubble that it was made in.
func newEncoder() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true))
}

func newDecoder() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxRecord))
}

// load makes the index.
func (j *Journal) load() error {
	_, s, err := readAll(j.file, func(at int64, e entry) {
		j.in, j.out = j.in+e.in, j.out+e.out
		if e.termination.Infrastructure() || !j.images.has(e.images) {
			j.index.Forget(e.id) // to be tried again
			return
		}
		j.index.put(e.id, at)
		j.attempts = max(j.attempts, e.attempt+1)
	}, func(at int64, h imageHash) { j.images.at[h] = at })
	if err != nil {
		return naming(j.path, err)
	}
	j.appender.goOn(s.size, s.seq)
	return nil
}

// Finished reports whether a trajectory needs no further attempt.
func (j *Journal) Finished(id string) bool { return j.index.Offset(id) > 0 }

// SameTask fails with a *ChangedError where a finished trajectory is of a task that
// was another. It is nil for one that is not finished.
func (j *Journal) SameTask(id string, task *traj.Task) error {
	at := j.index.Offset(id)
	if at == 0 {
		return nil
	}
	e, err := j.entryAt(at)
	if err != nil {
		return fmt.Errorf("cannot read the journal %s at byte %d: %w", j.path, at, err)
	}
	if e.task != taskHash(task) {
		return &ChangedError{Name: task.ID, Row: true}
	}
	return nil
}

// Index is a copy of the index of what was finished when the journal was opened.
func (j *Journal) Index() *Index { return j.index.clone() }

// Attempts is how many attempts of one task the journal has at most.
func (j *Journal) Attempts() int { return j.attempts }

// Spent is how many tokens of prompts and replies the run took before it was
// resumed.
func (j *Journal) Spent() (in, out int64) { return j.in, j.out }

// Replay gives the finished trajectories of the run that is resumed, in the
// order in which they ended. Call it before the first Append.
func (j *Journal) Replay(do func(*traj.Trajectory) error) error {
	size, err := j.file.Size()
	if err != nil {
		return fmt.Errorf("cannot read the journal: %w", err)
	}
	w := &window{r: j.file, size: size}
	for _, at := range j.index.Offsets() {
		t, err := j.read(w, at)
		if err != nil {
			return err
		}
		if err := do(t); err != nil {
			return err
		}
	}
	return nil
}

// At reads the trajectory whose record begins at an offset.
func (j *Journal) At(offset int64) (*traj.Trajectory, error) {
	size, err := j.file.Size()
	if err != nil {
		return nil, fmt.Errorf("cannot read the journal: %w", err)
	}
	return j.read(&window{r: j.file, size: size, exact: true}, offset)
}

func (j *Journal) read(w *window, offset int64) (*traj.Trajectory, error) {
	rec, ok, err := w.record(&layoutV2, offset)
	if err == nil && !ok {
		err = errors.New("the record is damaged")
	}
	var frame []byte
	if err == nil {
		_, frame, err = parseTrajectory(rec.body)
	}
	var t *traj.Trajectory
	if err == nil {
		t, err = decode(frame, j.decoder)
	}
	if err == nil {
		err = j.images.restore(t, j.file)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the journal %s at byte %d: %w", j.path, offset, err)
	}
	return t, nil
}

func (j *Journal) idAt(offset int64) (string, error) {
	e, err := j.entryAt(offset)
	return e.id, err
}

// entryAt reads what stands at the beginning of the record at an offset.
func (j *Journal) entryAt(offset int64) (entry, error) {
	for room := 512; ; room *= 8 {
		b := make([]byte, headV2+room)
		n, _ := j.file.ReadAt(b, offset) // shorter at the file's end
		if n <= headV2 || !bytes.Equal(b[:4], magic) {
			return entry{}, errBody
		}
		e, _, err := parseTrajectory(b[headV2:n])
		if err == nil || n < len(b) {
			return e, err
		}
	}
}

// Append returns the offset of the trajectory's record when it is on disk.
func (j *Journal) Append(t *traj.Trajectory) (int64, error) {
	bare, files := withoutFiles(t)
	err := j.images.keep(j.appender, files)
	var text, rec []byte
	if err == nil {
		text, err = json.Marshal(bare)
	}
	if err == nil {
		e := entryOf(t)
		e.images = slices.SortedFunc(maps.Keys(files), func(a, b imageHash) int { return bytes.Compare(a[:], b[:]) })
		rec, err = trajectoryRecord(e, text, j.encoder)
	}
	if err != nil {
		return 0, fmt.Errorf("cannot write %s into the journal: %w", t.ID, err)
	}
	return j.appender.append(rec)
}

// Err reports whether everything so far is safely written.
func (j *Journal) Err() error { return j.appender.broken() }

// Close writes what waits and closes the file.
func (j *Journal) Close() error {
	if j == nil || !j.appender.close() {
		return nil
	}
	if j.decoder != nil {
		j.decoder.Close()
	}
	err := j.appender.broken()
	if cerr := j.file.Close(); cerr != nil && err == nil {
		return fmt.Errorf("cannot close the journal: %w", cerr)
	}
	return err
}
