package datasets

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"agentcli/datasets/registry"
	"agentcli/hub"
	"agentcli/internal/malformed"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/traj"
)

// entry is a dataset that is known by name.
type entry struct {
	registry.Entry
	replaced bool // a user's, in place of one of the program's
}

// split is how the dataset's files call the split that it is measured on; train that for
// training, "" where there is none.
func (e *entry) split() string { return e.SplitName(registry.Test) }
func (e *entry) train() string { return e.SplitName(registry.Train) }

// repos are the ids of the repositories.
func (e *entry) repos() []string {
	var ids []string
	for _, r := range e.Hub {
		ids = append(ids, r.ID)
	}
	return ids
}

// entryFile is the file of an imported dataset's entry, beside its rows.
func entryFile(cache, name string) string { return filepath.Join(cache, name, name+".yaml") }

// folders are where the entries of a user are, the first wins. What was imported with
// settings of its own comes last.
func (o Options) folders(name string) []string {
	dirs := o.Registry
	if dirs == nil {
		dirs = registry.Folders()
	}
	cache := o.Cache
	if cache == "" {
		cache = CacheDir()
	}
	return append(slices.Clone(dirs), filepath.Join(cache, name))
}

// findEntry is the entry of a name, or that of the file NAME.yaml; nil where there is none.
func findEntry(name string, o Options) (*entry, error) {
	var e *registry.Entry
	var replaced bool
	var err error
	if strings.HasSuffix(name, registry.Extension) {
		var own registry.Entry
		own, err = registry.Read(name)
		e = &own
	} else {
		e, replaced, err = registry.Find(name, o.folders(name))
	}
	if e == nil || err != nil {
		return nil, err
	}
	if e.Generator != "" && generatorNamed(e.Generator) == nil {
		return nil, &malformed.Error{Path: e.Path, Field: "generator", Kind: malformed.Unsupported,
			Err: fmt.Errorf("there is no generator %q; they are %s", e.Generator, strings.Join(generatorNames(), ", "))}
	}
	return &entry{*e, replaced}, nil
}

// entryNamed is findEntry for questions that a malformed entry does not answer: whoever
// opens the dataset gets its error.
func entryNamed(name string) *entry {
	e, err := findEntry(name, Options{})
	if err != nil {
		return nil
	}
	return e
}

// EntryNamed is what is known of a dataset by name; nil where there is no entry.
func EntryNamed(name string) (*registry.Entry, error) {
	e, err := findEntry(name, Options{})
	if e == nil || err != nil {
		return nil, err
	}
	return &e.Entry, nil
}

// TrainSplit is the split of a benchmark that is for training; "" where it has none, or
// the name is no benchmark's.
func TrainSplit(name string) string {
	if e := entryNamed(name); e != nil && e.Generator == "" {
		return e.train()
	}
	return ""
}

// TestSplit is the split that a benchmark is measured on; "" where the name is no
// benchmark's.
func TestSplit(name string) string {
	if e := entryNamed(name); e != nil && e.Generator == "" {
		return e.split()
	}
	return ""
}

// IsTestSplit reports whether the split, "" for the default one, is what a benchmark is
// measured on: all but the one for training, since an imported copy may have any name.
func IsTestSplit(name, split string) bool {
	e := entryNamed(name)
	return e != nil && e.split() != "" && (e.train() == "" || split != e.train())
}

// open reads an imported copy if there is one, else the hub's files.
func (e *entry) open(ctx context.Context, o Options) (*Dataset, error) {
	asked := o.Split
	if file, ok := importedPath(o.Cache, e.Name, asked); ok {
		split := strings.TrimSuffix(filepath.Base(file), ".jsonl")
		return openFile(ctx, fileSource{path: file, name: e.Name, split: split, imported: true, entry: e}, o)
	}
	if len(e.Hub) == 0 && len(e.localFiles(asked)) == 0 {
		return nil, e.withoutRows(o)
	}
	files, err := e.fetch(ctx, o)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		have := e.splitsHere(ctx, o)
		if asked == "" && len(have) > 0 {
			return nil, noSplit(e.Name, asked, have)
		}
		return nil, e.notHere(err, asked, have)
	}
	split := asked
	if split == "" {
		split = e.split()
	}
	joined, err := e.joined(ctx, o)
	if err != nil {
		return nil, err
	}
	if len(files) == 1 {
		return openFile(ctx, fileSource{path: files[0], name: e.Name, split: split, entry: e, joined: joined}, o)
	}
	return e.openMany(ctx, files, joined, split, o)
}

