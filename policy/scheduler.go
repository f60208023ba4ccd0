//go:build libtorch

package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"agentcli/internal/safego"
	"agentcli/internal/torch"
	"agentcli/traj"
)

// scheduler decodes sequences together, as nano-vllm does: a step is schedule →
// run → postprocess. Waiting prompts join the running sequences at any step;
// each step computes new tokens of all: one, and what may follow it, of those that
// decode, and chunks of the prompts of those that join.
type scheduler struct {
	p       *Policy
	table   *blockTable
	kpool   []torch.Tensor // one a layer: [blocks, block size, kv heads, head dim]
	vpool   []torch.Tensor
	host    *hostCache   // what the table of the host names; nil: there is none
	states  []layerState // of recurrent layers; nil: the model has none
	slots   *slotTable   // of the states; nil: the model has none
	experts *expertStore // nil: they are not kept
	mu      sync.Mutex
	wake    *sync.Cond
	inbox   []*sequence
	number  int64   // of the newest request
	change  *change // of the weights
	paused  bool
	gone    bool // somebody no longer waits for a reply
	forget  bool // nothing of the cache is to be found any more
	seen    Load // between the last two steps
	closed  bool
	done    chan struct{}

	adapters map[string]*servedAdapter // by name
	retired  []*servedAdapter          // no longer there for new requests
	loads    int64                     // of adapters so far

	// owned by the loop
	waiting    []*sequence
	running    []*sequence
	decoder    *torch.Decoder // of the network; nil: step by operations
	device     *torch.DeviceDecoder
	stepTokens int  // new tokens of a step
	pace       pace // of prompts beside sequences that decode
	layered    *layeredChunk
	load       Load // the counts
	most       int  // how many may run together: less than MaxBatch once the device has run out of memory
}

var errClosed = errors.New("the policy is closed")

func newScheduler(s *torch.Scope, p *Policy) *scheduler {
	sc := &scheduler{p: p, done: make(chan struct{}), stepTokens: defaultStepTokens}
	sc.wake, sc.most = sync.NewCond(&sc.mu), mostRunning(sc)
	n := p.net
	bytes, limit := cacheBytes(s, p.cfg, n.device)
	if n.cfg.Recurrent() {
		bytes -= sc.makeStates(s, bytes)
	}
	perToken := max(n.cfg.CachedPerToken()*int64(n.dtype.Size()), 1)
	blocks, longest := max(bytes/(perToken*blockSize), 2), int64(p.cfg.MaxContext/blockSize+2)
	if limit {
		p.cfg.MaxContext = min(p.cfg.MaxContext, int(blocks-1)*blockSize)
	} else {
		blocks = max(blocks, longest) // one sequence of the longest kind must fit
	}
	// A longer cache than all sequences of the longest kind fill is of no use.
	blocks = min(blocks, int64(p.cfg.MaxBatch)*longest)
	cachePools(sc, s, blocks, perToken*blockSize)
	sc.table = newTable(sc, int(blocks))
	if p.cfg.KeepExperts {
		sc.experts = newExpertStore(n.cfg.Layers, int(blocks+sc.host.size()))
	}
	makeDecoders(sc, s)
	return sc
}

// cacheBytes is how much memory the cache may take on a device. Limit says that it may
// take no more, whatever the longest text needs: a CPU's memory is taken when it is used,
// a GPU's at once.
func cacheBytes(s *torch.Scope, c Config, dev torch.Device) (bytes int64, limit bool) {
	share := c.Cache.Share
	switch {
	case c.CacheBytes > 0:
		return c.CacheBytes, false
	case c.Cache.Bytes > 0:
		return c.Cache.Bytes, true
	case share == 0 && dev < 0:
		return DefaultCacheBytes, false
	case share == 0:
		share = DefaultCacheShare
	}
	torch.EmptyCache(dev) // what loading has left
	free, err := torch.FreeMemory(dev)
	if err != nil {
		s.Fail(err)
	}
	return int64(share * float64(free)), true
}

// submit queues q and waits for it.
func (sc *scheduler) submit(ctx context.Context, q *sequence) (*Reply, error) {
	sc.mu.Lock()
	if sc.closed {
		sc.mu.Unlock()
		return nil, errClosed
	}
	a, err := findAdapter(sc, q.adapterName)
	if err != nil {
		sc.mu.Unlock()
		return nil, err
	}
	if a != nil {
		q.adapter, q.salt = a, fmt.Sprintf("adapter %d %s", a.number, q.salt)
	}
	sc.number++
	q.number = sc.number
	sc.inbox = append(sc.inbox, q)
	sc.wake.Signal()
	sc.mu.Unlock()
	select {
	case <-q.done:
		return q.out, q.err
	case <-ctx.Done():
		// The loop sees the cancelled context and lets go of the blocks.
		sc.mu.Lock()
		sc.gone = true
		sc.wake.Signal()
		sc.mu.Unlock()
		return nil, ctx.Err()
	}
}

