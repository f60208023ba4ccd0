// Command guess shows agentcli as a library: an environment, a tool and a reward
// of one's own, played by the engine and written as a trajectory file.
//
//	go run ./examples/guess                               a player that halves
//	go run ./examples/guess -o guess.parquet
//	go run ./examples/guess -base-url http://localhost:8000/v1 -model NAME
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"

	"agentcli/agent"
	"agentcli/engine"
	"agentcli/env"
	"agentcli/llm"
	"agentcli/parquet"
	"agentcli/traj"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "guess:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("guess", flag.ContinueOnError)
	baseURL := flags.String("base-url", "", "a server of the OpenAI chat API; without it a player that halves")
	name := flags.String("model", "", "the server's model")
	file := flags.String("o", "", "write the trajectories to a Parquet file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var model agent.Model = halver{}
	if *baseURL != "" {
		client, err := llm.New(llm.Config{BaseURL: *baseURL, Model: *name, APIKey: os.Getenv("OPENAI_API_KEY"), WantIDs: true})
		if err != nil {
			return err
		}
		model = client
	}
	tools := env.Config{Tools: []env.Tool{Middle{}}, Hung: &env.Hung{}}
	specs := append(tools.Specs(), guessSpec)
	e, err := engine.New(engine.Config{
		Model:    model,
		NewAgent: func(traj.Task) (agent.Agent, error) { return agent.New(specs), nil },
		NewEnv:   func(t traj.Task) (env.Environment, error) { return NewGame(t, tools) },
		Reward: func(ctx context.Context, t *traj.Trajectory) error {
			s, err := Few{}.Score(ctx, t)
			t.Reward, t.RewardParts, t.Correct = s.Value, s.Parts, s.Correct
			return err
		},
		Policy: "halver", Parallel: 4, MaxTurns: 30,
	})
	if err != nil {
		return err
	}
	var w *parquet.Writer
	if *file != "" {
		if w, err = parquet.CreateFile(*file, parquet.Metadata{Run: json.RawMessage(`{"command":"guess"}`)}, parquet.WriterConfig{}); err != nil {
			return err
		}
	}
	sum, err := e.Run(ctx, tasks(1, 37, 50, 100), func(t *traj.Trajectory) error {
		if w != nil {
			return w.Write(t)
		}
		return nil
	})
	if w != nil {
		if cerr := w.Close(); err == nil {
			err = cerr
		}
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%d games, %d failed, mean reward %.2f\n", sum.Done, sum.Errors, sum.Mean)
	return err
}

// halver is a model of one's own: anything with Generate is one. It asks for the
// middle and guesses it.
type halver struct{}

func (halver) Generate(_ context.Context, r *traj.Request) (*traj.Response, error) {
	low, high := 1, 100
	var guess int
	for _, m := range r.Messages {
		switch m.Content {
		case "higher":
			low = guess + 1
		case "lower":
			high = guess - 1
		default:
			if n, err := strconv.Atoi(m.Content); err == nil && m.Name == "middle" {
				guess = n
			}
		}
	}
	call := traj.ToolCall{Name: "middle", Arguments: fmt.Sprintf(`{"low":%d,"high":%d}`, low, high)}
	if last := r.Messages[len(r.Messages)-1]; last.Name == "middle" {
		call = traj.ToolCall{Name: "guess", Arguments: fmt.Sprintf(`{"number":%d}`, guess)}
	}
	return &traj.Response{Message: traj.Message{ToolCalls: []traj.ToolCall{call}}, FinishReason: traj.FinishToolCalls}, nil
}