// splitsHere names the splits that can be read without a network: what was imported, else
// what the hub's cache has.
func (e *entry) splitsHere(ctx context.Context, o Options) []string {
	have := importedSplits(o.Cache, e.Name)
	if len(have) > 0 {
		return have
	}
	o.Offline = true
	for _, split := range []string{e.split(), e.train()} {
		if o.Split == "" || split == "" || split == o.Split {
			continue
		}
		other := o
		other.Split = split
		if _, err := e.fetch(ctx, other); err == nil {
			have = append(have, split)
		}
	}
	return have
}

// localFiles are the files of a split that an entry without a repository names: they are
// beside it.
func (e *entry) localFiles(split string) []string {
	if len(e.Hub) > 0 || e.Path == "" {
		return nil
	}
	if split == "" {
		split = e.split()
	}
	return e.beside(e.SplitNamed(split).Files)
}

// beside are the files in the entry's folder that patterns name.
func (e *entry) beside(patterns []string) []string {
	var files []string
	for _, pattern := range patterns {
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(e.Path), pattern)
		}
		found, _ := filepath.Glob(pattern)
		if len(found) == 0 {
			found = []string{pattern} // whoever opens it says that it is not there
		}
		files = append(files, found...)
	}
	return files
}

// withoutRows is the error for an entry that says neither where its rows are, nor has any
// that were imported.
func (e *entry) withoutRows(o Options) error {
	if have := importedSplits(o.Cache, e.Name); len(have) > 0 {
		return noSplit(e.Name, o.Split, have)
	}
	return &malformed.Error{Path: e.Path, Field: "splits", Kind: malformed.Missing, Err: setting.Errorf(
		"has no files of the split %q, and no hub; add one of them, or bring the rows with `%s %s FILE`",
		cmp.Or(o.Split, e.split(), registry.Test), setting.Name("datasets.Import"), e.Name)}
}

// fetch returns the local files of the split.
func (e *entry) fetch(ctx context.Context, o Options) ([]string, error) {
	if files := e.localFiles(o.Split); len(files) > 0 {
		return files, nil
	}
	split := o.Split
	if split == "" {
		split = e.split()
	}
	own := e.SplitNamed(split).Files
	return e.fromHub(ctx, o, func(files []hub.File) []string {
		if len(own) > 0 {
			return matching(files, own)
		}
		chosen := chooseSplit(files, e.Config, split)
		if len(chosen) == 0 && o.Split == "" {
			chosen = chooseSplit(files, e.Config, "") // a small benchmark often has one file of any name
			if len(chosen) > 1 {
				chosen = nil
			}
		}
		return chosen
	}, fmt.Sprintf("file of the split %q", split))
}

