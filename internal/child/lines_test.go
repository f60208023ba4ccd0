//go:build unix

package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const asProgram = "AGENTCLI_TEST_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(asProgram) {
	case "":
	case "parent": // of a program that does not end by itself
		p, err := Start(Command{Args: []string{"sleep", "1000"}})
		if err != nil {
			panic(err)
		}
		fmt.Println(p.cmd.Process.Pid)
		select {}
	default:
		program()
		return
	}
	os.Exit(m.Run())
}

// program answers JSON lines as its requests tell it to.
func program() {
	in := bufio.NewScanner(os.Stdin)
	var waiting []int64
	cancelled := false
	for in.Scan() {
		var r struct {
			ID     int64  `json:"id"`
			Do     string `json:"do"`
			Method string `json:"method"`
		}
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(9)
		}
		say := func(id int64, text string) { fmt.Printf("{\"id\":%d,\"result\":%q}\n", id, text) }
		switch do, arg, _ := strings.Cut(r.Do, " "); do {
		case "echo":
			say(r.ID, arg)
		case "pid":
			say(r.ID, strconv.Itoa(os.Getpid()))
		case "crash":
			fmt.Fprintln(os.Stderr, "first word\nout of cheese")
			os.Exit(3)
		case "pair": // both are answered when both are there, the second first
			if waiting = append(waiting, r.ID); len(waiting) == 2 {
				say(waiting[1], "second")
				say(waiting[0], "first")
				waiting = nil
			}
		case "nan":
			fmt.Printf("{\"id\":%d,\"result\":NaN}\n", r.ID)
		case "cut":
			fmt.Println(`{"result":`)
		case "print":
			fmt.Printf("loading…\n\nstill loading\n")
			say(r.ID, "done")
		case "stray":
			say(987654, "whose?")
		case "nobody's": // both are answered when both are there
			if waiting = append(waiting, r.ID); len(waiting) == 2 {
				fmt.Print("{\"id\":null}\n{\"id\":null}\n")
				waiting = nil
			}
		case "held":
			if waiting = append(waiting, r.ID); len(waiting) == 3 {
				say(987654, "whose?")
				for _, id := range waiting {
					say(id, "mine")
				}
				waiting = nil
			}
		case "twice":
			say(r.ID, "one")
			say(r.ID, "another")
		case "long":
			fmt.Println(strings.Repeat("x", maxLine+100))
		case "child": // something that outlives us and holds our output
			c := exec.Command("sleep", "1000")
			c.Stdout, c.Stderr = os.Stdout, os.Stderr
			if err := c.Start(); err != nil {
				panic(err)
			}
			say(r.ID, strconv.Itoa(c.Process.Pid))
		case "exit":
			os.Exit(0)
		}
		cancelled = cancelled || r.Method == "cancel"
		if cancelled && len(waiting) == 1 {
			say(waiting[0], "the other was cancelled")
			waiting = nil
		}
		if r.Method == "hello" {
			say(r.ID, "hello")
		}
	}
}

func self(t *testing.T) Command {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Command{Args: []string{exe}, Env: []string{asProgram + "=1"}}
}

func lines(t *testing.T, c LinesConfig) *Lines {
	if c.Command.Args == nil {
		c.Command = self(t)
	}
	l := NewLines(c)
	t.Cleanup(l.Close)
	return l
}

func do(t *testing.T, l *Lines, what string) (string, error) {
	t.Helper()
	b, err := l.Call(t.Context(), map[string]any{"do": what}, true)
	var a struct{ Result string }
	if err == nil {
		err = json.Unmarshal(b, &a)
	}
	return a.Result, err
}

func TestCallsAreMultiplexedAndMatchedById(t *testing.T) {
	l := lines(t, LinesConfig{})
	got := make([]string, 2)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			b, err := l.Call(t.Context(), map[string]any{"do": "pair"}, false)
			got[i] = string(b)
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if both := got[0] + got[1]; !strings.Contains(both, "first") || !strings.Contains(both, "second") {
		t.Errorf("%q", got)
	}
}

// crashWords are those of the program when it crashes.
const crashWords = "out of cheese"

// exitCode is that of the program whose end an error is of; 0 where it did not fail.
func exitCode(err error) int {
	var e *exec.ExitError
	if !errors.As(err, &e) {
		return 0
	}
	return e.ExitCode()
}

func words(err error) string {
	var e *EndedError
	if !errors.As(err, &e) {
		return ""
	}
	return e.Words
}

