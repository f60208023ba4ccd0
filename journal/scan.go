package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Damage is a place in a journal that holds no readable record, with good
// records behind it.
type Damage struct {
	From, To int64 // bytes
	// Lost is how many records are missing there by their sequence numbers: 0
	// where a crash left half a record that nobody relied on; −1 where it is not
	// known: the file has no sequence numbers (version 1), or records of lower
	// numbers stand at its end.
	Lost int
}

// scanned is what a scan of the whole file found.
type scanned struct {
	layout layout
	end    int64 // behind the last good record
	size   int64
	seq    uint64 // of the last good record
	damage []Damage
}

// lost reports whether records are missing that a run may have relied on.
func (s *scanned) lost() bool {
	for _, d := range s.damage {
		if d.Lost != 0 {
			return true
		}
	}
	return false
}

// tail is how many bytes a crash left behind the last good record.
func (s *scanned) tail() int64 {
	if n := len(s.damage); n > 0 && s.damage[n-1].To == s.size {
		return 0
	}
	return s.size - s.end
}

// scan calls do for every good record, also for those behind damage: after a bad
// one it looks for the next that is whole and carries a later number.
func scan(r io.ReaderAt, size int64, l layout, do func(record) error) (*scanned, error) {
	s := &scanned{layout: l, size: size}
	w := &window{r: r, size: size}
	for pos := int64(0); ; {
		rec, ok, err := w.record(&l, pos)
		if err != nil {
			return s, err
		}
		if !ok || s.seq > 0 && rec.seq <= s.seq {
			w.older = ok
			if rec, ok, err = w.next(&l, pos+1, s.seq); err != nil || !ok { // only a tail is left
				if w.older { // which no crash leaves
					s.damage = append(s.damage, Damage{From: s.end, To: size, Lost: -1})
				}
				return s, err
			}
			d := Damage{From: s.end, To: rec.at, Lost: -1}
			if l.version == 2 {
				d.Lost = int(rec.seq - s.seq - 1)
			}
			s.damage = append(s.damage, d)
		}
		if err := do(rec); err != nil {
			return s, err
		}
		s.end, s.seq, pos = rec.end, rec.seq, rec.end
	}
}

// window reads a file forwards through a buffer.
type window struct {
	r     io.ReaderAt
	size  int64
	older bool  // next has passed over whole records of lower numbers
	exact bool  // reads no more than is asked for: for single records
	at    int64 // of buf's first byte
	buf   []byte
}

const windowSize = 1 << 20

// bytes are n bytes at an offset within the file; they are valid until the next
// call.
func (w *window) bytes(at, n int64) ([]byte, error) {
	if at >= w.at && at+n <= w.at+int64(len(w.buf)) {
		return w.buf[at-w.at:][:n], nil
	}
	want := n
	if !w.exact {
		want = max(n, min(windowSize, w.size-at))
	}
	if int64(cap(w.buf)) < want {
		w.buf = make([]byte, want)
	}
	w.buf, w.at = w.buf[:want], at
	if got, err := w.r.ReadAt(w.buf, at); int64(got) < want {
		w.buf = w.buf[:got]
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("cannot read at byte %d: %w", at, err)
	}
	return w.buf[:n], nil
}

// record reads the record that begins at an offset; false: there is no whole one.
func (w *window) record(l *layout, at int64) (rec record, ok bool, err error) {
	head := int64(l.head)
	if at+head > w.size {
		return rec, false, nil
	}
	b, err := w.bytes(at, head)
	if err != nil {
		return rec, false, err
	}
	n, ok := l.length(b)
	if !ok || n > w.size-at-head {
		return rec, false, nil
	}
	if b, err = w.bytes(at, head+n); err != nil {
		return rec, false, err
	}
	if !l.whole(b[:head], b[head:]) {
		return rec, false, nil
	}
	return record{at: at, end: at + head + n, seq: l.sequence(b), body: b[head:]}, true, nil
}

// next finds the first whole record at or behind an offset whose number is
// greater than after.
func (w *window) next(l *layout, from int64, after uint64) (rec record, ok bool, err error) {
	for at := from + int64(l.offset); at+int64(len(l.marker)) <= w.size; {
		n := min(windowSize, w.size-at)
		b, err := w.bytes(at, n)
		if err != nil {
			return rec, false, err
		}
		i := bytes.Index(b, l.marker)
		if i < 0 {
			at += max(n-int64(len(l.marker))+1, 1)
			continue
		}
		at += int64(i)
		rec, ok, err = w.record(l, at-int64(l.offset))
		if err != nil || ok && (l.version == 1 || rec.seq > after) {
			return rec, ok, err
		}
		w.older = w.older || ok
		at++
	}
	return record{}, false, nil
}
