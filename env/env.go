// Package env holds the side of a trajectory that answers: the Environment
// interface, ToolEnvironment with the Tool interface, and the built-in tools.
// It imports traj and sandbox; it knows neither agents nor models.
package env

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"agentcli/internal/safego"
	"agentcli/internal/workclock"
	"agentcli/traj"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Environment serves one trajectory and is used by one goroutine. What the
// policy did wrong is data in the Result; an error means that the environment
// itself is broken, and ends the trajectory as env_error.
type Environment interface {
	Reset(ctx context.Context, task traj.Task) (traj.Observation, error)
	Step(ctx context.Context, a traj.Action) (Result, error)
	Close() error
}

// Result is what one action led to.
type Result struct {
	Observation traj.Observation
	Reward      *float64 // of this step; nil where the environment gives none
	Done        bool
	ToolErrors  int  // calls that failed or could not be read
	Malformed   int  // those of them that were never run: unreadable, of no tool that there is, or with wrong arguments
	ToolCached  *int // calls that the cache answered; nil: it was asked for none
}

// HungError is a tool of which so many calls do not come back that it gets no more.
type HungError struct {
	Tool  string
	Calls int
}

func (e *HungError) Error() string {
	return fmt.Sprintf("the tool %s is broken: %d calls of it still run, though their time is over", e.Tool, e.Calls)
}

// ErrBroken is wrapped by a tool's error that is no answer to the model: the
// tool cannot work, whatever it is asked. It ends the trajectory as env_error.
var ErrBroken = errors.New("the tool is broken")

// TookTooLong is the error of a call that was stopped for its time.
func TookTooLong(tool string, limit time.Duration) error {
	return traj.Mark(fmt.Errorf("%s took longer than %v and was stopped", tool, limit), errTimeout)
}

// Tool is something a model can call. Call is safe for concurrent use and
// returns when ctx is done; its error is told to the model and is no fault of
// the infrastructure, unless it wraps ErrBroken.
type Tool interface {
	Spec() traj.ToolSpec
	Call(ctx context.Context, args json.RawMessage) (string, error)
}

// Sequential is a Tool whose calls of one reply must run one after the other,
// in the order in which the model wrote them. Tools without it run in parallel.
type Sequential interface {
	Sequential() bool
}

// Queued is a Tool whose calls may have to wait for those of other trajectories.
// Turn waits until a call may begin, and gives what ends its turn; the tool's
// time-out begins then, and the wait is none of the trajectory's working time.
type Queued interface {
	Turn(ctx context.Context) (done func(), err error)
}

// PerTrajectory is a Tool that keeps something within a trajectory: an
// environment opens one of its own, and closes it at its end.
type PerTrajectory interface {
	Tool
	Open() ClosableTool
}

// ClosableTool is a Tool of one trajectory.
type ClosableTool interface {
	Tool
	io.Closer
}

// Defaults of Config.
const (
	DefaultToolTimeout    = 30 * time.Second
	DefaultMaxObservation = 8000

	parallelCalls = 8  // of one reply that run at once
	maxCalls      = 64 // of one reply that are run; the rest come back as errors
)

// Config describes a ToolEnvironment.
type Config struct {
	Tools          []Tool
	Declared       []traj.ToolSpec // that the model is offered beside Tools and nobody runs: a call of one ends the trajectory
	ToolTimeout    time.Duration   // of one call; 0: DefaultToolTimeout
	MaxObservation int             // characters of one result; 0: DefaultMaxObservation; < 0: no limit

	// MaxObservationTokens takes the place of MaxObservation; 0: it does not.
	// CountTokens says how many tokens a text takes; nil: four bytes make one.
	MaxObservationTokens int
	CountTokens          func(string) int

	Images ImageConfig // of the results

	Hung  *Hung  // shared by all environments of a run; nil: one of its own
	Cache *Cache // of results, shared too; nil: none

	// InReply writes a step's results into the model's own reply, which it then goes
	// on with, in place of messages of their own; invalid: there is no result, since
	// the reply was no call that could be read. nil: they are messages.
	InReply func(results []string, invalid bool) string
}

// maxHung is how many calls of one tool may be left behind before it is taken
// for broken.
const maxHung = 64

// Hung counts, by tool, the calls that did not come back when their time was
// over and still run: Go cannot stop them. The zero value is ready for use.
type Hung struct {
	mu sync.Mutex
	n  map[string]int
}