func TestAProgramThatEndsFailsItsCallsAndIsStartedAgain(t *testing.T) {
	l := lines(t, LinesConfig{})
	first, err := do(t, l, "pid")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := do(t, l, "crash"); !errors.Is(err, ErrEnded) || exitCode(err) != 3 || words(err) != "first word / "+crashWords {
		t.Errorf("%v", err)
	}
	if second, err := do(t, l, "pid"); err != nil || second == first {
		t.Errorf("%q after %q, %v", second, first, err)
	}
}

func TestAProgramThatEndsAgainAndAgainIsLeftAloneForAWhile(t *testing.T) {
	now := time.Unix(0, 0)
	var mu sync.Mutex
	var notices []string
	l := lines(t,
		LinesConfig{Now: func() time.Time { return now }, Notice: func(s string) { mu.Lock(); notices = append(notices, s); mu.Unlock() }})
	for range maxFailures {
		if _, err := do(t, l, "crash"); !errors.Is(err, ErrEnded) || errors.Is(err, ErrBroken) {
			t.Fatal(err)
		}
	}
	if _, err := do(t, l, "echo a"); !errors.Is(err, ErrBroken) || words(err) != "first word / "+crashWords {
		t.Errorf("it was started once more: %v", err)
	}
	mu.Lock()
	if len(notices) != 2 || !strings.Contains(notices[0], crashWords) {
		t.Errorf("the first of a row and the last are told: %q", notices)
	}
	mu.Unlock()
	now = now.Add(pause)
	if got, err := do(t, l, "echo a"); got != "a" {
		t.Errorf("after the pause: %q, %v", got, err)
	}
	if _, err := do(t, l, "crash"); errors.Is(err, ErrBroken) {
		t.Error("an answer did not end the row of failures")
	}
}

