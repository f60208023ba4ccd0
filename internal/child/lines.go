package child

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"agentcli/internal/safego"
)

// Errors of a call that is told apart from the program's own answers.
var (
	// ErrEnded: the program ended, or was ended, before it answered.
	ErrEnded = errors.New("the program has ended")
	// ErrSilent: there was no answer before the context ended.
	ErrSilent = errors.New("no answer")
	// ErrGarbage: the answer could not be read.
	ErrGarbage = errors.New("garbage")
	// ErrBroken: the program has failed so often in a row that it is not started
	// again for a while.
	ErrBroken = errors.New("broken")
	// ErrClosed: the program was closed by us.
	ErrClosed = errors.New("closed")
)

// noNumber is what Python's json.dumps writes of floats that JSON does not have.
var noNumber = regexp.MustCompile(`[:\[,]\s*-?(NaN|Infinity)\b`)

// What is ErrGarbage.
var (
	errLine    = errors.New("line")
	errNotJSON = errors.New("not valid JSON")
	errNoID    = errors.New("no id of a request")
)

const (
	maxLine = 16 << 20 // bytes of one answer

	// MaxLost is how many calls may be given up with no answer to any, before
	// the program is ended.
	MaxLost = 8
	// StartLimit is from a program's start to its answer to the first request.
	StartLimit = time.Minute
)

// LinesConfig describes a program that answers JSON lines.
type LinesConfig struct {
	Command Command
	// Hello is the first request to every process; Greeted looks at the answer.
	Hello   map[string]any
	Greeted func(answer []byte) error
	Notice  func(string)     // for people; nil: none
	Now     func() time.Time // nil: time.Now
}

// Lines asks a program that reads one JSON object a line and answers each with
// one that carries the same id, in any order. A program that ends is started
// again with the next call. It is safe for concurrent use.
type Lines struct {
	c LinesConfig

	mu       sync.Mutex
	now      *conn // nil: none runs
	closed   bool
	row      Row
	noticed  bool // that it writes what is no answer
	repeated bool // noticed: that it answers twice
	strayed  bool // noticed: that it answers what nobody asked
	all      sync.WaitGroup
}

// NewLines does not start anything: the first call does.
func NewLines(c LinesConfig) *Lines {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Notice == nil {
		c.Notice = func(string) {}
	}
	return &Lines{c: c}
}

// Open starts the program, so that the first call finds it ready.
func (l *Lines) Open(ctx context.Context) error {
	_, err := l.running(ctx)
	return err
}

// Call sends a request and waits for the answer, which is a JSON object with the
// request's id. alone says that the program works on nothing else meanwhile:
// where it gives no answer in time it is ended, for it hangs. Else it gets
// {"method":"cancel","id":…}.
func (l *Lines) Call(ctx context.Context, request map[string]any, alone bool) ([]byte, error) {
	c, err := l.running(ctx)
	if err != nil {
		return nil, err
	}
	return c.call(ctx, nil, request, alone)
}

// Session is a process of the program, which keeps something from call to call: when it
// has ended, calls of the session fail and start no other. So they do when it has answered
// one of them twice: which answer it goes on with is not known. Close it.
type Session struct {
	l *Lines
	c *conn

	// Of the conn's mu.
	ids   []int64 // of its requests
	again int64   // of the one that was answered twice
	err   error   // for that reason
	told  bool    // a call has failed with err
}

// Session gives the process that runs; a new one where the last has ended.
func (l *Lines) Session(ctx context.Context) (*Session, error) {
	c, err := l.running(ctx)
	if err != nil {
		return nil, err
	}
	return &Session{l: l, c: c}, nil
}

// Close ends the session; the process goes on.
func (s *Session) Close() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for _, id := range s.ids {
		delete(s.c.owners, id)
	}
	if s.err != nil && !s.told {
		s.l.twice(s.again)
	}
	s.ids = nil
}

// Notify sends the process a message that has no answer.
func (s *Session) Notify(message map[string]any) {
	if b, err := line(0, message); err == nil {
		s.c.tell(b)
	}
}

// Call is that of Lines, to this process.
func (s *Session) Call(ctx context.Context, request map[string]any, alone bool) ([]byte, error) {
	return s.c.call(ctx, s, request, alone)
}

