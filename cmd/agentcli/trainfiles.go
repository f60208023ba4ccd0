package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// trainFile is one file of a training run, and what it is known by when the run
// goes on. When it was last touched says nothing.
type trainFile struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256,omitempty"` // of the content; "": not known
}

// UnmarshalJSON takes a bare path too, as older versions wrote it.
func (f *trainFile) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, &f.Path); err == nil {
		return nil
	}
	type plain trainFile
	return json.Unmarshal(b, (*plain)(f))
}

// hashedEnd is how much of a file is hashed at each end; a smaller one is hashed
// whole. A Parquet file's footer, which says where and how long everything is, is
// at the end.
const hashedEnd = 64 << 20

// trainFileOf gives the size of a file, and the SHA-256 of its content as far as it
// is hashed.
func trainFileOf(path string) (trainFile, error) {
	x := trainFile{Path: absolute(path)}
	f, err := os.Open(path)
	if err != nil {
		return x, err
	}
	defer f.Close()
	at, err := f.Stat()
	if err != nil {
		return x, err
	}
	x.Size = at.Size()
	h := sha256.New()
	parts := []io.Reader{f}
	if x.Size > 2*hashedEnd {
		parts = []io.Reader{io.NewSectionReader(f, 0, hashedEnd), io.NewSectionReader(f, x.Size-hashedEnd, hashedEnd)}
	}
	if _, err := io.Copy(h, io.MultiReader(parts...)); err != nil {
		return x, fmt.Errorf("%s: %w", path, err)
	}
	x.SHA256 = hex.EncodeToString(h.Sum(nil))
	return x, nil
}

// resumedFiles are those that the run in dir began with, as they were then.
func resumedFiles(dir string, given []string) ([]string, error) {
	if len(given) > 0 {
		return nil, usagef("--resume takes the files of the run in its folder; leave %s out", given[0])
	}
	data, err := os.ReadFile(filepath.Join(dir, trainFilesName))
	if err != nil {
		return nil, usagef("--resume %s: %v", dir, err)
	}
	var files []trainFile
	if err := json.Unmarshal(data, &files); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, trainFilesName), err)
	}
	paths := make([]string, len(files))
	for i, f := range files {
		paths[i] = f.Path
		if f.SHA256 == "" {
			continue
		}
		now, err := trainFileOf(f.Path)
		if err != nil {
			return nil, usagef("--resume %s: %w", dir, err)
		}
		if now.Size != f.Size || now.SHA256 != f.SHA256 {
			return nil, usagef("--resume %s: %s has changed since the run began (%d bytes then, %d now); put the file back as it was, or begin a new run", dir, f.Path, f.Size, now.Size)
		}
	}
	return paths, nil
}

// writeTrainFiles keeps for --resume which files a run is of.
func writeTrainFiles(dir string, names []string) error {
	files := make([]trainFile, len(names))
	for i, name := range names {
		var err error
		if files[i], err = trainFileOf(name); err != nil {
			return err
		}
	}
	data, err := json.Marshal(files)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, trainFilesName), data, fileMode)
}
