package datasets

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"agentcli/datasets/registry"
	"agentcli/internal/cachedir"
	"agentcli/internal/malformed"
	"agentcli/internal/setting"
	"agentcli/traj"
)

// fileSource is a file of rows and what is known about it.
type fileSource struct {
	path     string
	name     string
	split    string
	imported bool
	entry    *entry // of the registry; nil for a file of the user's
	joined   joinedRows
}

// aheadRows is how many rows Open reads of a file that is checked later.
const aheadRows = 256

// openFile checks and counts the rows, or those at the beginning, and makes a
// dataset of them.
func openFile(ctx context.Context, src fileSource, o Options) (*Dataset, error) {
	if err := rereadable(src.path); err != nil {
		return nil, err
	}
	if src.split == "" {
		src.split = o.Split
	}
	var own registry.Fields
	if src.entry != nil && !src.imported {
		own = src.entry.Fields
	}
	if src.imported {
		if len(o.Fields) > 0 {
			return nil, misfit("dataset %s was imported with its fields settled; %s belongs to `%s`",
				src.name, setting.Name("Fields"), setting.Name("datasets.Import"))
		}
	}
	m, err := newMapping(o.Fields, own, false)
	if err != nil {
		return nil, err
	}
	m.objects, m.images = o.takesObjects(src.entry), newImageReader(o.Images, filepath.Dir(src.path))
	if o.Env == "" { // else what a row names does not count
		m.envs = o.Envs
	}
	d := &Dataset{Name: src.name, Split: src.split, Reward: "math", Source: src.path, Files: []string{src.path}, n: -1, limit: o.Limit,
		Description: "rows of " + src.path}
	d.suggest(src.entry, o)
	rows := fileRows{src, m, o, d}
	d.tasks = rows.tasks
	bad := 0
	var skip func(error) // Tasks gives bad rows to o.BadRow
	if o.BadRow != nil {
		skip = func(error) { bad++ }
	}
	n, answered, more := 0, false, false
	for p, err := range rows.chosen(ctx, skip) {
		if err != nil {
			return nil, err
		}
		if more = o.Ahead && n >= aheadRows && answered; more {
			break
		}
		t, err := d.task(p, o)
		if err != nil && skip == nil {
			return nil, atRow(src.path, p.row, err)
		} else if err != nil {
			skip(err)
			continue
		}
		if d.FirstImage == "" && slices.ContainsFunc(t.Messages, func(m traj.Message) bool { return len(m.Images) > 0 }) {
			d.FirstImage = t.ID
		}
		n++
		d.note(p, o)
		d.addRewards([]string{t.Reward})
		answered = answered || p.answered()
		if !p.answered() && d.Unanswered == "" {
			d.Unanswered = fmt.Sprintf("%s: row %d", src.path, p.row)
		}
		if o.Limit > 0 && n == o.Limit {
			break // the rest is not asked for, be it whole or not
		}
	}
	if n == 0 && bad == 0 {
		if !o.Select.isAll() {
			return nil, traj.Mark(setting.Errorf("dataset %s has no row that %s and %s choose both", src.name, setting.Name("Rows"),
				setting.Name("IDs")), ErrNotThere)
		}
		return nil, malformed.At(src.path, "", malformed.Missing, "has no rows")
	}
	if d.Reward = ""; answered && len(d.Rewards) > 0 {
		d.Reward = d.Rewards[0]
	} else {
		d.Rewards = nil // nothing to score against
	}
	if !more {
		d.n = n
		return d, nil
	}
	d.check = rows.check
	return d, nil
}

// fileRows are the rows of a file as tasks of a dataset.
type fileRows struct {
	src     fileSource
	mapping mapping
	o       Options
	d       *Dataset
}

// chosen are the rows that the options select.
func (r fileRows) chosen(ctx context.Context, badRow func(error)) iter.Seq2[problem, error] {
	return r.o.Select.of(r.src.name, problemReader{r.src.path, r.mapping, r.src.joined, badRow}.all(ctx))
}

// tasks is Dataset.tasks.
func (r fileRows) tasks(ctx context.Context) iter.Seq2[traj.Task, error] {
	return func(yield func(traj.Task, error) bool) {
		for p, err := range r.chosen(ctx, r.o.BadRow) {
			if err != nil {
				yield(traj.Task{}, err)
				return
			}
			t, err := r.d.task(p, r.o)
			switch {
			case err != nil && r.o.BadRow != nil:
				r.o.BadRow(atRow(r.src.path, p.row, err))
			case err != nil:
				yield(traj.Task{}, atRow(r.src.path, p.row, err))
				return
			case !yield(t, nil):
				return
			}
		}
	}
}

