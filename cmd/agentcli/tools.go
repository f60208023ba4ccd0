package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"agentcli/env"
	"agentcli/env/mcptool"
	"agentcli/internal/cachedir"
	"agentcli/internal/exit"
	"agentcli/internal/text"
	"agentcli/sandbox"

	"github.com/urfave/cli/v2"
)

// builtinTools are what --tools takes.
var builtinTools = []string{"calculator", "python"}

// execPrefix marks, in --tool, a program.
const execPrefix = "exec:"

// toolOptions name the tools beside those of --tools.
type toolOptions struct {
	Programs  []string // exec:CMD, or a built-in one's name
	MCP       []string
	MCPConfig string
	Env       []string // names of variables that programs get
	Cache     string   // a folder, or on
	CacheAlso []string
}

// addedToolFlags are those that eval, rollout and doctor share.
func addedToolFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "tool", Category: "agent", Usage: "`exec:CMD`, a program that speaks JSON lines (docs/tools.md), beside the other tools; repeatable"},
		&cli.StringSliceFlag{Name: "mcp", Category: "agent", Usage: "an MCP server: `CMD|URL`, a command with its arguments or the address of streamable HTTP; repeatable"},
		toolEnvFlag(),
		&cli.StringFlag{Name: "mcp-config", Category: "agent", Usage: "MCP servers from a JSON `FILE`, as Claude and Cursor write it (mcpServers)"},
	}
}

func toolEnvFlag() cli.Flag {
	return &cli.StringSliceFlag{Name: "tool-env", Category: "agent", Usage: "pass the environment variable `NAME` on to the programs of --tool, --mcp and --reward exec:, which get no keys otherwise (docs/tools.md); repeatable"}
}

// toolEnv reads the flag.
func toolEnv(c *cli.Context) ([]string, error) {
	names := c.StringSlice("tool-env")
	for _, name := range names {
		if name == "" || strings.ContainsAny(name, "= ") {
			return nil, exit.Usagef("--tool-env wants the NAME of a variable of the environment; a value is set there, as NAME=VALUE agentcli …")
		}
		if _, ok := os.LookupEnv(name); !ok {
			return nil, exit.Usagef("--tool-env %s: there is no such variable in the environment", name)
		}
	}
	return names, nil
}

func toolFlags() []cli.Flag {
	return append(addedToolFlags(),
		&cli.StringFlag{Name: "tool-cache", Category: "agent", Usage: "keep results of tools in `DIR|on` and take them from there: of python without sessions, and of tools that say that they are deterministic; on is a folder of the program's cache"},
		&cli.StringSliceFlag{Name: "tool-cache-also", Category: "agent", Usage: "with --tool-cache: the `NAME` of another tool whose results depend on its arguments alone; repeatable"},
	)
}

func toolOptionsOf(c *cli.Context) (toolOptions, error) {
	o := toolOptions{Programs: c.StringSlice("tool"), MCP: c.StringSlice("mcp"), MCPConfig: c.String("mcp-config"),
		Cache: c.String("tool-cache"), CacheAlso: c.StringSlice("tool-cache-also")}
	var err error
	if o.Env, err = toolEnv(c); err != nil {
		return o, err
	}
	if len(o.CacheAlso) > 0 && o.Cache == "" {
		return o, exit.Usagef("--tool-cache-also %s needs --tool-cache DIR, or --tool-cache on", o.CacheAlso[0])
	}
	for _, p := range o.Programs {
		if strings.TrimSpace(strings.TrimPrefix(p, execPrefix)) == "" {
			return o, exit.Usagef("--tool %q names no program; write --tool 'exec:CMD ARGS'", p)
		}
	}
	for _, s := range o.MCP {
		if strings.TrimSpace(s) == "" {
			return o, exit.Usagef("--mcp is empty; it wants a command or an address")
		}
	}
	return o, nil
}

