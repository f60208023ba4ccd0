package data

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"agentcli/datasets"
	"agentcli/datasets/registry"
	"agentcli/hub"
	"agentcli/internal/malformed"
	"agentcli/internal/text"
	"agentcli/rewards"
	"agentcli/traj"
)

// Report is what Verify found of one split of a dataset.
type Report struct {
	Name   string `json:"name"`
	Split  string `json:"split"`
	Reward string `json:"reward,omitempty"`
	Rows   int    `json:"rows"`               // that are tasks
	Bad    int    `json:"bad_rows,omitempty"` // that cannot be
	// Pinned: the rows cannot change unnoticed. They are of a commit or of a generator, or
	// the entry has the hash of each file.
	Pinned bool `json:"pinned"`
	Local  bool `json:"local,omitempty"` // rows are in files of the user's
	Files  int  `json:"files"`           // on this machine
	Sums   int  `json:"sums"`            // files whose SHA-256 is that of the entry
	// HubSums are files for which the entry has no SHA-256, and whose hash is the one that
	// the hub gave at the download.
	HubSums int `json:"hub_sums"`
	// Faults are what is wrong, at most maxFaults of them; More is how many there are beside.
	Faults []string `json:"faults"`
	More   int      `json:"more_faults,omitempty"`
	// Missing: the split is not on this machine.
	Missing bool `json:"missing,omitempty"`
}

// maxFaults is how many faults of a split are listed.
const maxFaults = 10

// ErrFaults is of a dataset that has faults, or is not on this machine.
var ErrFaults = errors.New("faulty, or not on this machine")

func (r *Report) add(format string, args ...any) {
	if len(r.Faults) == maxFaults {
		r.More++
		return
	}
	r.Faults = append(r.Faults, text.OneLine(fmt.Sprintf(format, args...)))
}

// Checks are what Verify is to know of the program.
type Checks struct {
	Envs   []string                     // environments that a row may name; nil: any
	Entry  func(registry.Entry) []error // what is wrong with the names in an entry; nil: they are not checked
	Notice func(string)                 // what people should know; may be nil
}

// Verify reads every row of a split and checks the entry, the files' hashes, the number of
// rows, the ids, and whether the gold answers can be graded. "" is the split that the dataset
// is measured on. An error means that it could not look; what is wrong with the dataset is in
// the report.
func Verify(ctx context.Context, name, split string, c Checks) (Report, error) {
	e, err := datasets.EntryNamed(name)
	if err != nil {
		return Report{}, err
	}
	r := Report{Name: name, Split: split, Pinned: e != nil && e.Pinned(), Local: e == nil, Faults: []string{}}
	if e != nil && c.Entry != nil {
		for _, fault := range c.Entry(*e) {
			r.add("%v", &malformed.Error{Path: e.Path, Err: fault})
		}
	}
	if e != nil && e.Generator != "" {
		return r, verifyGenerated(ctx, &r, c.Notice)
	}
	files, err := datasets.LocalFiles(ctx, name, datasets.Options{Split: split})
	if err != nil {
		return r, err
	}
	if len(files) == 0 && e != nil {
		if r.Split == "" {
			r.Split = e.SplitName(registry.Test)
		}
		r.Missing = true
		return r, nil
	}
	r.locate(files)
	for _, f := range files {
		if err := r.verifyFile(ctx, f); err != nil {
			return r, err
		}
	}
	d, err := datasets.Open(ctx, name, datasets.Options{Split: split, Offline: true, Ahead: true, ObjectAnswers: rewards.TakesObjects,
		Notice: c.Notice, Envs: c.Envs, BadRow: func(err error) { r.Bad++; r.add("%v", err) }})
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, datasets.ErrUnknown) {
			return r, err
		}
		r.add("%v", err)
		return r, nil
	}
	r.Split, r.Reward = d.Split, d.Reward
	if err := r.verifyRows(ctx, d, 0); err != nil {
		return r, err
	}
	if want := expected(e, d.Split); want > 0 && want != r.Rows && len(r.Faults) == 0 {
		r.add("it has %s, and its entry says %d", text.Plural(r.Rows, "row"), want)
	}
	return r, nil
}

