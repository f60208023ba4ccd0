package env

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"agentcli/internal/child"
	"agentcli/internal/schema"
	"agentcli/internal/text"
	"agentcli/traj"
)

// execProtocol is the version that a program is told; docs/tools.md describes it.
const execProtocol = 1

// ToolName is what servers take for the name of a function.
var ToolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// ExecConfig describes a program whose tools are called through JSON lines.
type ExecConfig struct {
	Command string        // a line for the shell
	Pass    []string      // names of variables that the program gets of our environment
	Timeout time.Duration // of one call; 0: DefaultToolTimeout
	Notice  func(string)  // what people should know; nil: nobody
}

// Exec is a program that offers tools. It runs as long as Exec is open and is
// started again when it ends.
type Exec struct {
	c     ExecConfig
	lines *child.Lines
	tools []Tool
	turn  chan struct{} // held by the one call of tools that take one at a time

	mu     sync.Mutex
	offers []execSpec
}

// execSpec is a tool as the program describes it.
type execSpec struct {
	Name          string          `json:"name"`
	Description   string          `json:"description"`
	Parameters    json.RawMessage `json:"parameters"`
	Version       string          `json:"version"`
	Parallel      bool            `json:"parallel"`      // takes several calls at once
	Deterministic bool            `json:"deterministic"` // the same arguments give the same result
	Sessions      bool            `json:"sessions"`      // wants to know when a trajectory has ended
	Images        bool            `json:"images"`        // its results may have images
}

// OpenExec starts the program and asks what it offers. Close it.
func OpenExec(ctx context.Context, c ExecConfig) (*Exec, error) {
	if c.Timeout == 0 {
		c.Timeout = DefaultToolTimeout
	}
	x := &Exec{c: c, turn: make(chan struct{}, 1)}
	command := child.Command{Shell: c.Command, Pass: c.Pass}
	x.lines = child.NewLines(child.LinesConfig{Command: command, Notice: c.Notice, Greeted: x.greeted,
		Hello: map[string]any{"method": "describe", "protocol": execProtocol}})
	if err := x.lines.Open(ctx); err != nil {
		x.lines.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &UnusableError{What: "the tool exec:" + command.Name(), Err: err}
	}
	for _, s := range x.offers {
		t := &execTool{x: x, spec: s}
		if s.Sessions {
			x.tools = append(x.tools, execSessions{t})
		} else {
			x.tools = append(x.tools, t)
		}
	}
	return x, nil
}

// UnusableError is a program or a server whose tools cannot be used in a run.
type UnusableError struct {
	What string
	Err  error // why
}

func (e *UnusableError) Error() string { return e.What + " cannot be used: " + e.Err.Error() }

// Unwrap gives why.
func (e *UnusableError) Unwrap() error { return e.Err }

// What may be wrong with what a program offers.
var (
	errNoTools    = errors.New("it offers no tools")
	errToolName   = errors.New("it offers a tool called")
	errToolSchema = errors.New("are no JSON schema of an object")
)

