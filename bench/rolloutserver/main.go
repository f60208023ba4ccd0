// Command rolloutserver measures `agentcli rollout --serve` against `agentcli rollout` on
// the same rows, and how soon it stops what nobody waits for:
//
//	go run ./bench/rolloutserver -agentcli bin/agentcli-lite [-rows 512] [-turns 3] [-latency 20ms] [-n 5]
//
// The model's server is a stand-in that answers after a fixed time; each reply but the last
// calls the calculator. The two programs run alternately. Times are those of the whole
// process, and of the server also those from the request to its last line.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// model is the stand-in. left is sent the time at which a request was given up.
type model struct {
	latency time.Duration
	turns   int
	asked   chan struct{} // a request has come; nil: nobody looks
	left    chan time.Time
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if strings.HasSuffix(r.URL.Path, "/models") {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"mock","object":"model"}]}`)
		return
	}
	var body struct {
		Messages []struct {
			Role string `json:"role"`
		} `json:"messages"`
		Tools []any `json:"tools"`
	}
	if json.NewDecoder(r.Body).Decode(&body) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if m.asked != nil {
		m.asked <- struct{}{}
		<-r.Context().Done()
		m.left <- time.Now()
		return
	}
	turn := 1
	for _, x := range body.Messages {
		if x.Role == "assistant" {
			turn++
		}
	}
	time.Sleep(m.latency)
	ids, logprobs := make([]int, 32), make([]map[string]any, 32)
	for i := range ids {
		ids[i], logprobs[i] = 100+i, map[string]any{"token": "t", "logprob": -.25, "top_logprobs": []any{}}
	}
	message, finish := map[string]any{"role": "assistant", "content": "It is \\boxed{7}."}, "stop"
	if turn < m.turns {
		message["content"], finish = "", "tool_calls"
		message["tool_calls"] = []any{map[string]any{"id": fmt.Sprint("c", turn), "type": "function",
			"function": map[string]string{"name": "calculator", "arguments": `{"expression":"3*4"}`}}}
	}
	prompt := make([]int, 64*turn+8*len(body.Tools)) // a template that shows the tools
	_ = json.NewEncoder(w).Encode(map[string]any{"id": "x", "object": "chat.completion", "model": "mock", "prompt_token_ids": prompt,
		"choices": []any{map[string]any{"index": 0, "message": message, "finish_reason": finish, "token_ids": ids,
			"logprobs": map[string]any{"content": logprobs}}},
		"usage": map[string]int{"prompt_tokens": len(prompt), "completion_tokens": 32, "total_tokens": len(prompt) + 32}})
}

func (m *model) serve() (string, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() { _ = (&http.Server{Handler: m}).Serve(l) }()
	return "http://" + l.Addr().String() + "/v1", nil
}

var said = regexp.MustCompile(`rollouts at (http://\S+);`)

// begin starts the server and gives its address.
func begin(program, url, dir string) (*exec.Cmd, string, error) {
	c := exec.CommandContext(context.Background(), program, "rollout", "--serve", "127.0.0.1:0", "--base-url", url, "--model", "mock",
		"--tools", "calculator", "--parallel", "64", "--reward", "math", "-o", filepath.Join(dir, "served.parquet"))
	c.Env = append(os.Environ(), "XDG_CACHE_HOME="+filepath.Join(dir, "cache"))
	out, err := c.StderrPipe()
	if err != nil {
		return nil, "", err
	}
	if err := c.Start(); err != nil {
		return nil, "", err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if m := said.FindStringSubmatch(lines.Text()); m != nil {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return c, m[1], nil
		}
	}
	return nil, "", errors.New("the server has not begun")
}

func post(addr string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, addr+"/v1/rollouts", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(r)
}

func rowsOf(n int) (rows []map[string]string) {
	for i := range n {
		rows = append(rows, map[string]string{"id": fmt.Sprint(i), "question": fmt.Sprintf("What is %d + %d?", i, i), "answer": "7"})
	}
	return rows
}

// served times the rows over the wire: the process, and the request alone.
func served(program, url, dir string, rows []map[string]string) (whole, request time.Duration, err error) {
	start := time.Now()
	c, addr, err := begin(program, url, dir)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = c.Process.Kill() }()
	body, err := json.Marshal(map[string]any{"rows": rows})
	if err != nil {
		return 0, 0, err
	}
	asked := time.Now()
	resp, err := post(addr, body)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, 0, err
	}
	request = time.Since(asked)
	if n := bytes.Count(b, []byte(`"termination":"answered"`)); n != len(rows) {
		return 0, 0, fmt.Errorf("%d of %d rows were answered: %.300s", n, len(rows), b)
	}
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		return 0, 0, err
	}
	err = c.Wait()
	return time.Since(start), request, err
}

