package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"agentcli/app/console"
	"agentcli/app/models"
	"agentcli/app/report"
	"agentcli/internal/exit"
	"agentcli/internal/malformed"
	"agentcli/model/chat"
	"agentcli/model/tokenizer"
	"agentcli/traj"

	"github.com/urfave/cli/v2"
)

// generateOptions are the flags of model generate.
type generateOptions struct {
	Temperature   float64
	TopP, MinP    float64
	TopK          int
	MaxTokens     int
	Seed          int64
	Stop          []string
	DType, Device string
	ChatTemplate  string
}

func (o *generateOptions) validate() error {
	switch {
	case !(o.Temperature >= 0 && o.Temperature <= 100):
		return exit.Usagef("--temperature is %v; it must be from 0 (greedy) to 100", o.Temperature)
	case !(o.TopP > 0 && o.TopP <= 1):
		return exit.Usagef("--top-p is %v; it must be above 0 and at most 1 (off)", o.TopP)
	case !(o.MinP >= 0 && o.MinP <= 1):
		return exit.Usagef("--min-p is %v; it must be from 0 (off) to 1", o.MinP)
	case o.TopK < -1:
		return exit.Usagef("--top-k is %d; it must be positive, or -1 (off)", o.TopK)
	case o.MaxTokens < 1:
		return exit.Usagef("--max-tokens is %d; it must be at least 1", o.MaxTokens)
	}
	return nil
}

func modelCommand() *cli.Command {
	dtype := &cli.StringFlag{Name: "dtype", Value: "float32", Usage: "compute in `TYPE`: float32 or bfloat16"}
	device := &cli.StringFlag{Name: "device", Value: "cpu", Usage: "cpu or cuda"}
	template := &cli.StringFlag{Name: "chat-template",
		Usage: "file with a chat template, or `NAME` of a chat format, in place of the model's own"}
	const tokenizerOnly, withWeights, withLibtorch = 0, 1, 2
	ask := func(name, usage string, needs int, flags []cli.Flag, run func(*cli.Context, string) error) *cli.Command {
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
			ask("info", "what the model is", withWeights, []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print JSON"}, template},
				func(c *cli.Context, path string) error {
					return runModelInfo(path, c.String("chat-template"), c.Bool("json"), streamsOf(c))
				}),
			ask("tokenize", `{"text", "add_special_tokens"?} → {"token_ids"}`, tokenizerOnly,
				[]cli.Flag{&cli.BoolFlag{Name: "decode", Usage: `the other way: {"token_ids"} → {"text"}, special tokens kept`}},
				func(c *cli.Context, path string) error {
					return runModelTokenize(c.Context, path, c.Bool("decode"), streamsOf(c))
				}),
			ask("render", `{"messages", "tools"?, "add_generation_prompt"?, "enable_thinking"?} → {"text", "token_ids"}`,
				tokenizerOnly, []cli.Flag{template}, func(c *cli.Context, path string) error {
					return runModelRender(c.Context, path, c.String("chat-template"), streamsOf(c))
				}),
			ask("logprobs", `{"token_ids", "images"?} → {"logprobs"}: the n−1 log-probabilities of the ids after the first`,
				withLibtorch, []cli.Flag{dtype, device}, func(c *cli.Context, path string) error {
					return runModelLogprobs(c.Context, backendOf(c), path, c.String("dtype"), c.String("device"), streamsOf(c).In, streamsOf(c).Out)
				}),
			ask("generate", `{"messages"} or {"token_ids"} → {"token_ids", "text", "logprobs", "finish_reason"}`, withLibtorch, []cli.Flag{
				&cli.Float64Flag{Name: "temperature", Value: 1, Usage: "0 is greedy"},
				&cli.Float64Flag{Name: "top-p", Value: 1, Usage: "the likeliest tokens of this probability mass; 1 is off"},
				&cli.IntFlag{Name: "top-k", Value: -1, Usage: "the K likeliest tokens; -1 is off"},
				&cli.Float64Flag{Name: "min-p", Usage: "tokens at least this likely, relative to the likeliest; 0 is off"},
				&cli.IntFlag{Name: "max-tokens", Value: 256, Usage: "of each reply"},
				&cli.Int64Flag{Name: "seed", Usage: "of the sampling"},
				&cli.StringSliceFlag{Name: "stop", Usage: "end a reply at this string (repeatable)"},
				dtype, device, template,
			}, func(c *cli.Context, path string) error {
				o := generateOptions{ChatTemplate: c.String("chat-template"),
					Temperature: c.Float64("temperature"), TopP: c.Float64("top-p"), MinP: c.Float64("min-p"),
					TopK: c.Int("top-k"), MaxTokens: c.Int("max-tokens"), Seed: c.Int64("seed"), Stop: c.StringSlice("stop"),
					DType: c.String("dtype"), Device: c.String("device")}
				if err := o.validate(); err != nil {
					return err
				}
				return runModelGenerate(c.Context, backendOf(c), path, o, streamsOf(c).In, streamsOf(c).Out)
			}),
			preprocessCommand(ask),
			{Name: "init", Usage: "write a model with random weights", Flags: []cli.Flag{
				&cli.StringFlag{Name: "config", Required: true,
					Usage: "config.json `FILE`; the tokenizer's and the processor's files are copied from its folder"},
				&cli.Int64Flag{Name: "seed", Usage: "of the weights"},
				&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Required: true, Usage: "new `FOLDER`"}},
				Action: func(c *cli.Context) error {
					if _, err := modelArgs(c, 0); err != nil {
						return err
					}
					return models.Init(c.String("config"), c.Int64("seed"), c.String("output"))
				}},
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

// eachLine answers JSON lines one by one, in order. Empty lines are passed
// over; an error names the line.
func eachLine[Q, A any](ctx context.Context, in io.Reader, out io.Writer, answer func(Q) (A, error)) error {
	r := bufio.NewReaderSize(in, 1<<16)
	w := bufio.NewWriter(out)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	for n := 1; ; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		line, err := r.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return &malformed.Error{Path: "stdin", Line: n, Err: err}
		}
		if len(bytes.TrimSpace(line)) > 0 {
			var q Q
			if jerr := json.Unmarshal(line, &q); jerr != nil {
				return errors.Join(w.Flush(), &malformed.Error{Path: "stdin", Line: n, Err: jsonLineError(jerr)})
			}
			a, aerr := answer(q)
			if aerr != nil {
				return errors.Join(w.Flush(), &malformed.Error{Path: "stdin", Line: n, Err: aerr})
			}
			if werr := e.Encode(a); werr != nil {
				return fmt.Errorf("stdout: %w", werr)
			}
			// Whoever asks line by line waits for each answer.
			if r.Buffered() == 0 {
				if werr := w.Flush(); werr != nil {
					return fmt.Errorf("stdout: %w", werr)
				}
			}
		}
		if err == io.EOF {
			if werr := w.Flush(); werr != nil {
				return fmt.Errorf("stdout: %w", werr)
			}
			return nil
		}
	}
}