func (sc *scheduler) close() {
	sc.mu.Lock()
	sc.closed = true
	sc.wake.Signal()
	sc.mu.Unlock()
	<-sc.done
}

// idle says that there is nothing to do. The caller holds the lock.
func (sc *scheduler) idle() bool {
	if sc.closed || sc.change != nil || sc.forget || sc.gone {
		return false
	}
	return sc.paused || len(sc.inbox) == 0 && len(sc.waiting) == 0 && len(sc.running) == 0
}

// loadOf is what is being done. The loop calls it.
func loadOf(sc *scheduler) Load {
	l := sc.load
	l.Running, l.Waiting, l.BlockTokens = len(sc.running), len(sc.waiting), blockSize
	l.HostTokens = sc.table.host.restored()
	l.Blocks, l.UsedBlocks = len(sc.table.blocks), len(sc.table.blocks)-sc.table.available()
	return l
}

// loop is the only user of the table and the lists.
func (sc *scheduler) loop() {
	defer close(sc.done)
	defer safego.Catch(sc.giveUp)
	for {
		sc.mu.Lock()
		sc.seen = loadOf(sc)
		for sc.idle() {
			sc.wake.Wait()
		}
		if sc.forget {
			sc.table.forget()
			sc.forget = false
		}
		change := sc.change
		if change == nil { // else what is new waits for the new weights
			for _, q := range sc.inbox {
				sc.queue(q)
			}
			sc.inbox = nil
		}
		sc.gone = false
		closed, paused, retired := sc.closed, sc.paused, len(sc.retired) > 0
		sc.seen = loadOf(sc)
		sc.mu.Unlock()
		if closed {
			sc.mu.Lock()
			late := sc.inbox // what came in while an exchange was waited for
			sc.inbox = nil
			sc.mu.Unlock()
			for _, q := range slices.Concat(sc.running, sc.waiting, late) {
				q.err = errClosed
				close(q.done)
			}
			if change != nil {
				change.done <- errClosed
			}
			return
		}
		sc.dropCancelled()
		if retired {
			freeRetired(sc)
		}
		if change != nil && readyFor(sc, change) {
			makeChange(sc, change)
			continue
		}
		if paused {
			continue
		}
		plan := sc.schedule()
		if len(plan) == 0 {
			continue
		}
		var failed map[*sequence]error
		err := sc.p.worker.Do(func(s *torch.Scope) error {
			moveBlocks(sc, s)
			plan, failed = sc.see(s, plan)
			if s.Err() != nil || len(plan) == 0 {
				return s.Err()
			}
			for _, part := range partsOf(sc, plan) {
				if err := runStep(sc, s, part); err != nil {
					return err
				}
			}
			return nil
		})
		for q, why := range failed {
			sc.finish(q, nil, why)
		}
		if err != nil {
			// The step is lost, and with it every sequence that took part. An error of CUDA
			// itself stays for good: no later step can work.
			switch {
			case errors.Is(err, torch.ErrOutOfMemory): // CUDA's own, too
				if sc.halve(plan) {
					continue
				}
			case strings.Contains(err.Error(), "CUDA error"):
				err = traj.Mark(err, traj.ErrFatal)
			}
			for _, w := range plan {
				sc.finish(w.seq, nil, err)
			}
		}
	}
}

// mostRunning is how many sequences may run together while there is memory.
func mostRunning(sc *scheduler) int {
	if sc.slots != nil {
		return min(sc.p.cfg.MaxBatch, sc.slots.all-1)
	}
	return sc.p.cfg.MaxBatch
}

// halve has the younger half of a step that ran out of memory wait until others have
// ended. False where the step is of one sequence.
func (sc *scheduler) halve(plan []work) bool {
	if len(plan) < 2 {
		return false
	}
	older := (len(plan) + 1) / 2
	younger := plan[older:]
	if sc.slots != nil { // the step may have changed the states of all
		younger = plan
	}
	for _, w := range slices.Backward(younger) {
		if w.seq.blocks != nil { // it may have ended in the steps before
			sc.preempt(w.seq)
		}
	}
	sc.most = max(1, len(sc.running), older)
	_ = sc.p.worker.Do(func(*torch.Scope) error {
		torch.EmptyCache(sc.p.net.device)
		return nil
	})
	return true
}

