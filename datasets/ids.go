package datasets

import (
	"context"
	"hash/maphash"
	"strconv"
	"strings"

	"agentcli/internal/hashset"
)

// idSet knows which ids a file has had, in some ten bytes each: by their hashes.
// Where a hash has occurred before, the file is read again up to there, which tells
// whether the id has, too.
type idSet struct {
	seed maphash.Seed
	seen hashset.Set
}

func newIDSet() *idSet { return &idSet{seed: maphash.MakeSeed()} }

// hashID is replaced by tests: ids of one hash are rare.
var hashID = maphash.String

// add reports whether an id may have occurred before.
func (s *idSet) add(id string) (perhaps bool) { return s.seen.Add(hashID(s.seed, id)) }

// rowOf is the number of the first row before another that has an id; 0: none has.
func (r problemReader) rowOf(ctx context.Context, id string, before int) (int, error) {
	i := -1
	for row, err := range eachRow(ctx, r.path) {
		i++
		if err == nil && row.Number >= before {
			break
		}
		var p problem
		if err == nil {
			r.joined.into(row.Fields)
			p, err = r.mapping.read(row.Fields)
		}
		switch {
		case err != nil && r.badRow == nil:
			return 0, err
		case err == nil && taskID(p.ID, i) == id:
			return row.Number, nil
		}
	}
	return 0, nil
}

// taskID is a row's id in what ids are made of: '#' parts a task from its attempt.
// A row without one is named by its number, counted from 0.
func taskID(id string, i int) string {
	if id = strings.ReplaceAll(strings.TrimSpace(id), "#", "_"); id == "" {
		return strconv.Itoa(i)
	}
	return id
}
