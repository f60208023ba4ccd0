package main

import (
	"os"
	"strings"
	"time"

	"agentcli/app/retrieval"
	"agentcli/internal/exit"
	"agentcli/retriever/bm25"
	"agentcli/retriever/dense"
	"agentcli/retriever/rerank"
	"agentcli/retriever/web"

	"github.com/urfave/cli/v2"
)

// webOf reads which service of the web is asked. Its key is in the environment alone.
func webOf(c *cli.Context) web.Options {
	o := web.Options{Service: c.String("web"), Address: c.String("web-url"), CSE: os.Getenv(web.CSEName), Timeout: c.Duration("web-timeout")}
	if name := web.KeyName(o.Service); name != "" {
		o.Key = os.Getenv(name)
	}
	return o
}

func retrieverCommand() *cli.Command {
	one := func(run func(c *cli.Context, path string) error) cli.ActionFunc {
		return func(c *cli.Context) error {
			if c.NArg() != 1 {
				return exit.Usagef("retriever %s wants one %s, got %d arguments", c.Command.Name, c.Command.ArgsUsage, c.NArg())
			}
			return run(c, c.Args().First())
		}
	}
	baseURL := &cli.StringFlag{Name: "base-url", EnvVars: []string{"OPENAI_BASE_URL"},
		Usage: "dense, hybrid: address of a server of embeddings, for example http://localhost:8001/v1"}
	model := &cli.StringFlag{Name: "model", Aliases: []string{"m"},
		Usage: "dense, hybrid: `FOLDER` of a BERT model, or the name of the server's model"}
	encoder := func(c *cli.Context) retrieval.EncoderOptions {
		return retrieval.EncoderOptions{Model: c.String("model"), BaseURL: c.String("base-url")}
	}
	return &cli.Command{
		Name:  "retriever",
		Usage: "index a corpus of passages and serve searches over it",
		Subcommands: []*cli.Command{
			{Name: "index", Usage: "build the index of a corpus", ArgsUsage: "CORPUS",
				Description: "CORPUS is .jsonl, .jsonl.gz or .jsonl.zst with rows\n" +
					`{"id": "0", "contents": "\"Title\"\ntext of the passage"}`,
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "o", Aliases: []string{"output"}, Usage: "`FOLDER` that the index becomes"},
					&cli.StringFlag{Name: "kind", Value: bm25.Kind, Usage: "bm25; dense: vectors of a model; hybrid: both"},
					baseURL,
					model,
					&cli.StringFlag{Name: "search", Value: dense.Exact, Usage: "dense, hybrid: exact, or hnsw: a graph, which may miss some"},
					&cli.Float64Flag{Name: "k1", Value: bm25.K1, Usage: "BM25: saturation of repeated terms"},
					&cli.Float64Flag{Name: "b", Value: bm25.B, Usage: "BM25: weight of a passage's length, 0 to 1"},
					&cli.BoolFlag{Name: "force", Usage: "replace an index that is there"}},
				Action: one(func(c *cli.Context, path string) error {
					return retrieval.Index(c.Context, retrieval.IndexOptions{Corpus: path, Output: c.String("o"), Kind: c.String("kind"),
						K1: c.Float64("k1"), B: c.Float64("b"), Replace: c.Bool("force"),
						Encoder: encoder(c), Search: c.String("search")}, streamsOf(c))
				})},
			{Name: "serve", Usage: "answer searches over HTTP, by Search-R1's protocol", ArgsUsage: "[FOLDER]",
				Description: "FOLDER is the index. --web has none.",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "host", Value: "127.0.0.1", Usage: "address to listen on; 0.0.0.0 is every one"},
					&cli.IntFlag{Name: "port", Value: 8000, Usage: "port to listen on; 0 is a free one"},
					&cli.IntFlag{Name: "topk", Aliases: []string{"k"}, Value: 3, Usage: "passages a query where a request does not say"},
					model, baseURL,
					&cli.StringFlag{Name: "rerank", Usage: "`FOLDER` of a cross-encoder that orders what was found"},
					&cli.IntFlag{Name: "topk-retrieval", Value: rerank.DefaultCandidates,
						Usage: "--rerank: passages a query that are ordered, where a request does not say"},
					&cli.IntFlag{Name: "topk-rerank", Usage: "--rerank: passages a query that are sent (default: --topk)"},
					&cli.StringFlag{Name: "web", Usage: "search the web by `SERVICE` instead of an index: " + strings.Join(web.Services(), ", ") +
						"; keys: SERPAPI_API_KEY, GOOGLE_API_KEY and " + web.CSEName + ", BRAVE_API_KEY"},
					&cli.StringFlag{Name: "web-url", Usage: "--web: address of the service (default: its own; searxng has none)"},
					&cli.DurationFlag{Name: "web-timeout", Value: 10 * time.Second, Usage: "--web: time limit of a query"}},
				Action: func(c *cli.Context) error {
					o := retrieval.ServeOptions{Dir: c.Args().First(), Host: c.String("host"), Port: c.Int("port"), TopK: c.Int("topk"),
						Encoder: encoder(c), Rerank: c.String("rerank"), Candidates: c.Int("topk-retrieval"), Web: webOf(c)}
					for name, of := range map[string]string{"topk-rerank": "rerank FOLDER", "topk-retrieval": "rerank FOLDER",
						"web-url": "web SERVICE", "web-timeout": "web SERVICE"} {
						if flag, _, _ := strings.Cut(of, " "); c.IsSet(name) && c.String(flag) == "" {
							return exit.Usagef("--%s has no effect without --%s", name, of)
						}
					}
					if c.IsSet("topk-rerank") {
						o.TopK = c.Int("topk-rerank")
					}
					wanted := 1
					if o.Web.Service != "" {
						wanted = 0
					}
					if c.NArg() != wanted {
						return exit.Usagef("retriever serve wants one FOLDER, or --web and none; it got %d", c.NArg())
					}
					return retrieval.Serve(c.Context, o, streamsOf(c))
				}},
		},
	}
}
