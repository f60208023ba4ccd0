package rollout

import (
	"context"
	"os"
	"slices"

	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/parquet"
	"agentcli/traj"
)

// trajectoryFile is the Parquet file of a run; it begins with the first
// trajectory, so that a run that never got that far leaves nothing behind.
type trajectoryFile struct {
	x    *Run
	said bool
	path string // "" is stdout
	w    *parquet.Writer
	text bool // it has no columns for images
}

// keepInputs refuses to write over a file that the rows are read from.
func keepInputs(files []string, path string) error {
	out, noFile := os.Stat(path)
	for _, file := range files {
		if in, err := os.Stat(file); err == nil && noFile == nil && os.SameFile(in, out) {
			return exit.Usagef("%s %s is the dataset that is read, and would be lost; write to another file", setting.Name("File"), path)
		}
	}
	return nil
}

func newTrajectoryFile(x *Run, path string) *trajectoryFile {
	return &trajectoryFile{x: x, path: path}
}

func (f *trajectoryFile) write(t *traj.Trajectory) error {
	if f.x.o.fed && (len(t.Images) > 0 || !f.canBeReadAgain()) {
		f.x.Data.HasImages = true // which rows will come is not known beforehand
	}
	if f.w == nil {
		if err := f.begin(); err != nil {
			return err
		}
	} else if f.text && f.x.Data.HasImages {
		if err := f.addImages(); err != nil {
			return err
		}
	}
	if !f.said && len(t.Steps) > 0 && len(t.Sequences) == 0 {
		f.said = true
		f.x.Notice("the server returns no token ids: these rows can be read and scored, but not trained on (vLLM and SGLang return them)")
	}
	return f.w.Write(t)
}

func (f *trajectoryFile) begin() (err error) {
	meta, err := f.x.Metadata()
	if err != nil {
		return err
	}
	c := f.x.FileConfig()
	f.text = !slices.Contains(c.Columns, parquet.ColumnImages)
	var w *parquet.Writer
	if f.path == "" {
		w, err = parquet.NewWriter(f.x.s.Out, meta, c)
	} else {
		w, err = parquet.CreateFile(f.path, meta, c)
	}
	if err == nil {
		f.w = w
	}
	return err
}

// canBeReadAgain reports whether the file is there to be read when it is closed.
func (f *trajectoryFile) canBeReadAgain() bool {
	if f.path == "" {
		return false
	}
	st, err := os.Stat(f.path)
	return err != nil || st.Mode().IsRegular()
}

// addImages writes the file anew, with columns for images. Until that is done the file has
// its rows without them.
func (f *trajectoryFile) addImages() error {
	if err := f.w.Close(); err != nil {
		return err
	}
	f.w = nil
	r, err := parquet.Open(f.path)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := f.begin(); err != nil {
		return err
	}
	for t, err := range r.Rows(context.Background()) {
		if err == nil {
			err = f.w.Write(t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *trajectoryFile) close() error {
	if f.w == nil {
		return nil
	}
	return f.w.Close()
}

func (f *trajectoryFile) abort() {
	if f.w != nil {
		f.w.Abort()
	}
}
