package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"agentcli/internal/exit"
	"agentcli/internal/filesys"
	"agentcli/trainer"
)

// trainFile is one file that a training run or a loop reads, and what it is known by
// when the run goes on. When it was last touched says nothing.
type trainFile struct {
	Flag   string `json:"flag,omitempty"` // that names it; "": it has the rows that are trained on
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

// resumedFiles are those that the run in dir began with, by the flag that names them,
// as they were then.
func resumedFiles(dir string) (map[string][]string, error) {
	data, err := os.ReadFile(filepath.Join(dir, trainFilesName))
	if err != nil {
		return nil, exit.Usagef("--resume %s: %w", dir, err)
	}
	var files []trainFile
	if err := json.Unmarshal(data, &files); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, trainFilesName), err)
	}
	paths := map[string][]string{}
	for _, f := range files {
		paths[f.Flag] = append(paths[f.Flag], f.Path)
		if f.SHA256 == "" {
			continue
		}
		now, err := trainFileOf(f.Path)
		if err != nil {
			return nil, exit.Usagef("--resume %s: %w", dir, err)
		}
		if now.Size != f.Size || now.SHA256 != f.SHA256 {
			what := f.Path
			if f.Flag != "" {
				what = "--" + f.Flag + " " + f.Path
			}
			return nil, exit.Usagef("--resume %s: %s has changed since the run began (%d bytes then, %d now); put the file back as it was, or begin a new run", dir, what, f.Size, now.Size)
		}
	}
	return paths, nil
}

// writeTrainFiles keeps for --resume which files a run reads, by the flag that names
// them.
func writeTrainFiles(sys filesys.FS, dir string, paths map[string][]string) error {
	var files []trainFile
	for _, flag := range slices.Sorted(maps.Keys(paths)) {
		for _, path := range paths[flag] {
			f, err := trainFileOf(path)
			if err != nil {
				return err
			}
			f.Flag = flag
			files = append(files, f)
		}
	}
	data, err := json.Marshal(files)
	if err != nil {
		return err
	}
	return filesys.WriteFile(sys, filepath.Join(dir, trainFilesName), data, fileMode)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// demonstrationFile is the file that --demonstration names; none where it names
// something else.
func demonstrationFile(name string) []string {
	switch name {
	case trainer.DemonstrateNothing, trainer.DemonstrateBest, trainer.DemonstrateAnswer:
		return nil
	}
	return []string{name}
}
