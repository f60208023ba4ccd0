package engine

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// A goroutine that is left when the test ends fails it: synctest waits for all.
func TestGoroutinesAreKeptUpToALimitAndEndWithTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &workers{}
		for range 3 {
			var running sync.WaitGroup
			begin := make(chan struct{})
			for range 2 * maxIdle {
				running.Add(1)
				w.run(func() { defer running.Done(); <-begin })
			}
			synctest.Wait()
			if len(w.idle) != 0 {
				t.Errorf("%d goroutines wait while calls run in all", len(w.idle))
			}
			close(begin)
			running.Wait()
			synctest.Wait()
			if len(w.idle) != maxIdle {
				t.Errorf("%d goroutines wait for calls, want %d", len(w.idle), maxIdle)
			}
		}
		w.run(runtime.Goexit)
		synctest.Wait()
		if len(w.idle) != maxIdle-1 {
			t.Errorf("%d goroutines wait after one ended itself", len(w.idle))
		}
		w.end()
		done := make(chan struct{})
		w.run(func() { close(done) }) // what was left behind may still ask
		<-done
		synctest.Wait()
		if len(w.idle) != 0 {
			t.Errorf("%d goroutines wait after the run's end", len(w.idle))
		}
	})
}
