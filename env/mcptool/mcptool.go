// Package mcptool makes the tools of MCP servers (Model Context Protocol) tools
// of an env.ToolEnvironment: programs beside us over stdio, and servers over
// streamable HTTP. It is the only importer of the MCP SDK.
package mcptool

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"agentcli/env"
	"agentcli/internal/child"
	"agentcli/internal/safego"
	"agentcli/internal/text"
	"agentcli/traj"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Server says how to reach one: a program, or a URL.
type Server struct {
	Name    string // of a configuration; "": what the server calls itself
	Command child.Command
	URL     string
	Headers map[string]string // of every request to URL
}

// String is what messages call the server.
func (s Server) String() string {
	switch {
	case s.Name != "":
		return s.Name
	case s.URL != "":
		return text.Address(s.URL)
	}
	return s.Command.Name()
}

// secrets are what no message may hold: values of headers, and of the address's
// user and query, wherever they turn up again.
func (s Server) secrets() []string {
	list := text.KeysIn(s.URL)
	for _, v := range s.Headers {
		_, token, _ := strings.Cut(v, " ") // Bearer …
		list = append(list, v, token)
	}
	return list
}

// Config describes the servers of a run.
type Config struct {
	Servers []Server
	Taken   []string      // names of tools that there are already
	Timeout time.Duration // of one call; 0: env.DefaultToolTimeout
	Notice  func(string)  // what people should know; nil: nobody
	Now     func() time.Time

	closeGrace time.Duration // for a server to close a session; 0: closeGrace
}

const closeGrace = 2 * time.Second

// Set are the tools of several servers.
type Set struct {
	servers []*server
	tools   []env.Tool
}

// Open connects to the servers and lists their tools. Close it.
func Open(ctx context.Context, c Config) (_ *Set, err error) {
	if c.Timeout == 0 {
		c.Timeout = env.DefaultToolTimeout
	}
	if c.Notice == nil {
		c.Notice = func(string) {}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.closeGrace == 0 {
		c.closeGrace = closeGrace
	}
	s := &Set{}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	var all []*tool
	for _, where := range c.Servers {
		x := newServer(where, c)
		s.servers = append(s.servers, x)
		listed, err := x.list(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, &env.UnusableError{What: fmt.Sprintf("the MCP server %s", where), Err: err}
		}
		if len(listed) == 0 {
			c.Notice(fmt.Sprintf("the MCP server %s offers no tools", where))
		}
		all = append(all, listed...)
	}
	unique(all, c.Taken)
	for _, t := range all {
		s.tools = append(s.tools, t)
	}
	return s, nil
}

// Tools are what the servers offered when they were opened.
func (s *Set) Tools() []env.Tool { return s.tools }

// Close ends the sessions, and the programs.
func (s *Set) Close() error {
	var wg sync.WaitGroup
	for _, x := range s.servers {
		wg.Go(func() {
			defer safego.Catch(nil)
			x.close()
		})
	}
	wg.Wait()
	return nil
}

// unique gives every tool a name of its own: the server's name stands before
// those that two have.
func unique(all []*tool, taken []string) {
	count := map[string]int{}
	for _, name := range taken {
		count[name]++
	}
	for _, t := range all {
		t.name = fit(t.original)
		count[t.name]++
	}
	used := map[string]bool{}
	for _, name := range taken {
		used[name] = true
	}
	for _, t := range all {
		if count[t.name] == 1 {
			used[t.name] = true
		}
	}
	for _, t := range all {
		if count[t.name] == 1 {
			continue
		}
		base := fit(t.x.title) + "_" + t.name
		name := fit(base)
		for n := 2; used[name]; n++ {
			end := fmt.Sprintf("_%d", n)
			name = base[:min(len(base), 64-len(end))] + end
		}
		t.name = name
		used[name] = true
	}
}

// fit makes a name one that models' servers take.
func fit(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, s)
	if s == "" {
		return "_"
	}
	return s[:min(len(s), 64)]
}

// tool is one tool of a server.
type tool struct {
	x           *server
	name        string // to the model
	original    string // to the server
	description string
	parameters  json.RawMessage
}