// played times the rows as a file.
func played(program, url, dir string, rows []map[string]string) (time.Duration, error) {
	data := filepath.Join(dir, "rows.jsonl")
	f, err := os.Create(data)
	if err != nil {
		return 0, err
	}
	for _, r := range rows {
		if err := json.NewEncoder(f).Encode(r); err != nil {
			return 0, err
		}
	}
	if err := f.Close(); err != nil {
		return 0, err
	}
	start := time.Now()
	c := exec.CommandContext(context.Background(), program, "rollout", "-d", data, "--base-url", url, "--model", "mock",
		"--tools", "calculator", "--parallel", "64", "--reward", "math", "-n", "1", "-o", filepath.Join(dir, "played.parquet"))
	c.Env = append(os.Environ(), "XDG_CACHE_HOME="+filepath.Join(dir, "cache"))
	if out, err := c.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%w: %s", err, out)
	}
	return time.Since(start), nil
}

// gone measures from the end of a client's connection until the last of its trajectories'
// requests to the model is given up.
func gone(program, dir string, n int) (time.Duration, error) {
	m := &model{asked: make(chan struct{}, n), left: make(chan time.Time, n)}
	url, err := m.serve()
	if err != nil {
		return 0, err
	}
	c, addr, err := begin(program, url, dir)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	body, err := json.Marshal(map[string]any{"rows": rowsOf(n)})
	if err != nil {
		return 0, err
	}
	resp, err := post(addr, body)
	if err != nil {
		return 0, err
	}
	for range n {
		<-m.asked
	}
	start := time.Now()
	resp.Body.Close()
	var last time.Time
	for range n {
		last = <-m.left
	}
	return last.Sub(start), nil
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

func run() error {
	program := flag.String("agentcli", "bin/agentcli-lite", "the program")
	n := flag.Int("rows", 512, "rows")
	turns := flag.Int("turns", 3, "turns of each")
	latency := flag.Duration("latency", 20*time.Millisecond, "time of a reply")
	repeats := flag.Int("n", 5, "runs of each")
	flag.Parse()
	dir, err := os.MkdirTemp("", "agentcli-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	url, err := (&model{latency: *latency, turns: *turns}).serve()
	if err != nil {
		return err
	}
	rows := rowsOf(*n)
	var files, wholes, requests []time.Duration
	for range *repeats {
		file, err := played(*program, url, dir, rows)
		if err != nil {
			return err
		}
		whole, request, err := served(*program, url, dir, rows)
		if err != nil {
			return err
		}
		files, wholes, requests = append(files, file), append(wholes, whole), append(requests, request)
	}
	a, b := median(files), median(wholes)
	fmt.Printf("%d rows of %d turns, replies after %v, median of %d: rollout %v, rollout --serve %v (%.3f of it), the request alone %v\n",
		*n, *turns, *latency, *repeats, a.Round(time.Millisecond), b.Round(time.Millisecond), float64(b)/float64(a),
		median(requests).Round(time.Millisecond))
	took, err := gone(*program, dir, 64)
	if err != nil {
		return err
	}
	fmt.Printf("a client with 64 trajectories goes away: the last of them has stopped after %v\n", took.Round(100*time.Microsecond))
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
