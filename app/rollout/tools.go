package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"agentcli/env"
	"agentcli/env/mcptool"
	"agentcli/internal/cachedir"
	"agentcli/internal/child"
	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/media/processor"
	"agentcli/media/qwen"
	"agentcli/retriever/client"
	"agentcli/sandbox"
)

// builtinTool is one of ours, by the name that a user gives.
type builtinTool struct {
	name string
	open func(ctx context.Context, t *toolset, o Options, notice func(string)) error
}

// builtinTools are what Options.Tools may name.
var builtinTools = []builtinTool{
	{"calculator", func(_ context.Context, t *toolset, _ Options, _ func(string)) error {
		t.config.Tools = append(t.config.Tools, env.Calculator{})
		return nil
	}},
	{"python", func(ctx context.Context, t *toolset, o Options, notice func(string)) error {
		return t.openPython(ctx, o, notice)
	}},
	{"search", func(ctx context.Context, t *toolset, o Options, _ func(string)) error {
		return t.openSearch(ctx, o)
	}},
	{zoomTool, func(_ context.Context, t *toolset, o Options, _ func(string)) error { return t.openZoom(o) }},
	{"image_rotate_tool", func(_ context.Context, t *toolset, o Options, _ func(string)) error {
		t.config.Tools = append(t.config.Tools, env.Rotate{Limits: o.imageConfig().Limits})
		return nil
	}},
}

const zoomTool = "image_zoom_in_tool"

// BuiltinTools names them.
func BuiltinTools() []string {
	names := make([]string, len(builtinTools))
	for i, b := range builtinTools {
		names[i] = b.name
	}
	return names
}

// ExecPrefix marks, in --tool, a program.
const ExecPrefix = "exec:"

// ToolOptions name the tools beside those of --tools.
type ToolOptions struct {
	Programs  []string // exec:CMD, or a built-in one's name
	MCP       []string
	MCPConfig string
	Env       []string // names of variables that programs get
	Cache     string   // a folder, or on
	CacheAlso []string
}

// toolset is what a run's model may call.
type toolset struct {
	config  env.Config
	names   []string // of the built-in ones
	added   []any    // specs and versions of the others
	closers []io.Closer
}

// openTools opens everything that the options name, and the cache. What it gives is to
// be closed, with an error too.
func openTools(ctx context.Context, o Options, notice func(string)) (*toolset, error) {
	t := &toolset{names: namesOf(o)}
	// the tool's own limit comes first
	t.config = env.Config{ToolTimeout: o.ToolTimeout + time.Second, Hung: &env.Hung{}, MaxObservationTokens: o.MaxObservationTokens}
	for _, name := range t.names {
		i := slices.IndexFunc(builtinTools, func(b builtinTool) bool { return b.name == name })
		if i < 0 {
			return t, unknownTool(name)
		}
		if err := builtinTools[i].open(ctx, t, o, notice); err != nil {
			return t, err
		}
	}
	builtin := len(t.config.Tools)
	closers, tools, err := OpenTools(ctx, o.Added, t.names, o.ToolTimeout, notice)
	t.closers = append(t.closers, closers...)
	if err != nil {
		return t, err
	}
	t.config.Tools = append(t.config.Tools, tools...)
	if t.looks() || t.showsImages() {
		if err := o.shown.bound(o.MinPixels, o.MaxPixels); err != nil {
			return t, err
		}
	}
	if err := t.config.Validate(); err != nil {
		return t, exit.Usagef("%w; leave one of them out", err)
	}
	for _, tool := range t.config.Tools[builtin:] { // what they are is not known from their names
		version := ""
		if v, ok := tool.(env.Versioned); ok {
			version, _ = v.CacheVersion()
		}
		t.added = append(t.added, tool.Spec(), version)
	}
	return t, t.openCache(o.Added, notice)
}

// close ends programs and connections; of nil nothing.
func (t *toolset) close() {
	if t == nil {
		return
	}
	for _, c := range t.closers {
		_ = c.Close()
	}
}

// shared are the same tools for an environment with the options o; nil if it has others.
// Whoever opened them closes them.
func (t *toolset) shared(o Options) *toolset {
	if !slices.Equal(t.names, namesOf(o)) {
		return nil
	}
	other := &toolset{config: t.config, names: t.names, added: t.added}
	other.config.MaxObservationTokens, other.config.InReply = o.MaxObservationTokens, nil
	return other
}

// namesOf are the built-in tools that the options name.
func namesOf(o Options) []string {
	names := o.Tools
	for _, p := range o.Added.Programs {
		if !strings.HasPrefix(p, ExecPrefix) && !slices.Contains(names, p) {
			names = append(slices.Clone(names), p)
		}
	}
	return names
}

