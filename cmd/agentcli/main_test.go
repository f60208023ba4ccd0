package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentcli/app/console"
	"agentcli/app/models/modelstest"
	"agentcli/internal/setting"
	"agentcli/llm/llmtest"
	"agentcli/parquet"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	setting.Reword(onCommandLine) // as execute does, for tests that call what is below it
	testscript.Main(m, map[string]func(){"agentcli": main, "agentcli-bigram": mainOfBigrams, "mcp-sums": mcpOverStdio})
}

// mainOfBigrams is the program with local models that need no libtorch.
func mainOfBigrams() {
	s := console.SystemStreams()
	ctx, done := console.WithInterrupt(context.Background(), s)
	code := executeWith(ctx, os.Args, s, modelstest.Backend{})
	done()
	os.Exit(code)
}

var question = regexp.MustCompile(`What is (\d+) \* (\d+)\?`)

// mock is a server whose behaviour is the model's name: with tools it calls the
// calculator first, then answers with the result.
func mock(r *llmtest.Request) llmtest.Reply {
	ids := func(x llmtest.Reply) llmtest.Reply {
		x.PromptTokens, x.OutputTokens = 10*len(r.Messages), 5
		x.PromptIDs, x.IDs, x.Logprobs = []int32{1, 2, 3}, []int32{4, 5}, []float64{-0.5, -0.25}
		x.OutputTokens = len(x.IDs)
		if r.Has("tools") && r.Model != "blind" {
			x.PromptIDs = []int32{1, 2, 9, 3}
		}
		return x
	}
	last := r.Messages[len(r.Messages)-1]
	var q []string
	for _, m := range r.Messages {
		if m.Role == "user" {
			q = question.FindStringSubmatch(m.Text())
		}
	}
	switch r.Model {
	case "noparser": // vLLM as it starts by default
		return llmtest.WithoutToolParser(func(r *llmtest.Request) llmtest.Reply {
			switch {
			case strings.HasPrefix(last.Text(), "<tool_response>"):
				return ids(llmtest.Text(strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(last.Text(), "<tool_response>"), "</tool_response>"))))
			case strings.Contains(r.Messages[0].Text(), "<tools>"):
				return ids(
					llmtest.Text(
						fmt.Sprintf("<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": \"%s*%s\"}}\n</tool_call>", q[1], q[2])))
			}
			return ids(llmtest.Text("no tools were shown"))
		})(r)
	case "blind": // takes tools, and has a template that does not show them
		switch {
		case r.Has("tools"):
			return ids(llmtest.Text("I know of no tools"))
		case strings.HasPrefix(last.Text(), "<tool_response>"):
			return ids(llmtest.Text(strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(last.Text(), "<tool_response>"), "</tool_response>"))))
		case strings.Contains(r.Messages[0].Text(), "<tools>"):
			return ids(
				llmtest.Text(
					fmt.Sprintf("<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": \"%s*%s\"}}\n</tool_call>", q[1], q[2])))
		}
		return ids(llmtest.Text("no tools were shown"))
	case "searcher": // searches, and answers behind the information in its own reply
		if string(r.Fields["continue_final_message"]) == "true" && strings.HasSuffix(last.Text(), "</information>\n\n") {
			found, _, _ := strings.Cut(last.Text()[strings.LastIndex(last.Text(), "<information>")+len("<information>"):], "</information>")
			return ids(llmtest.Text("So it is <answer>" + found + "</answer>"))
		}
		return ids(llmtest.Reply{Content: fmt.Sprintf("I search.<search>%s*%s", q[1], q[2]), Stop: "</search>"})
	case "locked":
		return llmtest.Reply{Status: 401, Error: "Incorrect API key provided"}
	case "broken": // one problem never works
		if strings.Contains(last.Text(), "What is 3 *") {
			return llmtest.Reply{Status: 400, Error: "no luck"}
		}
	case "narrow": // a window that nothing fits into, or not the third question
		return llmtest.Reply{Status: 400, Error: "This model's maximum context length is 8 tokens"}
	case "tight":
		if strings.Contains(last.Text(), "What is 3 *") {
			return llmtest.Reply{Status: 400, Error: "This model's maximum context length is 8 tokens"}
		}
	case "dead":
		return llmtest.Reply{Status: 400, Error: "no luck"}
	case "stuck":
		return llmtest.Reply{Delay: time.Minute}
	case "slow":
		if !strings.Contains(last.Text(), "What is 2 *") {
			return llmtest.Reply{Delay: time.Minute}
		}
	case "stops": // answers only where the ids that end a reply came along
		if string(r.Fields["stop_token_ids"]) != "[2,50]" {
			return ids(llmtest.Text(string(r.Fields["stop_token_ids"])))
		}
	case "wrong":
		return ids(llmtest.Text("7"))
	case "silent":
		return ids(llmtest.Text(""))
	case "hermes": // a server that leaves calls in the text; the first cannot be read
		if n := len(r.Messages); n == 1 {
			return ids(llmtest.Text(`<tool_call>{"name": "calculator", "arguments": {"expression"</tool_call>`))
		} else if last.Role == "tool" && strings.HasPrefix(last.Text(), "error: the tool call could not be read") {
			return ids(
				llmtest.Text(fmt.Sprintf("Again:\n<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": \"%s*%s\"}}\n</tool_call>",
					q[1], q[2])))
		}
	case "DeepSeek-V3.1": // a server that leaves its model's own calls in the text; the first has a wrong type
		call := func(args string) llmtest.Reply {
			return ids(
				llmtest.Text("</think>Let me see.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>calculator<｜tool▁sep｜>" +
					args + "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"))
		}
		if len(r.Messages) == 1 {
			return call(`{"expression": 12}`)
		} else if strings.Contains(last.Text(), `"expression" must be a string`) {
			return call(fmt.Sprintf(`{"expression": "%s*%s"}`, q[1], q[2]))
		}
	case "prompted": // knows tools from its prompt alone, and goes on to make the result up
		switch {
		case r.Has("tools"):
			return ids(llmtest.Text("Final Answer: tools were sent"))
		case strings.HasPrefix(last.Text(), "Observation: "):
			return ids(llmtest.Text("Thought: I now know the final answer\nFinal Answer: " + strings.TrimPrefix(last.Text(), "Observation: ")))
		case strings.Contains(r.Messages[0].Text(), "Action: the action to take, one of calculator"):
			return ids(
				llmtest.Text(fmt.Sprintf("Thought: I compute.\nAction: calculator\nAction Input: %s*%s\nObservation: 0\nFinal Answer: 0", q[1], q[2])))
		}
	case "coder": // a server that leaves calls in the text, in a form that writes no types
		return ids(llmtest.Text("<tool_call>\n<function=f>\n<parameter=x>\n4\n</parameter>\n</function>\n</tool_call>"))
	case "caller": // calls a tool as long as it is offered one, and says a wrong number beside it
		if r.Has("tools") {
			x := llmtest.Text("7")
			x.Calls = []llmtest.Call{llmtest.NewCall("x", "calculator", fmt.Sprintf(`{"expression":"%s*%s"}`, q[1], q[2]))}
			return ids(x)
		}
		return ids(llmtest.Text(last.Text()))
	case "textcaller": // the same on a server that takes no tools
		return llmtest.WithoutToolParser(func(r *llmtest.Request) llmtest.Reply {
			if strings.Contains(r.Messages[0].Text(), "<tools>") {
				q := question.FindStringSubmatch(r.Messages[1].Text())
				return ids(
					llmtest.Text(
						fmt.Sprintf("7\n<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": \"%s*%s\"}}\n</tool_call>", q[1], q[2])))
			}
			for _, m := range r.Messages {
				if m.Role == "tool" {
					return llmtest.Reply{Status: 400, Error: "what is a tool?"}
				}
			}
			return ids(llmtest.Text(strings.TrimSuffix(strings.TrimPrefix(last.Text(), "<tool_response>\n"), "\n</tool_response>")))
		})(r)
	case "hostile": // commands the terminal
		return ids(llmtest.Text("\x1b[2Jgone\u202e"))
	case "odd": // every second question right
		if q != nil && strings.ContainsAny(q[1][len(q[1])-1:], "02468") {
			return ids(llmtest.Text("7"))
		}
	}
	if q == nil {
		return ids(llmtest.Text("?"))
	}
	if last.Role == "user" && r.Has("tools") {
		return ids(llmtest.Reply{Calls: []llmtest.Call{llmtest.NewCall("x", "calculator", fmt.Sprintf(`{"expression":"%s*%s"}`, q[1], q[2]))}})
	}
	if last.Role == "tool" {
		return ids(llmtest.Text(last.Text()))
	}
	var a, b int
	_, _ = fmt.Sscan(q[1], &a)
	_, _ = fmt.Sscan(q[2], &b)
	return ids(llmtest.Text(fmt.Sprint(a * b)))
}