// jsonLineError says in plain words what is wrong with a line.
func jsonLineError(err error) error {
	var typ *json.UnmarshalTypeError
	if !errors.As(err, &typ) {
		return malformed.Errorf(malformed.Syntax, "not a JSON object: %w", err)
	}
	want := "an object"
	switch typ.Type.Kind() {
	case reflect.Slice, reflect.Array:
		want = "a list"
	case reflect.String:
		want = "a string"
	case reflect.Bool:
		want = "true or false"
	case reflect.Int32, reflect.Int64, reflect.Int:
		want = "a whole number"
	case reflect.Float32, reflect.Float64:
		want = "a number"
	}
	if typ.Field == "" {
		return malformed.Errorf(malformed.Type, "not a JSON object, but of type %s", typ.Value)
	}
	return malformed.Field(typ.Field, malformed.Type, "of type %s, want %s", typ.Value, want)
}

type tokenizeLine struct {
	Text       *string `json:"text"`
	AddSpecial *bool   `json:"add_special_tokens"`
	TokenIDs   []int32 `json:"token_ids"`
}

func runModelTokenize(ctx context.Context, path string, decode bool, s console.Streams) error {
	tok, err := tokenizer.Open(path)
	if err != nil {
		return err
	}
	return eachLine(ctx, s.In, s.Out, func(q tokenizeLine) (any, error) {
		if decode {
			if q.TokenIDs == nil {
				return nil, malformed.Field("token_ids", malformed.Missing, "there are none")
			}
			for _, id := range q.TokenIDs {
				if tok.Bytes(id) == nil {
					return nil, malformed.Field("token_ids", malformed.Range, "%d is not in the vocabulary of %d tokens", id, tok.VocabSize())
				}
			}
			return struct {
				Text string `json:"text"`
			}{tok.Decode(q.TokenIDs, false)}, nil
		}
		if q.Text == nil {
			return nil, malformed.Field("text", malformed.Missing, "there is none")
		}
		// True is the default of the tokenizers that this is held against.
		ids := tok.Encode(*q.Text, q.AddSpecial == nil || *q.AddSpecial)
		return struct {
			TokenIDs []int32 `json:"token_ids"`
		}{notNil(ids)}, nil
	})
}

