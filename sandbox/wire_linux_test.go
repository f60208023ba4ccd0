package sandbox

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// messages cuts bytes into messages: each is a length (1 byte) and as many bytes.
// None is empty: a socket says end of file for one.
func messages(b []byte) (list [][]byte) {
	for len(b) > 0 && len(list) < 16 {
		n := min(int(b[0]), len(b)-1)
		if n > 0 {
			list = append(list, b[1:1+n])
		}
		b = b[1+n:]
	}
	return list
}

func asMessages(list ...string) (b []byte) {
	for _, s := range list {
		b = append(append(b, byte(len(s))), s...)
	}
	return b
}

// packets is a reader that keeps the bounds of messages, as a SEQPACKET socket does.
type packets struct{ list [][]byte }

func (p *packets) Read(b []byte) (int, error) {
	if len(p.list) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.list[0])
	p.list = p.list[1:]
	return n, nil
}

func oneLine(t *testing.T, err error) {
	t.Helper()
	if err != nil && (strings.ContainsAny(err.Error(), "\r\n") || len(err.Error()) > 4*maxReason) {
		t.Errorf("the error %q", err)
	}
}

// pair is a socket pair: ours as a file with deadlines, theirs as a connection.
func pair(t testing.TB, kind int) (*os.File, *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.SetNonblock(fds[0], true)
	f := os.NewFile(uintptr(fds[1]), "theirs")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fds[0]), "ours"), c.(*net.UnixConn)
}

// standIn is a zygote without a process. It answers each kill with the end of the
// process, as ours does.
type standIn struct {
	*zygote
	theirs *net.UnixConn
	gone   chan struct{} // closed when it was killed
	wg     sync.WaitGroup
}

func newStandIn(t *testing.T) *standIn {
	t.Helper()
	file, theirs := pair(t, unix.SOCK_SEQPACKET)
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	s := &standIn{theirs: theirs, gone: make(chan struct{})}
	kill := sync.OnceFunc(func() {
		close(s.gone)
		_ = theirs.Close()
	})
	s.zygote = &zygote{control: conn.(*net.UnixConn), live: map[int]*Proc{}, done: make(chan struct{}), stderr: &bounded{}, group: &group{},
		kill: func() error { kill(); return nil }, wait: func() error { <-s.gone; return nil }}
	t.Cleanup(func() {
		kill()
		s.wg.Wait()
	})
	return s
}

// obey answers what the pool asks for.
func (s *standIn) obey() {
	s.wg.Go(func() {
		b := make([]byte, 4096)
		for {
			n, err := s.theirs.Read(b)
			if err != nil || n == 0 {
				return
			}
			if op, id, _ := strings.Cut(string(b[:n]), " "); op == "kill" {
				_, _ = s.theirs.Write([]byte(`{"exit":` + id + `,"status":9}`))
			}
		}
	})
}

// proc is a process of the stand-in, and what it holds of it.
func (s *standIn) proc(t *testing.T, wall time.Duration) (*Proc, *net.UnixConn, [2]*os.File) {
	t.Helper()
	ctl, theirs := pair(t, unix.SOCK_STREAM)
	c := &Proc{z: s.zygote, limits: Limits{Wall: wall, Output: 1 << 10}, ctl: ctl, over: make(chan struct{})}
	var writers [2]*os.File
	for i, f := range []**os.File{&c.out, &c.err} {
		var err error
		if *f, writers[i], err = os.Pipe(); err != nil {
			t.Fatal(err)
		}
	}
	s.mu.Lock()
	s.next++
	c.id = s.next
	if s.live != nil {
		s.live[c.id] = c
	}
	s.mu.Unlock()
	t.Cleanup(func() {
		for _, f := range []io.Closer{theirs, writers[0], writers[1]} {
			_ = f.Close()
		}
		c.Close()
	})
	return c, theirs, writers
}

