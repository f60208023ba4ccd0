package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"agentcli/app/console"
	"agentcli/app/models"
	"agentcli/app/rollout"
	"agentcli/env"
	"agentcli/internal/cachedir"
	"agentcli/internal/text"
	"agentcli/internal/version"
	"agentcli/sandbox"

	"github.com/urfave/cli/v2"
)

// finding is one line of doctor's report.
type finding struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

// MarshalJSON writes the fix under its old name, mend, too: programs may read that.
func (f finding) MarshalJSON() ([]byte, error) {
	type plain finding // without this method
	return json.Marshal(struct {
		plain
		Mend string `json:"mend,omitempty"`
	}{plain(f), f.Fix})
}

func doctorCommand() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "show what is installed and what works here",
		Flags: append(settingFlags(forDoctor), &cli.BoolFlag{Name: "json", Usage: "one JSON object a line"}),
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			o, err := optionsOf(c)
			if err != nil {
				return err
			}
			return runDoctor(c.Context, o.loop.Rollout.Python, o.loop.Rollout.Added, c.Bool("json"), backendOf(c), streamsOf(c))
		},
	}
}

func runDoctor(ctx context.Context, python string, tools rollout.ToolOptions, asJSON bool,
	backend models.Backend, s console.Streams) error {
	list := []finding{
		{Name: "agentcli", OK: true, Detail: fmt.Sprintf("%s, %s, %s/%s, %d processors", version.String(),
			runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())}}
	list = append(list, libtorchFindings(backend)...)
	list = append(list, modelFinding())
	list = append(list, toolFindings(ctx, tools)...)
	list = append(list, pythonFindings(ctx, python)...)
	list = append(list, serverFinding(), runsFinding(cachedir.Path("runs")))
	if asJSON {
		e := json.NewEncoder(s.Out)
		for _, f := range list {
			if err := e.Encode(f); err != nil {
				return err
			}
		}
		return nil
	}
	return printFindings(s.Out, list)
}