func (h *Hung) add(tool string, d int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n == nil {
		h.n = map[string]int{}
	}
	h.n[tool] += d
}

// Count is how many calls of a tool hang now.
func (h *Hung) Count(tool string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n[tool]
}

// Validate reports what makes the configuration unusable.
func (c *Config) Validate() error {
	seen := map[string]bool{}
	for _, t := range c.Specs() {
		name := t.Name
		if name == "" {
			return fmt.Errorf("a tool has no name")
		}
		if seen[name] {
			return fmt.Errorf("two tools are called %q", name)
		}
		seen[name] = true
	}
	if c.ToolTimeout < 0 {
		return fmt.Errorf("the tool time-out is %v; it must not be negative", c.ToolTimeout)
	}
	return nil
}

// Specs describes the tools to a model.
func (c *Config) Specs() []traj.ToolSpec {
	specs := make([]traj.ToolSpec, len(c.Tools), len(c.Tools)+len(c.Declared))
	for i, t := range c.Tools {
		specs[i] = t.Spec()
	}
	return append(specs, c.Declared...)
}

// ToolEnvironment runs the calls of an action and gives their results back,
// one tool message a call, in call order. A final action ends it, and so does a call
// of a declared tool; then no call of that reply is run.
type ToolEnvironment struct {
	tools   map[string]Tool               // a declared one is nil
	schemas map[string]*jsonschema.Schema // of the tools' arguments; nil: not checked
	names   []string
	timeout time.Duration
	maxObs  int
	tokens  int              // of one result; 0: maxObs counts
	count   func(string) int // of tokens
	hung    *Hung
	cache   *Cache
	kept    map[string]string // version of each tool whose results the cache keeps
	closers []io.Closer

	asked, hits atomic.Int32 // of the cache, in this step

	images      []traj.Image // of the conversation so far
	taskImages  int          // how many of them are the task's own
	imageConfig ImageConfig

	inReply func(results []string, invalid bool) string
}

// New returns an environment for one trajectory.
func New(c Config) (*ToolEnvironment, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	e := &ToolEnvironment{tools: make(map[string]Tool, len(c.Tools)), schemas: make(map[string]*jsonschema.Schema, len(c.Tools)),
		timeout: c.ToolTimeout, maxObs: c.MaxObservation,
		imageConfig: c.Images, hung: c.Hung, cache: c.Cache, kept: map[string]string{}, inReply: c.InReply,
		tokens: c.MaxObservationTokens, count: c.CountTokens}
	if e.hung == nil {
		e.hung = &Hung{}
	}
	if e.timeout == 0 {
		e.timeout = DefaultToolTimeout
	}
	if e.maxObs == 0 {
		e.maxObs = DefaultMaxObservation
	}
	for _, t := range c.Tools {
		spec := t.Spec()
		name := spec.Name
		if version, ok := c.Cache.version(t); ok {
			e.kept[name] = version
		}
		if p, ok := t.(PerTrajectory); ok {
			own := p.Open()
			e.closers = append(e.closers, own)
			t = own
		}
		e.tools[name] = t
		e.schemas[name] = schemaOf(spec.Parameters)
		e.names = append(e.names, name)
	}
	for _, spec := range c.Declared {
		e.tools[spec.Name] = nil
		e.schemas[spec.Name] = schemaOf(spec.Parameters)
		e.names = append(e.names, spec.Name)
	}
	return e, nil
}

// Reset opens the conversation with the task's own messages.
func (e *ToolEnvironment) Reset(_ context.Context, task traj.Task) (traj.Observation, error) {
	if len(task.Messages) == 0 {
		return traj.Observation{}, fmt.Errorf("task %q has no messages to open with", task.ID)
	}
	e.images = nil
	for i := range task.Messages {
		e.images = append(e.images, task.Messages[i].Images...)
	}
	e.taskImages = len(e.images)
	return traj.Observation{Messages: task.Messages}, nil
}

