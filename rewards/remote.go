package rewards

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"agentcli/internal/remote"
	"agentcli/internal/text"
	"agentcli/traj"
)

// Limits of a remote reward. A slow one is the run's own time-out to end.
const (
	remoteTries = 5
	remoteWait  = 375 * time.Millisecond // before the second try
	remoteBody  = 8 << 20                // bytes of an answer
)

// remoteReward asks a server of OpenRLHF's remote reward protocol: POST
// {"query": [prompt+response], "prompts": […], "labels": […]} gives {"rewards":
// […], "scores": […], "extra_logs": {…}}, each list with an element a query. The request has
// "messages" too, for those who know what to do with them.
type remoteReward struct {
	address string
	server  *remote.Server
	batches batcher
}

func newRemote(address string) (Reward, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("reward %s is not the address of a server; want http://HOST:PORT/PATH", text.Address(address))
	}
	return remoteAt(address, remote.New(u, remote.Options{Tries: remoteTries, Wait: remoteWait, Longest: remoteBody})), nil
}

func remoteAt(address string, server *remote.Server) *remoteReward {
	r := &remoteReward{address: address, server: server}
	r.batches.ask = r.ask
	return r
}

func (r *remoteReward) Name() string { return r.address }

// Close lets idle connections go.
func (r *remoteReward) Close() error { r.server.Close(); return nil }

func (r *remoteReward) Score(ctx context.Context, t *traj.Trajectory) (s Score, err error) {
	if t.Termination.Infrastructure() {
		return Score{}, nil
	}
	if s, err = r.batches.score(ctx, t); err != nil {
		return Score{}, fmt.Errorf("reward: %w", err)
	}
	return s, nil
}

// ask asks for the rewards of several trajectories in one request.
func (r *remoteReward) ask(ctx context.Context, batch []*traj.Trajectory) (answers []answered, err error) {
	var queries, prompts, labels, ids []string
	var messages [][]traj.Message
	var golds [][]string
	for _, t := range batch {
		prompt, reply := spoken(t)
		label := ""
		if len(t.Task.Answers) > 0 {
			label = t.Task.Answers[0]
		}
		queries, prompts, labels, ids = append(queries, prompt+reply), append(prompts, prompt), append(labels, label), append(ids, t.Task.ID)
		messages, golds = append(messages, traj.WithoutFiles(t.Messages)), append(golds, t.Task.Answers)
	}
	request := map[string]any{"query": queries, "prompts": prompts, "labels": labels, "messages": messages, "answers": golds, "task_ids": ids}
	if slices.ContainsFunc(batch, func(t *traj.Trajectory) bool { return t.Infos != nil }) {
		infos := make([][]traj.Info, len(batch))
		for i, t := range batch {
			infos[i] = t.Infos
		}
		request["infos"] = infos
	}
	err = r.server.Post(ctx, request, func(answer []byte) (err error) {
		answers, err = readRewards(answer, len(batch))
		return err
	})
	for i := range answers {
		if e := answers[i].err; e != nil {
			answers[i].err = fmt.Errorf("server %s %w", text.Address(r.address), e)
		}
	}
	return answers, err
}

// readRewards reads the answer to n queries. A query without a reward has an error of its
// own; lists of another length are no parts.
func readRewards(data []byte, n int) ([]answered, error) {
	var a struct {
		Rewards   []*float64                   `json:"rewards"`
		Scores    []*float64                   `json:"scores"`
		ExtraLogs map[string][]json.RawMessage `json:"extra_logs"`
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return nil, fmt.Errorf(`it is not of the form {"rewards": [NUMBER]}: %w`, err)
	}
	if len(a.Rewards) != n {
		return nil, fmt.Errorf("it has %d rewards for %s", len(a.Rewards), text.Plural(n, "query"))
	}
	out := make([]answered, n)
	for i, reward := range a.Rewards {
		if reward == nil {
			out[i].err = fmt.Errorf("%w: a reward is null", remote.ErrProtocol)
			continue
		}
		found := map[string]float64{}
		if len(a.Scores) == n && a.Scores[i] != nil {
			found["score"] = *a.Scores[i]
		}
		for name, values := range a.ExtraLogs {
			var v float64
			if len(values) == n && json.Unmarshal(values[i], &v) == nil && !math.IsNaN(v) {
				found[name] = v
			}
		}
		out[i].score = Score{Value: reward, Parts: named(found)}
	}
	return out, nil
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
