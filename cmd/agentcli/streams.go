package main

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"golang.org/x/term"

	"agentcli/internal/safego"
)

func systemStreams() streams {
	return streams{in: os.Stdin, out: os.Stdout, err: os.Stderr,
		outTTY: term.IsTerminal(int(os.Stdout.Fd())), errTTY: term.IsTerminal(int(os.Stderr.Fd()))}
}

// interrupt is the state behind ^C, carried by the command's context.
type interrupt struct {
	stop     chan struct{}
	graceful atomic.Bool
}

type interruptKey struct{}

// withInterrupt makes the first ^C (or SIGTERM, or SIGHUP: a terminal that
// goes away) close the stop channel of a command that asked for one by
// stopRequested, and cancel every other; the second cancels in any case; a third
// ends the process as the system does.
func withInterrupt(parent context.Context, s streams) (context.Context, func()) {
	in := &interrupt{stop: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.WithValue(parent, interruptKey{}, in))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup is heeded
		signal.Notify(signals, syscall.SIGHUP)
	}
	// A reader of stdout that goes away gives an error, which says how to go
	// on, instead of a silent end.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ignoreFileLimit()
	go func() {
		defer safego.Catch(nil)
		select {
		case <-signals:
		case <-ctx.Done():
			return
		}
		if in.graceful.Load() {
			close(in.stop)
			s.say("\nstopping: what runs has 10 s to finish; ^C again stops at once")
			select {
			case <-signals:
			case <-ctx.Done():
				return
			}
		}
		signal.Stop(signals)
		cancel()
	}()
	return ctx, func() { signal.Stop(signals); cancel() }
}

// stopRequested is closed by the first ^C. A command that calls it promises to
// end soon after; a later ^C cancels its context.
func stopRequested(ctx context.Context) <-chan struct{} {
	in, _ := ctx.Value(interruptKey{}).(*interrupt)
	if in == nil {
		return nil
	}
	in.graceful.Store(true)
	return in.stop
}
