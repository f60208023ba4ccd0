package journal

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"agentcli/internal/filesys"
	"agentcli/internal/setting"
	"agentcli/traj"
)

// read scans a journal of any version and calls visit for each trajectory; nil
// is not called. It fails with ErrNotJournal where no copy of the header can be
// read, after it has visited the trajectories that can.
func read(f filesys.File, visit func(at int64, e entry)) (h Header, s *scanned, err error) {
	return readAll(f, visit, nil)
}

// readAll is read that calls image for the record of each image's file, too.
func readAll(f filesys.File, visit func(at int64, e entry), image func(at int64, h imageHash)) (h Header, s *scanned, err error) {
	size, err := f.Size()
	if err != nil {
		return h, nil, fmt.Errorf("cannot read the journal: %w", err)
	}
	l, err := layoutOf(f, size)
	if err != nil {
		return h, nil, err
	}
	headed := false
	s, err = scan(f, size, l, func(rec record) error {
		if isHeader(&l, rec) {
			text := rec.body
			if l.version == 2 {
				text = text[1:]
			}
			last, err := parseHeader(text)
			if err == nil {
				h, headed = last, true // a run that is resumed brings the files' hashes up to date
			}
			if errors.Is(err, ErrNewer) {
				return err
			}
			return nil
		}
		if l.version == 2 && rec.body[0] == kindImage && image != nil {
			if h, _, err := parseImage(rec.body); err == nil {
				image(rec.at, h)
			}
			return nil
		}
		e, _, err := parse(&l, rec)
		if errors.Is(err, errKind) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the record at byte %d: %w", rec.at, err)
		}
		if visit != nil {
			visit(rec.at, e)
		}
		return nil
	})
	switch {
	case err != nil:
		return h, s, err
	case !headed && s.end == 0:
		return h, s, traj.Mark(
			errors.New("is not a journal of agentcli, or nothing of its run was finished; begin the run anew in another folder"), ErrNotJournal)
	case !headed:
		return h, s, traj.Mark(setting.Errorf("no copy of its header can be read, so it cannot be resumed; %s gives its trajectories",
			setting.Name("journal.Cat")), ErrNotJournal)
	}
	return h, s, nil
}

// AnyFinished reports whether a journal has a trajectory that needs no further
// attempt; false also where it cannot be read. It reads up to the first of them.
func AnyFinished(sys filesys.FS, path string) bool {
	f, err := sys.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return false
	}
	l, err := layoutOf(f, size)
	if err != nil {
		return false
	}
	found := errors.New("found")
	_, err = scan(f, size, l, func(rec record) error {
		if isHeader(&l, rec) {
			return nil
		}
		if e, _, err := parse(&l, rec); err == nil && !e.termination.Infrastructure() {
			return found
		}
		return nil
	})
	return errors.Is(err, found)
}

// layoutOf finds out the version of a file.
func layoutOf(f io.ReaderAt, size int64) (layout, error) {
	w := &window{r: f, size: size}
	for _, l := range []layout{layoutV2, layoutV1} {
		if _, ok, err := w.record(&l, 0); ok || err != nil {
			return l, err
		}
	}
	_, ok, err := w.next(&layoutV2, 1, 0)
	if err != nil || ok {
		return layoutV2, err
	}
	_, ok, err = w.next(&layoutV1, 1, 0)
	if err != nil || ok {
		return layoutV1, err
	}
	return layoutV2, nil // nothing in it can be read
}

func isHeader(l *layout, rec record) bool {
	if l.version == 1 {
		return rec.at == 0
	}
	return rec.body[0] == kindHeader
}

var errKind = errors.New("a kind of record that this version does not know")

