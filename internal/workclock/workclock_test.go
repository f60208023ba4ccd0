package workclock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// lasts is after what time ctx ends.
func lasts(ctx context.Context, start time.Time) time.Duration {
	<-ctx.Done()
	return time.Since(start)
}

func TestWorkEndsAContextAndWaitingDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := WithLimit(t.Context(), 10*time.Second)
		defer cancel()
		time.Sleep(4 * time.Second)
		resume := Wait(ctx)
		time.Sleep(time.Hour)
		resume()
		resume() // a second time counts for nothing
		if ctx.Err() != nil {
			t.Fatal("waiting was counted")
		}
		if d := lasts(ctx, start); d != time.Hour+10*time.Second || !spent(ctx) {
			t.Errorf("it ended after %v, spent %v", d, spent(ctx))
		}
	})
}

func TestTheClockRunsWhileAnyOfSeveralWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := WithLimit(t.Context(), 10*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for _, queued := range []time.Duration{3 * time.Second, time.Minute} {
			done := Work(ctx)
			wg.Go(func() {
				defer done()
				resume := Wait(ctx)
				time.Sleep(queued)
				resume()
				time.Sleep(2 * time.Second)
			})
		}
		resume := Wait(ctx)
		wg.Wait()
		resume()
		if d := lasts(ctx, start); d != time.Minute+2*time.Second+6*time.Second { // 2 and 2 of 10 were worked on
			t.Errorf("it ended after %v", d)
		}
	})
}

func TestWhatCameToNothingIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := WithLimit(t.Context(), 10*time.Second)
		defer cancel()
		void := Attempt(ctx)
		time.Sleep(9 * time.Second)
		void()
		time.Sleep(9 * time.Second)
		if ctx.Err() != nil {
			t.Fatal("the attempt was counted")
		}
		if d := lasts(ctx, start); d != 19*time.Second {
			t.Errorf("it ended after %v", d)
		}
	})
}

func TestALimitOfNothingIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, end := context.WithCancel(t.Context())
		ctx, cancel := WithLimit(parent, 0)
		Wait(ctx)()
		Work(ctx)()
		Attempt(ctx)()
		time.Sleep(time.Hour)
		if ctx.Err() != nil {
			t.Error("it ended")
		}
		cancel()
		end()
		if spent(ctx) || !errors.Is(ctx.Err(), context.Canceled) {
			t.Error("cancelled is not spent")
		}
	})
}

func TestAnEndedClockStartsNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := WithLimit(t.Context(), time.Second)
		resume := Wait(ctx)
		cancel()
		resume()
		time.Sleep(time.Minute)
		if spent(ctx) {
			t.Error("a cancelled clock went on")
		}
	})
}

func spent(ctx context.Context) bool { return errors.Is(context.Cause(ctx), ErrSpent) }