func printFindings(w io.Writer, list []finding) error {
	for _, f := range list {
		mark := "ok"
		if !f.OK {
			mark = "--"
		}
		line := fmt.Sprintf("%s  %-12s %s", mark, f.Name, f.Detail)
		if f.Fix != "" {
			line += " (fix: " + f.Fix + ")"
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

func modelFinding() finding {
	f := finding{Name: "model", Detail: models.DefaultPath()}
	st, err := os.Stat(f.Detail)
	if err != nil {
		f.Detail, f.Fix = "no default model at "+f.Detail, "make setup, or name one with --model"
		return f
	}
	f.OK = true
	f.Detail = fmt.Sprintf("%s (%.0f MB)", f.Detail, float64(st.Size())/1e6)
	return f
}

// pythonFindings starts the python tool, says which parts of its sandbox hold,
// and lets code try to get out of it.
func pythonFindings(ctx context.Context, path string) []finding {
	f := finding{Name: "python tool"}
	if _, err := exec.LookPath("python3"); err != nil && path == "" {
		f.Detail, f.Fix = "python3 is not installed", "install Python 3; Debian: apt-get install python3"
		return []finding{f}
	}
	p, err := env.NewPython(ctx, env.PythonConfig{Path: path, Timeout: 10 * time.Second})
	refused := err
	if errors.Is(err, sandbox.ErrRefused) { // see what is left
		p, err = env.NewPython(ctx, env.PythonConfig{Path: path, Timeout: 10 * time.Second, BestEffort: true})
	}
	if err != nil {
		f.Detail = text.Line(err)
		return []finding{f}
	}
	defer p.Close()
	start := time.Now()
	out, err := p.Call(ctx, json.RawMessage(`{"code": "6 * 7"}`))
	took := time.Since(start)
	pythonVersion, modules := p.Version(ctx)
	switch {
	case err != nil:
		f.Detail = text.Line(err)
	case refused != nil:
		f.Detail, f.Fix = "refuses to start: "+text.Line(refused), "docs/sandbox.md says what each part needs"
	default:
		with := "neither numpy nor sympy"
		if len(modules) > 0 {
			with = strings.Join(modules, " and ")
		}
		f.OK, f.Detail = true, fmt.Sprintf("Python %s with %s; 6 * 7 gives %s in %.1f ms",
			pythonVersion, with, out, float64(took.Microseconds())/1000)
	}
	list := []finding{f}
	for _, h := range p.Parts() {
		list = append(list, finding{Name: "sandbox", OK: h.OK, Detail: fmt.Sprintf("%s: %s", h.Part, h.Detail)})
	}
	if hidden := p.Hidden(); len(hidden) > 0 {
		list = append(
			list, finding{Name: "sandbox", OK: true,
				Detail: fmt.Sprintf("not shown to the code, though the interpreter searches there: %s", strings.Join(hidden, ", "))})
	}
	return append(list, probeFinding(ctx, p))
}

// probeFinding says what code in the sandbox could reach.
func probeFinding(ctx context.Context, p *env.Python) finding {
	f := finding{Name: "sandbox"}
	outcomes, err := p.Probe(ctx)
	if err != nil {
		f.Detail = text.Line(err)
		return f
	}
	var reached []string
	for _, o := range outcomes {
		if !o.Stopped {
			reached = append(reached, o.Name)
		}
	}
	f.OK = len(reached) == 0
	f.Detail = fmt.Sprintf("all %d attempts at getting out, or past a limit, were stopped", len(outcomes))
	if !f.OK {
		f.Detail = fmt.Sprintf("%d of %d attempts at getting out, or past a limit, succeeded: %s", len(reached),
			len(outcomes), strings.Join(reached, ", "))
	}
	return f
}

// runsFinding counts the rollouts without a folder of their own that never came
// to their end; a finished one takes its journal away.
func runsFinding(dir string) finding {
	f := finding{Name: "unfinished", OK: true, Detail: "no rollout waits to be resumed"}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		return f
	}
	old := 0
	for _, e := range entries {
		if st, err := e.Info(); err == nil && time.Since(st.ModTime()) > 30*24*time.Hour {
			old++
		}
	}
	f.Detail = fmt.Sprintf("%s in %s, %d older than 30 days", text.Plural(len(entries), "rollout"), dir, old)
	f.Fix = "agentcli rollout --resume FOLDER > traj.parquet, or remove what nobody needs"
	return f
}

func serverFinding() finding {
	f := finding{Name: "server", OK: true, Detail: "OPENAI_BASE_URL is not set: models are local unless --base-url is given"}
	if u := os.Getenv("OPENAI_BASE_URL"); u != "" {
		f.Detail = "OPENAI_BASE_URL is " + u
		if os.Getenv("OPENAI_API_KEY") == "" {
			f.Detail += ", without OPENAI_API_KEY"
		}
	}
	return f
}

const setUpCUDA = "make setup CUDA=1, which brings NVRTC"

func libtorchFindings(b models.Backend) []finding {
	r, err := b.Info()
	if err != nil {
		return []finding{{Name: "libtorch", Detail: "not in this binary: local models and train are off", Fix: "make build"}}
	}
	list := []finding{
		{Name: "libtorch", OK: true, Detail: fmt.Sprintf("%s, %s", r.Version, r.Path)},
		{Name: "cpu", OK: true, Detail: fmt.Sprintf("%s, kernels %s, %d threads, bfloat16 in hardware: %v",
			r.CPUCapability, r.Kernels, r.Threads, r.BF16)},
	}
	if r.CUDADevices == 0 {
		cuda := finding{Name: "cuda", Detail: "no: " + r.WhyNoCUDA}
		if r.HasDriver {
			cuda.Fix = r.CUDAFix
		}
		return append(list, cuda)
	}
	list = append(list, finding{Name: "cuda", OK: true, Detail: fmt.Sprintf("%d devices, %s", r.CUDADevices, r.CUDAPath)})
	nvrtc := finding{Name: "nvrtc", OK: r.NVRTCErr == nil, Detail: r.NVRTC}
	if !nvrtc.OK {
		nvrtc.Detail, nvrtc.Fix = "no: "+text.Line(r.NVRTCErr), setUpCUDA
	}
	list = append(list, nvrtc)
	for i, g := range r.GPUs {
		if g.Err != nil {
			list = append(list, finding{Name: "gpu", Detail: fmt.Sprintf("cuda:%d: %s", i, text.Line(g.Err))})
			continue
		}
		const detail = "cuda:%d: %s, %.1f GiB, capability %s; driver for CUDA %s, CUDA %s, cuDNN %s"
		list = append(list, finding{Name: "gpu", OK: true, Detail: fmt.Sprintf(detail, i, g.Name,
			float64(g.Memory)/(1<<30), g.Capability, g.Driver, g.CUDA, g.CUDNN)})
		kernels := finding{Name: "gpu", OK: g.Kernels == nil, Detail: fmt.Sprintf("cuda:%d: our kernels are loaded", i)}
		if g.Kernels != nil {
			kernels.Detail = fmt.Sprintf("cuda:%d: libtorch's operations in place of our kernels: %s", i, text.Line(g.Kernels))
			kernels.Fix = setUpCUDA
		}
		list = append(list, kernels)
	}
	return list
}

// toolFindings says what tools there are, and tries those that are named.
func toolFindings(ctx context.Context, o rollout.ToolOptions) []finding {
	list := []finding{{Name: "tools", OK: true,
		Detail: fmt.Sprintf("%s by --tools; programs by --tool %sCMD; MCP servers by --mcp and --mcp-config",
			strings.Join(rollout.BuiltinTools(), ", "), rollout.ExecPrefix)}}
	if len(o.Programs)+len(o.MCP) == 0 && o.MCPConfig == "" {
		return list
	}
	var said []string
	closers, tools, err := rollout.OpenTools(ctx, o, nil, 10*time.Second, func(s string) { said = append(said, s) })
	for _, c := range closers {
		defer c.Close()
	}
	if err != nil {
		return append(list, finding{Name: "tools", Detail: text.Line(err)})
	}
	for _, s := range said {
		list = append(list, finding{Name: "tools", Detail: s})
	}
	for _, t := range tools {
		spec := t.Spec()
		var schema struct {
			Properties map[string]json.RawMessage `json:"properties"`
		}
		_ = json.Unmarshal(spec.Parameters, &schema)
		list = append(
			list, finding{Name: "tool", OK: true,
				Detail: fmt.Sprintf("%s (%s): %s", spec.Name, strings.Join(slices.Sorted(maps.Keys(schema.Properties)), ", "),
					text.Cut(text.OneLine(spec.Description), 100))})
	}
	return list
}