// Step runs the action's calls. Whatever a tool does, it is data: a failure, a
// panic, a time-out and a call that could not be read all become messages that
// the model can answer to. Only a tool that hangs again and again is broken, and
// the error says so.
func (e *ToolEnvironment) Step(ctx context.Context, a traj.Action) (Result, error) {
	if a.Final {
		return Result{Done: true}, nil
	}
	if slices.ContainsFunc(a.ToolCalls, e.isDeclared) {
		return e.ended(a), nil
	}
	for _, c := range a.ToolCalls {
		if n := e.hung.Count(c.Name); n >= maxHung {
			return Result{}, &HungError{Tool: c.Name, Calls: n}
		}
	}
	e.asked.Store(0)
	e.hits.Store(0)
	outs := make([]output, len(a.ToolCalls))
	errs := make([]error, len(a.ToolCalls))
	var wg sync.WaitGroup
	var inOrder []int
	var room chan struct{}
	for i, c := range a.ToolCalls {
		if i >= maxCalls {
			errs[i] = fmt.Errorf("this call was not run: %d calls stand in one reply, and %d are the most that are run", len(a.ToolCalls), maxCalls)
			continue
		}
		if s, ok := e.tools[c.Name].(Sequential); ok && s.Sequential() || len(a.ToolCalls) == 1 {
			inOrder = append(inOrder, i)
			continue
		}
		if room == nil {
			room = make(chan struct{}, parallelCalls)
		}
		done := workclock.Work(ctx)
		wg.Go(func() {
			defer done()
			defer safego.Into(&errs[i])
			room <- struct{}{}
			defer func() { <-room }()
			outs[i], errs[i] = e.watched(ctx, c)
		})
	}
	for _, i := range inOrder {
		outs[i], errs[i] = e.watched(ctx, a.ToolCalls[i])
	}
	resume := workclock.Wait(ctx) // the calls are who works
	wg.Wait()
	resume()
	if err := ctx.Err(); err != nil {
		return Result{}, err // the trajectory's own end, not the tool's
	}
	for _, err := range errs {
		if errors.Is(err, ErrBroken) {
			return Result{}, err
		}
	}
	res := Result{Observation: traj.Observation{Messages: make([]traj.Message, 0, len(outs)+len(a.CallErrors))}}
	for i, c := range a.ToolCalls {
		if errs[i] == nil {
			if errs[i] = e.imageConfig.checkCount(outs[i].images, len(e.images)-e.taskImages); errs[i] != nil {
				outs[i].images = nil
			}
		}
		content := outs[i].text
		if errs[i] != nil {
			res.ToolErrors++
			if errors.Is(errs[i], errRefused) {
				res.Malformed++
			}
			content = "error: " + errs[i].Error()
		}
		m := traj.Message{Role: traj.RoleTool, Name: c.Name, ToolCallID: c.ID, Content: e.clip(content), Images: outs[i].images}
		if len(m.Images) > 0 {
			if _, err := m.Parts(); err != nil { // the text was cut, or the tool miscounted: the images come behind it
				m.Content = traj.PlainText(m.Content) + strings.Repeat(traj.ImageMark, len(m.Images))
			}
		}
		e.images = append(e.images, m.Images...)
		res.Observation.Messages = append(res.Observation.Messages, m)
	}
	for _, c := range a.CallErrors {
		res.ToolErrors++
		res.Malformed++
		res.Observation.Messages = append(res.Observation.Messages, traj.Message{
			Role: traj.RoleTool, Content: e.clip("error: the tool call could not be read: " + c.Reason)})
	}
	if e.asked.Load() > 0 {
		n := int(e.hits.Load())
		res.ToolCached = &n
	}
	if e.inReply != nil {
		var results []string
		for i := range outs {
			results = append(results, res.Observation.Messages[i].Content)
		}
		res.Observation = traj.Observation{Continue: e.inReply(results, len(results) == 0)}
	}
	return res, nil
}

// Close closes the tools of this trajectory.
func (e *ToolEnvironment) Close() error {
	var errs []error
	for _, c := range e.closers {
		errs = append(errs, c.Close())
	}
	e.closers = nil
	return errors.Join(errs...)
}

// output is what a call gives.
type output struct {
	text      string
	images    []traj.Image
	hadImages bool // of the tool; a model of text alone is given their descriptions
}

