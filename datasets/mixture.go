package datasets

import (
	"cmp"
	"context"
	"iter"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"agentcli/internal/setting"
	"agentcli/internal/splitmix"
	"agentcli/traj"
)

// Part is a dataset of several that are played in one run.
type Part struct {
	Name   string
	Weight float64
}

// Mixture reads several datasets with weights: "a:2,b:1", or "a,b" for equal ones. It is nil
// for the name of one dataset, and for a file whose name has such characters.
func Mixture(name string) []Part {
	if _, err := os.Stat(name); err == nil || !strings.ContainsAny(name, ",:") {
		return nil
	}
	var parts []Part
	for _, one := range strings.Split(name, ",") {
		p := Part{strings.TrimSpace(one), 1}
		if i := strings.LastIndexByte(one, ':'); i >= 0 {
			w, err := strconv.ParseFloat(strings.TrimSpace(one[i+1:]), 64)
			if err != nil {
				return nil
			}
			p = Part{strings.TrimSpace(one[:i]), w}
		}
		parts = append(parts, p)
	}
	return parts
}

// badWeight is the error for several datasets, or one, of which a weight is no number; nil:
// the name is none of that form.
func badWeight(name, cache string) error {
	for _, one := range strings.Split(name, ",") {
		i := strings.LastIndexByte(one, ':')
		if i < 0 {
			continue
		}
		of, weight := strings.TrimSpace(one[:i]), strings.TrimSpace(one[i+1:])
		if _, err := strconv.ParseFloat(weight, 64); err == nil || !looksLikeFile(of) && !slices.Contains(Names(cache), of) {
			continue
		}
		if weight == "" {
			return misfitOf("Dataset", nil, "%s %q: the weight of %s is missing; write %s:2, or leave the colon out",
				setting.Name("Dataset"), name, of, of)
		}
		return misfitOf("Dataset", nil, "%s %s: %q is no weight of %s; want a number above 0, for example %s:2",
			setting.Name("Dataset"), name, weight, of, of)
	}
	return nil
}

// openMixture opens each part by itself and interleaves their tasks: which comes next
// depends on the seed, the weights, and how many came before. A part that ends leaves the
// others. Each task comes once.
func openMixture(ctx context.Context, name string, parts []Part, o Options) (*Dataset, error) {
	if !o.Select.isAll() {
		return nil, misfit("%s: rows are of one dataset (%s, %s), and these are several", name, setting.Name("Rows"), setting.Name("IDs"))
	}
	for _, p := range parts {
		if p.Name == "" {
			return nil, misfitOf("Dataset", nil, "%s %s: one of the names between the commas is empty; leave the comma out",
				setting.Name("Dataset"), name)
		}
		if !(p.Weight > 0) || math.IsInf(p.Weight, 0) {
			return nil, misfitOf("Dataset", nil, "%s %s: each dataset wants a weight above 0, for example gsm8k:2,math:1",
				setting.Name("Dataset"), name)
		}
	}
	d := &Dataset{Name: name, Split: o.Split, Source: name, limit: o.Limit}
	var all []*Dataset
	for i, p := range parts {
		one, err := Open(ctx, p.Name, o.ofPart(p.Name, i))
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(all, func(x *Dataset) bool { return x.Name == one.Name }) {
			return nil, misfitOf("Dataset", nil, "%s %s: two datasets are called %s, so their tasks could not be told apart",
				setting.Name("Dataset"), name, one.Name)
		}
		all = append(all, one)
		if err := d.join(one); err != nil {
			return nil, err
		}
	}
	d.Description = "tasks of " + name
	d.tasks = func(ctx context.Context) iter.Seq2[traj.Task, error] {
		return interleaved(ctx, all, parts, uint64(o.Seed))
	}
	if slices.ContainsFunc(all, func(x *Dataset) bool { return !x.IsChecked() }) {
		d.check = func(ctx context.Context, unanswered func(row string) error) (int, error) {
			n := 0
			for _, x := range all {
				more, err := x.Check(ctx, unanswered)
				if err != nil {
					return 0, err
				}
				n += more
			}
			if o.Limit > 0 {
				n = min(n, o.Limit)
			}
			return n, nil
		}
	}
	return d, nil
}