// locate notes whether the rows are in files of the user's.
func (r *Report) locate(files []datasets.LocalFile) {
	for _, f := range files {
		if _, fetched := hub.InRepository(f.Path); fetched {
			continue
		}
		if !r.Local {
			r.Local, r.Pinned = true, true
		}
		r.Pinned = r.Pinned && f.SHA256 != ""
	}
}

// expected is how many rows an entry says; 0: it does not say.
func expected(e *registry.Entry, split string) int {
	if e == nil {
		return 0
	}
	return cmp.Or(e.SplitNamed(split).Problems, e.Splits[split].Problems) // an imported copy has the role's name
}

// generatedRows is how many problems of a generated dataset are looked at.
const generatedRows = 1000

func verifyGenerated(ctx context.Context, r *Report, notice func(string)) error {
	d, err := datasets.Open(ctx, r.Name, datasets.Options{Split: r.Split, Notice: notice, ObjectAnswers: rewards.TakesObjects})
	if err != nil {
		return err
	}
	r.Split, r.Reward, r.Pinned = d.Split, d.Reward, true
	return r.verifyRows(ctx, d, generatedRows)
}

// verifyFile compares the file's bytes with the hashes that are known.
func (r *Report) verifyFile(ctx context.Context, f datasets.LocalFile) error {
	r.Files++
	compared, err := hub.CheckCached(ctx, f.Path)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.add("%v", err)
		return nil
	}
	if f.SHA256 == "" {
		if compared {
			r.HubSums++
		}
		return nil
	}
	sum, err := hub.SHA256(ctx, f.Path)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	switch {
	case err != nil:
		r.add("%v", err)
	case sum != f.SHA256:
		r.add("%s: its sha256 is %s, and the entry says %s; remove it and fetch it again, or correct the entry", f.Path, sum, f.SHA256)
	default:
		r.Sums++
	}
	return nil
}

// verifyRows reads the rows, at most so many where limit is not 0.
func (r *Report) verifyRows(ctx context.Context, d *datasets.Dataset, limit int) error {
	options, err := rewards.OptionsOf(d.Options)
	if err != nil {
		options = rewards.Options{} // the check of the entry says what is wrong
	}
	scorer := rewards.NewScorer(func(t *traj.Trajectory) string { return t.Task.Reward }, options)
	defer scorer.Close()
	for task, err := range d.Tasks(ctx) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			r.add("%v", err)
			return nil
		}
		r.Rows++
		if fault := gradable(ctx, scorer, task); fault != "" {
			r.add("%s: %s", task.ID, fault)
		}
		if r.Rows == limit {
			break
		}
	}
	return nil
}

// asReply is a gold answer as a reply that the reward takes for right. Rewards that are not
// here grade something else than the answer's words.
var asReply = map[string]func(string) string{
	"math":   func(gold string) string { return `\boxed{` + gold + `}` },
	"choice": func(gold string) string { return "Answer: " + gold },
	"exact":  func(gold string) string { return gold },
	"em":     answerTags,
	"f1":     answerTags,
	"subem":  answerTags,
}

func answerTags(gold string) string { return "<answer>" + gold + "</answer>" }

// gradable says why a task cannot be graded; "": it can.
func gradable(ctx context.Context, scorer *rewards.Scorer, task traj.Task) string {
	if task.Reward == "" || !rewards.Known(task.Reward) || rewards.External(task.Reward) {
		return "" // the check of the entry says that there is no such reward
	}
	if len(task.Answers) == 0 || strings.TrimSpace(strings.Join(task.Answers, "")) == "" {
		if !rewards.NeedsAnswers(task.Reward, rewards.Options{}) {
			return ""
		}
		return "it has no answer"
	}
	reply, known := asReply[task.Reward]
	if _, err := scorer.Get(task.Reward); err != nil || !known {
		return ""
	}
	for _, gold := range task.Answers {
		t := &traj.Trajectory{Task: task, Termination: traj.Answered, Messages: []traj.Message{{Role: traj.RoleAssistant, Content: reply(gold)}}}
		t.Task.Answers = []string{gold}
		if err := scorer.Score(ctx, t); err != nil {
			return text.Line(err)
		}
		if t.Correct == nil || !*t.Correct {
			verdict := ""
			if t.Verdict != "" {
				verdict = " (" + t.Verdict + ")"
			}
			return fmt.Sprintf("the answer %.80q is not right as its own reply%s; correct it, or choose another reward", gold, verdict)
		}
	}
	return ""
}
