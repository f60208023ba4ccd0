// Command engine measures `agentcli rollout` as its users run it, against a
// server that costs next to nothing and answers after a fixed time:
//
//	go run ./bench/engine -agentcli bin/agentcli-lite [-only 64x100ms,...] [-scheduler NAME]
//
// For each case it prints wall ÷ ideal (the waves of trajectories at the
// server's latency), steps (model calls) a second, CPU a step and the peak
// memory of the agentcli process, and the same of a bare Go client that posts
// the same bodies. With -first FILE it prints how soon a run over the tasks of a
// file asks the model.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"agentcli/parquet"
	"agentcli/traj"
)

type bench struct {
	name            string
	tasks, parallel int
	calls           int // tool calls before the answer
	latency         time.Duration
	slowEvery       int
}

var benches = []bench{
	{"64x100ms", 512, 64, 3, 100 * time.Millisecond, 0},
	{"64x0ms", 4096, 64, 3, 0, 0},
	{"10000x2s", 10000, 10000, 3, 2 * time.Second, 0},
	{"64x100ms-slow", 512, 64, 3, 100 * time.Millisecond, 64},
	{"100turns", 64, 64, 99, 10 * time.Millisecond, 0},
}

func main() {
	program := flag.String("agentcli", "bin/agentcli-lite", "the program that is measured")
	only := flag.String("only", "", "names of cases, with commas between")
	repeats := flag.Int("n", 1, "runs of each, the median is shown")
	scheduler := flag.String("scheduler", "", "a --scheduler for the program; one that does nothing here: math_tip_trick")
	asServer := flag.Bool("serve", false, "be the server")
	asClient := flag.String("client", "", "be the bare client of this address")
	firstOf := flag.String("first", "", "measure how soon a run over all tasks of this file asks the model")
	latency := flag.Duration("latency", 0, "")
	calls := flag.Int("calls", 3, "")
	slow := flag.Int("slow", 0, "")
	tasks := flag.Int("tasks", 0, "")
	parallel := flag.Int("parallel", 0, "")
	flag.Parse()
	var err error
	switch {
	case *asServer:
		err = serve(*latency, *calls, *slow)
	case *firstOf != "":
		err = first(*program, *firstOf, *repeats)
	case *asClient != "":
		err = bare(*asClient, *tasks, *parallel, *calls)
	default:
		err = all(*program, *only, *repeats, *scheduler)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "engine:", err)
		os.Exit(1)
	}
}

func all(program, only string, repeats int, scheduler string) error {
	dir, err := os.MkdirTemp("", "agentcli-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Println("| case | tasks | parallel | calls | latency | wall s | ÷ ideal | steps/s | CPU ms a step | peak MB | bare client s | " +
		"bare CPU ms | 90 % of durations s |")
	fmt.Println("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
	for _, b := range benches {
		if only != "" && !slices.Contains(strings.Split(only, ","), b.name) {
			continue
		}
		data := filepath.Join(dir, b.name+".jsonl")
		if err := writeTasks(data, b.tasks); err != nil {
			return err
		}
		var runs, bares []measure
		for range repeats {
			m, err := b.run(program, dir, data, scheduler)
			if err != nil {
				return fmt.Errorf("%s: %w", b.name, err)
			}
			c, err := b.bare()
			if err != nil {
				return fmt.Errorf("%s: the bare client: %w", b.name, err)
			}
			runs, bares = append(runs, m), append(bares, c)
		}
		m, c := median(runs), median(bares)
		steps := float64(b.tasks * (b.calls + 1))
		ideal := "–"
		if b.latency > 0 {
			waves := float64(b.tasks) / float64(b.parallel)
			ideal = fmt.Sprintf("%.3f", m.wall.Seconds()/(waves*float64(b.calls+1)*b.latency.Seconds()))
		}
		fmt.Printf("| %s | %d | %d | %d | %v | %.2f | %s | %.0f | %.3f | %.0f | %.2f | %.3f | %.2f |\n",
			b.name, b.tasks, b.parallel, b.calls, b.latency,
			m.wall.Seconds(), ideal, steps/m.wall.Seconds(), m.cpu.Seconds()*1000/steps, float64(m.peak)/1e6,
			c.wall.Seconds(), c.cpu.Seconds()*1000/steps, m.p90)
	}
	return nil
}

type measure struct {
	wall, cpu time.Duration
	peak      int64 // bytes
	p90       float64
}

func median(m []measure) measure {
	slices.SortFunc(m, func(a, b measure) int { return int(a.wall - b.wall) })
	return m[len(m)/2]
}

func writeTasks(path string, n int) error {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b,
			`{"id":"t%d","question":"This is task %d: what is 6*7? Use the calculator three times, then answer.","answer":"42"}`+"\n", i, i+1)
	}
	return os.WriteFile(path, b.Bytes(), 0o600)
}

