package loop

import (
	"cmp"
	"context"
	"iter"

	"agentcli/app/models"
	"agentcli/app/rollout"
	"agentcli/datasets"
	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/rewards"
	"agentcli/trainer/rows"
	"agentcli/traj"
)

// evaluation is what a loop measures its policy on.
type evaluation struct {
	held  bool   // none of its tasks is trained on
	name  string // in a sentence
	short string // in a step's line
	data  *datasets.Dataset
	skip  func(traj.Task) bool // tasks that are not measured; nil: all are
	limit int
}

// metric is a key of metrics.jsonl: numbers of tasks that are trained on have another
// family.
func (e *evaluation) metric(name string) string {
	if !e.held {
		return "training_rows/" + name
	}
	return "val/" + name
}

// tasks streams those that are measured.
func (e *evaluation) tasks(ctx context.Context) iter.Seq2[traj.Task, error] {
	return func(yield func(traj.Task, error) bool) {
		n := 0
		for t, err := range e.data.Tasks(ctx) {
			if err == nil && e.skip != nil && e.skip(t) {
				continue
			}
			if !yield(t, err) || err != nil {
				return
			}
			if n++; n == e.limit {
				return
			}
		}
	}
}

// openEvaluation decides what the policy is measured on, and which tasks are held out of
// the rollouts for that: it gives what is left to train on.
func openEvaluation(ctx context.Context, o Options, tasks taskSource, note func(string, ...any)) (taskSource, *evaluation, error) {
	h := o.Train.Held
	if h.Part != (rows.Holdout{}) {
		var err error
		if tasks, err = holdOut(ctx, tasks.data, h.Part, o.Rollout.Seed, note); err != nil {
			return tasks, nil, err
		}
	}
	if o.EvalEvery == 0 {
		return tasks, nil, nil
	}
	if tasks.heldOut != nil {
		return tasks, &evaluation{held: true, name: "held-out rows of " + tasks.data.Name, short: "held-out", data: tasks.data,
			skip: func(t traj.Task) bool { return !tasks.heldOut(t) }, limit: o.EvalTasks}, nil
	}
	d, err := openMeasured(ctx, o)
	if err != nil {
		return tasks, nil, err
	}
	e := &evaluation{held: true, name: "test split", short: "test", data: d, limit: o.EvalTasks}
	left, err := e.leaveOutTrained(ctx, tasks.data, o.Rollout.Seed, note)
	switch {
	case err != nil:
		return tasks, nil, err
	case left == 0:
		e.held, e.name, e.short, e.skip = false, "training rows", "training rows", nil
		note("warning: there are no held-out tasks, so the policy is measured on rows that it is trained on; "+
			"hold some out with %s .1, or name others with %s or %s", setting.Name("Held.Part"),
			setting.Name("Held.Dataset"), setting.Name("Held.Split"))
	case h.Dataset != "" || h.Split != "":
		e.name = models.TrainedOn{Dataset: d.Name, Split: d.Split}.String()
		e.short = e.name
	}
	return tasks, e, nil
}

// openMeasured opens the dataset that is measured, where nothing is held out of the one
// that is trained on.
func openMeasured(ctx context.Context, o Options) (*datasets.Dataset, error) {
	r, h := o.Rollout, o.Train.Held
	name, split := r.Dataset, h.Split
	switch {
	case h.Dataset != "":
		name = h.Dataset
		if split == "" && datasets.Mixture(name) == nil && datasets.Generated(name) {
			split = rollout.EvalSplit
		}
	case split == "" && datasets.Mixture(name) != nil: // each has its own
	case split == "" && datasets.Generated(name):
		split = rollout.EvalSplit
	case split == "":
		split = datasets.TestSplit(name)
	}
	options := datasets.Options{Split: split, Limit: o.EvalTasks, Seed: r.Seed, System: r.System, Prompt: r.Prompt, Images: r.Images,
		Role: rollout.EvalSplit, ObjectAnswers: func(own string) bool { return rewards.TakesObjects(cmp.Or(r.Reward, own)) }}
	if name == r.Dataset || !datasets.Generated(name) {
		options.Fields = r.Fields
	}
	if name == r.Dataset {
		options.Level, options.Shots = r.Level, r.Shots
	}
	d, err := datasets.Open(ctx, name, r.ByEnv(options))
	if err != nil {
		return nil, setting.Errorf("%w (of the evaluation; %s 0 leaves it out)", err, setting.Name("EvalEvery"))
	}
	return d, nil
}

// leaveOutTrained leaves those tasks out of the evaluation whose prompt is trained on: a
// split of a file is a name only, and two files may have the same rows. It gives the
// number of tasks that are left.
func (e *evaluation) leaveOutTrained(ctx context.Context, train *datasets.Dataset, seed int64,
	note func(string, ...any)) (left int, err error) {
	d := e.data
	if n, known := train.Len(); !known || n > rollout.MaxUnlimited { // generated: what tells tasks apart is their split
		if d.Source == train.Source && d.Name == train.Name && d.Split == train.Split {
			return 0, nil
		}
		return e.limit, nil
	}
	trained := map[rows.Prompt]bool{}
	for t, err := range train.Tasks(ctx) {
		if err != nil {
			return 0, err
		}
		trained[promptOf(t, seed)] = true
	}
	shared := 0
	for t, err := range e.tasks(ctx) {
		switch {
		case err != nil:
			return 0, err
		case trained[promptOf(t, seed)]:
			shared++
		default:
			left++
		}
	}
	if shared > 0 && left > 0 {
		e.skip = func(t traj.Task) bool { return trained[promptOf(t, seed)] }
		note("warning: %s of the evaluation are trained on and are not measured", text.Plural(shared, "task"))
	}
	return left, nil
}

// promptOf tells tasks apart by what the policy reads.
func promptOf(t traj.Task, seed int64) rows.Prompt {
	asked := t.Question
	for _, m := range t.Messages {
		asked += "\x00" + m.Role + "\x00" + m.Content
	}
	return rows.PromptOf(seed, asked)
}

// holdOut chooses the tasks that are not trained on, by their questions: equal ones are
// on one side.
func holdOut(ctx context.Context, d *datasets.Dataset, h rows.Holdout, seed int64, note func(string, ...any)) (taskSource, error) {
	tasks := taskSource{data: d}
	if n, known := d.Len(); !known || n > rollout.MaxUnlimited {
		return tasks, exit.Usagef("%s: %s has no end; name tasks to measure on with %s or %s",
			setting.Name("Held.Part"), d.Name, setting.Name("Held.Dataset"), setting.Name("Held.Split"))
	}
	var all []rows.Prompt
	for t, err := range d.Tasks(ctx) {
		if err != nil {
			return tasks, err
		}
		all = append(all, promptOf(t, seed))
	}
	limit, held, err := h.Of(all)
	if err != nil {
		return tasks, exit.UsageError{Err: err}
	}
	tasks.heldOut = func(t traj.Task) bool { return promptOf(t, seed) <= limit }
	for _, p := range all {
		if p > limit {
			tasks.count++
		}
	}
	note("%s of %s are held out and measured, %s are trained on", text.Plural(held, "prompt"), d.Name, text.Plural(tasks.count, "task"))
	return tasks, nil
}
