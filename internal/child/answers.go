package child

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"agentcli/internal/text"
)

// take finds the call that a line answers.
func (c *conn) take(b []byte) {
	if b[0] != '{' { // a print that was left in the program
		c.l.mu.Lock()
		said := c.l.noticed
		c.l.noticed = true
		c.l.mu.Unlock()
		if !said {
			c.l.c.Notice(fmt.Sprintf("%s writes %q on stdout, which is no answer: it is left out; what is for people belongs on stderr",
				c.l.c.Command.Name(), shorten(b)))
		}
		return
	}
	var head struct {
		ID json.Number `json:"id"`
	}
	a := answer{line: b}
	err := json.Unmarshal(b, &head)
	if err != nil || !json.Valid(b) {
		a = answer{err: fmt.Errorf("%w: the answer %s is %w", ErrGarbage, shorten(b), errNotJSON)}
		if noNumber.Match(b) {
			a.err = fmt.Errorf("%w, which has no NaN and no Infinity", a.err)
		}
		head.ID = json.Number(firstID(b))
	}
	id, err := strconv.ParseInt(head.ID.String(), 10, 64)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = 0
	got := c.pending[id]
	switch {
	case err == nil && got != nil:
		c.strays = 0
		delete(c.pending, id)
		got <- a
	case err == nil && c.late[id]: // given up
		delete(c.late, id)
	case err == nil && id > 0 && id <= c.next:
		c.twice(id)
	default:
		c.stray(b)
	}
}

// stray takes an answer that is nobody's. Whose it was cannot be known while more calls wait
// than have been answered like this; else all of them wait in vain. The caller holds mu.
func (c *conn) stray(b []byte) {
	if c.strays++; c.strays < len(c.pending) {
		c.l.stray(b)
		return
	}
	c.strays = 0
	for id, got := range c.pending {
		got <- answer{err: fmt.Errorf("%w: the answer %s has %w", ErrGarbage, shorten(b), errNoID)}
		delete(c.pending, id)
	}
}

// twice takes a second answer to a request: the session that asked can no longer go on. The
// caller holds mu.
func (c *conn) twice(id int64) {
	s := c.owners[id]
	if s == nil {
		c.l.twice(id)
		return
	}
	if s.err != nil {
		return
	}
	s.again, s.err = id, fmt.Errorf("%w: it answered request %d twice", ErrGarbage, id)
	for _, waits := range s.ids {
		if got := c.pending[waits]; got != nil {
			got <- answer{err: s.err}
			delete(c.pending, waits)
			c.late[waits], s.told = true, true
		}
	}
}

// stray says once that an answer is nobody's while several wait.
func (l *Lines) stray(line []byte) {
	l.mu.Lock()
	said := l.strayed
	l.strayed = true
	l.mu.Unlock()
	if !said {
		l.c.Notice(fmt.Sprintf("%s answers %s, which has %v: it is left out", l.c.Command.Name(), shorten(line), errNoID))
	}
}

// twice says once that the program answers a request again.
func (l *Lines) twice(id int64) {
	l.mu.Lock()
	said := l.repeated
	l.repeated = true
	l.mu.Unlock()
	if !said {
		l.c.Notice(fmt.Sprintf("%s answers request %d twice: the second answer is left out", l.c.Command.Name(), id))
	}
}

// firstID finds the id in an answer that is no JSON.
func firstID(b []byte) string {
	_, rest, ok := bytes.Cut(b, []byte(`"id"`))
	if !ok {
		return ""
	}
	rest = bytes.TrimLeft(rest, ": \t")
	n := 0
	for n < len(rest) && rest[n] >= '0' && rest[n] <= '9' {
		n++
	}
	return string(rest[:n])
}

func shorten(b []byte) string {
	return text.Cut(string(bytes.ToValidUTF8(b[:min(len(b), 400)], []byte("�"))), 80)
}

var errAbandoned = fmt.Errorf("%w: it was stopped in a call that nobody waits for any more", ErrEnded)

var errLong = errors.New("a line is too long")

func readLine(r *bufio.Reader) ([]byte, error) {
	var all []byte
	for {
		b, err := r.ReadSlice('\n')
		all = append(all, b...)
		switch {
		case len(all) > maxLine:
			return nil, errLong
		case err == nil:
			return all, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(all) > 0:
			return all, nil
		default:
			return nil, err
		}
	}
}
