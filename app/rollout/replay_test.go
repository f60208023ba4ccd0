package rollout

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/app/console"
	"agentcli/app/models"
	"agentcli/datasets"
	"agentcli/env"
	"agentcli/media/album"
	"agentcli/model/chat"
	"agentcli/model/tokenizer"
	"agentcli/parquet"
	"agentcli/traj"
)

const look = "../../examples/look"

// replayed are the trajectories of a run of demonstrations.
func replayed(t *testing.T, dataset, split string, limit int) ([]*traj.Trajectory, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "traj.parquet")
	o := DefaultOptions(models.NoBackend{}, models.ReplayPrefix+look, dataset)
	o.Split, o.Limit, o.Samples, o.Ordered = split, limit, 1, true
	var out, log bytes.Buffer
	err := Rollout(context.Background(), FileOptions{Options: o, File: file}, console.Streams{In: strings.NewReader(""), Out: &out, Err: &log})
	if err != nil {
		return nil, err
	}
	r, err := parquet.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var all []*traj.Trajectory
	for row, err := range r.Rows(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, row)
	}
	return all, nil
}

// Demonstrations are trained on: their tokens must be those that a rollout of the model has.
func TestDemonstrationsHaveTheTokensOfRollouts(t *testing.T) {
	tok, err := tokenizer.Open(look)
	if err != nil {
		t.Fatal(err)
	}
	renderer, err := models.Renderer(look, tok, "")
	if err != nil {
		t.Fatal(err)
	}
	pad, _ := tok.ID("<|image_pad|>")
	d, err := datasets.Open(context.Background(), "fineprint", datasets.Options{Split: "traces", Limit: 20})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{}
	for task, err := range d.Tasks(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		want[task.ID] = datasets.Replies(&task)
	}
	rows, err := replayed(t, "fineprint", "traces", 20)
	if err != nil || len(rows) != 20 {
		t.Fatal(len(rows), err)
	}
	looks := 0
	for _, row := range rows {
		s := row.Sequences[0]
		var said []string
		for _, step := range row.Steps {
			said = append(said, tok.Decode(s.TokenIDs[step.Start:step.End], true))
			for i := step.Start; i < step.End; i++ {
				if !s.LossMask[i] {
					t.Errorf("%s: token %d was said and is not trained on", row.ID, i)
				}
			}
		}
		if !slices.Equal(said, want[row.Task.ID]) {
			t.Errorf("%s: %q was said, want %q", row.ID, said, want[row.Task.ID])
		}
		looks += len(said) - 1
		if len(s.Images) != len(said) || len(row.Images) != len(said) || len(s.TokenIDs) > 90 {
			t.Errorf("%s: %d images and %d spans for %d replies, %d tokens", row.ID, len(row.Images), len(s.Images), len(said), len(s.TokenIDs))
		}
		for i, span := range s.Images {
			if span.Tokens != 16 || span.Grid != [3]int{1, 8, 8} || s.TokenIDs[span.Start] != pad || s.TokenIDs[span.Start-1] == pad {
				t.Errorf("%s: image %d has %d tokens of grid %v", row.ID, i, span.Tokens, span.Grid)
			}
			if _, err := album.Pixels(&row.Images[i]); err != nil {
				t.Errorf("%s: image %d: %v", row.ID, i, err)
			}
		}
		// The whole conversation, rendered at once, with one token in each image's place.
		_, whole, err := renderer.Render(chat.InText(row.Messages, []traj.ToolSpec{env.Zoom{}.Spec()}), nil, chat.Options{})
		if err != nil {
			t.Fatal(err)
		}
		short := slices.CompactFunc(slices.Clone(s.TokenIDs), func(a, b int32) bool { return a == pad && b == pad })
		if !slices.Equal(short, whole[:len(short)]) || len(whole)-len(short) != 1 { // the line break behind the last turn
			t.Errorf("%s: %v, and the template has %v", row.ID, short, whole)
		}
	}
	if looks < 5 || looks > 15 {
		t.Errorf("%d of 20 look", looks)
	}
}

func TestADemonstrationEndsWithItsLastReply(t *testing.T) {
	rows, err := replayed(t, "fineprint", "places", 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if len(row.Steps) != 1 || row.Termination != traj.MaxTurns {
			t.Errorf("%s: %d replies, %s", row.ID, len(row.Steps), row.Termination)
		}
	}
}

func TestATaskWithoutRepliesCannotBeReplayed(t *testing.T) {
	if _, err := replayed(t, "fineprint", "train", 2); !errors.Is(err, traj.ErrFatal) {
		t.Error(err)
	}
}
