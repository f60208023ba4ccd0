package serve

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"agentcli/internal/safego"
	"agentcli/internal/text"
	"agentcli/model/tokenizer"
	"agentcli/policy"
	"agentcli/traj"
)

// queue holds what the engine has drawn until the handler takes it: a client that reads slowly
// holds up nobody else.
type queue struct {
	mu     sync.Mutex
	tokens []policy.Token
	wake   chan struct{}
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

func (q *queue) put(t policy.Token) {
	q.mu.Lock()
	q.tokens = append(q.tokens, t)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) take() []policy.Token {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := q.tokens
	q.tokens = nil
	return out
}

// ask has the engine answer. each, where it is not nil, is given the tokens as they come, all of
// them before ask returns.
func (s *server) ask(ctx context.Context, r *policy.Request, each func([]policy.Token) error) (*policy.Reply, error) {
	begin := time.Now()
	var first sync.Once
	var q *queue
	if each != nil {
		q = newQueue()
	}
	r.Emit = func(t policy.Token) {
		first.Do(func() { s.metrics.first(time.Since(begin)) })
		if q != nil {
			q.put(t)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		reply *policy.Reply
		err   error
	}
	done := make(chan result, 1)
	go func() {
		var out result
		defer func() { done <- out }()
		defer safego.Into(&out.err)
		out.reply, out.err = s.engine.Ask(ctx, r)
	}()
	var out result
	for waiting := true; waiting; {
		var wake chan struct{}
		if q != nil {
			wake = q.wake
		}
		select {
		case out = <-done:
			waiting = false
		case <-wake:
		}
		if q == nil {
			continue
		}
		if tokens := q.take(); len(tokens) > 0 {
			if err := each(tokens); err != nil { // the client has gone
				cancel()
				if waiting {
					<-done
				}
				return nil, err
			}
		}
	}
	if out.err == nil {
		s.metrics.ended(out.reply, time.Since(begin))
	}
	return out.reply, out.err
}

// writing makes text of tokens as they come. What may be the beginning of a stop string is held
// back; a stop string and what is behind it are cut off.
type writing struct {
	stream  *tokenizer.Stream
	stops   []string
	include bool // the stop string stays
	ends    map[int32]bool
	text    string // that is not given yet
	stopped bool
}

func (s *server) writing(d *drawing, skipSpecial bool) *writing {
	w := &writing{stream: s.facts.Tokenizer.NewStream(skipSpecial), include: d.IncludeStop, ends: map[int32]bool{}}
	for _, stop := range d.Stop {
		if stop != "" {
			w.stops = append(w.stops, stop)
		}
	}
	if !d.IgnoreEnd {
		for _, id := range slices.Concat(s.facts.EndIDs, d.StopIDs) {
			w.ends[id] = true
		}
	}
	return w
}

// add takes a token and gives the text that is certain now.
func (w *writing) add(id int32) string {
	if !w.ends[id] {
		w.text += w.stream.Add(id)
	}
	return w.upTo(len(w.text) - w.held())
}

// held is how many bytes at the end may be the beginning of a stop string.
func (w *writing) held() int {
	most := 0
	for _, stop := range w.stops {
		most = max(most, text.Overlap(w.text, stop))
	}
	return most
}

func (w *writing) upTo(n int) string {
	if w.stopped {
		return ""
	}
	if at, stop := text.FirstOf(w.text, w.stops); at >= 0 {
		if n, w.stopped = at, true; w.include {
			n += len(stop)
		}
	}
	out := w.text[:n]
	w.text = w.text[n:]
	return out
}

// rest is the text that is left when the reply has ended.
func (w *writing) rest() string {
	w.text += w.stream.Flush()
	return w.upTo(len(w.text))
}

// whole is the text of a reply.
func (s *server) whole(d *drawing, ids []int32) string {
	w := s.writing(d, d.skips())
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(w.add(id))
	}
	return b.String() + w.rest()
}

// piece is a token's text on its own, or its number.
func (s *server) piece(id int32, asID bool) string {
	if asID {
		return "token_id:" + strconv.Itoa(int(id))
	}
	return s.facts.Tokenizer.Decode([]int32{id}, false)
}

// stopReason is what vLLM says ended a reply: a stop string, an id that the request named, or
// null.
func stopReason(c *traj.Completion, d *drawing) any {
	switch {
	case c.StopString != "":
		return c.StopString
	case c.Ended && slices.Contains(d.StopIDs, c.IDs[len(c.IDs)-1]):
		return c.IDs[len(c.IDs)-1]
	}
	return nil
}

// logprob is a number for JSON, which has no infinity: vLLM's −9999 in its place.
func logprob(lp traj.Logprob) float64 { return max(float64(lp), -9999) }

// bytesOf are a text's bytes as numbers.
func bytesOf(s string) []int {
	out := make([]int, len(s))
	for i := range len(s) {
		out[i] = int(s[i])
	}
	return out
}

// promptLogprobs are vLLM's: for each id of the prompt but the first, its own and the most
// probable ones with their ranks.
func (s *server) promptLogprobs(prompt []policy.Token) []any {
	out := make([]any, len(prompt))
	for i, t := range prompt {
		if i == 0 {
			continue
		}
		at, own := map[string]any{}, false
		entry := func(id int32, lp traj.Logprob, rank int) {
			at[strconv.Itoa(int(id))] = map[string]any{"logprob": logprob(lp), "rank": rank, "decoded_token": s.piece(id, false)}
		}
		for k, x := range t.Top {
			entry(x.ID, x.Logprob, k+1)
			own = own || x.ID == t.ID
		}
		if !own {
			entry(t.ID, t.Logprob, len(t.Top)+1) // at least
		}
		out[i] = at
	}
	return out
}

// versions adds the versions of the weights to an answer: the oldest, and where there are
// several, each token's.
func versions(to map[string]any, tokens []policy.Token, now int64) {
	to["policy_version"] = now
	if len(tokens) == 0 {
		return
	}
	first, several := tokens[0].Version, false
	all := make([]int64, len(tokens))
	for i, t := range tokens {
		all[i] = t.Version
		several = several || t.Version != first
	}
	to["policy_version"] = slices.Min(all)
	if several {
		to["token_versions"] = all
	}
}

// idsOf are the ids of tokens.
func idsOf(tokens []policy.Token) []int32 {
	out := make([]int32, len(tokens))
	for i, t := range tokens {
		out[i] = t.ID
	}
	return out
}
