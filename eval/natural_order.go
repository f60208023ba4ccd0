package eval

import (
	"bytes"
	"strconv"
)

// ordering puts ids in order, so that aime/9 comes before aime/10: the number at an
// id's end, if there is one, counts as a number. That is no order where numbers of
// different lengths meet texts that begin with a digit (9 < 10 as numbers, 10 < 1x
// and 1x < 9 as texts), and sorted pieces of a list could not be merged by it; so a
// number is compared as if its length stood before it. Numbers of one length need
// none of this: they are in order as texts.
type ordering struct {
	width int  // of the numbers so far; 0: there was none
	mixed bool // they differ in length
}

// see takes an id into account.
func (o *ordering) see(id []byte) {
	_, tail := split(id)
	if _, ok := numberOf(tail); !ok || o.mixed {
		return
	}
	o.mixed = o.width > 0 && o.width != len(tail) || tail[0] == '+'
	o.width = len(tail)
}

// compare is cmp.Compare of two ids.
func (o *ordering) compare(a, b []byte) int {
	if o.mixed {
		var bufA, bufB [96]byte
		if c := bytes.Compare(key(bufA[:0], a), key(bufB[:0], b)); c != 0 {
			return c
		}
	}
	return bytes.Compare(a, b)
}

// key is an id whose number has its length before it.
func key(b, id []byte) []byte {
	head, tail := split(id)
	n, ok := numberOf(tail)
	if !ok {
		return append(b, id...)
	}
	b = append(append(b, head...), 0)
	at := len(b)
	b = strconv.AppendInt(b, int64(n), 10)
	b[at-1] = '0' + byte(len(b)-at-1) // beside other texts it stands where digits do
	return b
}

// split parts an id before what may be its number.
func split(id []byte) (head, tail []byte) {
	i := bytes.LastIndexAny(id, "/-_") + 1
	return id[:i], id[i:]
}

func numberOf(tail []byte) (int, bool) {
	if len(tail) == 0 || len(tail) > 20 || tail[0] > '9' {
		return 0, false
	}
	n, err := strconv.Atoi(string(tail))
	return n, err == nil
}