// server starts a server of its own process and returns its address.
func (b bench) server() (string, func(), error) {
	cmd := exec.CommandContext(context.Background(), os.Args[0], "-serve", "-latency", b.latency.String(),
		"-calls", strconv.Itoa(b.calls), "-slow", strconv.Itoa(b.slowEvery))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	line := make([]byte, 64)
	n, err := out.Read(line)
	if err != nil {
		return "", nil, err
	}
	return strings.TrimSpace(string(line[:n])), func() { in.Close(); _ = cmd.Wait() }, nil
}

func timed(cmd *exec.Cmd) (measure, error) {
	var errs bytes.Buffer
	cmd.Stderr = &errs
	start := time.Now()
	err := cmd.Run()
	if err != nil {
		return measure{}, fmt.Errorf("%w: %s", err, errs.String())
	}
	u := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return measure{wall: time.Since(start), cpu: cmd.ProcessState.SystemTime() + cmd.ProcessState.UserTime(), peak: u.Maxrss * 1024}, nil
}

func (b bench) run(program, dir, data, scheduler string) (measure, error) {
	addr, stop, err := b.server()
	if err != nil {
		return measure{}, err
	}
	defer stop()
	out := filepath.Join(dir, "out")
	defer os.RemoveAll(out)
	args := []string{"rollout", "--base-url", "http://" + addr + "/v1", "--model", "mock", "--dataset", data, "--tools", "calculator",
		"-n", "1", "--limit", strconv.Itoa(b.tasks), "--parallel", strconv.Itoa(b.parallel), "--max-turns",
		strconv.Itoa(b.calls + 1), "--output", out}
	if scheduler != "" {
		args = append(args, "--scheduler", scheduler)
	}
	m, err := timed(exec.CommandContext(context.Background(), program, args...))
	if err != nil {
		return m, err
	}
	m.p90, err = p90(filepath.Join(out, "traj.parquet"), b.tasks)
	return m, err
}

// p90 reads the durations of the trajectories and checks that all are there.
func p90(out string, tasks int) (float64, error) {
	r, err := parquet.Open(out)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	var d []float64
	for t, err := range r.Rows(context.Background()) {
		if err != nil {
			return 0, err
		}
		if t.Termination != traj.Answered {
			return 0, fmt.Errorf("%s ended as %s: %s", t.ID, t.Termination, t.Error)
		}
		d = append(d, float64(t.DurationMS)/1000)
	}
	if len(d) != tasks {
		return 0, fmt.Errorf("%d trajectories of %d", len(d), tasks)
	}
	slices.Sort(d)
	return d[len(d)*9/10], nil
}

func (b bench) bare() (measure, error) {
	addr, stop, err := b.server()
	if err != nil {
		return measure{}, err
	}
	defer stop()
	return timed(exec.CommandContext(context.Background(), os.Args[0], "-client", addr, "-tasks",
		strconv.Itoa(b.tasks), "-parallel", strconv.Itoa(b.parallel), "-calls", strconv.Itoa(b.calls)))
}

// bare posts bodies of the sizes that the program posts, and reads the replies.
func bare(addr string, tasks, parallel, calls int) error {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, parallel
	client := &http.Client{Transport: t}
	head := `{"model":"mock","messages":[{"role":"user","content":"This is task 1: what is 6*7? Use the calculator three times, then answer."}`
	turn := `,{"role":"assistant","content":"","tool_calls":[{"id":"call_0","type":"function","function":{"name":"calculator",` +
		`"arguments":"{\"expression\":\"6*7\"}"}}]},{"role":"tool","content":"42","tool_call_id":"call_0"}`
	tail := `],"tools":[{"type":"function","function":{"name":"calculator","description":"Works out an arithmetic expression exactly.",` +
		`"parameters":{"type":"object","properties":{"expression":{"type":"string"}},"required":["expression"]}}}],"temperature":1,` +
		`"top_p":1,"seed":1}`
	var wg sync.WaitGroup
	var first error
	var once sync.Once
	next := make(chan struct{}, tasks)
	for range tasks {
		next <- struct{}{}
	}
	close(next)
	for range parallel {
		wg.Go(func() {
			for range next {
				for k := range calls + 1 {
					body := head + strings.Repeat(turn, k) + tail
					var resp *http.Response
					req, err := http.NewRequestWithContext(context.Background(), http.MethodPost,
						"http://"+addr+"/v1/chat/completions", strings.NewReader(body))
					if err == nil {
						req.Header.Set("Content-Type", "application/json")
						resp, err = client.Do(req)
					}
					if err == nil {
						_, err = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
					if err != nil {
						once.Do(func() { first = err })
						return
					}
				}
			}
		})
	}
	wg.Wait()
	return first
}