// openTools opens everything that the flags name, and the cache.
func (x *session) openTools(ctx context.Context) error {
	x.tools = env.Config{ToolTimeout: x.o.ToolTimeout + time.Second, Hung: &env.Hung{}, MaxObservationTokens: x.o.MaxObservationTokens} // the tool's own limit comes first
	for _, p := range x.o.Added.Programs {
		if !strings.HasPrefix(p, execPrefix) && !slices.Contains(x.o.Tools, p) {
			x.o.Tools = append(slices.Clone(x.o.Tools), p)
		}
	}
	for _, name := range x.o.Tools {
		switch name {
		case "calculator":
			x.tools.Tools = append(x.tools.Tools, env.Calculator{})
		case "python":
			if err := x.openPython(ctx); err != nil {
				return err
			}
		default:
			return unknownTool(name)
		}
	}
	builtin := len(x.tools.Tools)
	closers, tools, err := openAdded(ctx, x.o.Added, x.o.Tools, x.o.ToolTimeout, x.notice)
	x.closers = append(x.closers, closers...)
	if err != nil {
		return err
	}
	x.tools.Tools = append(x.tools.Tools, tools...)
	if err := x.tools.Validate(); err != nil {
		return exit.Usagef("%w; leave one of them out", err)
	}
	for _, t := range x.tools.Tools[builtin:] { // what they are is not known from their names
		version := ""
		if v, ok := t.(env.Versioned); ok {
			version, _ = v.CacheVersion()
		}
		x.added = append(x.added, t.Spec(), version)
	}
	return x.openToolCache()
}

