package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"agentcli/engine"
	"agentcli/env"
	"agentcli/internal/text"
	"agentcli/traj"

	"github.com/go-logr/logr/funcr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
)

// Defaults of SpansConfig.
const (
	DefaultFlush = 5 * time.Second

	queue      = 1 << 14 // spans that wait for the exporter; what comes on top is dropped
	retryFirst = 500 * time.Millisecond
	retryMost  = 5 * time.Second
	retryFor   = 15 * time.Second
)

// SpansConfig says where spans go and what they tell of the model.
type SpansConfig struct {
	Endpoint string // of OTLP over HTTP, with or without /v1/traces; "": as the OTEL_* variables say
	Version  string // of the program
	Model    string
	Servers  []string      // base URLs of the model's servers; none: the model is local
	Flush    time.Duration // bound of the wait at the end; 0: DefaultFlush
	Notice   func(string)  // tells the user, once, that the collector does not take them
}

// WantSpans reports whether the environment asks for spans: an OTLP endpoint is
// named, and tracing is not switched off.
func WantSpans() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || strings.EqualFold(os.Getenv("OTEL_TRACES_EXPORTER"), "none") {
		return false
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// Spans sends a span for every trajectory, turn, model call and tool call to a
// collector. The attributes are those of OpenTelemetry's conventions for
// generative AI (semconv 1.41), and our own under agentcli.*; no text of prompts,
// replies or tools is in them.
type Spans struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	sink     *sink
	flush    time.Duration
	notice   func(string)
	model    string
	call     []attribute.KeyValue // of every model call
	kind     trace.SpanKind       // of a model call
}

// OpenSpans makes ready to send; it does not connect yet. The settings that c
// leaves open come from the OTEL_* variables.
func OpenSpans(ctx context.Context, c SpansConfig) (*Spans, error) {
	if c.Notice == nil {
		c.Notice = func(string) {}
	}
	if c.Flush == 0 {
		c.Flush = DefaultFlush
	}
	opts := []otlptracehttp.Option{otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
		Enabled: true, InitialInterval: retryFirst, MaxInterval: retryMost, MaxElapsedTime: retryFor})}
	if c.Endpoint != "" {
		u, err := tracesURL(c.Endpoint)
		if err != nil {
			return nil, err
		}
		opts = append(opts, otlptracehttp.WithEndpointURL(u))
	}
	// The library complains to a logger of the process's own.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { c.Notice("spans: " + text.Line(err)) }))
	otel.SetLogger(funcr.New(func(_, args string) { c.Notice("spans: " + text.OneLine(args)) }, funcr.Options{}))
	exporter, err := otlptracehttp.New(ctx, opts...)
	if err != nil {
		return nil, fmt.Errorf("cannot send spans: %w", err)
	}
	// What the user says of the resource wins.
	own := []attribute.KeyValue{semconv.ServiceName("agentcli")}
	if c.Version != "" {
		own = append(own, semconv.ServiceVersion(c.Version))
	}
	res, err := resource.New(ctx, resource.WithAttributes(own...), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if res == nil {
		return nil, fmt.Errorf("cannot send spans: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	s := &Spans{sink: &sink{SpanExporter: exporter, notice: c.Notice}, flush: c.Flush, notice: c.Notice, model: c.Model}
	batch := []sdk.BatchSpanProcessorOption{}
	if os.Getenv("OTEL_BSP_MAX_QUEUE_SIZE") == "" {
		batch = append(batch, sdk.WithMaxQueueSize(queue))
	}
	s.provider = sdk.NewTracerProvider(sdk.WithResource(res),
		sdk.WithSpanProcessor(counted{sdk.NewBatchSpanProcessor(s.sink, batch...), s.sink}))
	s.tracer = s.provider.Tracer("agentcli", trace.WithInstrumentationVersion(c.Version), trace.WithSchemaURL(semconv.SchemaURL))
	s.kind = trace.SpanKindInternal
	provider := "agentcli"
	if len(c.Servers) > 0 {
		s.kind, provider = trace.SpanKindClient, "openai"                         // the API that is spoken, whoever serves it
		if u, err := url.Parse(c.Servers[0]); err == nil && len(c.Servers) == 1 { // of several it is not known which was asked
			s.call = append(s.call, semconv.ServerAddress(u.Hostname()))
			if port, err := strconv.Atoi(u.Port()); err == nil {
				s.call = append(s.call, semconv.ServerPort(port))
			}
		}
	}
	s.call = append(s.call, semconv.GenAIOperationNameChat, semconv.GenAIProviderNameKey.String(provider), semconv.GenAIRequestModel(c.Model))
	return s, nil
}

// ErrNoCollector is in the error of an address that spans cannot be sent to.
var ErrNoCollector = errors.New("no URL of a collector")

// tracesURL is an endpoint with the path of traces, as OTEL_EXPORTER_OTLP_ENDPOINT
// is read.
func tracesURL(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("%q is %w, for example http://localhost:4318", endpoint, ErrNoCollector)
	}
	if !strings.HasSuffix(u.Path, "/v1/traces") {
		u = u.JoinPath("v1", "traces")
	}
	return u.String(), nil
}

// Close sends what waits, no longer than the flush bound.
func (s *Spans) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.flush)
	defer cancel()
	_ = s.provider.Shutdown(ctx) // the sink knows what was lost
	if lost := s.sink.ended.Load() - s.sink.sent.Load(); lost > 0 && !s.sink.told.Swap(true) {
		s.notice(fmt.Sprintf("%d of %d spans did not reach the collector: it takes them more slowly than they are made",
			lost, s.sink.ended.Load()))
	}
	return nil
}

