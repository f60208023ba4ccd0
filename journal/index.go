package journal

import (
	"hash/fnv"
	"math/bits"
	"slices"

	"agentcli/internal/splitmix"
)

// Index is where a journal has which finished trajectory: a map from ids to
// offsets, of which memory holds hashes alone, some 20 bytes a trajectory.
// Whether an id of the same hash is the same is looked up in the journal. It is
// not safe for concurrent use.
type Index struct {
	id    func(offset int64) (string, error) // of the record there
	hash  func(string) uint64
	parts [indexParts]places
	n     int
}

// indexParts are tables of their own, so that none grows much at once.
const indexParts = 256

type places struct {
	slots []place
	used  int
}

// place is a slot. A trajectory is never at 0: there the journal has its header.
type place struct {
	hash uint64
	at   int64 // 0: empty; below 0: forgotten
}

func newIndex(id func(int64) (string, error)) *Index { return &Index{id: id, hash: hash64} }

func hash64(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	return h.Sum64()
}

// find is the slot of an id, or the empty one where it belongs; nil: there is
// none yet. Where the journal cannot be read, ids of one hash are taken for one.
func (x *Index) find(id string, h uint64) *place {
	return x.parts[h%indexParts].find(h, func(s *place) bool {
		was, err := x.id(max(s.at, -s.at))
		return err != nil || was == id
	})
}

func (x *Index) mixed(id string) uint64 { return splitmix.Mix(x.hash(id)) }

// find goes from where a hash belongs to the slot that matches, or to an empty
// one, which there always is.
func (p *places) find(h uint64, same func(*place) bool) *place {
	if len(p.slots) == 0 {
		return nil
	}
	hi, _ := bits.Mul64(h, uint64(len(p.slots)))
	for i := int(hi); ; i++ {
		if i == len(p.slots) {
			i = 0
		}
		if s := &p.slots[i]; s.at == 0 || s.hash == h && same(s) {
			return s
		}
	}
}

func (p *places) grow() {
	old := p.slots
	p.slots = slices.Grow([]place(nil), max(8, len(old)+len(old)/4))
	p.slots = p.slots[:cap(p.slots)]
	for _, s := range old {
		if s.at != 0 {
			*p.find(s.hash, func(*place) bool { return false }) = s
		}
	}
}

// put records that an id is at an offset now.
func (x *Index) put(id string, at int64) {
	h := x.mixed(id)
	p := &x.parts[h%indexParts]
	if 8*(p.used+1) > 7*len(p.slots) {
		p.grow()
	}
	s := x.find(id, h)
	if s.at == 0 {
		p.used++
	}
	if s.at <= 0 {
		x.n++
	}
	*s = place{h, at}
}

// Forget removes an id.
func (x *Index) Forget(id string) {
	if s := x.find(id, x.mixed(id)); s != nil && s.at > 0 {
		s.at = -s.at
		x.n--
	}
}

// Offset is where an id is; 0: nowhere.
func (x *Index) Offset(id string) int64 {
	if s := x.find(id, x.mixed(id)); s != nil {
		return max(0, s.at)
	}
	return 0
}

// Len is how many ids there are.
func (x *Index) Len() int { return x.n }

// Offsets are all offsets, in order.
func (x *Index) Offsets() []int64 {
	var all []int64
	for i := range x.parts {
		for _, s := range x.parts[i].slots {
			if s.at > 0 {
				all = append(all, s.at)
			}
		}
	}
	slices.Sort(all)
	return all
}

// clone is a copy that may be changed.
func (x *Index) clone() *Index {
	c := *x
	for i := range c.parts {
		c.parts[i].slots = slices.Clone(c.parts[i].slots)
	}
	return &c
}
