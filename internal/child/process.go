// Package child runs programs of the user's beside this one: tools, rewards and
// MCP servers in any language. A Process is one running program with everything
// that it has started; Lines asks programs that answer JSON lines, and starts
// them again when they end. It is in layer 0 and imports the standard library and
// internal/text and internal/safego only.
package child

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"agentcli/internal/safego"
	"agentcli/internal/text"
)

const (
	tailBytes = 4 << 10         // of stderr that are kept for messages
	lastWords = time.Second     // from a program's end to no more reading of its output
	stopGrace = 2 * time.Second // from the end of its input to being killed
	lastLines = 3               // of stderr that a message shows
)

// Command is a program and how to start it.
type Command struct {
	Shell string   // a line for the shell; or
	Args  []string // the program and its arguments
	Pass  []string // names of variables of our environment that it gets, beside a few of no secrecy
	Env   []string // KEY=value, variables of its own
	// Said is given each line that it writes on stderr, without secrets; nil: only its last
	// words are kept.
	Said func(line string)
}

// Name is what a message calls the program; values that may be secrets are left
// out.
func (c Command) Name() string {
	if c.Shell != "" {
		return text.Cut(text.OneLine(text.Redact(c.Shell)), 80)
	}
	return text.Cut(text.OneLine(text.Redact(strings.Join(c.Args, " "))), 80)
}

// Process is a running program in a process group of its own.
type Process struct {
	Stdin  io.WriteCloser
	Stdout io.ReadCloser

	cmd    *exec.Cmd
	mark   string // of all that it starts, in their environment
	stderr tail
	outR   *os.File
	done   chan struct{}
	err    error // of Wait, once done is closed
	stop   sync.Once

	mu     sync.Mutex
	reaped bool // its group's number may be another's
}

var errNoCommand = errors.New("there is no command")

// Start starts the program. Stop it.
func Start(c Command) (*Process, error) {
	args := c.Args
	if c.Shell != "" {
		args = []string{"/bin/sh", "-c", c.Shell}
	}
	if len(args) == 0 {
		return nil, errNoCommand
	}
	p := &Process{cmd: exec.Command(args[0], args[1:]...), done: make(chan struct{})} //nolint:noctx // it outlives any call; Stop ends it
	p.mark = markName + "=" + rand.Text()
	p.cmd.Env = append(environment(c.Pass, c.Env), p.mark)
	p.stderr.secrets, p.stderr.said = c.secrets(), c.Said
	ownGroup(p.cmd)
	// Pipes of our own: Wait must come back when the program ends, even where
	// something that it has started holds its output open.
	var files []*os.File
	closeAll := func() {
		for _, f := range files {
			f.Close()
		}
	}
	pipe := func() (r, w *os.File, err error) {
		if r, w, err = os.Pipe(); err == nil {
			files = append(files, r, w)
		}
		return r, w, err
	}
	inR, inW, err1 := pipe()
	outR, outW, err2 := pipe()
	errR, errW, err3 := pipe()
	if err := errors.Join(err1, err2, err3); err != nil {
		closeAll()
		return nil, fmt.Errorf("cannot start %s: %w", c.Name(), err)
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = inR, outW, errW
	p.outR = outR
	started := make(chan error)
	go func() {
		defer safego.Catch(nil)
		p.live(started, errR)
	}()
	if err := <-started; err != nil {
		closeAll()
		return nil, fmt.Errorf("cannot start %s: %w", c.Name(), bare(err))
	}
	for _, f := range []*os.File{inR, outW, errW} {
		f.Close()
	}
	p.Stdin, p.Stdout = inW, outR
	return p, nil
}

// live starts the program and stays with it.
func (p *Process) live(started chan<- error, errR *os.File) {
	// The program ends with the thread that starts it: see ownGroup.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	var read sync.WaitGroup
	read.Go(func() {
		defer safego.Catch(nil)
		_, _ = io.Copy(&p.stderr, errR)
		errR.Close()
	})
	unreaped := awaitEnd(p.cmd.Process.Pid)
	if !unreaped {
		p.err = p.cmd.Wait()
	}
	p.mu.Lock()
	killGroup(p.cmd.Process) // what it has left behind, while the number is its own
	p.reaped = true
	p.mu.Unlock()
	if unreaped {
		p.err = p.cmd.Wait()
	}
	killMarked(p.mark) // and what has left its group
	// Its last words. Something out of reach may hold its output open for ever.
	_ = errR.SetReadDeadline(time.Now().Add(lastWords))
	_ = p.outR.SetReadDeadline(time.Now().Add(lastWords))
	read.Wait()
	close(p.done)
}

// Done is closed when the program has ended, and all that it had started.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill ends the program and all that it has started.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		killGroup(p.cmd.Process)
	}
}

// Stop closes the program's input, gives it a moment to end by itself, and kills
// it. It returns when the program is gone.
func (p *Process) Stop() {
	p.stop.Do(func() {
		_ = p.Stdin.Close()
		grace := time.NewTimer(stopGrace)
		defer grace.Stop()
		select {
		case <-p.done:
		case <-grace.C:
			p.Kill()
			<-p.done
		}
		_ = p.Stdout.Close()
	})
	<-p.done
}

// Ending says how the program ended, with its last words.
func (p *Process) Ending() string { return p.ended().Error() }

// EndedError is how a program ended.
type EndedError struct {
	Words string // the last lines that it wrote on stderr, joined to one
	err   error  // an *exec.ExitError where it failed; nil: it did not
}

func (p *Process) ended() *EndedError { return &EndedError{Words: p.stderr.last(), err: p.err} }

func (e *EndedError) Error() string {
	s := "it ended"
	if e.err != nil {
		s += " (" + text.Line(e.err) + ")"
	}
	if e.Words != "" {
		s += "; its last words: " + e.Words
	}
	return s
}

// Unwrap gives the error of the process, which has its exit code.
func (e *EndedError) Unwrap() error { return e.err }

// Words are the last lines that the program wrote on stderr, joined to one.
func (p *Process) Words() string { return p.stderr.last() }

func bare(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	return err
}

// tail keeps the last bytes that are written to it.
type tail struct {
	secrets []string          // that last and said leave out
	said    func(line string) // nil: nobody hears of each line

	mu   sync.Mutex
	b    []byte
	line []byte // that has not ended
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.said != nil {
		t.say(p)
	}
	t.b = append(t.b, p...)
	if n := len(t.b) - tailBytes; n > 0 {
		t.b = append(t.b[:0], t.b[n:]...)
	}
	return len(p), nil
}

// say passes whole lines on, and long ones in pieces.
func (t *tail) say(p []byte) {
	for _, c := range p {
		if c != '\n' {
			t.line = append(t.line, c)
		}
		if c == '\n' || len(t.line) == tailBytes {
			if line := t.clean(strings.ToValidUTF8(string(t.line), "�")); line != "" {
				t.said(line)
			}
			t.line = t.line[:0]
		}
	}
}

// clean is text without secrets, as one line.
func (t *tail) clean(words string) string {
	for _, s := range t.secrets {
		words = strings.ReplaceAll(words, s, "…")
	}
	return text.OneLine(text.Redact(words))
}

func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(strings.ToValidUTF8(string(t.b), "�")), "\n")
	return t.clean(strings.Join(lines[max(0, len(lines)-lastLines):], " / "))
}
