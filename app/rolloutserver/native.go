package rolloutserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"agentcli/internal/safego"
	"agentcli/parquet"
	"agentcli/scheduler"
	"agentcli/traj"
)

// rollouts answers POST /v1/rollouts {"rows": [{"id": …, columns of a dataset's row}],
// "sampling": {…}} with a line of JSON for each trajectory, as they end, in the columns of a
// file. A row's "group" names the attempts that it is compared with.
func (s *server) rollouts(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Rows     []map[string]any `json:"rows"`
		Sampling json.RawMessage  `json:"sampling"`
	}
	if !s.read(w, r, &body, "rows", "sampling") {
		return
	}
	if len(body.Rows) == 0 {
		fail(w, http.StatusUnprocessableEntity, `the request has no rows; want {"rows": [{"id": "1", "question": "…"}]}`)
		return
	}
	sampling, err := scheduler.ReadSampling(body.Sampling)
	if err != nil {
		fail(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	jobs := make([]*job, len(body.Rows))
	seen := map[string]bool{}
	for i, row := range body.Rows {
		id, err := textOf(row, "id")
		if err != nil {
			fail(w, http.StatusUnprocessableEntity, fmt.Sprintf("row %d: %v", i+1, err))
			return
		}
		group, err := textOf(row, "group")
		if err != nil {
			fail(w, http.StatusUnprocessableEntity, fmt.Sprintf("row %d: %v", i+1, err))
			return
		}
		if id == "" {
			id = newID()
		}
		if seen[id] {
			fail(w, http.StatusUnprocessableEntity, fmt.Sprintf("row %d has the id %q of an earlier one; give each its own", i+1, id))
			return
		}
		seen[id] = true
		delete(row, "id")
		delete(row, "group")
		var task traj.Task
		if err = textOnly(row); err == nil {
			task, err = s.run.Requests.Task(row, id)
		}
		if err != nil {
			fail(w, http.StatusUnprocessableEntity, fmt.Sprintf("row %d: %v", i+1, err))
			return
		}
		if group == "" {
			group = task.ID
		}
		jobs[i] = &job{task: task, group: group, sampling: sampling}
	}
	lines := make(chan []byte)
	var all sync.WaitGroup
	for _, j := range jobs {
		all.Go(func() {
			var line []byte
			err := safego.Do(func() error {
				t, err := s.pool.play(r.Context(), j)
				if err == nil {
					line, err = parquet.RowJSON(t.Trajectory)
				}
				return err
			})
			if err != nil {
				line, _ = json.Marshal(map[string]any{"task_id": j.task.ID, "id": j.task.ID + "#0", "error": err.Error(),
					"termination": traj.Cancelled})
			}
			lines <- line
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

func flush(w http.ResponseWriter) {
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
}
