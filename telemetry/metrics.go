package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	"agentcli/engine"
	"agentcli/env"
	"agentcli/internal/safego"
	"agentcli/llm"
	"agentcli/traj"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// UnknownTool stands for every tool that a model calls and that is not there:
// its names are the model's own, and without end.
const UnknownTool = "(unknown)"

// outcomeUnread is the outcome of a call that could not be read, beside those of
// env.
const outcomeUnread = "unreadable"

// Metrics counts what happens in a run, for Prometheus. It is safe for concurrent
// use.
type Metrics struct {
	registry     *prometheus.Registry
	trajectories *prometheus.CounterVec
	running      prometheus.Gauge
	modelCalls   *prometheus.CounterVec
	modelTime    prometheus.Histogram
	tokensIn     prometheus.Counter
	tokensOut    prometheus.Counter
	images       prometheus.Counter
	imageTokens  prometheus.Counter
	toolCalls    *prometheus.CounterVec
	toolTime     *prometheus.HistogramVec
	retries      *prometheus.CounterVec
	reward       prometheus.Summary
	tools        map[string]bool
}

// Model calls last from a hundredth of a second to ten minutes, tool calls from
// a tenth of a millisecond to a minute or more. Seconds.
var (
	modelBuckets = []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600}
	toolBuckets  = []float64{.0001, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
)

// NewMetrics returns metrics of a run with these tools. Every series whose labels
// are known is there from the start, at 0.
func NewMetrics(tools []traj.ToolSpec) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), tools: map[string]bool{}}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m.trajectories = counter("agentcli_trajectories_total", "Trajectories that ended in this process, by how.", "termination")
	m.running = prometheus.NewGauge(prometheus.GaugeOpts{Name: "agentcli_trajectories_running", Help: "Trajectories that are being played."})
	m.modelCalls = counter("agentcli_model_calls_total", "Model calls that ended, their retries included, by outcome.", "outcome")
	m.modelTime = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "agentcli_model_call_duration_seconds",
		Help: "How long model calls took, their retries included.", Buckets: modelBuckets})
	m.tokensIn = prometheus.NewCounter(
		prometheus.CounterOpts{Name: "agentcli_prompt_tokens_total", Help: "Tokens of all prompts: each call's whole prompt counts."})
	m.tokensOut = prometheus.NewCounter(prometheus.CounterOpts{Name: "agentcli_completion_tokens_total", Help: "Sampled tokens."})
	m.images = prometheus.NewCounter(
		prometheus.CounterOpts{Name: "agentcli_images_total", Help: "Images that models were shown: each once a trajectory."})
	m.imageTokens = prometheus.NewCounter(prometheus.CounterOpts{Name: "agentcli_image_tokens_total", Help: "Tokens of those images."})
	m.toolCalls = counter("agentcli_tool_calls_total", "Tool calls that ended, by tool and outcome.", "tool", "outcome")
	m.toolTime = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "agentcli_tool_call_duration_seconds",
		Help: "How long tool calls took.", Buckets: toolBuckets}, []string{"tool"})
	m.retries = counter("agentcli_model_retries_total", "Requests to the server that were tried again, by reason.", "reason")
	m.reward = prometheus.NewSummary(
		prometheus.SummaryOpts{Name: "agentcli_reward", Help: "Rewards of the trajectories that have one: their sum and their number."})
	m.registry.MustRegister(m.trajectories, m.running, m.modelCalls, m.modelTime, m.tokensIn, m.tokensOut, m.images, m.imageTokens,
		m.toolCalls, m.toolTime, m.retries, m.reward,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, t := range traj.Terminations {
		m.trajectories.WithLabelValues(string(t))
	}
	m.modelCalls.WithLabelValues("ok")
	m.modelCalls.WithLabelValues("error")
	for _, reason := range llm.Reasons {
		m.retries.WithLabelValues(reason)
	}
	for _, t := range tools {
		m.tools[t.Name] = true
		for _, o := range env.Outcomes {
			m.toolCalls.WithLabelValues(t.Name, o)
		}
	}
	return m
}

// Observe counts a trajectory.
func (m *Metrics) Observe(*traj.Trajectory) engine.Watcher {
	m.running.Inc()
	return m
}

// Retry counts a request that is tried again.
func (m *Metrics) Retry(reason string) { m.retries.WithLabelValues(reason).Inc() }

// Event implements engine.Watcher.
func (m *Metrics) Event(_ time.Time, e engine.Event) {
	switch e := e.(type) {
	case engine.Observed:
		m.images.Add(float64(len(e.ImageTokens)))
		for _, n := range e.ImageTokens {
			m.imageTokens.Add(float64(n))
		}
	case engine.ModelEnd:
		m.modelTime.Observe(e.Took.Seconds())
		if e.Err != nil {
			m.modelCalls.WithLabelValues("error").Inc()
			return
		}
		m.modelCalls.WithLabelValues("ok").Inc()
		m.tokensIn.Add(float64(e.Response.PromptTokens))
		m.tokensOut.Add(float64(e.Response.OutputTokens))
		if n := len(e.Response.CallErrors); n > 0 {
			m.toolCalls.WithLabelValues(UnknownTool, outcomeUnread).Add(float64(n))
		}
	case engine.ToolEnd:
		name := e.Call.Name
		if !m.tools[name] {
			name = UnknownTool
		}
		m.toolCalls.WithLabelValues(name, e.Outcome).Inc()
		m.toolTime.WithLabelValues(name).Observe(e.Took.Seconds())
	case engine.TrajectoryEnd:
		m.running.Dec()
		m.trajectories.WithLabelValues(string(e.Trajectory.Termination)).Inc()
		if r := e.Trajectory.Reward; r != nil {
			m.reward.Observe(*r)
		}
	}
}

// Server serves metrics over HTTP.
type Server struct {
	listener net.Listener
	server   *http.Server
	ended    chan struct{}
}

// AddressError is an address that cannot be listened on. It wraps the system's error.
type AddressError struct {
	Addr string
	err  error
}

func (e *AddressError) Error() string {
	if errors.Is(e.err, syscall.EADDRINUSE) {
		return e.Addr + " is in use by another program; name another port, or 0 for a free one"
	}
	return fmt.Sprintf("cannot listen on %q (%v); it is HOST:PORT, for example localhost:9464", e.Addr, e.err)
}

// Unwrap gives the system's error.
func (e *AddressError) Unwrap() error { return e.err }

// Listen takes the address, HOST:PORT, before a run begins; nothing is served yet.
func Listen(ctx context.Context, addr string) (*Server, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err
		}
		return nil, &AddressError{Addr: addr, err: err}
	}
	return &Server{listener: l, ended: make(chan struct{})}, nil
}

// Addr is the address that is listened on.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Serve answers GET /metrics until Close.
func (s *Server) Serve(m *Metrics) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	s.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(s.ended)
		defer safego.Catch(nil)        // who looks on breaks nothing
		_ = s.server.Serve(s.listener) // ends by Close
	}()
}

// Close ends the serving, and its goroutines.
func (s *Server) Close() error {
	if s.server == nil {
		return s.listener.Close()
	}
	err := s.server.Close()
	<-s.ended
	return err
}
