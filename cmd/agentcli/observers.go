package main

import (
	"context"
	"fmt"
	"os"

	"agentcli/engine"
	"agentcli/internal/exit"
	"agentcli/internal/version"
	"agentcli/telemetry"
	"agentcli/traj"
)

// seeing is what shows a run beside its progress.
type seeing struct {
	server  *telemetry.Server // nil: no metrics are asked for
	metrics *telemetry.Metrics
	spans   *telemetry.Spans // nil: no spans
	tracer  *tracer          // nil: no trace
}

// openMetrics takes the address before anything else is begun.
func (x *session) openMetrics(ctx context.Context) (err error) {
	if x.o.MetricsAddr == "" {
		return nil
	}
	if x.see.server, err = telemetry.Listen(ctx, x.o.MetricsAddr); err != nil {
		return exit.Usagef("--metrics-addr: %w", err)
	}
	x.see.metrics = telemetry.NewMetrics(x.tools.Specs())
	x.see.server.Serve(x.see.metrics)
	x.s.Log().Info("metrics are at http://"+x.see.server.Addr()+"/metrics", "addr", x.see.server.Addr())
	return nil
}

// openSpans makes spans where a flag or the environment asks for them.
func (x *session) openSpans(ctx context.Context) (err error) {
	if x.o.OTLP == "" && !telemetry.WantSpans() {
		return nil
	}
	if os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL") == "grpc" {
		x.notice("OTEL_EXPORTER_OTLP_PROTOCOL is grpc; spans are sent as http/protobuf, which collectors take at another port (4318)")
	}
	x.see.spans, err = telemetry.OpenSpans(ctx, telemetry.SpansConfig{Endpoint: x.o.OTLP, Version: version.String(),
		Model: x.info.Name, Servers: x.info.BaseURL, Notice: x.notice})
	if err != nil && x.o.OTLP != "" {
		return exit.Usagef("--otlp: %w", err)
	}
	return err
}

// retry is llm.Config.OnRetry.
func (v *seeing) retry() func(string) {
	if v.metrics == nil {
		return nil
	}
	return v.metrics.Retry
}

// observe is engine.Config.Observe: nil where nobody wants to see anything.
func (v *seeing) observe(t *tracer) func(*traj.Trajectory) engine.Watcher {
	var list []telemetry.Observe
	if v.metrics != nil {
		list = append(list, v.metrics.Observe)
	}
	if v.spans != nil {
		list = append(list, v.spans.Observe)
	}
	if v.tracer = t; t != nil {
		list = append(list, t.observe)
	}
	return telemetry.Join(list...)
}

// untraced tells a user who waited for a trajectory that it never came.
func (v *seeing) untraced(notice func(string)) {
	if v.tracer != nil && !v.tracer.taken() {
		notice(fmt.Sprintf("--trace %s: no trajectory of that name was played; a name is a task's id, task#attempt, or first", v.tracer.id))
	}
}

// close sends what waits and ends the serving.
func (v *seeing) close() {
	if v.spans != nil {
		_ = v.spans.Close()
		v.spans = nil
	}
	if v.server != nil {
		_ = v.server.Close()
		v.server = nil
	}
}
