package sandbox

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"agentcli/internal/safego"
)

// Pool is a zygote and its processes. It is safe for concurrent use.
type Pool struct {
	iso        *isolation
	supervisor supervisor
	held       []Held
	room       chan struct{} // a place for each living process
	spare      chan *Proc

	mu      sync.Mutex
	closed  bool
	filling int            // processes that are being made for spare
	wg      sync.WaitGroup // of what fills spare, and of processes that end
}

// Open starts a zygote, and finds out how far this machine lets it be isolated.
// The error of a refusal wraps ErrRefused and names the part.
func Open(ctx context.Context, c Config) (*Pool, error) {
	c.Limits = c.Limits.filled()
	if c.Parallel <= 0 {
		c.Parallel = DefaultParallel
	}
	if c.Spare == 0 {
		c.Spare = runtime.GOMAXPROCS(0)
	}
	c.Spare = min(max(c.Spare, 0), c.Parallel/2)
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	py, err := ask(ctx, c.Python)
	if err != nil {
		return nil, err
	}
	iso, z, held, err := isolate(ctx, c, py)
	if err != nil {
		return nil, err
	}
	p := &Pool{iso: iso, supervisor: supervisor{z: z}, held: held,
		room: make(chan struct{}, c.Parallel), spare: make(chan *Proc, max(c.Spare, 0))}
	p.refill()
	return p, nil
}

// Hidden are the places on the interpreter's search path that the code is not
// shown, since they are no folders of packages.
func (p *Pool) Hidden() []string { return p.iso.py.hidden }

// Parts says which parts hold.
func (p *Pool) Parts() []Held { return p.held }

// Isolated says whether every required part holds.
func (p *Pool) Isolated() bool { return len(p.iso.parts) == len(required) }

// Python is the interpreter's version, and those of Config.Modules that it has.
func (p *Pool) Python() (version string, modules []string) {
	return p.iso.py.Version, p.supervisor.modules()
}

// Start gives a process that is ready for code, and waits for a place where as
// many as may be live already. Close it.
func (p *Pool) Start(ctx context.Context) (*Proc, error) {
	for {
		select {
		case c := <-p.spare:
			p.refill()
			if !c.z.over() && c.Alive() {
				return c, nil
			}
			c.Close()
			continue
		default:
		}
		select {
		case c := <-p.spare:
			p.refill()
			if !c.z.over() && c.Alive() {
				return c, nil
			}
			c.Close()
		case p.room <- struct{}{}:
			return p.forkHere(ctx)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// forkHere forks a process for a place that was taken.
func (p *Pool) forkHere(ctx context.Context) (*Proc, error) {
	c, err := p.supervisor.fork(ctx)
	if errors.Is(err, errLost) { // the zygote had died a moment ago
		c, err = p.supervisor.fork(ctx)
	}
	if err != nil {
		<-p.room
		return nil, err
	}
	c.leave = sync.OnceFunc(func() {
		<-p.room
		p.refill() // there may have been no place for it
	})
	return c, nil
}

// refill prepares processes for later calls, as many as are missing, where there is
// a place.
func (p *Pool) refill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.closed && len(p.spare)+p.filling < p.iso.c.Spare {
		select {
		case p.room <- struct{}{}:
		default:
			return
		}
		p.filling++
		p.wg.Go(func() {
			defer safego.Catch(nil) // the next call forks for itself
			var c *Proc
			defer func() { p.filled(c) }()
			ctx, cancel := context.WithTimeout(context.Background(), startLimit)
			defer cancel()
			c, _ = p.forkHere(ctx) // the next call will say what is wrong
		})
	}
}

// filled takes what a refill has made: nil where it failed.
func (p *Pool) filled(c *Proc) {
	p.mu.Lock()
	p.filling--
	if c != nil {
		select {
		case p.spare <- c:
			c = nil
		default:
		}
	}
	p.mu.Unlock()
	if c != nil {
		c.Close()
	}
}

// retire ends a process after its last code, beside the next call: the end of a
// process with large modules takes the kernel a third of the time of a small call.
// Its place is free when it is gone.
func (p *Pool) retire(c *Proc) {
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.wg.Go(func() {
			defer safego.Catch(nil)
			inGrace(c.over)
			c.Close()
		})
	}
	p.mu.Unlock()
	if closed { // Close may have waited for all of them
		c.Close()
	}
}

// Run runs code in a fresh process. All output of the code and of what it started
// is in the result. The process, with all that it started, is gone when Run
// returns, or some milliseconds later where the code has ended by itself: until
// then it keeps its place among Config.Parallel. An error means that the code could
// not be run at all.
func (p *Pool) Run(ctx context.Context, code string) (Result, error) {
	for try := 0; ; try++ {
		c, err := p.Start(ctx)
		if err != nil {
			return Result{}, err
		}
		r, err := c.run(ctx, code, p.iso.c.Limits.Wall, false)
		p.retire(c)
		// The zygote may have died under a process that had not begun.
		if errors.Is(err, errLost) && try == 0 && ctx.Err() == nil {
			continue
		}
		return r, err
	}
}

// Close ends every process and the zygote.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.supervisor.close()
	p.wg.Wait()
	for {
		select {
		case c := <-p.spare:
			c.Close()
			continue
		default:
		}
		break
	}
	if p.iso.scrap != "" { // last: the others remove their folders in it
		removeAll(p.iso.scrap)
	}
	return nil
}
