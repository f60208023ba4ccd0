package llm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentcli/internal/workclock"
	"agentcli/traj"
)

func status(code int, after string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		return answer(r, code, `<html>no server</html>`, after), nil
	}
}

// A server behind a proxy restarts for five minutes: no request fails for it, and they
// do not ask one by one meanwhile.
func TestAServerBehindAProxyIsWaitedFor(t *testing.T) {
	for name, how := range map[string]func(*http.Request) (*http.Response, error){
		"502":                  status(502, ""),
		"503":                  status(503, ""),
		"503 with Retry-After": status(503, "20"),
		"504":                  status(504, ""),
		"521":                  status(521, ""),
		"a closed connection":  func(*http.Request) (*http.Response, error) { return nil, io.EOF },
	} {
		for _, hosts := range [][]string{{"a"}, {"a", "b"}} {
			t.Run(fmt.Sprintf("%s, %d servers", name, len(hosts)), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n := sites{"a": {proxy: how}, "b": {proxy: how}}
					w := newTown(t, n, hosts...)
					defer w.Close()
					w.ask(t, "x")
					n.setDead(true)
					time.AfterFunc(5*time.Minute+7*time.Second, func() { n.setDead(false) }) // at no probe's own moment
					start := time.Now()
					var all sync.WaitGroup
					for i := range 100 {
						all.Go(func() {
							time.Sleep(time.Duration(i) * time.Second) // most of them come when the outage is known
							ctx, cancel := workclock.WithLimit(t.Context(), 5*time.Second)
							defer cancel()
							if err := w.try(ctx, fmt.Sprint("t", i)); err != nil {
								t.Error(err)
							}
						})
					}
					all.Wait()
					if d := time.Since(start); d > 7*time.Minute {
						t.Errorf("it took %v", d)
					}
					asked := n["a"].asked + n["b"].asked
					if asked > 500 {
						t.Errorf("asked %d times for 101 replies", asked)
					}
					// 503 is overload, too: asked one at a time, few of them spend their retries.
					if waits := w.heard("waiting up to"); waits > 1 || waits == 0 && !strings.HasPrefix(name, "503") || waits > w.heard("is back") {
						t.Errorf("said: %q", w.said)
					}
				})
			})
		}
	}
}

// What never comes back is given up once for all, after Config.Patience.
func TestPatienceBehindAProxyEndsOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := sites{"a": {proxy: status(502, "")}}
		w := newTown(t, n, "a")
		defer w.Close()
		w.ask(t, "x")
		n.setDead(true)
		start := time.Now()
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				if err := w.try(t.Context(), ""); !errors.Is(err, traj.ErrGone) || errors.Is(err, traj.ErrFatal) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if d := time.Since(start); d < 10*time.Minute || d > 12*time.Minute {
			t.Errorf("they waited %v", d)
		}
		start = time.Now()
		if err := w.try(t.Context(), ""); !errors.Is(err, traj.ErrGone) {
			t.Error(err)
		}
		if d := time.Since(start); d > time.Minute {
			t.Errorf("waited a second time: %v", d)
		}
		n.setDead(false)
		w.ask(t, "x") // it is asked all the same, and then waited for again
		n.setDead(true)
		time.AfterFunc(5*time.Minute, func() { n.setDead(false) })
		w.ask(t, "x")
	})
}

// While others get replies, a 503 is one of an overloaded server, and its request
// fails when its retries are spent.
func TestAProxyThatAnswersOthersIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := sites{"a": {serve: func(_ *site, r *http.Request) (*http.Response, error) {
			if traj.IDOf(r.Context()) == "unlucky" {
				return answer(r, 503, `{}`, ""), nil
			}
			return slowly(r)
		}}}
		w := newTown(t, n, "a")
		defer w.Close()
		ctx, stop := context.WithCancel(t.Context())
		var others sync.WaitGroup
		others.Go(func() {
			for ctx.Err() == nil {
				w.ask(t, "lucky")
				time.Sleep(100 * time.Millisecond)
			}
		})
		if err := w.try(t.Context(), "unlucky"); err == nil || errors.Is(err, traj.ErrGone) {
			t.Error(err)
		}
		stop()
		others.Wait()
		if w.heard("waiting up to") > 0 {
			t.Errorf("said: %q", w.said)
		}
	})
}

// Where nothing has ever answered with a reply, the address may be wrong.
func TestAProxyWithoutAServerFromTheStartIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, sites{"a": {dead: true, proxy: status(502, "")}}, "a")
		defer w.Close()
		start := time.Now()
		if err := w.try(t.Context(), "x"); err == nil || errors.Is(err, traj.ErrGone) {
			t.Error(err)
		}
		if d := time.Since(start); d > 2*time.Minute {
			t.Errorf("waited %v", d)
		}
	})
}

// A proxy that lists the models has a server: what fails is the request's own affair.
func TestARequestThatAProxyGivesUpIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := sites{"a": {models: "m", serve: func(_ *site, r *http.Request) (*http.Response, error) {
			if traj.IDOf(r.Context()) == "long" {
				time.Sleep(time.Minute)
				return answer(r, 504, `{}`, ""), nil
			}
			return slowly(r)
		}}}
		w := newTown(t, n, "a")
		defer w.Close()
		w.ask(t, "x")
		if err := w.try(t.Context(), "long"); err == nil || errors.Is(err, traj.ErrGone) {
			t.Error(err)
		}
		if w.heard("waiting up to") > 0 {
			t.Errorf("said: %q", w.said)
		}
	})
}

// A server that dies of a request is asked it a few times only.
func TestARequestThatKillsItsServerFails(t *testing.T) {
	for _, err := range []error{io.EOF, io.ErrUnexpectedEOF} {
		t.Run(err.Error(), func(t *testing.T) { killing(t, err) })
	}
}

func killing(t *testing.T, end error) {
	synctest.Test(t, func(t *testing.T) {
		deaths := 0
		n := sites{}
		n["a"] = &site{}
		n["a"].serve = func(at *site, r *http.Request) (*http.Response, error) {
			if traj.IDOf(r.Context()) != "poison" {
				return slowly(r)
			}
			deaths++
			at.set(func() { at.dead = true })
			time.AfterFunc(30*time.Second, func() { at.set(func() { at.dead = false }) })
			return nil, end
		}
		w := newTown(t, n, "a")
		defer w.Close()
		w.ask(t, "x")
		if err := w.try(t.Context(), "poison"); err == nil || errors.Is(err, traj.ErrGone) {
			t.Error(err)
		}
		if deaths > 20 {
			t.Errorf("it died %d times", deaths)
		}
		w.ask(t, "x")
	})
}
