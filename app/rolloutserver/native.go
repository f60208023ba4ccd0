package rolloutserver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"agentcli/datasets"
	"agentcli/internal/safego"
	"agentcli/internal/wire"
	"agentcli/parquet"
	"agentcli/traj"
)

// rollouts answers POST /v1/rollouts {"rows": [{"id": …, columns of a dataset's row}],
// "sampling": {…}} with a line of JSON for each trajectory, as they end, in the columns of a
// file. A row's "group" names the attempts that it is compared with.
func (s *server) rollouts(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Rows     []json.RawMessage `json:"rows"`
		Sampling json.RawMessage   `json:"sampling"`
	}
	if !s.read(w, r, &body, "rows", "sampling") {
		return
	}
	if len(body.Rows) == 0 {
		fail(w, http.StatusUnprocessableEntity, `the request has no rows; want {"rows": [{"id": "1", "question": "…"}]}`)
		return
	}
	sampling, err := wire.Sampling(body.Sampling)
	if err != nil {
		fail(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	jobs := make([]*job, len(body.Rows))
	seen, from := map[string]bool{}, s.images(r.Context())
	for i, raw := range body.Rows {
		var row map[string]any
		if unmarshal(raw, &row) != nil {
			err = fmt.Errorf("it is no object: %.60s", raw)
		} else {
			jobs[i], err = s.rowJob(r.Context(), row, from)
		}
		if err == nil && seen[jobs[i].task.ID] {
			err = fmt.Errorf("its id is that of an earlier row; give each its own")
		}
		if err != nil {
			fail(w, http.StatusUnprocessableEntity, fmt.Sprintf("row %d: %v", i+1, err))
			return
		}
		seen[jobs[i].task.ID] = true
		jobs[i].sampling = sampling
	}
	lines := make(chan []byte)
	var all sync.WaitGroup
	for _, j := range jobs {
		all.Go(func() {
			defer safego.Catch(nil)
			lines <- s.line(r.Context(), j)
		})
	}
	go func() { defer safego.Catch(nil); all.Wait(); close(lines) }()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK) // now: the first trajectory may take long
	flush(w)
	for line := range lines {
		_, _ = w.Write(append(line, '\n')) // who has gone away reads nothing more
		flush(w)
	}
}

// line is a job's trajectory as JSON, or why there is none.
func (s *server) line(ctx context.Context, j *job) (line []byte) {
	err := safego.Do(func() error {
		t, err := s.pool.play(ctx, j)
		if err == nil {
			line, err = parquet.RowJSON(t.Trajectory)
		}
		return err
	})
	if err != nil {
		line, _ = json.Marshal(map[string]any{"task_id": j.task.ID, "id": j.task.ID + "#0", "error": err.Error(),
			"termination": traj.Cancelled})
	}
	return line
}

// rowJob reads a row.
func (s *server) rowJob(ctx context.Context, row map[string]any, from datasets.ImageSources) (*job, error) {
	id, err := textOf(row, "id")
	if err != nil {
		return nil, err
	}
	group, err := textOf(row, "group")
	if err != nil {
		return nil, err
	}
	delete(row, "id")
	delete(row, "group")
	task, err := s.task(ctx, row, cmp.Or(id, newID()), from)
	return &job{task: task, group: cmp.Or(group, task.ID)}, err
}

func flush(w http.ResponseWriter) {
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
}