// check is Dataset.check.
func (r fileRows) check(ctx context.Context, unanswered func(row string) error) (int, error) {
	n := 0
	for p, err := range r.chosen(ctx, nil) {
		if err != nil {
			return 0, err
		}
		if _, err := r.d.task(p, r.o); err != nil {
			return 0, atRow(r.src.path, p.row, err)
		}
		if unanswered != nil && !p.answered() {
			if err := unanswered(fmt.Sprintf("%s: row %d", r.src.path, p.row)); err != nil {
				return 0, err
			}
		}
		if n++; n == r.o.Limit {
			break
		}
	}
	return n, nil
}

// takesObjects reports whether answers may be objects; e may be nil.
func (o Options) takesObjects(e *entry) bool {
	reward := ""
	if e != nil {
		reward = e.Reward
	}
	return o.ObjectAnswers != nil && o.ObjectAnswers(reward)
}

// suggest takes what an entry suggests, where the options are silent; nil: a file of the
// user's.
func (d *Dataset) suggest(e *entry, o Options) {
	prompt := ""
	if e != nil {
		d.Description, d.Reward, d.System, d.Env, d.DefaultTools, d.Options = cmp.Or(e.About, d.Description), cmp.Or(e.Reward,
			d.Reward), e.System, e.Env, e.Tools, e.Options
		d.MaxTurns, d.MaxTokens, prompt = e.Limits.Turns, e.Limits.Tokens, e.Prompt
	}
	d.usual, d.settled = d.Reward, e != nil && e.Reward != ""
	d.asked, d.own = prompt != "", prompt != ""
	d.prompt, d.system = parseTemplate(cmp.Or(prompt, mathPrompt), false), parseTemplate(d.System, false)
	if o.Prompt != nil {
		d.asked, d.prompt = true, parseTemplate(*o.Prompt, true)
	}
	if o.System != nil {
		d.System, d.system = *o.System, template{parts: []templatePart{{text: *o.System}}}
	}
}

// envOf is the environment of a problem: the one of all, the row's, the entry's.
func (d *Dataset) envOf(p problem, o Options) string { return cmp.Or(o.Env, p.Env, d.Env) }

// note keeps what a run should know of a problem before it begins: environments, and the first
// tools of a row.
func (d *Dataset) note(p problem, o Options) {
	d.addEnvs([]string{d.envOf(p, o)})
	d.HasImages = d.HasImages || p.looks
	if d.OwnTools == nil {
		d.OwnTools = p.tools
	}
}

// addEnvs adds environments of rows, each once.
func (d *Dataset) addEnvs(envs []string) {
	for _, env := range envs {
		if !slices.Contains(d.Envs, env) {
			d.Envs = append(d.Envs, env)
		}
	}
}

// addRewards adds rewards of rows, each once.
func (d *Dataset) addRewards(names []string) {
	for _, name := range names {
		if !slices.Contains(d.Rewards, name) {
			d.Rewards = append(d.Rewards, name)
		}
	}
}

// rewardOf is the reward of a problem in an environment: the entry's, else that of the row's
// source, the environment's, the usual one; "" where nothing is to be scored.
func (d *Dataset) rewardOf(p problem, env string, o Options) string {
	if d.settled || d.Reward == "" {
		return d.Reward
	}
	return cmp.Or(o.SourceRewards[p.source], o.EnvDefaults[env].Reward, d.usual)
}

// systemOf is the system prompt of problems without one of their own: the environment's where
// the dataset has none.
func (d *Dataset) systemOf(env string, o Options) template {
	if text := o.EnvDefaults[env].System; text != "" && o.System == nil && d.System == "" {
		return template{parts: []templatePart{{text: text}}}
	}
	return d.system
}

// promptOf is the text around a question. In its own environment an entry's comes before the
// environment's.
func (d *Dataset) promptOf(env string, o Options) (prompt template, asked bool) {
	if text := o.EnvDefaults[env].Prompt; text != "" && o.Prompt == nil && !(d.own && env == d.Env) {
		return parseTemplate(text, false), true
	}
	return d.prompt, d.asked
}

// task puts the prompt around a problem, and its images into the places for them. Its error
// names a column that the prompt wants and the row lacks, or says how many images that is.
func (d *Dataset) task(p problem, o Options) (traj.Task, error) {
	t, err := d.textTask(p, o)
	if err == nil && p.looks {
		t.Messages, err = placeImages(t.Messages, p.images)
	}
	for i := range t.Messages {
		for _, im := range t.Messages[i].Images {
			if im.Bytes == nil && err == nil {
				err = malformed.Field("messages", malformed.Missing, "message %d has an image without its bytes", i)
			}
		}
	}
	return t, err
}