// ofPart are the options for one part: those that are for generated datasets or for files
// are left out where it is the other.
func (o Options) ofPart(name string, i int) Options {
	o.Limit = 0
	o.Seed = int64(splitmix.Next(uint64(o.Seed) + uint64(i)))
	if Generated(name) {
		o.Fields = nil
		if o.Split == "" {
			o.Split = o.Role
		}
		return o
	}
	o.Level, o.Shots = "", nil
	if o.Split == "" && o.Role == "train" {
		o.Split = TrainSplit(name)
	}
	return o
}

// join takes a part's suggestions into the whole.
func (d *Dataset) join(one *Dataset) error {
	first := len(d.Parts) == 0
	if first {
		d.Reward, d.Env, d.Options = one.Reward, one.Env, one.Options
	}
	if !reflect.DeepEqual(d.Options, one.Options) || d.Env != one.Env {
		return misfitOf("Dataset", nil, "%s and %s have other options of their rewards or another environment; play them in runs of their own",
			d.Parts[0].Dataset, one.Name)
	}
	d.addEnvs(one.Envs)
	if d.addRewards(one.Rewards); len(one.Rewards) == 0 {
		d.addRewards([]string{one.Reward})
	}
	d.Parts = append(d.Parts, Origin{one.Name, one.Split, one.Reward})
	d.Files = append(d.Files, one.Files...)
	d.MaxTurns, d.MaxTokens = max(d.MaxTurns, one.MaxTurns), max(d.MaxTokens, one.MaxTokens)
	d.HasImages, d.FirstImage = d.HasImages || one.HasImages, cmp.Or(d.FirstImage, one.FirstImage)
	if d.OwnTools == nil {
		d.OwnTools = one.OwnTools
	}
	d.Unanswered = cmp.Or(d.Unanswered, one.Unanswered)
	for _, tool := range one.DefaultTools {
		if !slices.Contains(d.DefaultTools, tool) {
			d.DefaultTools = append(d.DefaultTools, tool)
		}
	}
	if n, known := one.Len(); !known || d.n < 0 {
		d.n = -1
	} else {
		d.n += n
	}
	return nil
}

// interleaved draws the next part for each place by its weight.
func interleaved(ctx context.Context, all []*Dataset, parts []Part, seed uint64) iter.Seq2[traj.Task, error] {
	return func(yield func(traj.Task, error) bool) {
		type stream struct {
			next   func() (traj.Task, error, bool)
			weight float64
		}
		var open []stream
		for i, d := range all {
			next, stop := iter.Pull2(d.Tasks(ctx))
			defer stop()
			open = append(open, stream{next, parts[i].Weight})
		}
		for place := uint64(0); len(open) > 0; place++ {
			total := 0.
			for _, s := range open {
				total += s.weight
			}
			at := float64(splitmix.Mix(seed+place*splitmix.Gamma)>>11) / (1 << 53) * total
			i := 0
			for ; i < len(open)-1 && at >= open[i].weight; i++ {
				at -= open[i].weight
			}
			task, err, ok := open[i].next()
			if !ok {
				open = slices.Delete(open, i, i+1)
				continue
			}
			if !yield(task, err) || err != nil {
				return
			}
		}
	}
}

// Origin is where some of a dataset's tasks are from.
type Origin struct {
	Dataset string `json:"name"`
	Split   string `json:"split,omitempty"`
	Reward  string `json:"-"`
}

// Origins are the datasets that the tasks are from: itself, or its parts.
func (d *Dataset) Origins() []Origin {
	if len(d.Parts) > 0 {
		return d.Parts
	}
	return []Origin{{d.Name, d.Split, d.Reward}}
}
