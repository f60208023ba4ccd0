package main

import (
	"os"
	"strings"

	"agentcli/app/models"
	"agentcli/app/rundir"
	"agentcli/internal/exit"
	"agentcli/llm"
	"agentcli/model/chat"

	"github.com/urfave/cli/v2"
)

func modelFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "model", Aliases: []string{"m"}, Category: "model", Usage: "a model folder, a .gguf, org/name on the hub, or the name of a server's model"},
		&cli.StringSliceFlag{Name: "base-url", Category: "model", Usage: "an OpenAI-compatible server, for example http://localhost:8000/v1 (or OPENAI_BASE_URL); several of one model, with commas or repeated, share the work"},
		// A flag, so that a run's config.yaml keeps what it began with, for --resume from another shell.
		&cli.StringFlag{Name: rundir.ServerFromEnv, Hidden: true, EnvVars: []string{"OPENAI_BASE_URL"}},
		&cli.StringFlag{Name: "parser", Category: "model", Value: "auto", Usage: "how tool calls are read out of a server's text: " + strings.Join(chat.Parsers(), ", ") + " (auto: by the model's name, if there are tools)"},
		&cli.StringFlag{Name: "token-mode", Category: "model", Value: models.TokenModeChat, Usage: "how a server is asked: chat (messages), completions (token ids, made here: what was sampled is exactly what is kept), or auto"},
		&cli.StringFlag{Name: "tokenizer", Category: "model", Usage: "of a server's model, for completions: a folder, a .gguf or org/name on the hub (default: what the server calls its model)"},
		&cli.BoolFlag{Name: "stream", Category: "model", Usage: "take a server's replies piece by piece"},
		&cli.StringFlag{Name: "device", Category: "model", Usage: "of a local model: cpu, cuda or cuda:N (default: cpu)"},
		&cli.StringFlag{Name: "dtype", Category: "model", Usage: "of a local model: float32 or bfloat16 (default: the faster one)"},
		&cli.IntFlag{Name: "threads", Category: "model", Usage: "of a local model (default: one a core)"},
		&cli.IntFlag{Name: "retries", Category: "model", Value: llm.DefaultRetries, Usage: "further tries of a request that failed"},
		&cli.DurationFlag{Name: "model-timeout", Category: "model", Value: llm.DefaultTimeout, Usage: "of one request to a server, for example 10m"},
		&cli.DurationFlag{Name: "stream-timeout", Category: "model", Value: llm.DefaultIdle, Usage: "longest silence within a stream that has begun, for example 2m; 0 is no limit"},
		&cli.DurationFlag{Name: "patience", Category: "model", Value: llm.DefaultPatience, Usage: "how long a server is waited for that has answered before and is gone now, as one that restarts; 0: no longer than --retries"},
	}
}

func modelOptionsOf(c *cli.Context) (models.Options, error) {
	o := models.Options{Backend: backendOf(c), Model: c.String("model"), BaseURL: models.ParseAddresses(c.StringSlice("base-url")...), APIKey: os.Getenv("OPENAI_API_KEY"),
		Parser: c.String("parser"), DType: c.String("dtype"), Device: c.String("device"), Threads: c.Int("threads"),
		Retries: c.Int("retries"), ModelTimeout: c.Duration("model-timeout"), Patience: c.Duration("patience"), StreamIdle: c.Duration("stream-timeout"),
		TokenMode: c.String("token-mode"), Tokenizer: c.String("tokenizer"), Stream: c.Bool("stream")}
	switch o.TokenMode {
	case models.TokenModeChat, models.TokenModeCompletions, models.TokenModeAuto:
	default:
		return o, exit.Usagef("--token-mode %q is unknown; it is chat, completions or auto", o.TokenMode)
	}
	if len(o.BaseURL) == 0 {
		o.BaseURL = models.ParseAddresses(c.String(rundir.ServerFromEnv))
		o.BaseFromEnv = len(o.BaseURL) > 0
	}
	if err := models.CheckComputation(o.DType, o.Device, o.Threads); err != nil {
		return o, err
	}
	if o.Parser != chat.ParserAuto {
		p, err := chat.ParserFor(o.Parser, nil)
		if err != nil {
			return o, exit.Usagef("--parser %q is unknown; it is one of %s", o.Parser, strings.Join(chat.Parsers(), ", "))
		}
		o.Parser = p.Name()
	}
	if o.Retries < 0 {
		return o, exit.Usagef("--retries is %d; it must not be negative", o.Retries)
	}
	for _, name := range []string{"patience", "stream-timeout"} {
		if d := c.Duration(name); d < 0 {
			return o, exit.Usagef("--%s is %v; it must not be negative", name, d)
		}
	}
	if o.ModelTimeout <= 0 {
		return o, exit.Usagef("--model-timeout is %v; it must be positive", o.ModelTimeout)
	}
	return o, nil
}
