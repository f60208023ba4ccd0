package sandbox

import (
	"fmt"
	"testing"
	"time"
)

// eventually polls for what happens beside the test.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 2000 {
		if is() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Error(what)
}

// TestSparesComeBack: a process that could not be prepared for lack of a place is
// prepared when there is one again.
func TestSparesComeBack(t *testing.T) {
	p := pool(t, Config{Parallel: 4, Spare: 2})
	both := func() bool { return len(p.spare) == 2 }
	eventually(t, "there are no spare processes at first", both)
	var all []*Proc
	for range 4 {
		c, err := p.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	for _, c := range all {
		c.Close()
	}
	eventually(t, "no spare processes after all places were taken once", both)
	for range 20 { // one after the other, each beside the end of the last
		do(t, p, "1")
	}
	eventually(t, "no spare processes after calls", both)
	eventually(t, "places are held by nothing", func() bool { return len(p.room) == 2 })
}

// TestAForgedEndIsTheEnd: code that says by itself that it is over, and runs on with
// its output open, holds neither the call nor a place.
func TestAForgedEndIsTheEnd(t *testing.T) {
	defer func(was time.Duration) { lastWords = was }(lastWords)
	lastWords = time.Minute
	p := pool(t, Config{Parallel: 1, Spare: -1, Limits: Limits{Wall: 30 * time.Second}})
	const forge = `
import os, struct, sys, time
f = sys._getframe()
while 'key' not in f.f_locals: f = f.f_back
print('forged')
sys.stdout.flush()
%s
os.write(3, b'D' + struct.pack('<QI', f.f_locals['key'], 0))
time.sleep(25)
`
	for name, before := range map[string]string{"output open": "", "output closed": "os.closerange(1, 3)"} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			r := do(t, p, fmt.Sprintf(forge, before))
			if string(r.Stdout) != "forged\n" || r.ExitCode != 0 {
				t.Errorf("%+v %s%s", r, r.Stdout, r.Stderr)
			}
			if r := do(t, p, "6 * 7"); string(r.Stdout) != "42\n" { // in the one place
				t.Errorf("%+v %s", r, r.Stderr)
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}
