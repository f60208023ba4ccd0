package simulation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"agentcli/agent"
	"agentcli/engine"
	"agentcli/env"
	"agentcli/internal/filesys"
	"agentcli/internal/filesys/faultfs"
	"agentcli/journal"
	"agentcli/llm"
	"agentcli/parquet"
	"agentcli/traj"
)

// TestRunsSurviveEveryFault plays runs under random faults and holds them to what
// must be true of each:
//
//   - every attempt that was acknowledged (given to the sink, so it is on disk) is
//     in the file exactly once, however often the run was killed and resumed;
//   - a trajectory that says something about the policy has replies that a server
//     sent whole, and their exact tokens;
//   - what is finished is not asked again;
//   - nothing runs on after the end (the bubble would not close), and no more
//     trajectories are in flight than were allowed;
//   - damage of the journal costs the damaged record and no other.
//
// AGENTCLI_SEEDS=N plays seeds 0 to N−1 (default 200; make test plays 2,000 without
// the race detector), AGENTCLI_SEED=S that one, AGENTCLI_SEED_FROM=F seeds from F on;
// see scripts/simulate.sh.
func TestRunsSurviveEveryFault(t *testing.T) {
	number := func(name string, otherwise uint64) uint64 {
		v, err := strconv.ParseUint(os.Getenv(name), 10, 64)
		if err != nil {
			return otherwise
		}
		return v
	}
	from, n := number("AGENTCLI_SEED_FROM", 0), number("AGENTCLI_SEEDS", 200)
	if s := os.Getenv("AGENTCLI_SEED"); s != "" {
		from, n = number("AGENTCLI_SEED", 0), 1
	}
	warm(t)
	dir := t.TempDir()
	for seed := from; seed < from+n && !t.Failed(); seed++ {
		w := &world{t: t, seed: seed}
		synctest.Test(t, func(t *testing.T) { w.t = t; w.play() })
		if !t.Failed() {
			w.read(t, filepath.Join(dir, "traj.parquet"))
		}
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}
}