// openAdded starts programs and servers. The closers count even with an error.
func openAdded(ctx context.Context, o toolOptions, taken []string, timeout time.Duration, notice func(string)) (closers []io.Closer, tools []env.Tool, err error) {
	for _, p := range o.Programs {
		command, ok := strings.CutPrefix(p, execPrefix)
		if !ok {
			continue
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

func mcpServers(o toolOptions) ([]mcptool.Server, error) {
	var all []mcptool.Server
	for _, s := range o.MCP {
		x := mcptool.Parse(s)
		x.Command.Pass = o.Env
		all = append(all, x)
	}
	if o.MCPConfig == "" {
		return all, nil
	}
	b, err := os.ReadFile(o.MCPConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, exit.Usagef("--mcp-config %s: there is no such file", o.MCPConfig)
	}
	if err != nil {
		return nil, exit.Usagef("cannot read --mcp-config: %w", err)
	}
	more, err := mcptool.ReadConfig(b)
	if err != nil {
		return nil, exit.Usagef("--mcp-config %s: %w", o.MCPConfig, err)
	}
	for i := range more {
		more[i].Command.Pass = o.Env
	}
	return append(all, more...), nil
}

// unknownTool says what there is.
func unknownTool(name string) error {
	if strings.HasPrefix(name, execPrefix) {
		return exit.Usagef("--tools takes %s; a program is named by --tool '%sCMD'", strings.Join(builtinTools, " and "), execPrefix)
	}
	remedy := ""
	if near := text.Nearest(name, builtinTools); near != "" {
		remedy = fmt.Sprintf("did you mean %s? ", near)
	}
	return exit.Usagef("there is no tool %q; %sthe tools are %s; a program of yours is --tool %sCMD, an MCP server --mcp CMD or URL",
		name, remedy, strings.Join(builtinTools, " and "), execPrefix)
}

// openPython starts the python tool.
func (x *session) openPython(ctx context.Context) error {
	c := env.PythonConfig{Path: x.o.Python, Timeout: x.o.ToolTimeout, BestEffort: x.o.BestEffort}
	if x.o.Session {
		if x.o.Parallel > env.MaxPythonSessions {
			return exit.Usagef("--python-session holds a process for each trajectory; --parallel may be %d at most", env.MaxPythonSessions)
		}
		c.Parallel = max(x.o.Parallel, 2)
	}
	p, err := env.NewPython(ctx, c)
	if err != nil {
		return err
	}
	x.closers = append(x.closers, p)
	for _, h := range p.Parts() {
		if !h.OK && h.Part != sandbox.Cgroup {
			x.notice(fmt.Sprintf("--sandbox best-effort: python code of the model runs here without %s (%s)", h.Part, h.Detail))
		}
	}
	if hidden := p.Hidden(); len(hidden) > 0 {
		x.notice(fmt.Sprintf("the python tool's code is not shown %s, where its interpreter searches for modules: no folders of packages", strings.Join(hidden, ", ")))
	}
	if x.o.Session {
		x.tools.Tools = append(x.tools.Tools, env.PythonSessions{Python: p})
	} else {
		x.tools.Tools = append(x.tools.Tools, p)
	}
	return nil
}

// openToolCache opens the cache, if there is to be one.
func (x *session) openToolCache() error {
	dir := x.o.Added.Cache
	if dir == "" {
		return nil
	}
	if dir == "on" {
		dir = cachedir.Path("tools")
	}
	names := make([]string, len(x.tools.Tools))
	for i, t := range x.tools.Tools {
		names[i] = t.Spec().Name
	}
	for _, name := range x.o.Added.CacheAlso {
		i := slices.Index(names, name)
		if i < 0 {
			return exit.Usagef("--tool-cache-also %s: there is no such tool in this run; its tools are %s", name, strings.Join(names, ", "))
		}
		if _, ok := x.tools.Tools[i].(env.PerTrajectory); ok {
			return exit.Usagef("--tool-cache-also %s: it keeps something from call to call, so its results do not depend on the arguments alone", name)
		}
	}
	c, err := env.OpenCache(dir, x.o.Added.CacheAlso...)
	if err != nil {
		return exit.Usagef("--tool-cache: %w", err)
	}
	if !slices.ContainsFunc(x.tools.Tools, c.Serves) {
		x.notice("--tool-cache: no tool of this run says that its results depend on the arguments alone; name one that does with --tool-cache-also")
	}
	x.tools.Cache = c
	return nil
}

// sayCache tells what the cache was good for.
func (x *session) sayCache() {
	c := x.tools.Cache
	if c == nil {
		return
	}
	if hits, calls := c.Counts(); calls > 0 {
		x.notice(fmt.Sprintf("tool cache: %d of %s answered from %s", hits, text.Plural(int(calls), "call"), c.Dir()))
	}
	if c.Failed() {
		x.notice(fmt.Sprintf("tool cache: some results could not be written into %s", c.Dir()))
	}
}

// toolFindings says what tools there are, and tries those that are named.
func toolFindings(ctx context.Context, o toolOptions) []finding {
	list := []finding{{Name: "tools", OK: true,
		Detail: fmt.Sprintf("%s by --tools; programs by --tool %sCMD; MCP servers by --mcp and --mcp-config", strings.Join(builtinTools, " and "), execPrefix)}}
	if len(o.Programs)+len(o.MCP) == 0 && o.MCPConfig == "" {
		return list
	}
	var said []string
	closers, tools, err := openAdded(ctx, o, nil, 10*time.Second, func(s string) { said = append(said, s) })
	for _, c := range closers {
		defer c.Close()
	}
	if err != nil {
		return append(list, finding{Name: "tools", Detail: text.Line(err)})
	}
	for _, s := range said {
		list = append(list, finding{Name: "tools", Detail: s})
	}
	for _, t := range tools {
		spec := t.Spec()
		var schema struct {
			Properties map[string]json.RawMessage `json:"properties"`
		}
		_ = json.Unmarshal(spec.Parameters, &schema)
		list = append(list, finding{Name: "tool", OK: true, Detail: fmt.Sprintf("%s (%s): %s", spec.Name, strings.Join(slices.Sorted(maps.Keys(schema.Properties)), ", "), text.Cut(text.OneLine(spec.Description), 100))})
	}
	return list
}