func TestGarbageIsOneClearError(t *testing.T) {
	said := make(chan string, 10)
	l := lines(t, LinesConfig{Notice: func(s string) { said <- s }})
	for _, c := range []struct {
		do string
		is error
	}{
		{"nan", errNotJSON},
		{"cut", errNoID},
		{"stray", errNoID},
		{"long", errLine},
	} {
		if _, err := do(t, l, c.do); !errors.Is(err, ErrGarbage) || !errors.Is(err, c.is) {
			t.Errorf("%s: %v", c.do, err)
		}
	}
	for range 2 {
		if got, err := do(t, l, "print"); got != "done" || err != nil {
			t.Errorf("a print made a call fail: %q, %v", got, err)
		}
	}
	for _, want := range []string{"was stopped; the next call starts it again", `"loading…" on stdout, which is no answer`} {
		if got := <-said; !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if len(said) > 0 {
		t.Errorf("said more: %q", <-said)
	}
}

// TestAnAnswerThatIsNobodysEndsNoOther: while several wait, whose it was cannot be known.
func TestAnAnswerThatIsNobodysEndsNoOther(t *testing.T) {
	said := make(chan string, 10)
	l := lines(t, LinesConfig{Notice: func(s string) { said <- s }})
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if got, err := do(t, l, "held"); got != "mine" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	all.Wait()
	if got, err := do(t, l, "echo a"); got != "a" || err != nil {
		t.Errorf("behind it: %q, %v", got, err)
	}
	if len(said) != 1 {
		t.Errorf("%d notices", len(said))
	}
}

// TestCallsThatAreAllAnsweredAsNobodysDoNotWait: otherwise each would wait for its time-out.
func TestCallsThatAreAllAnsweredAsNobodysDoNotWait(t *testing.T) {
	l := lines(t, LinesConfig{Notice: func(string) {}})
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			if _, err := do(t, l, "nobody's"); !errors.Is(err, ErrGarbage) || !errors.Is(err, errNoID) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got, err := do(t, l, "echo a"); got != "a" || err != nil {
		t.Errorf("behind them: %q, %v", got, err)
	}
}

// TestASecondAnswerEndsItsSession: which of the two the program goes on with is not known.
// Other sessions, and calls of none, go on.
func TestASecondAnswerEndsItsSession(t *testing.T) {
	said := make(chan string, 10)
	l := lines(t, LinesConfig{Notice: func(s string) { said <- s }})
	session := func() *Session {
		s, err := l.Session(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	ask := func(s *Session, do string) (string, error) {
		b, err := s.Call(t.Context(), map[string]any{"do": do}, false)
		return string(b), err
	}
	bad, good, last := session(), session(), session()
	if got, err := ask(bad, "twice"); err != nil || !strings.Contains(got, `"one"`) {
		t.Fatalf("%s %v", got, err)
	}
	for range 2 { // it waits for an answer when the second one comes, or asks behind it
		if got, err := ask(bad, "echo a"); !errors.Is(err, ErrGarbage) || !strings.Contains(err.Error(), "1") {
			t.Errorf("%s %v", got, err)
		}
	}
	bad.Close()
	if got, err := ask(good, "echo a"); err != nil || !strings.Contains(got, `"a"`) {
		t.Errorf("another session: %s %v", got, err)
	}
	if len(said) != 0 {
		t.Errorf("an error that a call has is said too: %q", <-said)
	}
	if _, err := ask(last, "twice"); err != nil {
		t.Error(err)
	}
	if _, err := ask(good, "echo a"); err != nil { // behind the second answer
		t.Error(err)
	}
	last.Close()
	good.Close()
	if len(said) != 1 {
		t.Errorf("%d notices of an answer that no call has failed by", len(said))
	}
	if got, err := do(t, l, "twice"); got != "one" || err != nil {
		t.Errorf("a call of no session: %q %v", got, err)
	}
	if n := len(session().c.owners); n != 0 {
		t.Errorf("%d requests of sessions that are closed are kept", n)
	}
}

func TestASilentProgramIsStoppedAndAnotherTakesItsPlace(t *testing.T) {
	l := lines(t, LinesConfig{})
	first, _ := do(t, l, "pid")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.Call(ctx, map[string]any{"do": "sleep"}, true); !errors.Is(err, ErrSilent) {
		t.Fatal(err)
	}
	for { // the old one may be on its way out
		second, err := do(t, l, "pid")
		if err == nil && second != first {
			break
		}
	}
}

func TestACallGivenUpBesideOthersIsCancelled(t *testing.T) {
	l := lines(t, LinesConfig{})
	before, _ := do(t, l, "pid")
	got := make(chan string, 1)
	go func() { // the second call; it is answered when the program hears of the first one's end
		b, err := l.Call(t.Context(), map[string]any{"do": "pair"}, false)
		got <- fmt.Sprint(string(b), err)
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := l.Call(ctx, map[string]any{"do": "nothing"}, false); !errors.Is(err, ErrSilent) {
		t.Fatal(err)
	}
	if s := <-got; !strings.Contains(s, "cancelled") {
		t.Error(s)
	}
	if after, _ := do(t, l, "pid"); after != before {
		t.Error("the program was ended, and with it the calls of others")
	}
}

func TestManyCallsWithoutAnyAnswerEndTheProgram(t *testing.T) {
	l := lines(t, LinesConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := l.Open(ctx); err != nil {
		t.Fatal(err)
	}
	cancel()
	var wg sync.WaitGroup
	stuck := make(chan error, 1)
	go func() {
		_, err := l.Call(t.Context(), map[string]any{"do": "nothing"}, false)
		stuck <- err
	}()
	for range MaxLost {
		wg.Go(func() { _, _ = l.Call(ctx, map[string]any{"do": "nothing"}, false) })
	}
	wg.Wait()
	for {
		select {
		case err := <-stuck:
			if !errors.Is(err, ErrEnded) {
				t.Error(err)
			}
			return
		default: // running may have failed before the call was made
			_, _ = l.Call(ctx, map[string]any{"do": "nothing"}, false)
		}
	}
}

func TestCloseEndsEverythingThatTheProgramStarted(t *testing.T) {
	l := lines(t, LinesConfig{})
	pid, err := do(t, l, "child")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	n, _ := strconv.Atoi(pid)
	waitForTheEnd(n)
	if _, err := do(t, l, "echo a"); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// waitForTheEnd returns when a process is dead; init takes a moment to bury it.
func waitForTheEnd(pid int) {
	for syscall.Kill(pid, 0) == nil {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && strings.Contains(string(b), ") Z ") {
			return
		}
	}
}

// A program that does not look at its input does not outlive us.
func TestAProgramEndsWithUsHoweverWeEnd(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the kernel ends it on Linux only")
	}
	us := self(t)
	cmd := exec.CommandContext(t.Context(), us.Args[0])
	cmd.Env = append(os.Environ(), asProgram+"=parent")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	waitForTheEnd(pid)
}

func TestWhatAProgramLeftBehindDoesNotHoldItsEndUp(t *testing.T) {
	l := lines(t, LinesConfig{})
	if _, err := do(t, l, "child"); err != nil {
		t.Fatal(err)
	}
	if _, err := do(t, l, "exit"); !errors.Is(err, ErrEnded) {
		t.Errorf("%v", err)
	}
}

func TestHelloIsTheFirstRequestToEveryProcess(t *testing.T) {
	greeted := 0
	l := lines(t, LinesConfig{Hello: map[string]any{"method": "hello"}, Greeted: func(b []byte) error {
		greeted++
		if !strings.Contains(string(b), "hello") {
			return fmt.Errorf("it said %s", b)
		}
		return nil
	}})
	for i := range 3 {
		if got, err := do(t, l, "echo a"); got != "a" || greeted != i+1 {
			t.Errorf("%q, %v, greeted %d times", got, err, greeted)
		}
		_, _ = do(t, l, "crash")
	}
	other := errors.New("not the one")
	refused := lines(t,
		LinesConfig{Hello: map[string]any{"method": "hello"}, Greeted: func([]byte) error { return other }})
	if err := refused.Open(t.Context()); !errors.Is(err, other) {
		t.Error(err)
	}
}

func TestAProgramThatIsNotThereSaysSo(t *testing.T) {
	for _, c := range []struct {
		command Command
		why     func(error) bool
	}{
		{Command{Shell: "no-such-program-here --x"}, func(err error) bool { return exitCode(err) == 127 }},
		{Command{Args: []string{"/no/such/program"}}, func(err error) bool { return errors.Is(err, fs.ErrNotExist) }},
		{Command{}, func(err error) bool { return errors.Is(err, errNoCommand) }},
		{Command{Shell: "true"}, func(err error) bool { return errors.As(err, new(*EndedError)) && exitCode(err) == 0 }},
	} {
		l := NewLines(LinesConfig{Command: c.command, Hello: map[string]any{"method": "hello"}})
		if err := l.Open(t.Context()); !errors.Is(err, ErrEnded) || !c.why(err) {
			t.Errorf("%+v: %v", c.command, err)
		}
		l.Close()
	}
}

func FuzzAnyLineIsTakenWithoutHarm(f *testing.F) {
	for _, s := range []string{`{"id":1,"result":NaN}`, `{"id":`, "x", `{"id":"1"}`, `{"id":1e3}`, `[1]`, "{\"id\":\xff}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l := NewLines(LinesConfig{})
		c := &conn{l: l, pending: map[int64]chan answer{}}
		id, got, _ := c.expect(nil)
		if len(b) == 0 {
			return
		}
		c.take(b)
		select {
		case a := <-got:
			if _, still := c.pending[id]; still {
				t.Error("an answered call is kept")
			}
			if a.err == nil && !json.Valid(a.line) {
				t.Errorf("%q was handed out as an answer", a.line)
			}
		default:
			if _, still := c.pending[id]; !still {
				t.Error("a call was lost without an answer")
			}
		}
	})
}

// TestWhatAProgramSaysIsPassedOn: each line of stderr as it comes, without secrets; a long one in
// pieces.
func TestWhatAProgramSaysIsPassedOn(t *testing.T) {
	var mu sync.Mutex
	var said []string
	c := self(t)
	c.Args, c.Env = []string{"/bin/sh", "-c", `echo one >&2; printf 'key %s' "$SECRET_KEY" >&2; echo >&2; echo two >&2; ` +
		`head -c 5000 /dev/zero | tr '\\0' x >&2; echo >&2`}, []string{"SECRET_KEY=hunter2hunter2"}
	c.Said = func(line string) { mu.Lock(); defer mu.Unlock(); said = append(said, line) }
	p, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	p.Stop()
	mu.Lock()
	defer mu.Unlock()
	if len(said) != 5 || said[0] != "one" || strings.Contains(said[1], "hunter2") || said[2] != "two" || len(said[3])+len(said[4]) != 5000 {
		t.Errorf("%d lines: %.60q", len(said), said)
	}
}

// TestNumbersThatJSONLacksAreNamed: Python writes them without a word.
func TestNumbersThatJSONLacksAreNamed(t *testing.T) {
	l := lines(t, LinesConfig{})
	if _, err := do(t, l, "nan"); !errors.Is(err, ErrGarbage) || !strings.Contains(err.Error(), "Infinity") {
		t.Error(err)
	}
	if _, err := do(t, l, "cut"); !errors.Is(err, ErrGarbage) || strings.Contains(err.Error(), "Infinity") {
		t.Error(err)
	}
}