// OpenTools starts programs and servers. The closers count even with an error.
func OpenTools(ctx context.Context, o ToolOptions, taken []string, timeout time.Duration,
	notice func(string)) (closers []io.Closer, tools []env.Tool, err error) {
	for _, p := range o.Programs {
		command, ok := strings.CutPrefix(p, ExecPrefix)
		if !ok {
			continue
		}
		program := child.Command{Shell: command}
		if err := program.Check(); err != nil {
			return closers, nil, exit.Usagef("%s %s%s: %w", setting.Name("Tool"), ExecPrefix, program.Name(), err)
		}
		t, err := env.OpenExec(ctx, env.ExecConfig{Command: command, Pass: o.Env, Timeout: timeout, Notice: notice})
		if err != nil {
			return closers, nil, err
		}
		closers, tools = append(closers, t), append(tools, t.Tools()...)
	}
	servers, err := mcpServers(o)
	if err != nil || len(servers) == 0 {
		return closers, tools, err
	}
	taken = slices.Clone(taken)
	for _, t := range tools {
		taken = append(taken, t.Spec().Name)
	}
	set, err := mcptool.Open(ctx, mcptool.Config{Servers: servers, Taken: taken, Timeout: timeout, Notice: notice})
	if err != nil {
		return closers, nil, err
	}
	return append(closers, set), append(tools, set.Tools()...), nil
}

func mcpServers(o ToolOptions) ([]mcptool.Server, error) {
	var all []mcptool.Server
	for _, s := range o.MCP {
		x := mcptool.Parse(s)
		if err := x.Command.Check(); err != nil {
			return nil, exit.Usagef("%s %s: %w", setting.Name("MCP"), x.Command.Name(), err)
		}
		x.Command.Pass = o.Env
		all = append(all, x)
	}
	if o.MCPConfig == "" {
		return all, nil
	}
	b, err := os.ReadFile(o.MCPConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, exit.Usagef("%s %s: there is no such file", setting.Name("MCPConfig"), o.MCPConfig)
	}
	if err != nil {
		return nil, exit.Usagef("cannot read %s: %w", setting.Name("MCPConfig"), err)
	}
	more, err := mcptool.ReadConfig(b)
	if err != nil {
		return nil, exit.Usagef("%s %s: %w", setting.Name("MCPConfig"), o.MCPConfig, err)
	}
	for i := range more {
		if err := more[i].Command.Check(); err != nil {
			return nil, exit.Usagef("%s %s: %s: %w", setting.Name("MCPConfig"), o.MCPConfig, more[i].Name, err)
		}
		more[i].Command.Pass = o.Env
	}
	return append(all, more...), nil
}

// unknownTool says what there is.
func unknownTool(name string) error {
	if strings.HasPrefix(name, ExecPrefix) {
		return exit.Usagef("%s takes %s; a program is named by %s '%sCMD'", setting.Name("Tools"),
			strings.Join(BuiltinTools(), ", "), setting.Name("Tool"), ExecPrefix)
	}
	remedy := ""
	if near := text.Nearest(name, BuiltinTools()); near != "" {
		remedy = fmt.Sprintf("did you mean %s? ", near)
	}
	return exit.Usagef("there is no tool %q; %sthe tools are %s; a program of yours is %s %sCMD, an MCP server %s CMD or URL",
		name, remedy, strings.Join(BuiltinTools(), ", "), setting.Name("Tool"), ExecPrefix, setting.Name("MCP"))
}

// openPython starts the python tool.
func (t *toolset) openPython(ctx context.Context, o Options, notice func(string)) error {
	c := env.PythonConfig{Path: o.Python, Timeout: o.ToolTimeout, BestEffort: o.BestEffort}
	if o.Session {
		if o.Parallel > env.MaxPythonSessions {
			return exit.Usagef("%s holds a process for each trajectory; %s may be %d at most", setting.Name("Session"),
				setting.Name("Parallel"), env.MaxPythonSessions)
		}
		c.Parallel = max(o.Parallel, 2)
	}
	p, err := env.NewPython(ctx, c)
	if err != nil {
		return err
	}
	t.closers = append(t.closers, p)
	for _, h := range p.Parts() {
		if !h.OK && h.Part != sandbox.Cgroup {
			notice(fmt.Sprintf("%s: python code of the model runs here without %s (%s)", setting.Name("BestEffort"), h.Part, h.Detail))
		}
	}
	if hidden := p.Hidden(); len(hidden) > 0 {
		notice(fmt.Sprintf("the python tool's code is not shown %s, where its interpreter searches for modules: no folders of packages",
			strings.Join(hidden, ", ")))
	}
	if o.Session {
		t.config.Tools = append(t.config.Tools, env.PythonSessions{Python: p})
	} else {
		t.config.Tools = append(t.config.Tools, p)
	}
	return nil
}