// sink counts what the collector took, and tells of the first failure alone.
type sink struct {
	sdk.SpanExporter
	notice      func(string)
	ended, sent atomic.Int64
	told        atomic.Bool
}

// ExportSpans implements sdk.SpanExporter.
func (s *sink) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := s.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		s.sent.Add(int64(len(spans)))
		return nil
	}
	if !s.told.Swap(true) {
		s.notice("the collector does not take spans (" + text.Cut(text.Line(err), 300) + "); the run goes on without")
	}
	return nil
}

// counted counts the spans that are to be sent.
type counted struct {
	sdk.SpanProcessor
	sink *sink
}

// OnEnd implements sdk.SpanProcessor.
func (c counted) OnEnd(s sdk.ReadOnlySpan) {
	if s.SpanContext().IsSampled() {
		c.sink.ended.Add(1)
	}
	c.SpanProcessor.OnEnd(s)
}

// Observe begins the span of a trajectory. A trajectory that the sampler leaves
// out is not watched.
func (s *Spans) Observe(t *traj.Trajectory) engine.Watcher {
	ctx, span := s.tracer.Start(context.Background(), "invoke_agent agentcli", trace.WithTimestamp(t.StartedAt), trace.WithAttributes(
		semconv.GenAIOperationNameInvokeAgent, semconv.GenAIAgentName("agentcli"), semconv.GenAIConversationID(t.ID),
		semconv.GenAIRequestModel(s.model),
		attribute.String("agentcli.trajectory.id", t.ID), attribute.String("agentcli.task.id", t.Task.ID),
		attribute.String("agentcli.group.id", t.GroupID),
		attribute.Int("agentcli.attempt", t.Attempt), attribute.Int64("agentcli.seed", t.Seed)))
	if !span.IsRecording() {
		return nil
	}
	w := &spans{Spans: s, ctx: ctx, inner: ctx, root: span, tools: map[string]trace.Span{}}
	if t.Task.Dataset != "" {
		span.SetAttributes(attribute.String("agentcli.dataset", t.Task.Dataset))
	}
	return w
}

// spans are those of one trajectory that are open.
type spans struct {
	*Spans
	ctx  context.Context // with the trajectory's span
	root trace.Span

	turn  trace.Span      // nil: none
	inner context.Context // with the turn's span
	model trace.Span      // nil: none
	tools map[string]trace.Span

	images, imageTokens int
}

