package main

import (
	"fmt"
	"os"

	"agentcli/app/models"
	"agentcli/app/serve"
	"agentcli/internal/exit"
	"agentcli/policy"

	"github.com/urfave/cli/v2"
)

func serveCommand() *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "serve a local model over HTTP, by OpenAI's, vLLM's and SGLang's protocols",
		Description: "Keys are better set in AGENTCLI_API_KEY and AGENTCLI_ADMIN_KEY than on a command line,\n" +
			"which others on the machine can read.\n" +
			"docs/serve.md has the endpoints and their fields.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "model", Aliases: []string{"m"},
				Usage: "model `FOLDER`, .gguf or org/name on the hub (default: the small one that make setup fetches)"},
			&cli.StringFlag{Name: "listen", Value: "127.0.0.1:8000", Usage: "`HOST:PORT` to listen on; port 0 is a free one"},
			&cli.StringFlag{Name: "served-model-name", Usage: "`NAME` of the model in requests (default: the last part of its path)"},
			&cli.StringSliceFlag{Name: "adapter",
				Usage: "`NAME=FOLDER` of a LoRA adapter of the model, which requests name as their model; repeatable"},
			&cli.StringFlag{Name: "api-key", EnvVars: []string{"AGENTCLI_API_KEY"}, Usage: "`KEY` that requests carry as a bearer token"},
			&cli.BoolFlag{Name: "admin", Usage: "answer requests that pause the model, exchange its weights or load adapters"},
			&cli.StringFlag{Name: "admin-key", EnvVars: []string{"AGENTCLI_ADMIN_KEY"},
				Usage: "--admin: `KEY` that such requests carry (default: --api-key)"},
			&cli.StringSliceFlag{Name: "allow-path", Usage: "--admin: `FOLDER` below which requests may name new weights and adapters; repeatable"},
			&cli.StringFlag{Name: "device", Value: policy.AutoDevice, Usage: "auto, cpu, cuda or cuda:N"},
			&cli.StringFlag{Name: "dtype", Usage: "float32 or bfloat16 (default: the faster one)"},
			&cli.IntFlag{Name: "threads", Usage: "CPU threads (default: one per core)"},
			&cli.IntFlag{Name: "parallel", Value: policy.DefaultMaxBatch, Usage: "replies that are drawn at once; others wait"},
			&cli.IntFlag{Name: "max-context", Usage: "longest text in tokens, prompt and reply together (default: the model's context)"},
			&cli.StringFlag{Name: "kv-cache", Usage: "memory for keys and values: a `SIZE` such as 8GB, or a share of what is free such as 0.5 " +
				"(default: 2GB; on CUDA 0.5)"},
			&cli.StringFlag{Name: "kv-host", Usage: "memory of the host for keys and values that a GPU's cache has no room for: a `SIZE` " +
				"or a share, as for --kv-cache (default: none)"},
			&cli.BoolFlag{Name: "weights-as-stored",
				Usage: "multiply the matrices of a .gguf in 4 and 8 bits as they are: less memory, faster for few replies at once"},
			&cli.BoolFlag{Name: "router-replay",
				Usage: "mixture of experts: send with each reply which experts were chosen for its tokens (routed_experts, as vLLM does)"},
			&cli.StringFlag{Name: "chat-template", Usage: "`FILE` with a chat template, or the name of a chat format (default: the model's own)"},
			&cli.IntFlag{Name: "min-pixels", Usage: "smallest area at which images are shown (default: the model's)"},
			&cli.IntFlag{Name: "max-pixels", Usage: "largest area at which images are shown (default: the model's)"},
		},
		Action: func(c *cli.Context) error {
			if c.NArg() > 0 {
				return exit.Usagef("serve takes no arguments; name the model with --model")
			}
			if c.IsSet("allow-path") && !c.Bool("admin") {
				return exit.Usagef("--allow-path has no effect without --admin")
			}
			if key := c.String("admin-key"); key != os.Getenv("AGENTCLI_ADMIN_KEY") && !c.Bool("admin") { // a variable asks for nothing
				return exit.Usagef("--admin-key has no effect without --admin")
			}
			if c.Int("parallel") < 1 {
				return exit.Usagef("--parallel is %d; it must be at least 1", c.Int("parallel"))
			}
			s := streamsOf(c)
			if err := backendOf(c).Available(); err != nil {
				return fmt.Errorf("serve: %w", err)
			}
			name := c.String("model")
			if name == "" {
				name = models.DefaultPath()
			}
			path, err := models.Find(c.Context, name, true, s.Say)
			if err != nil {
				return err
			}
			return serve.Run(c.Context, serve.Options{Path: path, Backend: backendOf(c), Listen: c.String("listen"),
				Name: c.String("served-model-name"), Adapters: c.StringSlice("adapter"),
				Key: c.String("api-key"), Admin: c.Bool("admin"), AdminKey: c.String("admin-key"), AllowPath: c.StringSlice("allow-path"),
				Model: models.LocalOptions{Device: c.String("device"), DType: c.String("dtype"), Threads: c.Int("threads"), Parallel: c.Int("parallel"),
					MaxContext: c.Int("max-context"), KVCache: c.String("kv-cache"), KVHost: c.String("kv-host"), AsStored: c.Bool("weights-as-stored"),
					ChatTemplate: c.String("chat-template"), Temperature: 1, RouterReplay: c.Bool("router-replay"),
					MinPixels: c.Int("min-pixels"), MaxPixels: c.Int("max-pixels")}}, s)
		},
	}
}
