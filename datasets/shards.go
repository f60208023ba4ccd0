package datasets

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/traj"
)

// shard is one file of a split that has several. Ids count from 0 in each, so they get its
// number: NAME/2-17.
type shard struct {
	*Dataset
	number int
}

// openMany chains the files of a split.
func (e *entry) openMany(ctx context.Context, files []string, joined joinedRows, split string, o Options) (*Dataset, error) {
	all := &Dataset{Name: e.Name, Split: split, Source: filepath.Dir(files[0]), Files: files, limit: o.Limit}
	all.suggest(e, o)
	ids, err := e.idsOfShards(o.Select.IDs, len(files))
	if err != nil {
		return nil, err
	}
	limit := o.Limit
	o.Limit = 0
	var shards []shard
	for i, f := range files {
		if ids != nil {
			if o.Select.IDs = ids[i]; o.Select.IDs == nil {
				continue
			}
		}
		d, err := openFile(ctx, fileSource{path: f, name: e.Name, split: split, entry: e, joined: joined}, o)
		if err != nil {
			return nil, err
		}
		all.addEnvs(d.Envs)
		all.addRewards(d.Rewards)
		if d.n < 0 || all.n < 0 {
			all.n = -1
		} else {
			all.n += d.n
		}
		all.Unanswered = cmp.Or(all.Unanswered, d.Unanswered)
		shards = append(shards, shard{d, i})
	}
	all.tasks = func(ctx context.Context) iter.Seq2[traj.Task, error] {
		return func(yield func(traj.Task, error) bool) {
			for _, s := range shards {
				for t, err := range s.tasks(ctx) {
					if err == nil {
						t.ID = fmt.Sprintf("%s/%d-%s", e.Name, s.number, strings.TrimPrefix(t.ID, e.Name+"/"))
					}
					if !yield(t, err) || err != nil {
						return
					}
				}
			}
		}
	}
	if slices.ContainsFunc(shards, func(s shard) bool { return !s.IsChecked() }) {
		all.check = func(ctx context.Context, unanswered func(row string) error) (int, error) {
			n := 0
			for _, s := range shards {
				more, err := s.Check(ctx, unanswered)
				if err != nil {
					return 0, err
				}
				n += more
			}
			if limit > 0 {
				n = min(n, limit)
			}
			return n, nil
		}
	}
	return all, nil
}

// idsOfShards gives ids to the files that they are of; nil: all rows are chosen.
func (e *entry) idsOfShards(ids []string, files int) ([][]string, error) {
	if ids == nil {
		return nil, nil
	}
	of := make([][]string, files)
	for _, id := range ids {
		number, in, _ := strings.Cut(strings.TrimPrefix(id, e.Name+"/"), "-")
		i, err := strconv.Atoi(number)
		if err != nil || i < 0 || i >= files {
			return nil, traj.Mark(setting.Errorf("dataset %s has no problem %s (%s); its ids begin with the number of a file, 0 to %d", e.Name,
				text.Name(id, 80), setting.Name("IDs"), files-1), ErrNotThere)
		}
		of[i] = append(of[i], in)
	}
	return of, nil
}