func TestScripts(t *testing.T) {
	messages := &scriptMessages{last: map[string]string{}, all: map[string][]string{}}
	t.Cleanup(func() { messages.check(t) })
	testscript.Run(t, scriptParams(t, messages))
}

// scriptParams is how scripts run: those of testdata, and the pages' commands.
func scriptParams(t *testing.T, messages *scriptMessages) testscript.Params {
	return testscript.Params{
		Dir: "testdata/script",
		// [tmpfs]: a small file system can be mounted, in a name space of one's own.
		// [hup]: SIGHUP is not ignored here, as it is below nohup.
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "tmpfs":
			case "hup":
				return !signal.Ignored(syscall.SIGHUP), nil
			default:
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			return exec.Command("unshare", "-Urm", "mount", "-t", "tmpfs", "-o", "size=64k", "none", os.TempDir()).Run() == nil, nil
		},
		Setup: func(e *testscript.Env) error {
			s := llmtest.Start(mock)
			e.Defer(s.Close)
			tools := mcpOverHTTP()
			e.Defer(func() { tools.CloseClientConnections(); tools.Close() })
			e.Setenv("MCP", tools.URL)
			e.Setenv("MOCK", s.BaseURL())
			ids := llmtest.StartWith(everyAddress, newOracle(t, tinyFolder).script)
			e.Defer(ids.Close)
			e.Setenv("MOCK_IDS", ids.BaseURL())
			if err := setLookOut(e); err != nil {
				return err
			}
			tiny, err := filepath.Abs(tinyFolder)
			if err != nil {
				return err
			}
			e.Setenv("TINY", tiny)
			bench, err := filepath.Abs("../../bench")
			if err != nil {
				return err
			}
			e.Setenv("BENCH", bench)
			e.Setenv("MOCK_ADDR", strings.TrimSuffix(strings.TrimPrefix(s.BaseURL(), "http://"), "/v1"))
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("XDG_CACHE_HOME", e.WorkDir+"/cache")
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			// rows FILE N: the Parquet file has N whole rows; N+: at least so many.
			"rows": func(ts *testscript.TestScript, neg bool, args []string) {
				r, err := parquet.Open(ts.MkAbs(args[0]))
				ts.Check(err)
				defer r.Close()
				n, sampled := 0, 0
				for t, err := range r.Rows(context.Background()) {
					ts.Check(err)
					n++
					for i := range t.Sequences {
						ts.Check(t.Sequences[i].Validate())
						sampled += t.Sequences[i].Sampled()
					}
				}
				least, open := strings.CutSuffix(args[1], "+")
				if want, err := strconv.Atoi(least); err != nil || n < want || n > want && !open {
					ts.Fatalf("%s has %d rows, want %s", args[0], n, args[1])
				}
				if !bytes.Contains(r.Metadata().Run, []byte(`"model"`)) {
					ts.Fatalf("%s does not name its model: %s", args[0], r.Metadata().Run)
				}
				if len(args) > 2 && sampled == 0 {
					ts.Fatalf("%s has no sampled tokens", args[0])
				}
			},
			// cached FILE N: of the calls in the file N were answered from a cache; none says
			// that it was asked for no call.
			"cached": func(ts *testscript.TestScript, neg bool, args []string) {
				r, err := parquet.Open(ts.MkAbs(args[0]))
				ts.Check(err)
				defer r.Close()
				all := "none"
				n := 0
				for t, err := range r.Rows(context.Background()) {
					ts.Check(err)
					for _, s := range t.Steps {
						if s.ToolCached != nil {
							n += *s.ToolCached
							all = strconv.Itoa(n)
						}
					}
				}
				if all != args[1] {
					ts.Fatalf("%s has %s calls answered from a cache, want %s", args[0], all, args[1])
				}
			},
			// torn FILE: cut the last bytes off, as a crash does.
			"torn": func(ts *testscript.TestScript, neg bool, args []string) {
				path := ts.MkAbs(args[0])
				st, err := os.Stat(path)
				ts.Check(err)
				ts.Check(os.Truncate(path, st.Size()-5))
			},
			// flip FILE BYTE: one bit of that byte is another.
			"flip": func(ts *testscript.TestScript, neg bool, args []string) {
				at, err := strconv.Atoi(args[1])
				ts.Check(err)
				b, err := os.ReadFile(ts.MkAbs(args[0]))
				ts.Check(err)
				b[at] ^= 4
				ts.Check(os.WriteFile(ts.MkAbs(args[0]), b, 0o600))
			},
			// lines FILE N: the file has N lines.
			"lines": func(ts *testscript.TestScript, neg bool, args []string) {
				if n := strings.Count(ts.ReadFile(args[0]), "\n"); strconv.Itoa(n) != args[1] {
					ts.Fatalf("%s has %d lines, want %s", args[0], n, args[1])
				}
			},
			// objects FILE: every line is a JSON object with a time, a level and a message.
			"objects": func(ts *testscript.TestScript, neg bool, args []string) {
				for _, line := range strings.Split(strings.TrimSpace(ts.ReadFile(args[0])), "\n") {
					var o struct{ Time, Level, Msg string }
					if err := json.Unmarshal([]byte(line), &o); err != nil || o.Time == "" || o.Level == "" ||
						o.Msg == "" || strings.HasPrefix(o.Msg, "agentcli") {
						ts.Fatalf("%q: %v", line, err)
					}
				}
			},
			// message [TEXT]: the last line on stderr of what exits has run, or the line with the
			// text, is that of messages.txt.
			"message": messages.keep,
			// exits CODE COMMAND...: as exec, with the exit code checked.
			"exits": func(ts *testscript.TestScript, neg bool, args []string) {
				err := ts.Exec(args[1], args[2:]...)
				code := "0"
				if err != nil {
					code = strings.TrimPrefix(err.Error(), "exit status ")
				}
				messages.ended(ts, code, args[1:])
				if code != args[0] {
					ts.Fatalf("%s ended with %s, want %s", strings.Join(args[1:], " "), code, args[0])
				}
			},
		},
	}
}
