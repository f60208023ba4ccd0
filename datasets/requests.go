package datasets

import (
	"context"
	"iter"

	"agentcli/datasets/registry"
	"agentcli/traj"
)

// RequestsName is the name of a dataset whose rows come one by one.
const RequestsName = "requests"

// Requests is a dataset whose rows come one by one, from whoever asks for trajectories.
type Requests struct {
	*Dataset
	m mapping
	o Options
}

// OpenRequests makes one. Its rows are read as those of a file of the user's; one that
// has no answer is no fault, and none names an environment's prompt beforehand.
func OpenRequests(o Options) (*Requests, error) {
	m, err := newMapping(o.Fields, registry.Fields{}, false)
	if err != nil {
		return nil, err
	}
	m.objects, m.images = o.takesObjects(nil), newImageReader(o.Images, "")
	if o.Env == "" {
		m.envs = o.Envs
	}
	d := &Dataset{Name: RequestsName, Source: RequestsName, Description: "rows of requests", n: -1,
		tasks: func(context.Context) iter.Seq2[traj.Task, error] { return func(func(traj.Task, error) bool) {} }}
	d.suggest(nil, o)
	return &Requests{Dataset: d, m: m, o: o}, nil
}

// ImageSources are what the images of a request's row may be read from, beside the row itself,
// which has them in base64.
type ImageSources struct {
	Fetch  Fetch  // nil: no address is asked
	Folder string // paths are of files below it; "": none is opened
}

// Task reads a row: its id is the task's, behind RequestsName.
func (r *Requests) Task(row map[string]any, id string, from ImageSources) (traj.Task, error) {
	m := r.m
	m.images.fetch, m.images.allowed = from.Fetch, from.Folder
	p, err := m.read(row)
	if err != nil {
		return traj.Task{}, err
	}
	p.ID = id
	return r.task(p, r.o)
}