// FuzzZygoteMessages gives any messages to what reads a zygote: its greeting is
// read or refused in one line, each process ends once, by its own report or with
// the zygote, and nothing hangs.
func FuzzZygoteMessages(f *testing.F) {
	f.Add(asMessages(`{"ready":"3.12.3","modules":["math"]}`, `{"exit":2,"status":256}`, `{"exit":1,"status":9}`))
	f.Add(asMessages(`{"refused":"Landlock\na ruleset: Operation not permitted"}`))
	f.Add(asMessages(`{"refused":"\nOSError: [Errno 5]\nof two lines"}`, `{"exit":1,"status":-1}`))
	f.Add(asMessages(`{"exit":1,"status":0}`, `{"exit":1,"status":256}`, `{"exit":3}`, `{"exit":"2"}`))
	f.Add(asMessages(`null`, ``, `{"exit":2,"status":127}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		list := messages(b)
		modules, err := readGreeting(&packets{list})
		if oneLine(t, err); err != nil && modules != nil {
			t.Errorf("modules %q beside %v", modules, err)
		}
		reported := map[int]syscall.WaitStatus{}
		readEnds(&packets{list}, func(id int, status syscall.WaitStatus) {
			if _, twice := reported[id]; !twice {
				reported[id] = status
			}
			_ = signalName(status)
		})

		s := newStandIn(t)
		procs := map[int]*Proc{}
		for range 3 {
			c, _, _ := s.proc(t, time.Second)
			procs[c.id] = c
		}
		go s.listen()
		for _, m := range list {
			_, _ = s.theirs.Write(m)
		}
		_ = s.theirs.CloseWrite()
		_ = s.kill()
		select {
		case <-s.done:
		case <-time.After(time.Minute):
			t.Fatal("the zygote's end is not seen")
		}
		for id, c := range procs {
			if c.Alive() {
				t.Fatalf("process %d has not ended", id)
			}
			if status, own := reported[id]; c.lost == nil && (!own || status != c.status) {
				t.Errorf("process %d ended with %v; its report: %v, %v", id, c.status, status, own)
			}
		}
		if err := s.send("start", 9, workDir); err == nil {
			t.Error("a zygote that is gone takes a start")
		}
	})
}

// FuzzProcessMessages gives any bytes to what reads a process: hostile code holds
// its control and both outputs. The first byte says what the process does: bit 0:
// it keeps its descriptors open; bit 1: it sends a true reply first; bit 2: it
// ends with its words. The wall limit holds, errors are lines, and the second code
// has no result that was not a reply to it.
func FuzzProcessMessages(f *testing.F) {
	was := lastWords
	lastWords = 10 * time.Millisecond
	f.Cleanup(func() { lastWords = was })
	reply := string(append([]byte("D"), make([]byte, 12)...))
	for mode := range byte(8) {
		f.Add(mode, []byte("R"+reply), []byte("out\n"), []byte("err\n"))
		f.Add(mode, []byte("FLandlock\nno\nrules"), bytes.Repeat([]byte("x"), 5000), []byte{})
		f.Add(mode, []byte(reply+reply), []byte{}, []byte{0xff, 0})
	}
	f.Fuzz(func(t *testing.T, mode byte, control, stdout, stderr []byte) {
		keepOpen, answers, ends := mode&1 != 0, mode&2 != 0, mode&4 != 0
		oneLine(t, readReady(bytes.NewReader(control)))
		if _, err := readReply(bytes.NewReader(control), newKey()); err == nil {
			t.Error("bytes are taken for the reply to a key that they do not know")
		}

		const wall = 20 * time.Millisecond
		s := newStandIn(t)
		c, theirs, writers := s.proc(t, wall)
		s.obey()
		go s.listen()
		var asked atomic.Value // the code that the process was given
		var cut atomic.Bool    // it was given a part of one
		s.wg.Go(func() {
			var head [13]byte
			if _, err := io.ReadFull(theirs, head[:]); err != nil {
				return
			}
			code := make([]byte, binary.LittleEndian.Uint32(head[:]))
			if _, err := io.ReadFull(theirs, code); err != nil {
				cut.Store(true)
				return
			}
			// On a busy machine the first code's time is over before it is sent.
			asked.Store(string(code))
			for i, b := range [][]byte{stdout, stderr} {
				_ = writers[i].SetWriteDeadline(time.Now().Add(time.Minute))
				_, _ = writers[i].Write(b)
			}
			if answers {
				_, _ = theirs.Write(append(append([]byte("D"), head[5:]...), 3, 0, 0, 0))
			}
			_, _ = theirs.Write(control)
			if ends {
				s.theirs.Write([]byte(`{"exit":1,"status":256}`))
			}
			if !keepOpen {
				_ = theirs.CloseWrite()
				_ = writers[0].Close()
				_ = writers[1].Close()
			}
		})
		start := time.Now()
		r, err := c.Run(t.Context(), "first")
		oneLine(t, err)
		ended := err != nil || r.TimedOut // and the code may not have been sent to its end
		if len(r.Stdout) > c.limits.Output || len(r.Stderr) > c.limits.Output || !bytes.HasPrefix(stdout, r.Stdout) ||
			!bytes.HasPrefix(stderr, r.Stderr) {
			t.Errorf("stdout %q, stderr %q", r.Stdout, r.Stderr)
		}
		switch {
		case err != nil && !errors.Is(err, errLost):
			t.Error(err)
		case answers && err == nil && !r.TimedOut && r.Signal == "" && r.ExitCode != 3 && r.ExitCode != 1:
			t.Errorf("the reply said 3: %+v", r)
		case !answers && err == nil && !r.TimedOut && r.Signal == "" && (!ends || r.ExitCode != 1):
			t.Errorf("a result without a reply: %+v", r)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err = c.Run(ctx, "second") // nobody answers, unless it is the first that was sent
		oneLine(t, err)
		if err == nil && asked.Load() != "second" && !r.TimedOut && r.Signal == "" && (!ends || r.ExitCode != 1) {
			t.Errorf("the second code has a result: %+v", r)
		}
		if ended = ended || err != nil || r.TimedOut; cut.Load() && !ended {
			t.Error("a frame is shorter than it says")
		}
		if d := time.Since(start); d > 30*time.Second {
			t.Errorf("two codes with a limit of %v took %v", wall, d)
		}
	})
}
