package rollout

import (
	"os"

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
	if f.w == nil {
		meta, err := f.x.Metadata()
		if err != nil {
			return err
		}
		if f.path == "" {
			f.w, err = parquet.NewWriter(f.x.s.Out, meta, f.x.FileConfig())
		} else {
			f.w, err = parquet.CreateFile(f.path, meta, f.x.FileConfig())
		}
		if err != nil {
			f.w = nil
			return err
		}
	}
	if !f.said && len(t.Steps) > 0 && len(t.Sequences) == 0 {
		f.said = true
		f.x.Notice("the server returns no token ids: these rows can be read and scored, but not trained on (vLLM and SGLang return them)")
	}
	return f.w.Write(t)
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