// giveUp answers all who wait after a failure of the program itself.
func (sc *scheduler) giveUp(err error) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.closed = true
	for _, q := range slices.Concat(sc.running, sc.waiting, sc.inbox) {
		select {
		case <-q.done: // it has its answer
		default:
			q.err = err
			close(q.done)
		}
	}
	if sc.change != nil {
		sc.change.done <- err
	}
}

func (sc *scheduler) dropCancelled() {
	keep := sc.waiting[:0]
	for _, q := range sc.waiting {
		if q.ctx.Err() == nil {
			keep = append(keep, q)
		} else {
			q.err = q.ctx.Err()
			close(q.done)
		}
	}
	sc.waiting = keep
	for _, q := range append([]*sequence{}, sc.running...) {
		if q.ctx.Err() != nil {
			sc.finish(q, nil, q.ctx.Err())
		}
	}
}

// work is the part of one sequence that a step computes: tokens from..to-1, and what may
// follow them.
type work struct {
	seq      *sequence
	from, to int
	draft    []int32
	seen     []features // of the sequence's images; zero where none of its tokens is computed
}

// isPrompt reports whether the work is of a prompt: it is more than the token of one that decodes.
func (w work) isPrompt() bool { return w.to-w.from > 1 }

// schedule chooses the tokens of the next step and makes room for them: one of each sequence
// that decodes, and prompts share what is left.
func (sc *scheduler) schedule() []work {
	admit(sc)
	if sc.layered != nil {
		sc.layered.layers = 0 // a step that was planned may not have been computed
	}
	var plan []work
	var prompts []*sequence
	for _, q := range slices.Clone(sc.running) {
		switch to := len(q.ids); {
		case to-q.cached > 1:
			prompts = append(prompts, q)
		case sc.makeRoom(q, to):
			plan = append(plan, work{seq: q, from: q.cached, to: to})
		}
	}
	if len(prompts) > 0 {
		plan = append(plan, schedulePrompts(sc, prompts, len(plan))...)
	}
	// A sequence that was planned may have made room for an older one: it no longer runs.
	plan = slices.DeleteFunc(plan, func(w work) bool { return w.seq.blocks == nil })
	if len(prompts) == 0 {
		addDrafts(sc, plan)
	}
	return plan
}

// schedulePrompts chooses what a step computes of prompts beside so many sequences that decode.
func schedulePrompts(sc *scheduler, prompts []*sequence, decoding int) (plan []work) {
	tokens := max(sc.stepTokens-decoding, leastChunk)
	room := float64(tokens) // where nobody decodes a token is as much as any other
	if decoding > 0 {
		room = sc.pace.room()
	}
	if decoding > 0 && takesLayers(sc, prompts[0]) {
		room -= planLayers(sc, prompts[0], room, len(prompts) > 1)
		prompts = prompts[1:]
	}
	left, each := make([]int, len(prompts)), make([]float64, len(prompts))
	for i, q := range prompts {
		left[i], each[i] = len(q.ids)-q.cached, 1
		if decoding > 0 {
			each[i] = sc.pace.tokenWork(q.cached)
		}
	}
	for i, n := range shares(left, each, max(room, 0), tokens) {
		if q := prompts[i]; n > 0 && sc.makeRoom(q, q.cached+n) {
			plan = append(plan, work{seq: q, from: q.cached, to: q.cached + n})
		}
	}
	return plan
}

// addDrafts adds guesses to the sequences of a step that all decode. What a step by operations gives
// for a row may depend on the other rows in its last bits, so there are none there. Nor are there any
// where a wrong guess would stay in a state, or where each row chooses experts of its own.
func addDrafts(sc *scheduler, plan []work) {
	if sc.decoder == nil || sc.p.cfg.NoDrafts || len(plan) > mostDrafting || sc.slots != nil || HasExperts(sc.p) {
		return
	}
	for i := range plan {
		w := &plan[i]
		q := w.seq
		most := min(mostDraft, q.maxNew-len(q.tokens)-1)
		if need := (w.to+most+blockSize-1)/blockSize - len(q.blocks); most <= 0 || need > sc.table.available() {
			continue
		}
		if w.draft = q.drafts.guess(q.ids, most, len(plan)); w.draft != nil {
			sc.reserve(q, w.to+len(w.draft))
		}
	}
}