func notNil(ids []int32) []int32 {
	if ids == nil {
		return []int32{}
	}
	return ids
}

type renderLine struct {
	Messages   []apiMessage      `json:"messages"`
	Tools      []json.RawMessage `json:"tools"`
	Generation bool              `json:"add_generation_prompt"`
	Thinking   *bool             `json:"enable_thinking"`
}

// apiMessage is a message as the OpenAI API and chat templates write it.
type apiMessage struct {
	Role             string          `json:"role"`
	Content          json.RawMessage `json:"content"`
	Reasoning        string          `json:"reasoning"`
	ReasoningContent string          `json:"reasoning_content"`
	Name             string          `json:"name"`
	ToolCallID       string          `json:"tool_call_id"`
	ToolCalls        []apiCall       `json:"tool_calls"`
}

type apiCall struct {
	ID string `json:"id"`
	apiFunction
	Function *apiFunction `json:"function"`
}

type apiFunction struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// message reads null and a list of text parts as content too, and arguments
// both as an object and as JSON text.
func (m apiMessage) message() (traj.Message, error) {
	out := traj.Message{Role: m.Role, Name: m.Name, ToolCallID: m.ToolCallID, Reasoning: m.ReasoningContent}
	if out.Reasoning == "" {
		out.Reasoning = m.Reasoning
	}
	if m.Role == "" {
		return out, malformed.Field("role", malformed.Missing, "there is none")
	}
	if c := bytes.TrimSpace(m.Content); len(c) > 0 && string(c) != "null" && json.Unmarshal(c, &out.Content) != nil {
		var parts []struct{ Type, Text string }
		if json.Unmarshal(c, &parts) != nil {
			return out, malformed.Field("content", malformed.Type, "it is neither a string nor a list of parts")
		}
		for _, p := range parts {
			if p.Type != "text" {
				return out, malformed.Field("content", malformed.Unsupported, "a part of type %q; only text is supported", p.Type)
			}
			out.Content += p.Text
		}
	}
	for i, c := range m.ToolCalls {
		f := c.apiFunction
		if c.Function != nil {
			f = *c.Function
		}
		if f.Name == "" {
			return out, malformed.Field("tool_calls", malformed.Missing, "call %d has no name", i)
		}
		call := traj.ToolCall{ID: c.ID, Name: f.Name, Arguments: string(f.Arguments)}
		var text string
		switch {
		case len(f.Arguments) == 0 || string(f.Arguments) == "null":
			call.Arguments = "{}"
		case json.Unmarshal(f.Arguments, &text) == nil:
			call.Arguments = text
		}
		out.ToolCalls = append(out.ToolCalls, call)
	}
	return out, nil
}

func runModelRender(ctx context.Context, path, chatTemplate string, s console.Streams) error {
	r, err := models.OpenRenderer(path, chatTemplate)
	if err != nil {
		return err
	}
	return eachLine(ctx, s.In, s.Out, func(q renderLine) (any, error) {
		text, ids, err := q.render(r)
		if err != nil {
			return nil, err
		}
		return struct {
			Text     string  `json:"text"`
			TokenIDs []int32 `json:"token_ids"`
		}{text, notNil(ids)}, nil
	})
}

// render gives the conversation's text and ids in the model's own format.
func (q renderLine) render(r chat.Renderer) (string, []int32, error) {
	var msgs []traj.Message
	for i, m := range q.Messages {
		msg, err := m.message()
		if err != nil {
			return "", nil, malformed.Field("messages", "", "message %d: %w", i, err)
		}
		if !chat.Describe(r).Reasons {
			msg.Reasoning = "" // the template passes over it
		}
		msgs = append(msgs, msg)
	}
	return r.Render(msgs, nil, chat.Options{AddGenerationPrompt: q.Generation, EnableThinking: q.Thinking, RawTools: q.Tools})
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
