package telemetry

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// ServingLoad is what an engine is doing, and has done so far.
type ServingLoad struct {
	Running, Waiting                                      int
	CacheUsed                                             float64 // share of the key-value cache
	PromptTokens, CachedTokens, HostTokens, SampledTokens int64
	DraftTokens, AcceptedTokens                           int64 // guessed, and of those what was drawn
	Preemptions, Version                                  int64
}

// Serving counts what a server of a local model does, for Prometheus, by vLLM's names. It is
// safe for concurrent use.
type Serving struct {
	registry                    *prometheus.Registry
	first, each, whole, lengths prometheus.Histogram
	ended                       *prometheus.CounterVec
}

// NewServing returns metrics of a server whose engine says its load.
func NewServing(load func() ServingLoad) *Serving {
	m := &Serving{registry: prometheus.NewRegistry()}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
		m.registry.MustRegister(h)
		return h
	}
	m.first = histogram("vllm:time_to_first_token_seconds", "From a request to its first token.", modelBuckets)
	m.each = histogram("vllm:request_time_per_output_token_seconds", "Time of a reply by its tokens, a mean for each reply.", toolBuckets)
	m.whole = histogram("vllm:e2e_request_latency_seconds", "From a request to its reply's end.", modelBuckets)
	m.lengths = histogram("vllm:request_generation_tokens", "Tokens of a reply.", prometheus.ExponentialBuckets(1, 2, 16))
	m.ended = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "vllm:request_success_total", Help: "Replies, by why they ended."},
		[]string{"finished_reason"})
	m.registry.MustRegister(m.ended, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, reason := range []string{"stop", "length", "abort"} {
		m.ended.WithLabelValues(reason)
	}
	gauge := func(name, help string, of func(ServingLoad) float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return of(load()) }))
	}
	counter := func(name, help string, of func(ServingLoad) int64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help},
			func() float64 { return float64(of(load())) }))
	}
	gauge("vllm:num_requests_running", "Requests that are computed.", func(l ServingLoad) float64 { return float64(l.Running) })
	gauge("vllm:num_requests_waiting", "Requests that wait.", func(l ServingLoad) float64 { return float64(l.Waiting) })
	gauge("vllm:kv_cache_usage_perc", "Share of the key-value cache that is in use, 0 to 1.",
		func(l ServingLoad) float64 { return l.CacheUsed })
	gauge("agentcli_policy_version", "Version of the weights.", func(l ServingLoad) float64 { return float64(l.Version) })
	counter("vllm:prompt_tokens_total", "Tokens of prompts.", func(l ServingLoad) int64 { return l.PromptTokens })
	counter("vllm:prefix_cache_queries_total", "Tokens of prompts that were looked for in the cache.",
		func(l ServingLoad) int64 { return l.PromptTokens })
	counter("vllm:prefix_cache_hits_total", "Tokens of prompts that the cache had.", func(l ServingLoad) int64 { return l.CachedTokens })
	counter("vllm:external_prefix_cache_hits_total", "Tokens of prompts that came back from the host's memory.",
		func(l ServingLoad) int64 { return l.HostTokens })
	counter("vllm:generation_tokens_total", "Sampled tokens.", func(l ServingLoad) int64 { return l.SampledTokens })
	counter("vllm:spec_decode_num_draft_tokens_total", "Tokens that were guessed from the conversation.",
		func(l ServingLoad) int64 { return l.DraftTokens })
	counter("vllm:spec_decode_num_accepted_tokens_total", "Guessed tokens that were drawn.",
		func(l ServingLoad) int64 { return l.AcceptedTokens })
	counter("vllm:num_preemptions_total", "Sequences that made room for others and were computed again.",
		func(l ServingLoad) int64 { return l.Preemptions })
	return m
}

// First counts how long a request waited for its first token.
func (m *Serving) First(after time.Duration) { m.first.Observe(after.Seconds()) }

// Ended counts a reply.
func (m *Serving) Ended(reason string, tokens int, took time.Duration) {
	m.ended.WithLabelValues(reason).Inc()
	m.whole.Observe(took.Seconds())
	m.lengths.Observe(float64(tokens))
	if tokens > 0 {
		m.each.Observe(took.Seconds() / float64(tokens))
	}
}

// Handler answers with the metrics.
func (m *Serving) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