// textTask is task without images.
func (d *Dataset) textTask(p problem, o Options) (traj.Task, error) {
	t := traj.Task{ID: d.Name + "/" + p.ID, Dataset: d.Name, Split: d.Split, Question: p.Question,
		Answers: p.Answers, Env: d.envOf(p, o), Tools: d.DefaultTools, Meta: p.Meta}
	t.Reward = d.rewardOf(p, t.Env, o)
	system, err := d.systemOf(t.Env, o).render(p)
	if err != nil {
		return t, err
	}
	if len(p.Messages) > 0 {
		t.Messages = p.Messages
		if o.System != nil || system != "" && t.Messages[0].Role != traj.RoleSystem {
			for len(t.Messages) > 0 && t.Messages[0].Role == traj.RoleSystem {
				t.Messages = t.Messages[1:]
			}
			t.Messages = withSystem(system, t.Messages)
		}
		return t, nil
	}
	asked := p.Question
	if prompt, always := d.promptOf(t.Env, o); always || !p.verbatim {
		if asked, err = prompt.render(p); err != nil {
			return t, err
		}
	}
	t.Messages = withSystem(system, []traj.Message{{Role: traj.RoleUser, Content: asked}})
	return t, nil
}

func withSystem(system string, ms []traj.Message) []traj.Message {
	if system == "" {
		return ms
	}
	return append([]traj.Message{{Role: traj.RoleSystem, Content: system}}, ms...)
}

// problemReader reads a file's rows in our terms. Ids are unique: a row without one is named
// by its number, counted from 0.
type problemReader struct {
	path    string
	mapping mapping
	joined  joinedRows
	badRow  func(error) // gets what is wrong with a row, which is left out; nil: the first such row is an error
}

// all are the rows in the file's order.
func (r problemReader) all(ctx context.Context) iter.Seq2[problem, error] {
	return func(yield func(problem, error) bool) {
		if err := noTrajectories(r.path); err != nil {
			yield(problem{}, err)
			return
		}
		seen := newIDSet()
		i := -1
		for row, err := range eachRow(ctx, r.path) {
			i++
			var p problem
			if err == nil {
				p, err = r.read(ctx, row, i, seen)
			}
			switch {
			case err != nil && r.badRow != nil && malformed.Facts(err).Row > 0:
				r.badRow(err)
			case err != nil:
				yield(problem{}, err)
				return
			case !yield(p, nil):
				return
			}
		}
	}
}

// read makes a problem of the row that i others come before.
func (r problemReader) read(ctx context.Context, row Row, i int, seen *idSet) (problem, error) {
	r.joined.into(row.Fields)
	p, err := r.mapping.read(row.Fields)
	if err != nil {
		return p, atRow(r.path, row.Number, err)
	}
	p.ID, p.row = taskID(p.ID, i), row.Number
	if !seen.add(p.ID) {
		return p, nil
	}
	first, err := r.rowOf(ctx, p.ID, row.Number)
	if err == nil && first > 0 {
		err = atRow(r.path, row.Number, &malformed.Error{Kind: malformed.Duplicate, Err: &DuplicateIDError{ID: p.ID, First: first}})
	}
	return p, err // of rowOf: the file has changed, or the run is over
}

// CacheDir is the folder of imported datasets.
func CacheDir() string { return cachedir.Path("datasets") }

const defaultSplit = "test"

// importedPath is where a split of an imported dataset is; without a split,
// the default one or the only one.
func importedPath(cache, name, split string) (string, bool) {
	if !registry.IsName(name) || unsafeName.MatchString(split) {
		return "", false
	}
	at := func(s string) string { return filepath.Join(cache, name, s+".jsonl") }
	if split == "" {
		split = defaultSplit
		if _, err := os.Stat(at(split)); err != nil {
			if all, _ := filepath.Glob(filepath.Join(cache, name, "*.jsonl")); len(all) == 1 {
				return all[0], true
			}
		}
	}
	_, err := os.Stat(at(split))
	return at(split), err == nil
}

// importedSplits names what was imported under a name, sorted.
func importedSplits(cache, name string) []string {
	if !registry.IsName(name) {
		return nil
	}
	files, _ := filepath.Glob(filepath.Join(cache, name, "*.jsonl"))
	var splits []string
	for _, f := range files {
		splits = append(splits, strings.TrimSuffix(filepath.Base(f), ".jsonl"))
	}
	return splits
}

// noSplit makes the one line for a split that an imported dataset does not have.
func noSplit(name, split string, have []string) error {
	if split == "" {
		return misfitOf("Split", have, "dataset %s has several splits; name one with %s: %s", name, setting.Name("Split"), strings.Join(have,
			", "))
	}
	return misfitOf("Split", have, "dataset %s has no split %q; name one that it has: %s", name, split, splitsOf(have))
}

// splitsOf names splits as the setting that chooses one of them.
func splitsOf(have []string) string {
	one := setting.Name("Split").String() + " "
	return one + strings.Join(have, " or "+one)
}

// imported names the datasets in the cache folder, sorted.
func imported(cache string) []string {
	files, _ := filepath.Glob(filepath.Join(cache, "*", "*.jsonl"))
	var names []string
	for _, f := range files {
		n := filepath.Base(filepath.Dir(f))
		if len(names) == 0 || names[len(names)-1] != n {
			names = append(names, n)
		}
	}
	sort.Strings(names)
	return names
}
