package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"agentcli/traj"
)

// Errors that a caller may tell apart.
var (
	// ErrOtherRun: the journal is of a run with other settings.
	ErrOtherRun = errors.New("the journal is of a run with other settings")
	// ErrInUse: another process writes the journal.
	ErrInUse = errors.New("the journal is in use by another run")
	// ErrExists: there is a journal already.
	ErrExists = errors.New("the journal exists")
	// ErrNotJournal: the file is no journal, or its header cannot be read.
	ErrNotJournal = errors.New("not a journal of agentcli")
	// ErrNewer: a later version of the program wrote the journal.
	ErrNewer = errors.New("the journal is of a newer version")
)

// Header says which run a journal is of. Only a run with the same header goes on
// with it.
type Header struct {
	Config string // hash of the settings that decide what rows mean
	// Settings are further ones that must not change, by name. A journal of
	// version 1 has none.
	Settings map[string]string
	// Files are what rows are made from. One that has changed is reported; that
	// its finished rows are the same is looked up row by row (Journal.SameTask).
	Files []File
}

// File is a file that a run reads. Size and SHA256 are of its content when the
// run began. One that has grown at its end is the same.
type File struct {
	Name   string `json:"name"` // as the user knows it
	Path   string `json:"-"`    // where it is now
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

type headerJSON struct {
	Version  int               `json:"agentcli_journal"`
	Config   string            `json:"config"`
	Settings map[string]string `json:"settings,omitempty"`
	Files    []File            `json:"files,omitempty"`
}

// MarshalJSON writes the header as it stands in a journal.
func (h Header) MarshalJSON() ([]byte, error) {
	return json.Marshal(headerJSON{version, h.Config, h.Settings, h.Files})
}

func parseHeader(text []byte) (Header, error) {
	var h headerJSON
	if json.Unmarshal(text, &h) != nil || h.Version == 0 {
		return Header{}, ErrNotJournal
	}
	if h.Version > version {
		return Header{}, traj.Mark(fmt.Errorf("it is of version %d; this program reads up to %d", h.Version, version), ErrNewer)
	}
	return Header{h.Config, h.Settings, h.Files}, nil
}

// A ChangedError says which setting, or which row of the dataset, differs from the
// run's. It is an ErrOtherRun.
type ChangedError struct {
	Name     string
	Row      bool   // Name is a task's id; else a setting's
	Was, Now string // the setting's values; "": not set
}

func (e *ChangedError) Error() string {
	if e.Row {
		return fmt.Sprintf("the dataset's row %s has changed since the run began", e.Name)
	}
	return fmt.Sprintf("%s is %q and was %q when the run began", e.Name, e.Now, e.Was)
}

// Is makes a ChangedError an ErrOtherRun.
func (e *ChangedError) Is(target error) bool { return target == ErrOtherRun }

// hashFiles fills in size and hash of the files.
func (h *Header) hashFiles() error {
	files := slices.Clone(h.Files)
	for i := range files {
		f := &files[i]
		var err error
		if f.SHA256, f.Size, err = hashFile(f.Path, -1); err != nil {
			return err
		}
	}
	h.Files = files
	return nil
}

// hashFile hashes a file's first size bytes, or all of it where size is −1, and
// says how many there were.
func hashFile(path string, size int64) (sum string, n int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	var r io.Reader = f
	if size >= 0 {
		r = io.LimitReader(f, size)
	}
	hash := sha256.New()
	if n, err = io.Copy(hash, r); err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(hash.Sum(nil)), n, nil
}

// same reports how the run that goes on (now) differs from the journal's (was, in a
// file of that version), and which files have changed. It fills in the files' sizes
// and hashes of now.
func same(was Header, now *Header, version int) (changed []string, err error) {
	if was.Config != now.Config {
		return nil, ErrOtherRun
	}
	if version == 1 { // it did not keep them
		return nil, now.hashFiles()
	}
	names := slices.Sorted(maps.Keys(was.Settings))
	for _, name := range append(names, slices.Sorted(maps.Keys(now.Settings))...) {
		if a, b := was.Settings[name], now.Settings[name]; a != b {
			return nil, &ChangedError{Name: name, Was: a, Now: b}
		}
	}
	files := slices.Clone(now.Files)
	for i := range files {
		f := &files[i]
		k := slices.IndexFunc(was.Files, func(x File) bool { return x.Name == f.Name })
		if k >= 0 {
			sum, n, err := hashFile(f.Path, was.Files[k].Size)
			if err != nil {
				return nil, err
			}
			if n == was.Files[k].Size && sum == was.Files[k].SHA256 {
				f.Size, f.SHA256 = n, sum
				continue
			}
		}
		changed = append(changed, f.Name)
		if f.SHA256, f.Size, err = hashFile(f.Path, -1); err != nil {
			return nil, err
		}
	}
	now.Files = files
	return changed, nil
}