// warm has the Parquet writer make what it keeps for the whole process outside of
// any bubble.
func warm(t *testing.T) {
	t.Helper()
	w, err := parquet.CreateFile(filepath.Join(t.TempDir(), "f"), parquet.Metadata{}, parquet.WriterConfig{})
	if err == nil {
		err = errors.Join(w.Write(&traj.Trajectory{ID: "x"}), w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

const (
	folder  = "run"
	kept    = folder + "/journal"
	results = folder + "/traj.parquet"
)

// world is one simulation.
type world struct {
	t    *testing.T
	seed uint64
	mu   sync.Mutex // of log
	log  []string   // what happened, for a seed that fails

	rng      *rand.Rand
	fs       *faultfs.FS
	net      *network
	tasks    []traj.Task
	samples  int
	parallel int
	ordered  bool
	stream   bool
	timeout  time.Duration

	acked   map[string]bool // attempts with a policy-side end that the sink has seen
	flipped int             // bits of the journal since the last look
	edited  map[string]bool // tasks whose rows were ever another
	began   bool            // there is a journal to resume
	file    []byte
}

func (w *world) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *world) play() {
	defer func() {
		if w.t.Failed() {
			w.t.Logf("AGENTCLI_SEED=%d go test ./internal/simulation\n%s", w.seed, strings.Join(w.log, "\n"))
		}
	}()
	w.rng = rand.New(rand.NewPCG(w.seed, 1))
	w.fs = faultfs.New(w.seed)
	w.samples, w.parallel = 1+w.rng.IntN(3), 1+w.rng.IntN(6)
	w.ordered, w.stream = w.rng.IntN(3) == 0, w.rng.IntN(2) == 0
	if w.rng.IntN(2) == 0 {
		w.timeout = 30*time.Second + time.Duration(w.rng.IntN(60))*time.Second
	}
	for i := range 1 + w.rng.IntN(8) {
		w.tasks = append(w.tasks, task(i))
	}
	w.acked, w.edited = map[string]bool{}, map[string]bool{}
	w.net = &network{t: w.t, seed: w.seed, seen: map[uint64]int{}, whole: map[string][]reply{}, finished: w.finished}
	for round := 0; ; round++ {
		calm := round >= 8 // faults end, so the run must, too
		if w.round(round, calm) {
			w.fs.Restart() // a power cut right after the end takes nothing away
			w.file = w.fs.Read(results)
			return
		}
		if round > 30 { // an edited row that was played costs a round
			w.t.Errorf("the run does not come to its end")
			return
		}
		w.between(calm)
	}
}

func task(i int) traj.Task {
	q := fmt.Sprintf("question %d", i)
	return traj.Task{ID: fmt.Sprintf("t/%d", i), Dataset: "t", Question: q, Messages: []traj.Message{{Role: traj.RoleUser, Content: q}}}
}

// finished reports whether every attempt of a task is acknowledged.
func (w *world) finished(question string) bool {
	i := strings.TrimPrefix(question, "question ")
	for a := range w.samples {
		if !w.acked[fmt.Sprintf("t/%s#%d", i, a)] {
			return false
		}
	}
	return true
}

// schedule makes up what the servers do.
func (w *world) schedule(calm bool) map[string][]period {
	all := map[string][]period{}
	for _, host := range []string{"one", "two"} {
		at := time.Now()
		for range w.rng.IntN(5) {
			at = at.Add(time.Duration(1+w.rng.IntN(40)) * time.Second)
			all[host] = append(all[host], period{at, state(w.rng.IntN(int(states)))})
		}
		if calm {
			all[host] = nil
		}
	}
	return all
}

// faults makes up what the file system does, and says it.
func (w *world) faults(calm bool) (func(faultfs.Op) error, string) {
	if calm {
		return nil, "none"
	}
	at := w.rng.IntN(40)
	switch w.rng.IntN(6) {
	case 0, 1:
		return func(o faultfs.Op) error {
			if o.N >= at {
				return faultfs.ErrCrashed
			}
			return nil
		}, fmt.Sprint("crash at call ", at)
	case 2:
		return func(o faultfs.Op) error {
			if o.Kind == "write" && o.N >= at {
				return syscall.ENOSPC
			}
			return nil
		}, fmt.Sprint("disk full from call ", at)
	case 3:
		return func(o faultfs.Op) error {
			if o.Kind == "sync" && o.N >= at && o.N < at+5 {
				return syscall.EIO
			}
			return nil
		}, fmt.Sprint("syncs fail from call ", at)
	}
	return nil, "none"
}

// round is one process: it begins or resumes the run. It reports whether the run
// is at its end.
func (w *world) round(round int, calm bool) bool {
	var what string
	w.fs.Fault, what = w.faults(calm)
	w.net.schedule = w.schedule(calm)
	w.say("round %d: disk: %s; servers: %v", round, what, w.net.schedule)
	sum, err := w.run(calm)
	w.say("round %d: %+v %v", round, sum.Progress, err)
	if w.fs.Crashed() {
		w.fs.Restart()
		return false
	}
	w.fs.Fault = nil
	var changed *journal.ChangedError
	switch {
	case errors.As(err, &changed):
		if !w.edited[changed.Name] {
			w.t.Errorf("%v, and nobody edited it", err)
		}
		w.edit(slices.IndexFunc(w.tasks, func(t traj.Task) bool { return t.ID == changed.Name }))
	case errors.Is(err, journal.ErrNotJournal) && len(w.acked) == 0:
		w.began = false // nothing of it was finished: the user begins anew
		_ = w.fs.Remove(kept)
	case err != nil && calm:
		w.t.Errorf("without a fault: %v", err)
	case err == nil && !sum.Interrupted && sum.Errors == 0:
		return w.fs.Read(results) != nil
	}
	return false
}

// run is what a command does.
func (w *world) run(calm bool) (engine.Summary, error) {
	header := journal.Header{Config: "c", Settings: map[string]string{"seed": "1"}}
	notice := func(s string) { w.say("notice: %s", s) }
	var j *journal.Journal
	var err error
	if w.began {
		j, err = journal.Open(w.fs, kept, header, notice)
		if errors.Is(err, fs.ErrNotExist) && len(w.acked) == 0 {
			w.began = false
		}
	}
	if !w.began {
		j, err = journal.Create(w.fs, kept, header, notice)
		w.began = err == nil || errors.Is(err, journal.ErrExists)
		if err != nil {
			_ = w.fs.Remove(kept)
		}
	}
	if err != nil {
		return engine.Summary{}, err
	}
	defer j.Close()
	w.lost(j)
	out, err := parquet.CreateIn(w.fs, results, 0o644, parquet.Metadata{}, parquet.WriterConfig{})
	if err != nil {
		return engine.Summary{}, err
	}
	defer out.Abort()
	client, err := llm.New(llm.Config{BaseURL: "http://one/v1", Also: []string{"http://two/v1"}, Model: "m", Transport: w.net, WantIDs: true,
		Stream: w.stream, Parallel: w.parallel, Timeout: 20 * time.Second, Notice: func(s string) { w.say("notice: %s", s) }})
	if err != nil {
		w.t.Fatal(err)
	}
	defer client.Close()
	stop, ctx, end := w.operator(calm)
	defer end()
	tools := env.Config{Tools: []env.Tool{env.Calculator{}}}
	running, most := 0, 0
	e, err := engine.New(engine.Config{
		Model:    client,
		NewAgent: func(traj.Task) (agent.Agent, error) { return agent.New(tools.Specs()), nil },
		NewEnv:   func(traj.Task) (env.Environment, error) { return env.New(tools) },
		Reward: func(_ context.Context, x *traj.Trajectory) error {
			v := float64(x.Attempt)
			x.Reward = &v
			return nil
		},
		Samples: w.samples, Parallel: w.parallel, Seed: 7, MaxTurns: 3, Timeout: w.timeout, Stop: stop, Journal: j, Ordered: w.ordered,
		Progress: func(p engine.Progress) { running = p.Running; most = max(most, running) },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	sum, err := e.Run(ctx, w.list(), func(x *traj.Trajectory) error {
		w.check(x)
		if err := out.Write(x); err != nil {
			return err
		}
		if !x.Termination.Infrastructure() {
			w.net.mu.Lock()
			w.acked[x.ID] = true
			w.net.mu.Unlock()
		}
		return nil
	})
	if most > w.parallel {
		w.t.Errorf("%d trajectories at once, want at most %d", most, w.parallel)
	}
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	if w.net.inFlight != 0 {
		w.t.Errorf("%d requests are under way after the end", w.net.inFlight)
	}
	if err == nil {
		err = out.Close()
	}
	return sum, err
}

// lost compares what was acknowledged with what the journal still has.
func (w *world) lost(j *journal.Journal) {
	missing := 0
	for id := range w.acked {
		if !j.Finished(id) {
			missing++
			w.say("%s is lost", id)
			delete(w.acked, id)
		}
	}
	if missing > w.flipped {
		w.t.Errorf("%d acknowledged attempts are lost, and %d bits were damaged", missing, w.flipped)
	}
	w.flipped = 0
}

// check holds a trajectory to what the servers sent.
func (w *world) check(x *traj.Trajectory) {
	if x.Termination.Infrastructure() {
		if x.Reward != nil {
			w.t.Errorf("%s ended as %s and has a reward", x.ID, x.Termination)
		}
		return
	}
	if x.Termination == traj.Timeout {
		w.t.Errorf("%s timed out, and no reply takes longer than a second: %+v", x.ID, x.Steps)
	}
	w.net.mu.Lock()
	whole := w.net.whole[x.Task.Question]
	w.net.mu.Unlock()
	step := 0
	for i := range x.Messages {
		m := &x.Messages[i]
		if m.Role != traj.RoleAssistant {
			continue
		}
		k := slices.IndexFunc(whole, func(r reply) bool { return r.content == m.Content })
		if k < 0 {
			w.t.Errorf("%s ended as %s with the reply %q, which no server sent whole", x.ID, x.Termination, m.Content)
			return
		}
		if s := x.Steps[step]; s.Sequence >= 0 {
			if ids := x.Sequences[s.Sequence].TokenIDs[s.Start:s.End]; m.Content != "" && !slices.Equal(ids, whole[k].ids) {
				w.t.Errorf("%s: turn %d has the tokens %v, sampled were %v", x.ID, step, ids, whole[k].ids)
			}
		}
		step++
	}
	if step == 0 {
		w.t.Errorf("%s ended as %s without a reply", x.ID, x.Termination)
	}
}

// operator interrupts the run at some time, once or twice.
func (w *world) operator(calm bool) (stop chan struct{}, ctx context.Context, end func()) {
	stop = make(chan struct{})
	ctx, cancel := context.WithCancel(w.t.Context())
	var timers []*time.Timer
	if !calm && w.rng.IntN(3) == 0 {
		at := time.Duration(w.rng.IntN(60_000)) * time.Millisecond
		timers = append(timers, time.AfterFunc(at, func() { close(stop) }))
		if w.rng.IntN(2) == 0 {
			timers = append(timers, time.AfterFunc(at+time.Duration(w.rng.IntN(12_000))*time.Millisecond, cancel))
		}
	}
	return stop, ctx, func() {
		for _, t := range timers {
			t.Stop()
		}
		cancel()
	}
}

func (w *world) list() iter.Seq2[traj.Task, error] {
	return func(yield func(traj.Task, error) bool) {
		for _, t := range w.tasks {
			if !yield(t, nil) {
				return
			}
		}
	}
}

// between is what happens to the folder while no run is going on.
func (w *world) between(calm bool) {
	switch w.rng.IntN(6) {
	case 0: // the dataset grows
		if !calm {
			w.tasks = append(w.tasks, task(len(w.tasks)))
		}
	case 1: // a row is edited
		w.edit(w.rng.IntN(len(w.tasks)))
	case 2: // the disk ages
		if size := len(w.fs.Read(kept)); size > 0 && !calm {
			at := w.rng.IntN(size)
			w.fs.Flip(kept, int64(at), uint(w.rng.IntN(8)))
			w.flipped++
			w.say("a bit of byte %d of %d is flipped", at, size)
		}
	}
}

// edit makes a row another, or what it was.
func (w *world) edit(i int) {
	if w.tasks[i].Answers == nil {
		w.tasks[i].Answers = []string{"edited"}
	} else {
		w.tasks[i].Answers = nil
	}
	w.edited[w.tasks[i].ID] = true
}

// read looks whether the file has every attempt once.
func (w *world) read(t *testing.T, path string) {
	if err := os.WriteFile(path, w.file, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := parquet.Open(path)
	if err != nil {
		t.Errorf("the file: %v", err)
		return
	}
	defer r.Close()
	rows := map[string]int{}
	for x, err := range r.Rows(context.Background()) {
		if err != nil {
			t.Error(err)
			return
		}
		rows[x.ID]++
	}
	for _, task := range w.tasks {
		for a := range w.samples {
			if id := fmt.Sprintf("%s#%d", task.ID, a); rows[id] != 1 {
				t.Errorf("%s is in the file %d times", id, rows[id])
			}
		}
	}
	if len(rows) != len(w.tasks)*w.samples {
		t.Errorf("%d rows, want %d", len(rows), len(w.tasks)*w.samples)
	}
}

var _ filesys.FS = (*faultfs.FS)(nil)
