package rewards

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"agentcli/internal/text"
	"agentcli/traj"
)

// Limits of a remote reward. A slow one is the run's own time-out to end.
const (
	remoteTries   = 5
	remoteBackoff = 500 * time.Millisecond
	remoteTry     = 2 * time.Minute
	remoteBody    = 8 << 20 // bytes of an answer
)

// remoteReward asks a server of OpenRLHF's remote reward protocol: POST
// {"query": [prompt+response], "prompts": […], "labels": […]} gives {"rewards":
// […], "scores": […], "extra_logs": {…}}. It is told "messages" too, for those
// who know what to do with them.
type remoteReward struct {
	url    string
	client *http.Client
	sleep  func(ctx context.Context, d time.Duration) error
}

func newRemote(address string) Reward {
	return &remoteReward{address, &http.Client{Timeout: remoteTry}, func(ctx context.Context, d time.Duration) error {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
}

func (r *remoteReward) Name() string { return r.url }

// Close lets idle connections go.
func (r *remoteReward) Close() error { r.client.CloseIdleConnections(); return nil }

func (r *remoteReward) Score(ctx context.Context, t *traj.Trajectory) (Score, error) {
	if t.Termination.Infrastructure() {
		return Score{}, nil
	}
	prompt, reply := spoken(t)
	label := ""
	if len(t.Task.Answers) > 0 {
		label = t.Task.Answers[0]
	}
	body, err := json.Marshal(map[string]any{"query": []string{prompt + reply}, "prompts": []string{prompt}, "labels": []string{label},
		"messages": [][]traj.Message{t.Messages}, "answers": [][]string{t.Task.Answers}, "task_ids": []string{t.Task.ID}})
	if err != nil {
		return Score{}, err
	}
	var last error
	for n := range remoteTries {
		if n > 0 {
			d := remoteBackoff << (n - 1)
			if err := r.sleep(ctx, d/2+time.Duration(rand.Float64()*float64(d/2))); err != nil {
				return Score{}, fmt.Errorf("reward %s: %w (then the time was up)", text.Address(r.url), last)
			}
		}
		s, again, err := r.ask(ctx, body)
		if err == nil {
			return s, nil
		}
		if last = err; !again || ctx.Err() != nil {
			return Score{}, fmt.Errorf("reward %s: %w", text.Address(r.url), err)
		}
	}
	return Score{}, fmt.Errorf("reward %s: %w (after %d tries)", text.Address(r.url), last, remoteTries)
}

// ask makes one try; again says whether another makes sense.
func (r *remoteReward) ask(ctx context.Context, body []byte) (s Score, again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(body))
	if err != nil {
		return s, false, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.client.Do(req)
	if err != nil {
		var where *url.Error // it has the address, with what may be a key
		if errors.As(err, &where) {
			err = where.Err
		}
		return s, true, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, remoteBody+1))
	switch {
	case err != nil:
		return s, true, err
	case len(data) > remoteBody:
		return s, false, fmt.Errorf("its answer is longer than %d MB", remoteBody>>20)
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500:
		return s, true, fmt.Errorf("%s: %s", resp.Status, r.short(data))
	case resp.StatusCode != http.StatusOK:
		return s, false, fmt.Errorf("%s: %s", resp.Status, r.short(data))
	}
	var a struct {
		Rewards   []*float64                   `json:"rewards"`
		Scores    []*float64                   `json:"scores"`
		ExtraLogs map[string][]json.RawMessage `json:"extra_logs"`
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return s, true, fmt.Errorf(`its answer %s is not of the form {"rewards": [NUMBER]}: %w`, r.short(data), err)
	}
	if len(a.Rewards) != 1 || a.Rewards[0] == nil {
		return s, false, fmt.Errorf(`its answer %s has %d rewards for one query`, r.short(data), len(a.Rewards))
	}
	found := map[string]float64{}
	if len(a.Scores) == 1 && a.Scores[0] != nil {
		found["score"] = *a.Scores[0]
	}
	for name, values := range a.ExtraLogs {
		var v float64
		if len(values) == 1 && json.Unmarshal(values[0], &v) == nil && !math.IsNaN(v) {
			found[name] = v
		}
	}
	return Score{Value: a.Rewards[0], Parts: named(found)}, false, nil
}

// short is the beginning of an answer, without the keys of our own address.
func (r *remoteReward) short(b []byte) string {
	return text.Cut(text.OneLine(text.Without(string(b), text.KeysIn(r.url))), 200)
}

// spoken is a conversation as plain text: what stood before the model's first
// reply, and everything from there on.
func spoken(t *traj.Trajectory) (prompt, reply string) {
	first := len(t.Task.Messages)
	if first == 0 || first > len(t.Messages) {
		first = 0
		for first < len(t.Messages) && t.Messages[first].Role != traj.RoleAssistant {
			first++
		}
	}
	var p, r strings.Builder
	for i, m := range t.Messages {
		if i < first {
			if p.Len() > 0 {
				p.WriteByte('\n')
			}
			p.WriteString(m.Content)
			continue
		}
		r.WriteByte('\n')
		r.WriteString(m.Content)
	}
	return p.String(), r.String()
}