// call asks the process, for a session or, nil, for nobody who asks again.
func (c *conn) call(ctx context.Context, of *Session, request map[string]any, alone bool) ([]byte, error) {
	l := c.l
	id, got, err := c.expect(of)
	if err != nil {
		return nil, err
	}
	b, err := line(id, request)
	if err != nil {
		c.forget(id)
		return nil, err
	}
	select {
	case c.out <- b:
	case <-c.gone:
		return nil, c.reason
	case <-ctx.Done():
		c.lose(id, alone, ctx.Err())
		return nil, ErrSilent
	}
	select {
	case a := <-got:
		if a.err == nil {
			l.mu.Lock()
			l.row = Row{}
			l.mu.Unlock()
		}
		return a.line, a.err
	case <-ctx.Done():
		c.lose(id, alone, ctx.Err())
		return nil, ErrSilent
	}
}

// Notify sends a message that has no answer, if the program runs.
func (l *Lines) Notify(message map[string]any) {
	l.mu.Lock()
	c := l.now
	l.mu.Unlock()
	if c == nil {
		return
	}
	if b, err := line(0, message); err == nil {
		c.tell(b)
	}
}

// Close ends the program.
func (l *Lines) Close() {
	l.mu.Lock()
	l.closed = true
	c := l.now
	l.mu.Unlock()
	if c != nil {
		c.end(ErrClosed)
	}
	l.all.Wait()
}

// line is a request as the program reads it; id 0 is left out.
func line(id int64, request map[string]any) ([]byte, error) {
	m := map[string]any{}
	for k, v := range request {
		m[k] = v
	}
	if id > 0 {
		m["id"] = id
	}
	b, err := json.Marshal(m)
	return append(b, '\n'), err
}

// running gives the process, greeted; a new one where the last has ended.
func (l *Lines) running(ctx context.Context) (*conn, error) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, ErrClosed
	}
	c := l.now
	if c == nil {
		if err := l.row.Broken(l.c.Now()); err != nil {
			l.mu.Unlock()
			return nil, err
		}
		c = &conn{l: l, out: make(chan []byte, 64), pending: map[int64]chan answer{}, late: map[int64]bool{},
			owners: map[int64]*Session{}, gone: make(chan struct{}), ready: make(chan struct{})}
		l.now = c
		l.all.Go(c.run)
	}
	l.mu.Unlock()
	select {
	case <-c.ready:
		return c, nil
	case <-c.gone:
		return nil, c.reason
	case <-ctx.Done():
		return nil, ErrSilent
	}
}

// conn is one process.
type conn struct {
	l     *Lines
	out   chan []byte   // lines to be written
	ready chan struct{} // closed when it has greeted
	gone  chan struct{} // closed when it has ended, with reason set

	reason error

	mu      sync.Mutex
	p       *Process
	ended   error // why we ended it; nil: we did not
	next    int64
	pending map[int64]chan answer
	lost    int            // calls given up since the last answer
	strays  int            // answers that are nobody's since the last that is somebody's
	late    map[int64]bool // calls given up whose answer may still come
	owners  map[int64]*Session
}

type answer struct {
	line []byte
	err  error
}

// run is the life of the process.
func (c *conn) run() {
	defer safego.Catch(c.end) // no more than a fault of ours: the calls end by their time-outs
	reason := c.live()
	tell := false
	c.l.mu.Lock()
	c.l.now = nil
	if !errors.Is(reason, ErrClosed) && !errors.Is(reason, errAbandoned) {
		c.l.row.Add(reason, c.l.c.Now())
		select {
		case <-c.ready:
			tell = c.l.row.Worth()
		default: // whoever opened it has the error
		}
	}
	c.l.mu.Unlock()
	if tell {
		c.l.c.Notice(fmt.Sprintf("%s: %v; the next call starts it again", c.l.c.Command.Name(), reason))
	}
	c.mu.Lock()
	c.reason = reason
	for _, got := range c.pending {
		got <- answer{err: reason}
	}
	c.pending = nil
	c.mu.Unlock()
	close(c.gone)
}