// parse reads what the index needs of a trajectory's record, and its JSON: as a
// zstd frame in version 2, as it is in version 1.
func parse(l *layout, rec record) (e entry, payload []byte, err error) {
	if l.version == 2 {
		if rec.body[0] != kindTrajectory && rec.body[0] != kindLooking {
			return e, nil, errKind
		}
		return parseTrajectory(rec.body)
	}
	var t struct {
		ID          string           `json:"id"`
		Task        traj.Task        `json:"task"`
		Attempt     int              `json:"attempt"`
		Termination traj.Termination `json:"termination"`
		Steps       []struct {
			In  int64 `json:"prompt_tokens"`
			Out int64 `json:"completion_tokens"`
		} `json:"steps"`
	}
	if err := json.Unmarshal(rec.body, &t); err != nil {
		return e, nil, fmt.Errorf("it is not a trajectory: %w", err)
	}
	e = entry{id: t.ID, attempt: t.Attempt, termination: t.Termination, task: taskHash(&t.Task)}
	for _, s := range t.Steps {
		e.in, e.out = e.in+s.In, e.out+s.Out
	}
	return e, rec.body, nil
}

// rewrite writes every good record into a new file under the old one's name, and
// says under which name the old file is kept. The new file replaces the old one
// in one step, after the old one has its second name.
func rewrite(sys filesys.FS, path string, f filesys.File, s *scanned, h Header) (kept string, err error) {
	tmp := path + ".tmp"
	fail := func(err error) (string, error) {
		_ = sys.Remove(tmp)
		return "", fmt.Errorf("cannot write what is whole of %s into a new file (%w); the journal is as it was", path, err)
	}
	out, err := sys.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return fail(err)
	}
	err = copyRecords(out, f, s, h)
	if err == nil {
		err = out.Sync()
	}
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fail(err)
	}
	suffix := ".broken"
	if s.layout.version == 1 && !s.lost() && s.tail() == 0 {
		suffix = ".v1"
	}
	if kept, err = keep(sys, path, f, suffix); err != nil {
		return fail(err)
	}
	if err := sys.Rename(tmp, path); err != nil {
		return fail(err)
	}
	if err := sys.SyncDir(filepath.Dir(path)); err != nil {
		return "", fmt.Errorf("cannot sync the folder of %s: %w", path, err)
	}
	return kept, nil
}

// copyRecords writes a header and the good records of f.
func copyRecords(out io.Writer, f filesys.File, s *scanned, h Header) error {
	z, err := newEncoder()
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(out, 1<<20)
	seq := uint64(0)
	put := func(rec []byte) error {
		seq++
		seal(rec, seq)
		_, err := w.Write(rec)
		return err
	}
	head := func() error {
		rec, err := headerRecord(h)
		if err == nil {
			err = put(rec)
		}
		return err
	}
	if err := head(); err != nil {
		return err
	}
	if err := head(); err != nil {
		return err
	}
	_, err = scan(f, s.size, s.layout, func(rec record) error {
		if isHeader(&s.layout, rec) {
			return nil
		}
		if headerDue(seq) {
			if err := head(); err != nil {
				return err
			}
		}
		var b []byte
		if s.layout.version == 2 {
			b = append(newRecord(rec.body[0], len(rec.body)), rec.body[1:]...)
			b, err = finish(b)
		} else {
			var e entry
			if e, _, err = parse(&s.layout, rec); err == nil {
				b, err = trajectoryRecord(e, rec.body, z)
			}
		}
		if err != nil {
			return err
		}
		return put(b)
	})
	if err != nil {
		return err
	}
	return w.Flush()
}

// keep gives the journal's file a second name that is free, or copies it where
// the file system has no links.
func keep(sys filesys.FS, path string, f filesys.File, suffix string) (string, error) {
	for i := 1; ; i++ {
		name := path + suffix
		if i > 1 {
			name += fmt.Sprint(".", i)
		}
		err := sys.Link(path, name)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			err = copyFile(sys, f, name)
		}
		if !errors.Is(err, fs.ErrExist) {
			return name, err
		}
	}
}

func copyFile(sys filesys.FS, f filesys.File, name string) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	out, err := sys.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if _, err = io.Copy(out, io.NewSectionReader(f, 0, size)); err == nil {
		err = out.Sync()
	}
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = sys.Remove(name)
	}
	return err
}

