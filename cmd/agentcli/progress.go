package main

import (
	"fmt"
	"math"
	"sync"
	"time"

	"agentcli/engine"
	"agentcli/eval"

	"github.com/schollz/progressbar/v3"
)

// plainEvery is how often a line is written where stderr is no terminal.
const plainEvery = 10 * time.Second

// meter shows a run's progress on stderr: a bar on a terminal, else a line now
// and then.
type meter struct {
	mu   sync.Mutex
	s    streams
	bar  *progressbar.ProgressBar
	at   time.Time // of the last line
	now  func() time.Time
	p    engine.Progress
	said bool
}

func newMeter(s streams, total int) *meter {
	m := &meter{s: s, now: time.Now, at: time.Now()}
	if s.errTTY {
		if total == 0 {
			total = -1
		}
		m.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(s.err), progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(total > 0), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish(), progressbar.OptionFullWidth(), progressbar.OptionSetRenderBlankState(true))
	}
	return m
}

// show is engine.Config.Progress.
func (m *meter) show(p engine.Progress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.p = p
	if m.bar != nil {
		m.bar.Describe(describe(p))
		_ = m.bar.Set(p.Done)
		return
	}
	if now := m.now(); now.Sub(m.at) >= plainEvery {
		m.at = now
		m.line()
	}
}

// last is what a run came to, whatever was shown of it.
func (m *meter) last(p engine.Progress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.p = p
}

func (m *meter) line() {
	m.said = true
	count := plural(m.p.Done, "trajectory")
	if m.p.Total > 0 {
		count = fmt.Sprintf("%d of %s", m.p.Done, plural(m.p.Total, "trajectory"))
	}
	fmt.Fprintf(m.s.err, "agentcli: %s, %d running, %s\n", count, m.p.Running, describe(m.p))
}

// clear takes the bar away so that a line can be written.
func (m *meter) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bar != nil {
		_ = m.bar.Clear()
	}
}

// close takes the bar away and leaves one line that says how it went.
func (m *meter) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bar != nil {
		_ = m.bar.Clear()
	}
	if m.p.Done > 0 {
		fmt.Fprintf(m.s.err, "agentcli: %s in %s, %s\n", plural(m.p.Done-m.p.Cancelled, "trajectory"), m.p.Elapsed.Round(100*time.Millisecond), describe(m.p))
	}
}

func describe(p engine.Progress) string {
	text := "no reward yet"
	if p.Scored > 0 {
		text = fmt.Sprintf("reward %.3f", p.Mean)
		if b := eval.Bound(p.Mean, p.Groups); b != nil {
			text += certainty(&p.Mean, nil, b, 3)
		} else if !math.IsNaN(p.StdErr) {
			text += fmt.Sprintf(" ± %.3f", p.StdErr)
		}
	}
	if s := p.Elapsed.Seconds(); s > 0 && p.Tokens > 0 {
		text += fmt.Sprintf(", %.0f tok/s", float64(p.Tokens)/s)
	}
	if n := p.Errors - p.Cancelled; n > 0 {
		text += fmt.Sprintf(", %d failed", n)
	}
	if p.Cancelled > 0 {
		text += fmt.Sprintf(", %d cancelled", p.Cancelled)
	}
	return text
}
