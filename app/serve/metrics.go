package serve

import (
	"net/http"
	"time"

	"agentcli/app/models"
	"agentcli/policy"
	"agentcli/telemetry"
)

// metrics are what GET /metrics says.
type metrics struct {
	m      *telemetry.Serving
	handle http.Handler
}

func newMetrics(e models.Engine) *metrics {
	m := telemetry.NewServing(func() telemetry.ServingLoad {
		l := e.Load()
		share := 0.
		if l.Blocks > 0 {
			share = float64(l.UsedBlocks) / float64(l.Blocks)
		}
		return telemetry.ServingLoad{Running: l.Running, Waiting: l.Waiting, CacheUsed: share, PromptTokens: l.PromptTokens,
			CachedTokens: l.CachedTokens, HostTokens: l.HostTokens, SampledTokens: l.SampledTokens, DraftTokens: l.DraftTokens,
			AcceptedTokens: l.AcceptedTokens, Preemptions: l.Preemptions, Version: e.Version()}
	})
	return &metrics{m: m, handle: m.Handler()}
}

func (m *metrics) serve(w http.ResponseWriter, r *http.Request) error {
	m.handle.ServeHTTP(w, r)
	return nil
}

func (m *metrics) first(after time.Duration) { m.m.First(after) }

func (m *metrics) ended(r *policy.Reply, took time.Duration) {
	m.m.Ended(r.FinishReason, len(r.IDs), took)
}
