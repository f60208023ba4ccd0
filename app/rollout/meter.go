package rollout

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strings"
	"sync"
	"time"

	"agentcli/app/console"
	"agentcli/app/report"
	"agentcli/engine"
	"agentcli/eval"
	"agentcli/internal/text"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// How often a terminal's line is drawn anew though nothing has ended, and at most.
const (
	redrawEvery = time.Second
	redrawMost  = 100 * time.Millisecond
)

// meter shows a run's progress on stderr: a line that redraws itself on a
// terminal, else a line or a JSON object now and then.
type meter struct {
	mu    sync.Mutex
	s     console.Streams
	bar   *progressbar.ProgressBar
	total int        // the bar's; 0: not known
	width func() int // of the terminal
	at    time.Time  // of the last line, or drawing
	now   func() time.Time
	p     engine.Progress
}

func newMeter(s console.Streams, total int) *meter {
	m := &meter{s: s, now: time.Now, at: time.Now(), width: func() int { return terminalWidth(s) }}
	if s.ErrTTY && !s.JSON() {
		m.draw(total)
		s.OnRedraw(m.clear)
	}
	return m
}

// draw begins the bar of so many trajectories; 0: not known.
func (m *meter) draw(total int) {
	m.total = total
	if total == 0 {
		total = -1
	}
	// The library's own prediction counts resumed trajectories as quick ones.
	m.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(m.s.Err), progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false), progressbar.OptionSetSpinnerChangeInterval(0),
		progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(barWidth), progressbar.OptionSetRenderBlankState(true))
}

const barWidth = 20

func terminalWidth(s console.Streams) int {
	if f, ok := s.Err.(*os.File); ok {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			return w
		}
	}
	return 80
}

// tick is how often the engine is asked for its progress.
func (m *meter) tick() time.Duration {
	if m.bar != nil {
		return redrawEvery
	}
	return console.PlainEvery
}

// show is engine.Config.Progress.
func (m *meter) show(p engine.Progress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.p = p
	if m.bar != nil {
		now := m.now()
		if now.Sub(m.at) < redrawMost {
			return
		}
		m.at = now
		if p.Total != m.total { // it was found out on the way
			_ = m.bar.Clear()
			m.draw(p.Total)
		}
		count := fmt.Sprintf(" 100%% || (%d/%d) ", p.Done, p.Total)
		progressbar.OptionSetDescription(fit(parts(p), m.width()-len(count)-1))(m.bar)
		_ = m.bar.Set(p.Done) // draws
		return
	}
	// A tick that comes a moment early is one all the same.
	if now := m.now(); now.Sub(m.at) >= console.PlainEvery-console.PlainEvery/100 && p.Running > 0 {
		m.at = now
		m.line()
	}
}

// fit joins as many of the parts, the first ones, as the room holds.
func fit(parts []string, room int) string {
	for n := len(parts); n > 0; n-- {
		if s := strings.Join(parts[:n], ", "); len([]rune(s)) <= room {
			return s
		}
	}
	return ""
}

// last is what a run came to, whatever was shown of it.
func (m *meter) last(p engine.Progress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.p = p
}

func (m *meter) line() {
	if m.s.JSON() {
		m.s.Log().LogAttrs(context.Background(), slog.LevelInfo, "progress", attributes(m.p)...)
		return
	}
	count := text.Plural(m.p.Done, "trajectory")
	if m.p.Total > 0 {
		count = fmt.Sprintf("%d of %s", m.p.Done, text.Plural(m.p.Total, "trajectory"))
	}
	m.s.Log().Info(count + ", " + strings.Join(parts(m.p), ", "))
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
		m.s.OnRedraw(nil)
		_ = m.bar.Clear()
		m.bar = nil
	}
	if m.p.Done > 0 {
		p := m.p
		p.ETA, p.Running = 0, 0
		m.s.Log().LogAttrs(context.Background(), slog.LevelInfo, fmt.Sprintf("%s in %s, %s", text.Plural(p.Done-p.Cancelled, "trajectory"),
			p.Elapsed.Round(100*time.Millisecond), strings.Join(parts(p), ", ")), attributes(p)...)
	}
}

// parts are what is known of a run, the most important first. What is not known
// is not there.
func parts(p engine.Progress) []string {
	list := []string{"no reward yet"}
	if p.Scored > 0 {
		list[0] = fmt.Sprintf("reward %.3f", p.Mean)
		if b := eval.Bound(p.Mean, p.Groups); b != nil {
			list[0] += report.Certainty(&p.Mean, nil, b, 3)
		} else if !math.IsNaN(p.StdErr) {
			list[0] += fmt.Sprintf(" ± %.3f", p.StdErr)
		}
	}
	if p.ETA > 0 {
		list = append(list, "ETA "+roughly(p.ETA))
	}
	if n := p.Errors - p.Cancelled; n > 0 {
		list = append(list, fmt.Sprintf("%d failed", n))
	}
	if rate, ok := tokenRate(p); ok {
		list = append(list, fmt.Sprintf("%.0f tok/s", rate))
	}
	if p.Images > 0 {
		list = append(list, fmt.Sprintf("%s (%s)", text.Plural(int(p.Images), "image"), text.Plural(int(p.ImageTokens), "token")))
	}
	if p.Running > 0 {
		list = append(list, fmt.Sprintf("%d running", p.Running))
	}
	if p.Cancelled > 0 {
		list = append(list, fmt.Sprintf("%d cancelled", p.Cancelled))
	}
	if p.Cost > 0 {
		list = append(list, text.Dollars(p.Cost))
	}
	return list
}

// tokenRate is what was sampled a second in this process.
func tokenRate(p engine.Progress) (float64, bool) {
	s := p.Elapsed.Seconds()
	return float64(p.Tokens) / s, s > 0 && p.Tokens > 0
}

// roughly is a duration as precise as a guess deserves.
func roughly(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(1, int(d.Round(time.Second).Seconds())))
	case d < time.Hour:
		d = d.Round(time.Second)
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 100*time.Hour:
		d = d.Round(time.Minute)
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%.0f days", d.Hours()/24)
}

// attributes are a run's state for programs; what is not known is left out.
func attributes(p engine.Progress) []slog.Attr {
	a := []slog.Attr{slog.Int("done", p.Done), slog.Int("running", p.Running), slog.Int("failed", p.Errors-p.Cancelled),
		slog.Int("cancelled", p.Cancelled), slog.Int("resumed", p.Resumed), slog.Int64("tokens", p.Tokens),
		slog.Int64("spent_tokens", p.Spent), slog.Float64("elapsed_s", p.Elapsed.Seconds())}
	if p.Total > 0 {
		a = append(a, slog.Int("total", p.Total))
	}
	if p.Scored > 0 {
		a = append(a, slog.Float64("reward", p.Mean))
		if !math.IsNaN(p.StdErr) {
			a = append(a, slog.Float64("reward_stderr", p.StdErr))
		}
	}
	if rate, ok := tokenRate(p); ok {
		a = append(a, slog.Float64("tokens_per_s", rate))
	}
	if p.ETA > 0 {
		a = append(a, slog.Float64("eta_s", p.ETA.Seconds()))
	}
	if p.Images > 0 {
		a = append(a, slog.Int64("images", p.Images), slog.Int64("image_tokens", p.ImageTokens))
	}
	if p.Cost > 0 {
		a = append(a, slog.Float64("cost", p.Cost))
	}
	return a
}