// call checks one call and answers it from the cache or by running it.
func (e *ToolEnvironment) call(ctx context.Context, c traj.ToolCall) (_ output, err error) {
	defer safego.Into(&err) // of a tool's own methods: the model's call failed, the environment did not
	tool, ok := e.tools[c.Name]
	if !ok {
		if len(e.names) == 0 {
			return output{}, traj.Mark(fmt.Errorf("there is no tool %q; there are no tools here", c.Name), errRefused)
		}
		return output{}, traj.Mark(fmt.Errorf("there is no tool %q; the tools are: %s", c.Name, strings.Join(e.names, ", ")), errRefused)
	}
	args, err := e.arguments(c)
	if err != nil {
		return output{}, traj.Mark(err, errRefused)
	}
	if version, ok := e.kept[c.Name]; ok {
		ran := false
		e.asked.Add(1)
		out, err := e.cache.call(ctx, c.Name, version, args, func() (output, error) {
			ran = true
			return e.run(ctx, tool, c.Name, args)
		})
		if !ran && ctx.Err() == nil {
			e.hits.Add(1)
		}
		return out, err
	}
	return e.run(ctx, tool, c.Name, args)
}

// arguments are those of a call, checked against the schema of its tool.
func (e *ToolEnvironment) arguments(c traj.ToolCall) (json.RawMessage, error) {
	args := json.RawMessage(strings.TrimSpace(c.Arguments))
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if err := checkObject(args); err != nil {
		return nil, fmt.Errorf("the arguments of %s are not a JSON object: %w", c.Name, err)
	}
	return args, checkArguments(e.schemas[c.Name], args)
}

// isDeclared reports whether a call is of a tool that nobody runs.
func (e *ToolEnvironment) isDeclared(c traj.ToolCall) bool {
	tool, known := e.tools[c.Name]
	return known && tool == nil
}

// ended is the end by an action with a call of a declared tool. What is wrong with its
// calls is counted.
func (e *ToolEnvironment) ended(a traj.Action) Result {
	wrong := len(a.CallErrors)
	for _, c := range a.ToolCalls {
		_, known := e.tools[c.Name]
		if _, err := e.arguments(c); !known || err != nil {
			wrong++
		}
	}
	return Result{Done: true, ToolErrors: wrong, Malformed: wrong}
}

// waited is a tool's Turn, during which the trajectory's working time stands.
func waited(ctx context.Context, q Queued) (done func(), err error) {
	defer workclock.Wait(ctx)()
	return q.Turn(ctx)
}

// run waits for the call's turn and then no longer than the tool's time-out,
// even for a tool that does not heed its context: that goroutine is left behind,
// and counted as long as it runs.
func (e *ToolEnvironment) run(ctx context.Context, tool Tool, name string, args json.RawMessage) (output, error) {
	over := func() {}
	if q, ok := tool.(Queued); ok {
		done, err := waited(ctx, q)
		if err != nil {
			return output{}, err
		}
		over = func() {
			defer safego.Catch(nil) // the call's result is there already
			done()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	type result struct {
		out output
		err error
	}
	done := make(chan result, 1)
	seen := e.images[:len(e.images):len(e.images)]
	var state atomic.Int32 // who came first: 1 the call's end, 2 our leaving it behind
	go func() {
		var r result
		returned := false
		defer func() {
			if p := recover(); p != nil {
				r.err = fmt.Errorf("%s failed: %v", name, p)
			} else if !returned {
				r.err = fmt.Errorf("%s failed: it ended its goroutine", name)
			}
			over()
			if !state.CompareAndSwap(0, 1) {
				e.hung.add(name, -1)
			}
			done <- r
		}()
		r.out, r.err = e.imageConfig.answer(ctx, tool, args, seen, e.inReply != nil)
		returned = true
	}()
	select {
	case r := <-done:
		if r.err != nil && ctx.Err() == context.DeadlineExceeded {
			return output{}, TookTooLong(name, e.timeout)
		}
		return r.out, r.err
	case <-ctx.Done():
		e.hung.add(name, 1)
		if !state.CompareAndSwap(0, 2) {
			e.hung.add(name, -1)
		}
		return output{}, TookTooLong(name, e.timeout)
	}
}

func checkObject(b json.RawMessage) error {
	if b[0] != '{' {
		if !json.Valid(b) {
			return fmt.Errorf("invalid JSON")
		}
		return fmt.Errorf("it is another JSON value")
	}
	if json.Valid(b) {
		return nil
	}
	var v map[string]json.RawMessage
	return json.Unmarshal(b, &v) // which says what is wrong
}

// ReadArgs decodes arguments strictly, so that a misspelt name is told to the
// model instead of being taken for an absent one.
func ReadArgs(args json.RawMessage, to any) error {
	d := json.NewDecoder(bytes.NewReader(args))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return fmt.Errorf("wrong arguments: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}