// Spec describes the tool to a model.
func (t *tool) Spec() traj.ToolSpec {
	return traj.ToolSpec{Name: t.name, Description: t.description, Parameters: t.parameters}
}

// CacheVersion is the server's. MCP has no word for a deterministic tool.
func (t *tool) CacheVersion() (string, bool) { return t.x.version, false }

// ShowsImages implements env.Showing: MCP has no word for a tool without images.
func (t *tool) ShowsImages() bool { return true }

// Call is Show with descriptions in place of images.
func (t *tool) Call(ctx context.Context, args json.RawMessage) (string, error) {
	result, files, err := t.Show(ctx, args)
	if err != nil || len(files) == 0 {
		return result, err
	}
	return env.WithoutFiles(result, files), nil
}

// Show asks the server.
func (t *tool) Show(ctx context.Context, args json.RawMessage) (string, []env.ImageFile, error) {
	own, cancel := context.WithTimeout(ctx, t.x.c.Timeout)
	defer cancel()
	r, err := t.x.call(own, &mcp.CallToolParams{Name: t.original, Arguments: args})
	switch {
	case err != nil && own.Err() != nil && ctx.Err() == nil:
		return "", nil, env.TookTooLong(t.name, t.x.c.Timeout)
	case err != nil:
		return "", nil, err
	}
	result, files := content(r)
	if r.IsError {
		if len(files) > 0 {
			result = env.WithoutFiles(result, files)
		}
		return "", nil, env.Lasting(fmt.Errorf("%s", orElse(result, "the tool says that it failed, and not why")))
	}
	return result, files, nil
}

func orElse(s, other string) string {
	if strings.TrimSpace(s) == "" {
		return other
	}
	return s
}

// content is a result as a model reads it: text as it is, a place for each image, the rest
// described.
func content(r *mcp.CallToolResult) (string, []env.ImageFile) {
	var parts []string
	var files []env.ImageFile
	for _, c := range r.Content {
		if f, ok := imageOf(c); ok {
			files = append(files, f)
		}
	}
	add := func(format string, args ...any) {
		s := fmt.Sprintf(format, args...)
		if len(files) > 0 {
			s = traj.PlainText(s)
		}
		parts = append(parts, s)
	}
	for _, c := range r.Content {
		if _, ok := imageOf(c); ok {
			parts = append(parts, traj.ImageMark)
			continue
		}
		switch c := c.(type) {
		case *mcp.TextContent:
			add("%s", c.Text)
		case *mcp.AudioContent:
			add("[sound, %s, %d bytes]", c.MIMEType, len(c.Data))
		case *mcp.ResourceLink:
			add("[a resource, %s: %s]", orElse(c.Title, c.Name), c.URI)
		case *mcp.EmbeddedResource:
			switch res := c.Resource; {
			case res == nil:
			case res.Text != "":
				add("%s", res.URI+":\n"+res.Text)
			default:
				add("[a resource, %s, %s, %d bytes]", res.URI, orElse(res.MIMEType, "of unknown type"), len(res.Blob))
			}
		default:
			add("[content of an unknown kind, %T]", c)
		}
	}
	if len(parts) == 0 && r.StructuredContent != nil {
		if b, err := json.Marshal(r.StructuredContent); err == nil {
			return string(b), nil
		}
	}
	return strings.Join(parts, "\n"), files
}

// imageOf is the image that a piece of a result is, alone or as a resource.
func imageOf(c mcp.Content) (f env.ImageFile, ok bool) {
	switch c := c.(type) {
	case *mcp.ImageContent:
		return env.ImageFile{Type: c.MIMEType, Bytes: c.Data}, true
	case *mcp.EmbeddedResource:
		if res := c.Resource; res != nil && len(res.Blob) > 0 && strings.HasPrefix(res.MIMEType, "image/") {
			return env.ImageFile{Type: res.MIMEType, Bytes: res.Blob}, true
		}
	}
	return f, false
}

// describe is a tool's text for the model, in which a server may have anything.
func describe(t *mcp.Tool) string {
	return strings.ToValidUTF8(orElse(t.Description, orElse(t.Title, text.OneLine(t.Name))), "�")
}