// rewritten is the notice about a file that was rewritten.
func rewritten(path, kept string, s *scanned) string {
	if s.layout.version == 1 && len(s.damage) == 0 && s.tail() == 0 {
		return fmt.Sprintf("%s: brought from version 1 to version %d; the old file is %s", path, version, filepath.Base(kept))
	}
	lost, known := 0, true
	for _, d := range s.damage {
		if d.Lost < 0 {
			known = false
		} else {
			lost += d.Lost
		}
	}
	if s.layout.version == 1 && s.tail() > 0 && len(s.damage) == 0 {
		return fmt.Sprintf("%s: passed over %d bytes of an unfinished record at byte %d, and brought to version %d; the old file is %s",
			path, s.tail(), s.end, version, filepath.Base(kept))
	}
	what := fmt.Sprintf("%d records are", lost)
	switch {
	case !known:
		what = "records are"
	case lost == 1:
		what = "one record is"
	}
	return fmt.Sprintf("%s: damaged at byte %d: %s lost and played again; all others are kept, and the damaged file is %s",
		path, s.damage[0].From, what, filepath.Base(kept))
}

// Report is what Check finds.
type Report struct {
	Version      int      `json:"version"`
	Bytes        int64    `json:"bytes"`
	Trajectories int      `json:"trajectories"` // records of trajectories that can be read
	Finished     int      `json:"finished"`     // distinct trajectories that need no further attempt
	Damage       []Damage `json:"damage,omitempty"`
	// Unfinished is how many bytes behind the last record a crash left.
	Unfinished int64  `json:"unfinished_bytes,omitempty"`
	Header     string `json:"header,omitempty"` // why it cannot be read; "": it can
}

// Sound reports whether nothing is lost.
func (r *Report) Sound() bool {
	for _, d := range r.Damage {
		if d.Lost != 0 {
			return false
		}
	}
	return r.Header == ""
}

// Check reads a journal, also while a run writes it, and every trajectory in it.
func Check(sys filesys.FS, path string) (*Report, error) {
	f, err := sys.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return check(f, path)
}

func check(f filesys.File, path string) (*Report, error) {
	r := &Report{}
	done := map[string]bool{}
	_, s, err := read(f, func(_ int64, e entry) {
		r.Trajectories++
		done[e.id] = !e.termination.Infrastructure()
	})
	switch {
	case errors.Is(err, ErrNotJournal) && s != nil && s.end > 0:
		r.Header = err.Error()
	case err != nil:
		return nil, naming(path, err)
	}
	for _, ok := range done {
		if ok {
			r.Finished++
		}
	}
	r.Version, r.Bytes, r.Damage, r.Unfinished = s.layout.version, s.size, s.damage, s.tail()
	return r, eachJSON(f, s, func([]byte) error { return nil })
}

// Repair writes what is whole of a journal into a new one, and says under which
// name the old one is kept; "": there was nothing to repair.
func Repair(sys filesys.FS, path string) (kept string, r *Report, err error) {
	f, err := sys.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	if err := lock(f, path, nil); err != nil {
		return "", nil, err
	}
	if r, err = check(f, path); err != nil {
		return "", nil, err
	}
	h, s, err := read(f, nil)
	if err != nil {
		return "", r, naming(path, err)
	}
	if s.layout.version == version && len(s.damage) == 0 && s.tail() == 0 {
		return "", r, nil
	}
	kept, err = rewrite(sys, path, f, s, h)
	return kept, r, err
}

// Cat gives the JSON of every trajectory that can be read, in the file's order:
// also of failed attempts.
func Cat(sys filesys.FS, path string, do func(text []byte) error) error {
	f, err := sys.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, s, err := read(f, nil)
	if err != nil && (!errors.Is(err, ErrNotJournal) || s == nil || s.end == 0) {
		return naming(path, err)
	}
	return eachJSON(f, s, do)
}

func eachJSON(f filesys.File, s *scanned, do func([]byte) error) error {
	z, err := newDecoder()
	if err != nil {
		return err
	}
	defer z.Close()
	_, err = scan(f, s.size, s.layout, func(rec record) error {
		if isHeader(&s.layout, rec) {
			return nil
		}
		_, text, err := parse(&s.layout, rec)
		if errors.Is(err, errKind) {
			return nil
		}
		if err == nil && s.layout.version == 2 {
			text, err = unpack(text, z)
		}
		if err != nil {
			return fmt.Errorf("the record at byte %d: %w", rec.at, err)
		}
		return do(text)
	})
	return err
}
