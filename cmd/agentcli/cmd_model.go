package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"agentcli/app/ask"
	"agentcli/app/console"
	"agentcli/app/models"
	"agentcli/app/report"
	"agentcli/internal/exit"

	"github.com/urfave/cli/v2"
)

func modelCommand() *cli.Command {
	dtype := &cli.StringFlag{Name: "dtype", Value: "float32", Usage: "compute in `TYPE`: float32 or bfloat16"}
	device := &cli.StringFlag{Name: "device", Value: "cpu", Usage: "cpu or cuda"}
	template := &cli.StringFlag{Name: "chat-template",
		Usage: "file with a chat template, or `NAME` of a chat format, in place of the model's own"}
	const tokenizerOnly, withWeights, withLibtorch = 0, 1, 2
	command := func(name, usage string, needs int, flags []cli.Flag, run func(*cli.Context, string) error) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, ArgsUsage: "PATH", Flags: flags, Action: func(c *cli.Context) error {
			args, err := modelArgs(c, 1)
			if err != nil {
				return err
			}
			if needs == withLibtorch {
				if err := backendOf(c).Available(); err != nil {
					return fmt.Errorf("model %s: %w", name, err)
				}
			}
			path, err := models.Find(c.Context, args[0], needs != tokenizerOnly, modelNotice(c))
			if err != nil {
				return err
			}
			return run(c, path)
		}}
	}
	return &cli.Command{
		Name:  "model",
		Usage: "questions to a model folder or a .gguf file",
		Description: "PATH is a folder in the Hugging Face layout, a .gguf file, or org/name on the hub. tokenize, render,\n" +
			"logprobs, generate and preprocess read JSON lines from stdin and write one line for each to stdout.",
		Subcommands: []*cli.Command{
			command("info", "what the model is", withWeights, []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print JSON"}, template},
				func(c *cli.Context, path string) error {
					return runModelInfo(path, c.String("chat-template"), c.Bool("json"), streamsOf(c))
				}),
			command("tokenize", `{"text", "add_special_tokens"?} → {"token_ids"}`, tokenizerOnly,
				[]cli.Flag{&cli.BoolFlag{Name: "decode", Usage: `the other way: {"token_ids"} → {"text"}, special tokens kept`}},
				func(c *cli.Context, path string) error {
					return ask.Tokenize(c.Context, path, c.Bool("decode"), streamsOf(c).In, streamsOf(c).Out)
				}),
			command("render", `{"messages", "tools"?, "add_generation_prompt"?, "enable_thinking"?} → {"text", "token_ids", "images"?}`,
				tokenizerOnly, []cli.Flag{template, &cli.BoolFlag{Name: "positions", Usage: "print the positions of the ids: of time, row and column"}},
				func(c *cli.Context, path string) error {
					return ask.Render(c.Context, path, ask.RenderOptions{ChatTemplate: c.String("chat-template"), Positions: c.Bool("positions")},
						streamsOf(c).In, streamsOf(c).Out)
				}),
			command("logprobs", `{"token_ids", "images"?} → {"logprobs"}: the n−1 log-probabilities of the ids after the first`,
				withLibtorch, []cli.Flag{dtype, device}, func(c *cli.Context, path string) error {
					return ask.Logprobs(c.Context, backendOf(c), path, c.String("dtype"), c.String("device"), streamsOf(c).In, streamsOf(c).Out)
				}),
			command("generate", `{"messages"} or {"token_ids", "images"?} → {"token_ids", "text", "logprobs", "finish_reason"}`, withLibtorch,
				[]cli.Flag{
					&cli.Float64Flag{Name: "temperature", Value: 1, Usage: "0 is greedy"},
					&cli.Float64Flag{Name: "top-p", Value: 1, Usage: "the likeliest tokens of this probability mass; 1 is off"},
					&cli.IntFlag{Name: "top-k", Value: -1, Usage: "the K likeliest tokens; -1 is off"},
					&cli.Float64Flag{Name: "min-p", Usage: "tokens at least this likely, relative to the likeliest; 0 is off"},
					&cli.IntFlag{Name: "max-tokens", Value: 256, Usage: "of each reply"},
					&cli.Int64Flag{Name: "seed", Usage: "of the sampling"},
					&cli.StringSliceFlag{Name: "stop", Usage: "end a reply at this string (repeatable)", KeepSpace: true},
					dtype, device, template,
				}, func(c *cli.Context, path string) error {
					o := ask.GenerateOptions{ChatTemplate: c.String("chat-template"),
						Temperature: c.Float64("temperature"), TopP: c.Float64("top-p"), MinP: c.Float64("min-p"),
						TopK: c.Int("top-k"), MaxTokens: c.Int("max-tokens"), Seed: c.Int64("seed"), Stop: c.StringSlice("stop"),
						DType: c.String("dtype"), Device: c.String("device")}
					if err := o.Validate(); err != nil {
						return err
					}
					return ask.Generate(c.Context, backendOf(c), path, o, streamsOf(c).In, streamsOf(c).Out)
				}),
			preprocessCommand(command),
			initCommand(),
			{Name: "convert", Usage: "write a Hugging Face folder or, where DST ends in .gguf, a file for llama.cpp", ArgsUsage: "SRC DST",
				Flags: []cli.Flag{&cli.StringFlag{Name: "dtype",
					Usage: "store as `TYPE`: f32, bf16, f16, in a .gguf also q8_0 or q4_k (default: what loses nothing)"},
					&cli.BoolFlag{Name: "merge", Usage: "of a LoRA adapter: write its base model with the adapter merged in"}},
				Action: func(c *cli.Context) error {
					args, err := modelArgs(c, 2)
					if err != nil {
						return err
					}
					src, err := models.Find(c.Context, args[0], true, modelNotice(c))
					if err != nil {
						return err
					}
					var usage *models.ConvertUsageError
					err = models.Convert(src, args[1], c.String("dtype"), c.Bool("merge"))
					if errors.As(err, &usage) {
						return exit.Usagef("--%s: %v", strings.ToLower(usage.Setting), err)
					}
					if err != nil {
						return err
					}
					_, err = fmt.Fprintf(streamsOf(c).Err, "wrote %s\n", args[1])
					return err
				}},
		},
	}
}

// modelArgs checks the number of positional arguments.
func modelArgs(c *cli.Context, want int) ([]string, error) {
	if n := c.Args().Len(); n != want {
		return nil, exit.Usagef("model %s: %d arguments, not %d; usage: agentcli model %s %s", c.Command.Name,
			n, want, c.Command.Name, c.Command.ArgsUsage)
	}
	return c.Args().Slice(), nil
}

// modelNotice writes a line for people.
func modelNotice(c *cli.Context) func(string) {
	return func(m string) { fmt.Fprintln(streamsOf(c).Err, "agentcli: "+m) }
}

func runModelInfo(path, chatTemplate string, asJSON bool, s console.Streams) error {
	i, err := models.ReadFacts(path, chatTemplate)
	if err != nil {
		return err
	}
	if asJSON {
		e := json.NewEncoder(s.Out)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(i)
	}
	return report.Table(s.Out, "", nil, i.Rows())
}
