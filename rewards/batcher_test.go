package rewards

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentcli/internal/remote"
	"agentcli/traj"
)

func attemptNumber(i int) *traj.Trajectory {
	a := asked()
	a.Task.ID = fmt.Sprint(i)
	a.Messages[2].Content = fmt.Sprint(i)
	return a
}

// batches scores n trajectories at once by a function of the batch, each with its own
// context, and gives the sizes of the requests.
func batches(n int, ask func(ctx context.Context, batch []*traj.Trajectory) ([]answered, error),
	with func(i int) context.Context) (sizes []int, scores []Score, errs []error) {
	var b batcher
	var mu sync.Mutex
	b.ask = func(ctx context.Context, batch []*traj.Trajectory) ([]answered, error) {
		mu.Lock()
		sizes = append(sizes, len(batch))
		mu.Unlock()
		return ask(ctx, batch)
	}
	scores, errs = make([]Score, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { scores[i], errs[i] = b.score(with(i), attemptNumber(i)) })
	}
	wg.Wait()
	mu.Lock() // a request may outlive those who waited for it
	defer mu.Unlock()
	return slices.Clone(sizes), scores, errs
}

// slowly answers with the trajectory's number after a second.
func slowly(ctx context.Context, batch []*traj.Trajectory) ([]answered, error) {
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	out := make([]answered, len(batch))
	for i, t := range batch {
		var v float64
		_, _ = fmt.Sscan(t.Task.ID, &v)
		out[i].score.Value = &v
	}
	return out, nil
}

func TestWhatComesDuringARequestGoesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		sizes, scores, errs := batches(300, slowly, func(int) context.Context { return t.Context() })
		for i, s := range scores {
			if errs[i] != nil || s.Value == nil || *s.Value != float64(i) {
				t.Fatalf("%d: %+v, %v", i, s, errs[i])
			}
		}
		if took := time.Since(begun); len(sizes) > 12 || took > 4*time.Second { // 4 alone, then 64 at a time
			t.Errorf("requests of %v in %v", sizes, took)
		}
	})
}

func TestWhoeverWaitsNoLongerEndsNoRequestOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, scores, errs := batches(60, slowly, func(i int) context.Context {
			if i%2 == 0 {
				return short
			}
			return t.Context()
		})
		late := 0
		for i := range scores {
			if i%2 == 1 && (errs[i] != nil || *scores[i].Value != float64(i)) {
				t.Errorf("%d: %+v, %v", i, scores[i], errs[i])
			}
			if errs[i] != nil {
				late++
				if !errors.Is(errs[i], context.DeadlineExceeded) {
					t.Error(errs[i])
				}
			}
		}
		if late != 30 {
			t.Errorf("%d were too late, of 30", late)
		}
		// a request that nobody waits for ends
		_, _, errs = batches(9, func(ctx context.Context, _ []*traj.Trajectory) ([]answered, error) {
			<-ctx.Done()
			return nil, fmt.Errorf("the cause: %w", context.Cause(ctx))
		}, func(int) context.Context { return short })
		for _, err := range errs {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
	})
}

func TestAPanicOfARequestEndsNobodyElses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		_, scores, errs := batches(1, func(ctx context.Context, batch []*traj.Trajectory) ([]answered, error) {
			if first {
				first = false
				panic("oh")
			}
			return slowly(ctx, batch)
		}, func(int) context.Context { return t.Context() })
		if errs[0] == nil || scores[0].Value != nil {
			t.Error(scores, errs)
		}
	})
}

// queuing is a context that calls queued when somebody begins to wait for its end: a batcher
// does so when the trajectory is in its queue.
type queuing struct {
	context.Context
	queued func()
}

func (c queuing) Done() <-chan struct{} {
	c.queued()
	return c.Context.Done()
}

// rewarder is a server that scores by the number in a reply, when ready is closed; one says
// what is wrong with the number i.
func rewarder(t *testing.T, ready <-chan struct{}, atMost int, one func(i string) (reward string, status int)) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Query []string
			IDs   []string `json:"task_ids"`
		}
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Error(err)
		}
		<-ready
		if len(q.Query) > atMost {
			fmt.Fprint(w, `{"rewards":[1]}`)
			return
		}
		var rewards []string
		for _, id := range q.IDs {
			x, status := one(id)
			if status != 0 {
				w.WriteHeader(status)
				return
			}
			rewards = append(rewards, x)
		}
		fmt.Fprintf(w, `{"rewards":[%s],"extra_logs":{"n":[%s]}}`, strings.Join(rewards, ","), strings.Join(q.IDs, ","))
	}))
	t.Cleanup(s.Close)
	return s
}

func TestOneBadQueryEndsNoOther(t *testing.T) {
	for name, c := range map[string]struct {
		atMost int
		one    func(string) (string, int)
		is     error
	}{
		"null":    {1000, func(i string) (string, int) { return map[bool]string{true: "null", false: i}[i == "17"], 0 }, remote.ErrProtocol},
		"refused": {1000, func(i string) (string, int) { return i, map[bool]int{true: 422}[i == "17"] }, nil},
		"a server that takes one at a time": {1, func(i string) (string, int) {
			return map[bool]string{true: "null", false: i}[i == "17"], 0
		}, remote.ErrProtocol},
	} {
		ready := make(chan struct{}) // all are in the queue, or asked about
		r := remoteSoon(t, rewarder(t, ready, c.atMost, c.one).URL)
		var wg, queue sync.WaitGroup
		queue.Add(40)
		go func() { queue.Wait(); close(ready) }()
		for i := range 40 {
			wg.Go(func() {
				s, err := r.Score(queuing{t.Context(), sync.OnceFunc(queue.Done)}, attemptNumber(i))
				switch {
				case i == 17 && (err == nil || c.is != nil && !errors.Is(err, c.is)):
					t.Errorf("%s: %+v, %v", name, s, err)
				case i != 17 && (err != nil || *s.Value != float64(i) || s.Parts[0].Value != float64(i)):
					t.Errorf("%s: %d: %+v, %v", name, i, s, err)
				}
			})
		}
		wg.Wait()
	}
}