// Event implements engine.Watcher.
func (w *spans) Event(at time.Time, e engine.Event) {
	when := trace.WithTimestamp(at)
	switch e := e.(type) {
	case engine.TurnStart:
		w.endTurn(at)
		w.inner, w.turn = w.tracer.Start(w.ctx, "turn "+strconv.Itoa(e.Turn), when, trace.WithAttributes(attribute.Int("agentcli.turn", e.Turn)))
	case engine.Observed:
		for _, n := range e.ImageTokens {
			w.images, w.imageTokens = w.images+1, w.imageTokens+n
		}
	case engine.ModelStart:
		_, w.model = w.tracer.Start(w.inner, "chat "+w.Spans.model, when, trace.WithSpanKind(w.kind),
			trace.WithAttributes(w.call...), trace.WithAttributes(request(e.Request)...))
	case engine.ModelEnd:
		if w.model == nil {
			return
		}
		if e.Err != nil {
			fail(w.model, "model_error", e.Err.Error())
		} else {
			w.model.SetAttributes(reply(e.Response)...)
		}
		w.model.End(when)
		w.model = nil
	case engine.ToolStart:
		_, span := w.tracer.Start(w.inner, "execute_tool "+e.Call.Name, when, trace.WithAttributes(semconv.GenAIOperationNameExecuteTool,
			semconv.GenAIToolName(e.Call.Name), semconv.GenAIToolCallID(e.Call.ID), semconv.GenAIToolType("function")))
		w.tools[e.Call.ID] = span
	case engine.ToolEnd:
		span := w.tools[e.Call.ID]
		if span == nil {
			return
		}
		delete(w.tools, e.Call.ID)
		if e.Outcome != env.OutcomeOK {
			fail(span, e.Outcome, e.Err.Error())
		}
		span.End(when)
	case engine.TrajectoryEnd:
		for _, span := range w.tools { // a tool that hangs ends with its trajectory here
			span.End(when)
		}
		w.endTurn(at)
		w.end(at, e.Trajectory)
	}
}

func (w *spans) endTurn(at time.Time) {
	if w.turn != nil {
		w.turn.End(trace.WithTimestamp(at))
		w.turn = nil
	}
}

// end says how the trajectory ended.
func (w *spans) end(at time.Time, t *traj.Trajectory) {
	in := 0
	for i := range t.Steps {
		in += t.Steps[i].PromptTokens
	}
	w.root.SetAttributes(attribute.String("agentcli.termination", string(t.Termination)), attribute.Int("agentcli.turns", t.Turns()),
		semconv.GenAIUsageInputTokens(in), semconv.GenAIUsageOutputTokens(t.CompletionTokens))
	if w.images > 0 {
		w.root.SetAttributes(attribute.Int("agentcli.images", w.images), attribute.Int("agentcli.image_tokens", w.imageTokens))
	}
	if t.Reward != nil {
		w.root.SetAttributes(attribute.Float64("agentcli.reward", *t.Reward))
	}
	if t.Termination.Infrastructure() {
		fail(w.root, string(t.Termination), t.Error)
	}
	w.root.End(trace.WithTimestamp(at))
}

func fail(span trace.Span, kind, what string) {
	span.SetAttributes(semconv.ErrorTypeKey.String(kind))
	span.SetStatus(codes.Error, text.Cut(text.OneLine(what), 300))
}

func request(r *traj.Request) []attribute.KeyValue {
	s := r.Sampling
	a := []attribute.KeyValue{semconv.GenAIRequestSeed(int(r.Seed))}
	if s.MaxTokens > 0 {
		a = append(a, semconv.GenAIRequestMaxTokens(s.MaxTokens))
	}
	if s.Temperature != nil {
		a = append(a, semconv.GenAIRequestTemperature(*s.Temperature))
	}
	if s.TopP > 0 {
		a = append(a, semconv.GenAIRequestTopP(s.TopP))
	}
	if s.TopK > 0 {
		a = append(a, semconv.GenAIRequestTopKKey.Float64(float64(s.TopK)))
	}
	if len(s.Stop) > 0 {
		a = append(a, semconv.GenAIRequestStopSequences(s.Stop...))
	}
	return a
}

func reply(r *traj.Response) []attribute.KeyValue {
	a := []attribute.KeyValue{semconv.GenAIResponseFinishReasons(r.FinishReason),
		semconv.GenAIUsageInputTokens(r.PromptTokens), semconv.GenAIUsageOutputTokens(r.OutputTokens)}
	if r.Policy != "" {
		a = append(a, semconv.GenAIResponseModel(r.Policy))
	}
	return a
}