// admit has sequences that wait join those that run, as long as there is room.
func admit(sc *scheduler) {
	// A prompt whose start is being computed by another right now waits a step
	// and finds it in the cache: a group's prompt is computed once.
	underway := map[uint64]bool{}
	for _, q := range sc.running {
		if q.cached < len(q.ids)-1 {
			underway[sc.nextBlock(q)] = true
		}
	}
	var later []*sequence
	for len(sc.waiting) > 0 && len(sc.running) < sc.most {
		q := sc.waiting[0]
		if !sc.slots.room() {
			break
		}
		q.blocks, q.hash = sc.table.prefix(q.ids, q.tag)
		sc.beginAtState(q)
		q.sealed = len(q.blocks)
		q.cached = q.sealed * blockSize
		need := (len(q.ids)+blockSize)/blockSize + 1 - len(q.blocks)
		first := sc.nextBlock(q)
		if underway[first] || (need > sc.table.available() && len(sc.running) > 0) {
			sc.table.release(q.blocks)
			q.blocks, q.cached, q.sealed, q.hash = nil, 0, 0, 0
			if !underway[first] {
				break
			}
			sc.waiting, later = sc.waiting[1:], append(later, q)
			continue
		}
		q.blocks, q.hash = sc.table.restore(q.blocks, q.hash, q.ids, q.tag)
		q.sealed = len(q.blocks)
		q.cached = q.sealed * blockSize
		if !q.begun {
			q.begun, q.hit = true, q.cached
			sc.load.PromptTokens += int64(q.prompt)
			sc.load.CachedTokens += int64(q.hit)
		}
		if len(q.ids)-q.cached > blockSize {
			underway[sc.nextBlock(q)] = true
		}
		sc.waiting = sc.waiting[1:]
		sc.slots.take(&q.state, q.blocks)
		sc.running = append(sc.running, q)
	}
	sc.waiting = append(later, sc.waiting...)
}

// makeRoom gives q blocks for its first n tokens. Where the cache is full, the youngest goes
// back to the queue and will be computed again, mostly from shared blocks; false: that was q,
// now or before.
func (sc *scheduler) makeRoom(q *sequence, n int) bool {
	for slices.Contains(sc.running, q) {
		if sc.reserve(q, n) {
			return true
		}
		sc.preempt(sc.running[len(sc.running)-1])
	}
	return false
}

// nextBlock names the contents of the first block of q that is not shared yet;
// a random-looking number for a last, partial block.
func (sc *scheduler) nextBlock(q *sequence) uint64 {
	at := q.sealed * blockSize
	end := min(at+blockSize, len(q.ids))
	return sc.table.hash(q.hash, q.ids[at:end], q.tag(at, end))
}

// reserve gives q blocks for its first n tokens.
func (sc *scheduler) reserve(q *sequence, n int) bool {
	for len(q.blocks)*blockSize < n {
		b := sc.table.alloc()
		if b < 0 {
			return false
		}
		sc.slots.drop(b)
		q.blocks = append(q.blocks, b)
	}
	return true
}

func (sc *scheduler) preempt(q *sequence) {
	sc.table.release(q.blocks)
	sc.slots.release(&q.state)
	q.blocks, q.cached, q.sealed, q.hash = nil, 0, 0, 0
	sc.remove(q)
	sc.queue(q)
	sc.load.Preemptions++
}

// queue puts q among those that wait: by priority, then by age.
func (sc *scheduler) queue(q *sequence) {
	at, _ := slices.BinarySearchFunc(sc.waiting, q, func(a, b *sequence) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.number, b.number))
	})
	sc.waiting = slices.Insert(sc.waiting, at, q)
}

func (sc *scheduler) remove(q *sequence) {
	if sc.layered != nil && sc.layered.seq == q {
		sc.layered = nil
	}
	for i, r := range sc.running {
		if r == q {
			sc.running = append(sc.running[:i], sc.running[i+1:]...)
			return
		}
	}
}

// computed says that the keys and values of the first n tokens of q are in the cache: full
// blocks can be shared from now on.
func computed(sc *scheduler, q *sequence, n int) {
	q.cached = n
	for (q.sealed+1)*blockSize <= q.cached {
		at := q.sealed * blockSize
		q.hash = sc.table.seal(q.blocks[q.sealed], q.hash, q.ids[at:at+blockSize], q.tag(at, at+blockSize))
		q.sealed++
		sc.slots.attach(&q.state, q.sealed*blockSize, sc.table.byHash[q.hash], q.sealed*blockSize > q.prompt)
	}
}

// finish may be called again for a sequence that has ended: a step that fails
// after some of its sequences were done ends them all.
func (sc *scheduler) finish(q *sequence, out *Reply, err error) {
	select {
	case <-q.done:
		return
	default:
	}
	sc.remove(q)
	sc.table.release(q.blocks)
	sc.slots.release(&q.state)
	q.blocks = nil
	q.out, q.err = out, err
	close(q.done)
}