// greeted reads what a process offers; a later one must offer the same.
func (x *Exec) greeted(answer []byte) error {
	var a struct {
		Tools []execSpec `json:"tools"`
		Error *string    `json:"error"`
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return fmt.Errorf("it describes its tools wrongly: %w", err)
	}
	if a.Error != nil {
		return errors.New(text.OneLine(*a.Error))
	}
	if len(a.Tools) == 0 {
		return fmt.Errorf(`%w: {"id": …, "tools": [{"name": …, "description": …, "parameters": …}]} was asked for`, errNoTools)
	}
	for i := range a.Tools {
		s := &a.Tools[i]
		if !ToolName.MatchString(s.Name) {
			return fmt.Errorf("%w %q; names are 1 to 64 letters, digits, _ and -", errToolName, text.Cut(s.Name, 80))
		}
		if len(s.Parameters) == 0 || string(s.Parameters) == "null" {
			s.Parameters = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		if _, err := schema.Compile(s.Parameters); err != nil || s.Parameters[0] != '{' {
			return fmt.Errorf("the parameters of its tool %s %w", s.Name, errToolSchema)
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.offers == nil {
		x.offers = a.Tools
		return nil
	}
	for i := range x.offers {
		if len(a.Tools) != len(x.offers) || a.Tools[i].Name != x.offers[i].Name {
			return errors.New("it was started again and offers other tools than before")
		}
	}
	return nil
}

// Tools are what the program offers.
func (x *Exec) Tools() []Tool { return x.tools }

// Close ends the program and everything that it has started.
func (x *Exec) Close() error {
	x.lines.Close()
	return nil
}

// execTool is one tool of a program.
type execTool struct {
	x    *Exec
	spec execSpec
}

// Spec describes the tool to a model.
func (t *execTool) Spec() traj.ToolSpec {
	return traj.ToolSpec{Name: t.spec.Name, Description: t.spec.Description, Parameters: t.spec.Parameters}
}

// Sequential says whether calls of one reply run in order.
func (t *execTool) Sequential() bool { return !t.spec.Parallel }

// CacheVersion tells the program's version, and whether it says that results depend
// on the arguments alone.
func (t *execTool) CacheVersion() (string, bool) {
	sum := sha256.Sum256([]byte(t.x.c.Command))
	return "exec " + hex.EncodeToString(sum[:8]) + " " + t.spec.Version, t.spec.Deterministic
}

// Turn waits until the program is free, where it takes one call at a time.
func (t *execTool) Turn(ctx context.Context) (func(), error) {
	if t.spec.Parallel {
		return func() {}, nil
	}
	select {
	case t.x.turn <- struct{}{}:
		return sync.OnceFunc(func() { <-t.x.turn }), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// ShowsImages implements Showing.
func (t *execTool) ShowsImages() bool { return t.spec.Images }

// Call is Show with descriptions in place of images.
func (t *execTool) Call(ctx context.Context, args json.RawMessage) (string, error) {
	result, files, err := t.Show(ctx, args)
	if err != nil || len(files) == 0 {
		return result, err
	}
	return WithoutFiles(result, files), nil
}

// Show asks the program.
func (t *execTool) Show(ctx context.Context, args json.RawMessage) (string, []ImageFile, error) {
	if err := checkArguments(schemaOf(t.spec.Parameters), args); err != nil {
		return "", nil, err
	}
	own, cancel := context.WithTimeout(ctx, t.x.c.Timeout)
	defer cancel()
	request := map[string]any{"method": "call", "name": t.spec.Name, "arguments": args}
	if id := traj.IDOf(ctx); id != "" {
		request["trajectory"] = id
	}
	b, err := t.x.lines.Call(own, request, !t.spec.Parallel)
	switch {
	case errors.Is(err, child.ErrBroken):
		return "", nil, fmt.Errorf("%w: exec:%s: %w", ErrBroken, child.Command{Shell: t.x.c.Command}.Name(), err)
	case errors.Is(err, child.ErrSilent) && ctx.Err() == nil:
		return "", nil, TookTooLong(t.spec.Name, t.x.c.Timeout)
	case err != nil:
		return "", nil, fmt.Errorf("%s failed: %w", t.spec.Name, err)
	}
	result, files, err := readAnswer(t.spec.Name, b)
	if len(files) > 0 && !t.spec.Images {
		return "", nil, fmt.Errorf(`%s failed: its answer has images, and its description has no "images": true`, t.spec.Name)
	}
	return result, files, err
}

// execImage is an image of an answer: data is base64 or a data URI.
type execImage struct {
	Path string `json:"path"`
	Data string `json:"data"`
}

// readAnswer reads {"result": …, "images": […]} or {"error": …}. A result that is no text is
// shown as JSON. Images come behind the text.
func readAnswer(name string, b []byte) (string, []ImageFile, error) {
	var a struct {
		Result json.RawMessage `json:"result"`
		Images []execImage     `json:"images"`
		Error  json.RawMessage `json:"error"`
	}
	err := json.Unmarshal(b, &a)
	hasError := len(a.Error) > 0 && string(a.Error) != "null"
	switch {
	case err != nil:
		return "", nil, fmt.Errorf("%s failed: its answer cannot be read: %w", name, err)
	case hasError:
		return "", nil, Lasting(errors.New(plainText(a.Error)))
	case len(a.Result) == 0 && len(a.Images) == 0:
		return "", nil, fmt.Errorf(`%s failed: its answer has neither "result" nor "error"`, name)
	case len(a.Images) == 0:
		return plainText(a.Result), nil, nil
	}
	files := make([]ImageFile, len(a.Images))
	for i, im := range a.Images {
		if files[i], err = im.file(); err != nil {
			return "", nil, fmt.Errorf("%s failed: image %d of its answer %w", name, i, err)
		}
	}
	result := ""
	if len(a.Result) > 0 && string(a.Result) != "null" {
		result = traj.PlainText(plainText(a.Result))
	}
	if result != "" {
		result += "\n"
	}
	return result + strings.Repeat(traj.ImageMark, len(files)), files, nil
}

func (im execImage) file() (f ImageFile, err error) {
	if (im.Path == "") == (im.Data == "") {
		return f, errors.New(`is no object of either "path" or "data"`)
	}
	if im.Path != "" {
		return ImageFile{Path: im.Path}, nil
	}
	data := im.Data
	if rest, ok := strings.CutPrefix(data, "data:"); ok {
		kind, body, found := strings.Cut(rest, ";base64,")
		if !found {
			return f, errors.New("is a data URI that is not in base64")
		}
		f.Type, data = kind, body
	}
	if f.Bytes, err = base64.StdEncoding.DecodeString(data); err != nil {
		return f, fmt.Errorf("is no base64: %w", err)
	}
	return f, nil
}

// plainText is a JSON string's text, or other JSON as it is, on one line.
func plainText(b json.RawMessage) string {
	var s string
	if json.Unmarshal(b, &s) == nil && b[0] == '"' {
		return s
	}
	var short bytes.Buffer
	if json.Compact(&short, b) == nil {
		return short.String()
	}
	return string(b)
}

// execSessions is an execTool that is told when a trajectory has ended.
type execSessions struct{ *execTool }

// Open gives a trajectory its own.
func (t execSessions) Open() ClosableTool { return &execSession{execTool: t.execTool} }

// execSession is the tool of one trajectory.
type execSession struct {
	*execTool

	mu sync.Mutex
	id string // of the trajectory; "" until the first call
}

// Call implements Tool.
func (s *execSession) Call(ctx context.Context, args json.RawMessage) (string, error) {
	s.note(ctx)
	return s.execTool.Call(ctx, args)
}

// Show implements Showing.
func (s *execSession) Show(ctx context.Context, args json.RawMessage) (string, []ImageFile, error) {
	s.note(ctx)
	return s.execTool.Show(ctx, args)
}

// note keeps the trajectory's id for the end.
func (s *execSession) note(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id = traj.IDOf(ctx)
}

// Close tells the program that the trajectory is over.
func (s *execSession) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id != "" {
		s.x.lines.Notify(map[string]any{"method": "end", "trajectory": s.id})
	}
	return nil
}
