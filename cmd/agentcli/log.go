package main

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"agentcli/internal/text"

	"github.com/urfave/cli/v2"
)

// logFormats are the forms of everything that goes to stderr.
var logFormats = []string{"text", "json"}

func logFlag() cli.Flag {
	return &cli.StringFlag{Name: "log-format", Category: "run", Value: "text", Usage: "of everything on stderr: text, or json, one object a line"}
}

// console is stderr: lines for people, or JSON objects for programs. It is safe
// for concurrent use.
type console struct {
	mu    sync.Mutex
	w     io.Writer
	json  bool
	above func() // takes away what redraws itself, before a line is written; nil: nothing does
}

// lines is the console as a slog.Handler for people: a record is a line with the
// program's name before it. Its attributes are for programs: what matters to
// people is in the message.
type lines struct{ c *console }

func (h lines) Enabled(context.Context, slog.Level) bool { return true }
func (h lines) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h lines) WithGroup(string) slog.Handler            { return h }

func (h lines) Handle(_ context.Context, r slog.Record) error {
	before, msg := "agentcli: ", r.Message
	if rest, ok := strings.CutPrefix(msg, "\n"); ok { // below what the terminal echoed
		before, msg = "\n"+before, rest
	}
	if r.Level == slog.LevelWarn {
		before += "warning: "
	}
	_, err := io.WriteString(h.c, before+text.Harmless(msg)+"\n")
	return err
}

// Write writes one line, below nothing that redraws itself.
func (c *console) Write(b []byte) (int, error) {
	c.mu.Lock()
	above := c.above
	c.mu.Unlock()
	if above != nil { // it has a lock of its own, and whoever holds that may say something
		above()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.w.Write(b)
}

func (c *console) logger() *slog.Logger {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.json {
		return slog.New(objects{slog.NewJSONHandler(c, nil)})
	}
	return slog.New(lines{c})
}

// objects is a JSON handler whose messages have no line break at the front.
type objects struct{ slog.Handler }

func (h objects) Handle(ctx context.Context, r slog.Record) error {
	r.Message = strings.TrimPrefix(r.Message, "\n")
	return h.Handler.Handle(ctx, r)
}

// redraws says what takes the line away that redraws itself; nil: there is none
// any more.
func (s streams) redraws(clear func()) {
	if s.con == nil {
		return
	}
	s.con.mu.Lock()
	defer s.con.mu.Unlock()
	s.con.above = clear
}

// setFormat takes one of logFormats.
func (c *console) setFormat(format string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.json = format == "json"
}

// log is where a command says something.
func (s streams) log() *slog.Logger {
	if s.con == nil {
		return slog.New(lines{&console{w: s.err}})
	}
	return s.con.logger()
}

// say tells people something; a text that begins with "warning: " is one.
func (s streams) say(msg string) {
	if rest, ok := strings.CutPrefix(msg, "warning: "); ok {
		s.log().Warn(rest)
		return
	}
	s.log().Info(msg)
}

// jsonLog reports whether what is said goes out as JSON objects.
func (s streams) jsonLog() bool {
	if s.con == nil {
		return false
	}
	s.con.mu.Lock()
	defer s.con.mu.Unlock()
	return s.con.json
}

// setLogFormat takes the flag, or the setting of a file.
func setLogFormat(c *cli.Context) error {
	f := c.String("log-format")
	if !slices.Contains(logFormats, f) {
		return usagef("--log-format %q is unknown; it is one of %s", f, strings.Join(logFormats, ", "))
	}
	if con := streamsOf(c).con; con != nil {
		con.setFormat(f)
	}
	return nil
}

// logFormatIn looks for the flag before the flags are read, so that a mistake
// among them is told in the form that was asked for.
func logFormatIn(args []string) string {
	for i, a := range args {
		name, value, ok := strings.Cut(a, "=")
		if name != "--log-format" && name != "-log-format" {
			continue
		}
		if !ok && i+1 < len(args) {
			value = args[i+1]
		}
		return value
	}
	return ""
}
