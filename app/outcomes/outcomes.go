// Package outcomes reads how often a run solved each problem. It is layer 5: what compares
// runs and what chooses problems by a run are above it.
package outcomes

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"agentcli/app/rundir"
	"agentcli/eval"
	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/parquet"
)

// File is what a comparison takes of a run.
type File struct {
	Outcomes     eval.Outcomes // of the problems with an attempt that counts
	Trajectories int           // all rows, those that failed too
	Dataset      string        // with the split in brackets
	Model        string
}

// columns are all that is read.
var columns = []string{"id", "task_id", "dataset", "split", "policy", "correct", "reward", "termination"}

// Read reads a run: a folder of eval or rollout that is finished, or a file of trajectories.
func Read(ctx context.Context, path string) (f File, err error) {
	file := path
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		file = filepath.Join(path, rundir.TrajectoriesFile)
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			if was := rundir.CommandOf(path); was == "train" || was == "loop" {
				return f, exit.Usagef("%s: is a run of %s, which has no outcomes of its own; evaluate its model, or name a file of trajectories",
					path, was)
			}
			return f, exit.Usagef("%s: is no finished run: it has no %s; a run that was interrupted is finished with %s",
				path, rundir.TrajectoriesFile, setting.Name("Resume"))
		}
	}
	r, err := parquet.Open(file)
	if err != nil {
		return f, err
	}
	defer r.Close()
	f.Outcomes = eval.Outcomes{}
	scored := 0
	for t, err := range r.Rows(ctx, columns...) {
		if err != nil {
			return f, err
		}
		if f.Trajectories++; f.Trajectories == 1 {
			f.Dataset, f.Model = dataName(t.Task.Dataset, t.Task.Split), t.Policy
		}
		var right bool
		switch {
		case t.Termination.Infrastructure():
			continue // says nothing of the model
		case t.Correct != nil:
			right = *t.Correct
		case t.Reward != nil:
			right = *t.Reward >= 1
		default:
			continue
		}
		scored++
		x := f.Outcomes[t.Task.ID]
		x.N++
		if right {
			x.C++
		}
		f.Outcomes[strings.Clone(t.Task.ID)] = x
	}
	var run struct {
		Model struct {
			Name string `json:"name"`
		} `json:"model"`
	}
	if json.Unmarshal(r.Metadata().Run, &run) == nil && run.Model.Name != "" {
		f.Model = run.Model.Name
	}
	if scored == 0 {
		return f, exit.Usagef("%s: no trajectory has a score; score it first", path)
	}
	return f, nil
}

func dataName(dataset, split string) string {
	if split != "" {
		return text.Name(dataset, 80) + " (" + text.Name(split, 40) + ")"
	}
	return text.Name(dataset, 80)
}
