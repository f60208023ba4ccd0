// Command history asks a server for a reply to a conversation that holds thinking, a
// tool call and its result, and looks at the prompt that the server made of it:
//
//	go run ./bench/history -base-url http://localhost:8000/v1 -model NAME -folder MODEL
//
// Chat, whole and streamed: the thinking, the call and the result must be in the
// prompt that the server returns the ids of (vLLM reads the field `reasoning` and no
// other). Completions: the prompt that we render must be the same tokens. bench/vllm.sh
// runs it against a real vLLM.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"agentcli/llm"
	"agentcli/model/chat"
	"agentcli/model/tokenizer"
	"agentcli/traj"
)

func main() {
	url := flag.String("base-url", "http://localhost:8000/v1", "the server")
	model := flag.String("model", "", "the model's name there")
	folder := flag.String("folder", "", "the model's folder, for its tokenizer and chat template")
	flag.Parse()
	if err := run(context.Background(), *url, *model, *folder); err != nil {
		fmt.Fprintln(os.Stderr, "history:", err)
		os.Exit(1)
	}
}

const (
	thinking = "I need the product of six and seven."
	result   = "the product is 42"
)

// conversation is think → call → result, in the middle of a tool loop: no template
// drops the thinking here.
func conversation() *traj.Request {
	return &traj.Request{
		Messages: []traj.Message{
			{Role: traj.RoleUser, Content: "What is 6*7?"},
			{Role: traj.RoleAssistant, Reasoning: thinking,
				ToolCalls: []traj.ToolCall{{ID: "abcdefghi", Name: "calculator", Arguments: `{"expression": "6*7"}`}}},
			{Role: traj.RoleTool, Content: result, Name: "calculator", ToolCallID: "abcdefghi"},
		},
		Tools: []traj.ToolSpec{{Name: "calculator", Description: "Computes.",
			Parameters: json.RawMessage(`{"type":"object","properties":{"expression":{"type":"string"}},"required":["expression"]}`)}},
		Sampling: traj.Sampling{MaxTokens: 8}, Seed: 1,
	}
}

func run(ctx context.Context, url, model, folder string) error {
	tok, err := tokenizer.Open(folder)
	if err != nil {
		return err
	}
	r, err := chat.Choose(tok.ChatTemplate(), "", tok)
	if err != nil {
		return err
	}
	var prompts [][]int32
	for _, how := range []string{"chat", "chat stream", "completions", "completions stream"} {
		c, err := llm.New(llm.Config{BaseURL: url, Model: model, WantIDs: true, Stream: strings.HasSuffix(how, "stream")})
		if err != nil {
			return err
		}
		defer c.Close()
		var m interface {
			Generate(context.Context, *traj.Request) (*traj.Response, error)
		} = c
		if strings.HasPrefix(how, "completions") {
			m = &chat.Exact{Renderer: r, Tokenizer: tok, Sampler: &llm.Tokens{Client: c}}
		}
		resp, err := m.Generate(ctx, conversation())
		if err != nil {
			return fmt.Errorf("%s: %w", how, err)
		}
		text := tok.Decode(resp.PromptIDs, false)
		for _, part := range []string{thinking, `"expression": "6*7"`, result} {
			if !strings.Contains(text, part) {
				return fmt.Errorf("%s: %q is not in the prompt that the server made: %q", how, part, text)
			}
		}
		fmt.Printf("%-20s %d tokens, with thinking, call and result\n", how, len(resp.PromptIDs))
		prompts = append(prompts, resp.PromptIDs)
	}
	for i, p := range prompts[1:] {
		if !slices.Equal(p, prompts[0]) {
			return fmt.Errorf("prompt %d differs from the first:\n%q\n%q", i+1, tok.Decode(prompts[0], false), tok.Decode(p, false))
		}
	}
	if len(prompts[0]) == 0 {
		return errors.New("the server returns no ids")
	}
	fmt.Println("all four prompts are the same tokens")
	return nil
}