// openSearch connects to the search server, and asks it once: one that is not there is
// better found before a model is opened.
func (t *toolset) openSearch(ctx context.Context, o Options) error {
	if o.Retriever == "" {
		return exit.Usagef("the tool search needs a search server: %s http://HOST:PORT; %s starts one",
			setting.Name("Retriever"), setting.Name("server.Serve"))
	}
	const tries = 2
	c, err := client.New(o.Retriever, client.Options{ // its own limit comes before the tool's
		Tries: tries, Timeout: o.ToolTimeout * 2 / 5, Wait: min(o.ToolTimeout/20, time.Second/2)})
	if err != nil {
		return exit.Usagef("%s: %w", setting.Name("Retriever"), err)
	}
	t.closers = append(t.closers, c)
	if _, err := c.Search(ctx, []string{"a"}, 1); err != nil {
		return err
	}
	t.config.Tools = append(t.config.Tools, env.Search{Searcher: c, TopK: o.RetrieverTopK})
	return nil
}

// openZoom adds the tool that cuts boxes out of images.
func (t *toolset) openZoom(o Options) error {
	if o.BoxSpace != "" && !slices.Contains(env.BoxSpaces, o.BoxSpace) {
		return exit.Usagef("%s %q is unknown; it is %s", setting.Name("BoxSpace"), o.BoxSpace, strings.Join(env.BoxSpaces, ", "))
	}
	z := env.Zoom{Space: o.BoxSpace, Seen: o.shown.size}
	t.config.Tools = append(t.config.Tools, z)
	return nil
}

// shownImages says at which size the run's model is shown images. A nil one is Qwen2.5-VL's.
type shownImages struct{ processor *processor.Processor }

// bound sets the bounds of the area in pixels, where they are above 0, of a model whose own
// are not known.
func (s *shownImages) bound(minPixels, maxPixels int) error {
	p, err := processor.New(qwen.DefaultConfig()).Within(minPixels, maxPixels)
	if err != nil {
		c := qwen.DefaultConfig()
		return exit.Usagef("%s is %d, more than %s, which is %d", setting.Name("MinPixels"), cmp.Or(minPixels, c.MinPixels),
			setting.Name("MaxPixels"), cmp.Or(maxPixels, c.MaxPixels))
	}
	s.processor = p
	return nil
}

func (s *shownImages) size(width, height int) (w, h int, err error) {
	return s.processor.Size(width, height)
}

// tokens is how many tokens stand for an image.
func (s *shownImages) tokens(width, height int) (int, error) {
	_, n, err := s.processor.Grid(width, height)
	return n, err
}

// looks reports whether tools work on the conversation's images.
func (t *toolset) looks() bool {
	return slices.ContainsFunc(t.config.Tools, func(tool env.Tool) bool { _, ok := tool.(env.Looking); return ok })
}

// showsImages reports whether tools may give images that are not the conversation's.
func (t *toolset) showsImages() bool {
	return slices.ContainsFunc(t.config.Tools, func(tool env.Tool) bool {
		s, ok := tool.(env.Showing)
		return ok && s.ShowsImages()
	})
}

// openCache opens the cache, if there is to be one.
func (t *toolset) openCache(o ToolOptions, notice func(string)) error {
	dir := o.Cache
	if dir == "" {
		return nil
	}
	if dir == "on" {
		dir = cachedir.Path("tools")
	}
	names := make([]string, len(t.config.Tools))
	for i, tool := range t.config.Tools {
		names[i] = tool.Spec().Name
	}
	for _, name := range o.CacheAlso {
		i := slices.Index(names, name)
		if i < 0 {
			return exit.Usagef("%s %s: there is no such tool in this run; its tools are %s", setting.Name("CacheAlso"),
				name, strings.Join(names, ", "))
		}
		if !env.Cacheable(t.config.Tools[i]) {
			return exit.Usagef("%s %s: its results do not depend on the arguments alone, but on earlier calls or the conversation's images",
				setting.Name("CacheAlso"), name)
		}
	}
	c, err := env.OpenCache(dir, o.CacheAlso...)
	if err != nil {
		return exit.Usagef("%s: %w", setting.Name("Cache"), err)
	}
	if !slices.ContainsFunc(t.config.Tools, c.Serves) {
		notice(fmt.Sprintf("%s: no tool of this run says that its results depend on the arguments alone; name one that does with %s",
			setting.Name("Cache"), setting.Name("CacheAlso")))
	}
	t.config.Cache = c
	return nil
}

// reportCache tells what the cache was good for.
func (t *toolset) reportCache(notice func(string)) {
	c := t.config.Cache
	if c == nil {
		return
	}
	if hits, calls := c.Counts(); calls > 0 {
		notice(fmt.Sprintf("tool cache: %d of %s answered from %s", hits, text.Plural(int(calls), "call"), c.Dir()))
	}
	if c.Failed() {
		notice(fmt.Sprintf("tool cache: some results could not be written into %s", c.Dir()))
	}
}
