package main

import (
	"context"
	"errors"

	"agentcli/app/ask"
	"agentcli/app/console"
	"agentcli/app/images"
	"agentcli/internal/exit"
	"agentcli/internal/malformed"
	"agentcli/internal/setting"
	"agentcli/media"
	"agentcli/media/resize"

	"github.com/urfave/cli/v2"
)

// preprocessCommand is model preprocess; command makes one of a model's folder.
func preprocessCommand(command func(string, string, int, []cli.Flag, func(*cli.Context, string) error) *cli.Command) *cli.Command {
	return command("preprocess", `{"image": FILE, "box"?} → size, grid, tokens, hashes of pixels and patches`, 0, []cli.Flag{
		&cli.StringFlag{Name: "resize", Value: resize.Rules()[0],
			Usage: "`RULE` of rounding: torchvision (transformers, vLLM), pillow (up to 12.2) or pillow13"},
		&cli.IntFlag{Name: "min-pixels", Usage: "least pixels that the model sees (default: from the model)"},
		&cli.IntFlag{Name: "max-pixels", Usage: "most pixels that the model sees (default: from the model)"},
		&cli.IntFlag{Name: "max-image-pixels", Value: media.DefaultMaxPixels, Usage: "refuse a file with more pixels, by its header"},
		&cli.IntFlag{Name: "max-image-bytes", Value: media.DefaultMaxBytes, Usage: "refuse a larger file"},
	}, func(c *cli.Context, path string) error {
		o := images.Options{Resize: c.String("resize"), MinPixels: c.Int("min-pixels"), MaxPixels: c.Int("max-pixels"),
			MaxImagePixels: c.Int("max-image-pixels"), MaxImageBytes: c.Int("max-image-bytes")}
		if err := o.Validate(); err != nil {
			return exit.UsageError{Err: err}
		}
		return runModelPreprocess(c.Context, path, o, streamsOf(c))
	})
}

// runModelPreprocess answers {"image"} with what a model sees of the file.
func runModelPreprocess(ctx context.Context, path string, o images.Options, s console.Streams) error {
	p, err := images.Open(path, o)
	if e := (*setting.Error)(nil); errors.As(err, &e) {
		return exit.UsageError{Err: err}
	}
	if err != nil {
		return err
	}
	type question struct {
		Image string  `json:"image"`
		Box   *[4]int `json:"box"`
	}
	return ask.EachLine(ctx, s.In, s.Out, func(q question) (images.Answer, error) {
		if q.Image == "" {
			return images.Answer{}, malformed.Field("image", malformed.Missing, "there is none")
		}
		return p.File(q.Image, q.Box)
	})
}
