package files

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"agentcli/app/console"
	"agentcli/app/page"
	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/parquet"
	"agentcli/traj"
)

// DefaultPageLimit is how many trajectories a page shows.
const DefaultPageLimit = 50

// inspectPage writes the trajectories of a file, or those that ID names, as an HTML page.
func inspectPage(ctx context.Context, r *parquet.Reader, o InspectOptions, s console.Streams) error {
	var run struct {
		Model struct {
			Name      string `json:"name"`
			ImageRule struct {
				Patch int `json:"patch_size"`
			} `json:"image_rule"`
		} `json:"model"`
	}
	_ = json.Unmarshal(r.Metadata().Run, &run) // a file of another program may have anything here
	note := filepath.Base(o.Path)
	if run.Model.Name != "" {
		note += " · " + run.Model.Name
	}
	w, err := page.New(s.Out, filepath.Base(o.Path), note, run.Model.ImageRule.Patch)
	if err != nil {
		return err
	}
	shown, more := 0, 0
	for t, err := range r.Rows(ctx) {
		if err != nil {
			return err
		}
		if !o.names(t) {
			continue
		}
		if o.Limit > 0 && shown == o.Limit {
			more++
			continue
		}
		if err := w.Add(t); err != nil {
			return err
		}
		if shown++; o.ID == anyCorrect {
			break
		}
	}
	if shown == 0 && o.ID != "" {
		return exit.Usagef("%s: there is no trajectory %q", o.Path, o.ID)
	}
	if more > 0 {
		s.Say(setting.Errorf("the page has the first %d of %d trajectories; %s N shows more", shown, shown+more, setting.Name("Limit")).Error())
	}
	return w.Close()
}

// names reports whether ID names a trajectory; a task's id names all of its attempts.
func (o InspectOptions) names(t *traj.Trajectory) bool {
	return o.ID == "" || t.ID == o.ID || t.Task.ID == o.ID || o.ID == anyCorrect && t.Correct != nil && *t.Correct
}

// saveImages writes the images of a trajectory into a folder.
func saveImages(t *traj.Trajectory, o InspectOptions, s console.Streams) error {
	names, failed, err := page.SaveImages(o.Images, t)
	for _, f := range failed {
		s.Say(fmt.Sprintf("warning: %s: %s", text.Harmless(t.ID), f))
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", setting.Name("Images"), o.Images, err)
	}
	s.Say(fmt.Sprintf("wrote %s into %s: %s", text.Plural(len(names), "file"), o.Images, strings.Join(names, ", ")))
	return nil
}
