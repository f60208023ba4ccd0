// Command agentcli evaluates, collects and trains tool-using language-model
// agents. This package only wires: a command parses its flags into an options
// struct and calls runX(ctx, opts, streams). Each command is a file of its own;
// nothing here is imported by anybody.
package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"agentcli/app/console"
	"agentcli/app/models"
	"agentcli/internal/dotenv"
	"agentcli/internal/exit"
	"agentcli/internal/gc"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/internal/version"

	"github.com/urfave/cli/v2"
)

func main() {
	dotEnv := dotenv.Load(".env")
	becomeTorch()
	gc.Tune()
	s := console.SystemStreams()
	s.Writer = console.NewWriter(s.Err, logFormatIn(os.Args))
	if dotEnv != nil {
		s.Say(text.Line(dotEnv))
	}
	ctx, done := console.WithInterrupt(context.Background(), s)
	code := execute(ctx, os.Args, s)
	done()
	os.Exit(code)
}

// commands lists every command, in the order of the help.
func commands() []*cli.Command {
	return []*cli.Command{
		evalCommand(),
		rolloutCommand(),
		trainCommand(),
		loopCommand(),
		filterCommand(),
		scoreCommand(),
		compareCommand(),
		inspectCommand(),
		journalCommand(),
		datasetsCommand(),
		retrieverCommand(),
		serveCommand(),
		modelCommand(),
		doctorCommand(),
	}
}

// printers are the commands that do nothing but print: a reader that goes away,
// as head does, is no failure of theirs.
var printers = []string{"score", "inspect", "compare", "journal", "datasets", "model", "doctor"}

// execute runs the program and returns its exit code.
func execute(ctx context.Context, args []string, s console.Streams) int {
	return executeWith(ctx, args, s, models.NewBackend())
}

// executeWith is execute with what runs local models.
func executeWith(ctx context.Context, args []string, s console.Streams, backend models.Backend) int {
	setting.Reword(onCommandLine)
	if s.Writer == nil {
		s.Writer = console.NewWriter(s.Err, logFormatIn(args))
	}
	if len(args) > 1 && args[1] == "help" { // help COMMAND is COMMAND --help
		args = append(append([]string{args[0]}, args[2:]...), "--help")
	}
	err := newApp(s, backend).RunContext(ctx, interspersed(args, commands()))
	if errors.Is(err, syscall.EPIPE) && len(args) > 1 && slices.Contains(printers, args[1]) {
		err = nil // whoever read along has seen enough
	}
	return reportError(s, err)
}

func newApp(s console.Streams, backend models.Backend) *cli.App {
	app := &cli.App{
		Name:      "agentcli",
		Usage:     "evaluate, collect and train tool-using language-model agents",
		Version:   version.String(),
		Commands:  commands(),
		Reader:    s.In,
		Writer:    s.Out,
		ErrWriter: s.Err,
		// Answers may hold commas.
		DisableSliceFlagSeparator: true,
		HideHelpCommand:           true,
		Description:               exitCodeHelp,
		Metadata:                  map[string]any{streamsKey: s, backendKey: backend},
		ExitErrHandler:            func(*cli.Context, error) {}, // execute decides
		OnUsageError:              onUsageError,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return unknownCommand("agentcli", c.Args().First(), commands())
			}
			return cli.ShowAppHelp(c)
		},
	}
	prepare(app.Commands)
	return app
}

// prepare gives every command what all have in common.
func prepare(list []*cli.Command) {
	for _, c := range list {
		c.OnUsageError = onUsageError
		c.HideHelpCommand = true
		if !slices.Contains(c.Flags, cli.HelpFlag) && len(c.Subcommands) == 0 {
			c.Flags = append(c.Flags, cli.HelpFlag) // the library lists it beside flags without a category only
		}
		for _, f := range c.Flags {
			showDefault(f)
		}
		prepare(c.Subcommands)
		if c.Action == nil && len(c.Subcommands) > 0 {
			name, list := c.Name, c.Subcommands
			c.Action = func(ctx *cli.Context) error {
				if ctx.Args().Present() {
					return unknownCommand("agentcli "+name, ctx.Args().First(), list)
				}
				return cli.ShowSubcommandHelp(ctx)
			}
		}
	}
}

