package engine

import (
	"bytes"
	"math/bits"
	"slices"

	"agentcli/internal/splitmix"
)

// finished is where a journal has which trajectory: a map from ids to offsets, of
// which memory holds hashes alone, some 20 bytes a trajectory. Whether an id of the
// same hash is the same is looked up in the journal.
type finished struct {
	id    func(offset int64) (string, error) // of the record there
	hash  func(string) uint64
	parts [finishedParts]places
	n     int
}

// finishedParts are tables of their own, so that none grows much at once.
const finishedParts = 256

type places struct {
	slots []place
	used  int
}

// place is a slot. A record is never at 0: there the journal has its header.
type place struct {
	hash uint64
	at   int64 // 0: empty; below 0: forgotten
}

func newFinished(id func(int64) (string, error)) *finished { return &finished{id: id, hash: hash} }

// look is the slot of an id, or the empty one where it belongs; nil: there is none
// yet. Where the journal cannot be read, ids of one hash are taken for one.
func (f *finished) look(id string, h uint64) *place {
	return f.parts[h%finishedParts].find(h, func(s *place) bool {
		was, err := f.id(max(s.at, -s.at))
		return err != nil || was == id
	})
}

func (f *finished) scatter(id string) uint64 { return splitmix.Mix(f.hash(id)) }

// find goes from where a hash belongs to the slot that is asked for, or to an empty
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

// put says that an id is at an offset now.
func (f *finished) put(id string, at int64) {
	h := f.scatter(id)
	p := &f.parts[h%finishedParts]
	if 8*(p.used+1) > 7*len(p.slots) {
		p.grow()
	}
	s := f.look(id, h)
	if s.at == 0 {
		p.used++
	}
	if s.at <= 0 {
		f.n++
	}
	*s = place{h, at}
}

// forget takes an id out.
func (f *finished) forget(id string) {
	if s := f.look(id, f.scatter(id)); s != nil && s.at > 0 {
		s.at = -s.at
		f.n--
	}
}

// at is where an id is; 0: nowhere.
func (f *finished) at(id string) int64 {
	if s := f.look(id, f.scatter(id)); s != nil {
		return max(0, s.at)
	}
	return 0
}

// has reports whether an id is at an offset.
func (f *finished) has(id string, at int64) bool {
	h := f.scatter(id)
	s := f.parts[h%finishedParts].find(h, func(s *place) bool { return s.at == at })
	return s != nil && s.at == at && at > 0
}

// rest are all offsets, in order.
func (f *finished) rest() []int64 {
	var all []int64
	for i := range f.parts {
		for _, s := range f.parts[i].slots {
			if s.at > 0 {
				all = append(all, s.at)
			}
		}
	}
	slices.Sort(all)
	return all
}

// clone is a copy that may be changed.
func (f *finished) clone() *finished {
	c := *f
	for i := range c.parts {
		c.parts[i].slots = slices.Clone(c.parts[i].slots)
	}
	return &c
}

// idAt reads the id of the record at an offset: it is what a record begins with.
func (j *Journal) idAt(offset int64) (string, error) {
	var b [recordHead + 256]byte
	n, _ := j.file.ReadAt(b[:], offset) // shorter at the file's end
	const before = `{"id":`
	if text, ok := bytes.CutPrefix(b[min(n, recordHead):n], []byte(before+`"`)); ok {
		if end := bytes.IndexAny(text, `"\`); end >= 0 && text[end] == '"' {
			return string(text[:end]), nil
		}
	}
	t, err := j.at(offset) // a long one, or one with characters that JSON escapes
	if err != nil {
		return "", err
	}
	return t.ID, nil
}