func (c *conn) live() (err error) {
	defer safego.Into(&err)
	p, err := Start(c.l.c.Command)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrEnded, err)
	}
	c.mu.Lock()
	c.p = p
	ended := c.ended
	c.mu.Unlock()
	if ended != nil { // Close came first
		p.Kill()
	}
	var work sync.WaitGroup
	over := make(chan struct{})
	work.Go(func() {
		defer safego.Catch(c.end)
		c.write(p, over)
	})
	work.Go(func() {
		defer safego.Catch(c.end)
		c.greet(over)
	})
	c.read(p)
	// Its output has ended: so has it, or it is of no use any more.
	p.Stop()
	close(over)
	work.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return c.ended
	}
	return fmt.Errorf("%w: %w", ErrEnded, p.ended())
}

func (c *conn) write(p *Process, over <-chan struct{}) {
	for {
		select {
		case b := <-c.out:
			if _, err := p.Stdin.Write(b); err != nil {
				return // the reader sees the end, and knows more
			}
		case <-over:
			return
		}
	}
}

// greet sends Hello and lets the calls in.
func (c *conn) greet(over <-chan struct{}) {
	if c.l.c.Hello == nil {
		close(c.ready)
		return
	}
	id, got, _ := c.expect(nil)
	b, err := line(id, c.l.c.Hello)
	if err != nil {
		c.end(err)
		return
	}
	c.tell(b)
	limit := time.NewTimer(StartLimit)
	defer limit.Stop()
	select {
	case a := <-got:
		if a.err == nil && c.l.c.Greeted != nil {
			a.err = c.l.c.Greeted(a.line)
		}
		if a.err != nil {
			c.end(a.err)
			return
		}
		close(c.ready)
	case <-limit.C:
		c.end(fmt.Errorf("%w: it did not answer the first request within %v", ErrEnded, StartLimit))
	case <-over:
	}
}

// tell sends what nobody waits for.
func (c *conn) tell(b []byte) {
	select {
	case c.out <- b:
	default: // it does not read; whoever waits will find out
	}
}

// end kills the process.
func (c *conn) end(why error) {
	c.mu.Lock()
	if c.ended == nil {
		c.ended = why
	}
	p := c.p
	c.mu.Unlock()
	if p == nil {
		return
	}
	if errors.Is(why, ErrClosed) {
		p.Stop()
	} else {
		p.Kill()
	}
}

// expect numbers a request, of a session or of nobody who asks again.
func (c *conn) expect(of *Session) (int64, chan answer, error) {
	got := make(chan answer, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if of != nil && of.err != nil {
		of.told = true
		return 0, nil, of.err
	}
	c.next++
	if of != nil {
		of.ids = append(of.ids, c.next)
		c.owners[c.next] = of
	}
	if c.pending == nil { // it has ended meanwhile
		got <- answer{err: c.reason}
	} else {
		c.pending[c.next] = got
	}
	return c.next, got, nil
}

func (c *conn) forget(id int64) {
	c.mu.Lock()
	delete(c.pending, id)
	c.mu.Unlock()
}

// lose gives a call up.
func (c *conn) lose(id int64, alone bool, why error) {
	c.forget(id)
	c.mu.Lock()
	c.late[id] = true
	c.lost++
	n := c.lost
	c.mu.Unlock()
	switch {
	case alone && errors.Is(why, context.Canceled): // whose trajectory has ended: nobody's fault
		c.end(errAbandoned)
	case alone:
		c.end(fmt.Errorf("%w: it gave no answer in time and was stopped", ErrEnded))
	case n >= MaxLost:
		c.end(fmt.Errorf("%w: it gave no answer to %d calls in time and was stopped", ErrEnded, n))
	default:
		if b, err := line(id, map[string]any{"method": "cancel"}); err == nil {
			c.tell(b)
		}
	}
}

// read hands the answers out until the output ends.
func (c *conn) read(p *Process) {
	r := bufio.NewReaderSize(p.Stdout, 64<<10)
	for {
		b, err := readLine(r)
		if err != nil {
			if errors.Is(err, errLong) {
				c.end(fmt.Errorf("%w: it wrote a %w of more than %d MiB and was stopped", ErrGarbage, errLine, maxLine>>20))
			}
			return
		}
		if b = bytes.TrimSpace(b); len(b) > 0 {
			c.take(b)
		}
	}
}