// sharedFlag is a flag that the library has once for all apps: each app applies a copy, as
// applying writes into a flag.
type sharedFlag struct{ *cli.BoolFlag }

// Apply implements cli.Flag.
func (f sharedFlag) Apply(set *flag.FlagSet) error {
	own := *f.BoolFlag
	return own.Apply(set)
}

func init() {
	for _, f := range []*cli.Flag{&cli.HelpFlag, &cli.VersionFlag} {
		if one, ok := (*f).(*cli.BoolFlag); ok {
			one.DisableDefaultText = true
			*f = sharedFlag{one}
		}
	}
}

// showDefault makes the help say what a zero stands for: the words that the
// usage ends with, or that it is off.
func showDefault(f cli.Flag) {
	set := func(usage, shown *string, zero bool) {
		if before, after, ok := strings.Cut(*usage, " (default: "); ok && *shown == "" {
			*usage, *shown = before, strings.TrimSuffix(after, ")")
		} else if zero && *shown == "" {
			*shown = "none"
		}
	}
	switch f := f.(type) {
	case *cli.BoolFlag:
		f.DisableDefaultText = true
	case *cli.StringFlag:
		set(&f.Usage, &f.DefaultText, false)
	case *cli.IntFlag:
		set(&f.Usage, &f.DefaultText, f.Value == 0)
	case *cli.Int64Flag:
		set(&f.Usage, &f.DefaultText, false)
	case *cli.Float64Flag:
		set(&f.Usage, &f.DefaultText, f.Value == 0)
	case *cli.DurationFlag:
		set(&f.Usage, &f.DefaultText, f.Value == 0)
	}
}

var flagValueError = regexp.MustCompile(`^invalid value (".*") for flag -(\S+): (.*)$`)

// onUsageError puts the flag package's words into ours.
func onUsageError(c *cli.Context, err error, _ bool) error {
	if name, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); ok {
		return unknownFlag(c, name)
	}
	if name, ok := strings.CutPrefix(err.Error(), "flag needs an argument: -"); ok {
		return exit.Usagef("--%s wants a value", strings.TrimPrefix(name, "-"))
	}
	m := flagValueError.FindStringSubmatch(err.Error())
	if m == nil {
		return exit.UsageError{Err: err}
	}
	return exit.Usagef("--%s is %s; %s", m[2], m[1], wanted(flagNamed(c.Command.Flags, m[2]), err))
}

// unknownCommand names the command that looks like one that is not there.
func unknownCommand(of, name string, list []*cli.Command) error {
	var names []string
	for _, c := range list {
		names = append(names, c.Names()...)
	}
	if near := text.Nearest(name, names); near != "" {
		return exit.Usagef("there is no command %q; did you mean %s %s? %s --help lists them all", name, of, near, of)
	}
	return exit.Usagef("there is no command %q; %s --help lists them", name, of)
}

// unknownFlag names the flags that look like one that is not there.
func unknownFlag(c *cli.Context, name string) error {
	name, _, _ = strings.Cut(strings.TrimLeft(name, "-"), "=")
	full := c.Command.HelpName // agentcli datasets show
	if full == "" {
		full = "agentcli"
	}
	full += " --help"
	var names []string
	for _, f := range c.Command.Flags {
		if f.Names()[0] == "help-all" {
			full += "-all"
		}
		for _, n := range f.Names() {
			if len(n) > 1 {
				names = append(names, n)
			}
		}
	}
	if len(name) == 1 {
		return exit.Usagef("there is no flag -%s; %s lists them", name, full)
	}
	if near := text.Nearest(name, names); near != "" {
		return exit.Usagef("there is no flag --%s; did you mean --%s? %s lists them all", name, near, full)
	}
	return exit.Usagef("there is no flag --%s; %s lists them", name, full)
}

const (
	streamsKey = "streams"
	backendKey = "backend"
)

// backendOf gives a command's action what runs local models.
func backendOf(c *cli.Context) models.Backend {
	if b, ok := c.App.Metadata[backendKey].(models.Backend); ok {
		return b
	}
	return models.NoBackend{}
}

// streamsOf gives a command's action its streams.
func streamsOf(c *cli.Context) console.Streams {
	if s, ok := c.App.Metadata[streamsKey].(console.Streams); ok {
		return s
	}
	return console.SystemStreams()
}