// fromHub fetches the files that are chosen from the first repository that has them.
func (e *entry) fromHub(ctx context.Context, o Options, choose func([]hub.File) []string, what string) ([]string, error) {
	h := o.Hub
	if h == nil {
		h = hub.FromEnv()
	}
	if o.Offline {
		c := *h
		c.Offline = true
		h = &c
	}
	var first error
	for _, r := range e.Hub {
		paths, err := fetchFiles(ctx, h, hub.Repo{Type: hub.Dataset, ID: r.ID, Revision: r.Revision}, choose, what)
		if err == nil {
			return paths, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if first == nil {
			first = err
		}
		if !errors.Is(err, hub.ErrNotFound) && !errors.Is(err, hub.ErrOffline) {
			break
		}
	}
	if errors.Is(first, hub.ErrOffline) || errors.Is(first, hub.ErrUnreachable) {
		if paths := e.cachedOther(ctx, h, choose, o); paths != nil {
			return paths, nil
		}
	}
	return nil, first
}

// cachedOther are the files as an older program fetched them, before the entry had a
// revision.
func (e *entry) cachedOther(ctx context.Context, h *hub.Hub, choose func([]hub.File) []string, o Options) []string {
	c := *h
	c.Offline = true
	for _, r := range e.Hub {
		if r.Revision == "" {
			continue
		}
		paths, err := fetchFiles(ctx, &c, hub.Repo{Type: hub.Dataset, ID: r.ID}, choose, "file")
		if err != nil {
			continue
		}
		if o.Notice != nil {
			o.Notice(fmt.Sprintf("dataset %s: revision %.12s of %s is not on this machine; taking the one that was fetched before",
				e.Name, r.Revision, r.ID))
		}
		return paths
	}
	return nil
}

func fetchFiles(ctx context.Context, h *hub.Hub, r hub.Repo, choose func([]hub.File) []string, what string) ([]string, error) {
	files, err := h.List(ctx, r)
	if err != nil {
		return nil, err
	}
	chosen := choose(files)
	if len(chosen) == 0 {
		return nil, fmt.Errorf("%s: %w: it has no %s", r, hub.ErrNotFound, what)
	}
	return h.DownloadAll(ctx, r, chosen)
}

// matching are the files that patterns name, in the order of the patterns. It is empty
// where one names none.
func matching(files []hub.File, patterns []string) []string {
	var out []string
	for _, pattern := range patterns {
		before := len(out)
		for _, f := range files {
			if ok, _ := path.Match(pattern, f.Path); ok && !slices.Contains(out, f.Path) {
				out = append(out, f.Path)
			}
		}
		if len(out) == before {
			return nil
		}
	}
	return out
}

// joinedRows are the columns of other files, by the value of the column that they share.
type joinedRows struct {
	on   string
	rows map[string]map[string]any
}

// maxJoined bounds the rows that are held in memory.
const maxJoined = 1_000_000

// joined reads the files of e.Join.
func (e *entry) joined(ctx context.Context, o Options) (joinedRows, error) {
	if e.Join == nil {
		return joinedRows{}, nil
	}
	files := e.beside(e.Join.Files)
	if len(e.Hub) > 0 {
		var err error
		files, err = e.fromHub(ctx, o, func(files []hub.File) []string { return matching(files, e.Join.Files) }, "file of join")
		if err != nil {
			return joinedRows{}, e.notHere(err, o.Split, nil)
		}
	}
	j := joinedRows{e.Join.On, map[string]map[string]any{}}
	for _, file := range files {
		for row, err := range ReadRows(ctx, file) {
			if err != nil {
				return j, err
			}
			v, _ := lookup(row.Fields, j.on)
			key, err := scalar(v)
			if err != nil {
				return j, atRow(file, row.Number, malformed.Field(j.on, malformed.Missing, "has no text to join on"))
			}
			if j.rows[key] = row.Fields; len(j.rows) > maxJoined {
				return j, malformed.At(file, "", malformed.Range, "has more than %d rows, too many to join", maxJoined)
			}
		}
	}
	return j, nil
}

// into adds the columns to a row that has the same value; its own columns win.
func (j joinedRows) into(row map[string]any) {
	if j.rows == nil {
		return
	}
	v, _ := lookup(row, j.on)
	key, err := scalar(v)
	if err != nil {
		return
	}
	for name, v := range j.rows[key] {
		if _, has := row[name]; !has {
			row[name] = v
		}
	}
}

// chooseSplit picks the files of a split as the hub lays them out:
// [config/]split.jsonl, data/split-00000-of-00001.parquet, and the like.
func chooseSplit(files []hub.File, config, split string) []string {
	for _, ext := range []string{".parquet", ".jsonl", ".json", ".csv", ".jsonl.zst", ".jsonl.gz", ".json.gz", ".csv.gz"} {
		var out []string
		for _, f := range files {
			base := path.Base(f.Path)
			if !strings.HasSuffix(base, ext) || config != "" && !strings.Contains("/"+path.Dir(f.Path)+"/", "/"+config+"/") {
				continue
			}
			switch base {
			case "dataset_infos.json", "dataset_info.json", "config.json", "state.json":
				continue
			}
			stem := strings.TrimSuffix(base, ext)
			if split == "" || stem == split || strings.HasPrefix(stem, split+"-") || strings.HasPrefix(stem, split+"_") ||
				path.Base(path.Dir(f.Path)) == split {
				out = append(out, f.Path)
			}
		}
		if len(out) > 0 {
			return out
		}
	}
	return nil
}

// Pull fetches a benchmark of the registry from the hub and returns its local
// files.
func Pull(ctx context.Context, name string, o Options) ([]string, error) {
	if o.Cache == "" {
		o.Cache = CacheDir()
	}
	e, err := findEntry(name, o)
	switch {
	case err != nil:
		return nil, err
	case e == nil:
		return nil, unknown(name, o.Cache)
	case e.Generator != "":
		return nil, misfit("%s is generated here; there is nothing to pull", name)
	case len(e.Hub) == 0:
		return nil, misfit("%s is of files here; there is nothing to pull", name)
	}
	files, err := e.fetch(ctx, o)
	if err != nil && ctx.Err() == nil {
		return nil, e.notHere(err, o.Split, nil)
	}
	if err == nil && e.Join != nil {
		_, err = e.joined(ctx, o)
	}
	return files, err
}

// notHere makes the one line for a benchmark, or a split of it, that could not be fetched;
// have are the splits that are on this machine.
func (e *entry) notHere(err error, split string, have []string) error {
	reason := text.Line(err)
	var dns *net.DNSError
	var op *net.OpError
	var call *url.Error
	switch {
	case errors.Is(err, hub.ErrOffline):
		reason = "the hub is switched off by HF_HUB_OFFLINE"
	case errors.As(err, &dns):
		reason = "the hub cannot be reached: there is no host " + dns.Name
	case errors.Is(err, syscall.ECONNREFUSED):
		reason = "the hub cannot be reached: connection refused"
	case errors.As(err, &op):
		reason = "the hub cannot be reached: " + text.Line(op.Err)
	case errors.As(err, &call):
		reason = "the hub cannot be reached: " + text.Line(call.Err)
	}
	if len(have) > 0 {
		line := misfitOf("Split", have, "split %q of dataset %s is not on this machine and could not be fetched (%s); "+
			"name one that is: %s, or bring a copy with `%s %s FILE %s %s`",
			split, e.Name, reason, splitsOf(have), setting.Name("datasets.Import"), e.Name, setting.Name("Split"), split)
		return traj.Mark(line, err)
	}
	line := setting.Errorf("dataset %s is not on this machine and could not be fetched (%s); bring a copy with `%s %s FILE`",
		e.Name, reason, setting.Name("datasets.Import"), e.Name)
	return traj.Mark(traj.Mark(line, ErrNotHere), err) // the chain is for errors.Is, not for people
}

// Expected is how many problems a benchmark is known to have; 0: not known.
func Expected(name string) int {
	if e := entryNamed(name); e != nil {
		return e.SplitNamed(e.split()).Problems
	}
	return 0
}

// Info describes a dataset without opening it.
type Info struct {
	Name     string   `json:"name"`
	Kind     string   `json:"kind"` // benchmark, generated or imported
	About    string   `json:"about"`
	Hub      []string `json:"hub,omitempty"`
	Pinned   bool     `json:"pinned,omitempty"` // every repository has a revision
	Licence  string   `json:"licence,omitempty"`
	Split    string   `json:"split"`
	Train    string   `json:"train,omitempty"`    // the split for training
	Problems int      `json:"problems,omitempty"` // of the default split; 0: not known
	Reward   string   `json:"reward"`
	Env      string   `json:"env,omitempty"`
	Tools    []string `json:"tools,omitempty"`
	Levels   int      `json:"levels,omitempty"`
	Shots    int      `json:"shots,omitempty"`
	Local    bool     `json:"local"`              // can be opened without a network
	File     string   `json:"file,omitempty"`     // of a user's entry
	Replaces bool     `json:"replaces,omitempty"` // a user's entry, in place of one of the program
}

// ReplacedNotice says that a user's entry takes the place of one of the program.
func ReplacedNotice(name, file string) string {
	return fmt.Sprintf("dataset %s is described by %s, in place of the program's own entry", name, file)
}

// info describes an entry.
func (e *entry) info(o Options) Info {
	in := Info{Name: e.Name, Kind: "benchmark", About: e.About, Hub: e.repos(), Licence: e.Licence, Split: e.split(), Train: e.train(),
		Problems: e.SplitNamed(e.split()).Problems, Reward: e.Reward, Env: e.Env, Tools: e.Tools, File: e.Path,
		Replaces: e.replaced}
	if g := generatorNamed(e.Generator); g != nil {
		in.Kind, in.Split, in.Train, in.Levels, in.Shots, in.Local = "generated", "train", "", g.levels, e.Shots, true
		return in
	}
	in.Pinned = len(e.Hub) > 0 && e.Pinned()
	if _, in.Local = importedPath(o.Cache, e.Name, ""); in.Local && len(e.Hub) == 0 {
		in.Kind = "imported"
	}
	if !in.Local {
		_, err := e.fetch(context.Background(), o)
		in.Local = err == nil
	}
	return in
}

// List describes every dataset that Open knows by name. Entries that cannot be read are
// left out, and bad gets their names and errors; nil: nobody does.
func List(cache string, bad func(name string, err error)) []Info {
	if cache == "" {
		cache = CacheDir()
	}
	h := hub.FromEnv()
	h.Offline = true
	o := Options{Cache: cache, Hub: h}
	var out []Info
	for _, name := range Names(cache) {
		e, err := findEntry(name, o)
		switch {
		case err != nil && bad != nil:
			bad(name, err)
		case e != nil:
			out = append(out, e.info(o))
		case err == nil:
			out = append(out, Info{Name: name, Kind: "imported", About: "rows of " + filepath.Join(cache, name),
				Split: defaultSplit, Reward: "math", Local: true})
		}
	}
	return out
}
