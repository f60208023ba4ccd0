//go:build libtorch

package policy

import (
	"context"
	"strings"

	"agentcli/internal/torch"
	"agentcli/model/tokenizer"
	"agentcli/traj"
)

// sequence is one request on its way.
type sequence struct {
	ctx      context.Context
	number   int64   // in the order of submission
	ids      []int32 // prompt and what was sampled
	images   []Image // of the prompt
	at       positions
	shift    int32 // of later positions against their indices
	prompt   int
	sampling torch.SampleRow
	seed     int64
	maxNew   int
	stopIDs  map[int32]bool
	stop     []string
	stream   *tokenizer.Stream // of the sampled text, only where there are stop strings
	text     string
	tokens   []Token

	adapterName string
	adapter     *servedAdapter // nil: the model as it is

	priority int
	salt     string
	top      int
	grammar  Grammar
	emit     func(Token)
	drafts   drafter

	blocks []int32
	cached int    // tokens whose keys and values are in the cache
	hit    int    // tokens of the prompt that were found there at first
	begun  bool   // hit is known
	sealed int    // full blocks that can be shared
	hash   uint64 // of the last sealed block
	state  stateUse

	out  *Reply
	err  error
	done chan struct{}
}

func newSequence(ctx context.Context, p *Policy, r *Request, room int) *sequence {
	ids, o := r.Prompt.IDs, r.Sampling
	q := &sequence{ctx: ctx, ids: append(make([]int32, 0, len(ids)+64), ids...), prompt: len(ids), seed: r.Seed, maxNew: room,
		adapterName: r.Adapter, priority: r.Priority, top: r.Top, grammar: r.Grammar, emit: r.Emit,
		stopIDs: map[int32]bool{}, done: make(chan struct{})}
	q.sampling = torch.SampleRow{Temperature: 1, TopP: o.TopP, MinP: o.MinP, TopK: int64(o.TopK)}
	if o.Temperature != nil {
		q.sampling.Temperature = *o.Temperature
	}
	if r.Salt != "" {
		q.salt = "salt " + r.Salt // an adapter's begins otherwise
	}
	if p.cfg.SampledLogprobs {
		q.sampling.Tempered = 1
	}
	if o.MaxTokens > 0 && o.MaxTokens < room {
		q.maxNew = o.MaxTokens
	}
	if !r.IgnoreEnd {
		for _, id := range endIDs(p) {
			q.stopIDs[id] = true
		}
		for _, id := range o.StopIDs {
			q.stopIDs[id] = true
		}
	}
	for _, s := range o.Stop {
		if s != "" {
			q.stop = append(q.stop, s)
		}
	}
	if len(q.stop) > 0 {
		q.stream = p.tok.NewStream(true)
	}
	if len(r.Prompt.Images) > 0 {
		merge := p.model.Vision.MergeSide()
		q.images, q.at, q.shift = r.Prompt.Images, positionsOf(len(ids), r.Prompt.Images, merge), after(r.Prompt.Images, merge)
	}
	return q
}

// tag tells the keys and values of the tokens from..to-1 apart from others of the same ids.
func (q *sequence) tag(from, to int) string { return q.salt + tagOf(q.images, from, to) }

// reply is what there is so far.
func (q *sequence) reply(kept *expertStore) *Reply {
	out := &Reply{Output: Output{IDs: q.ids[q.prompt:], Experts: kept.of(q)}, Tokens: q.tokens, Cached: q.hit}
	for _, t := range q.tokens {
		out.Logprobs = append(out.Logprobs, t.Logprob)
	}
	return out
}

// appendToken adds a sampled token and ends the sequence where it is done.
func appendToken(sc *scheduler, q *sequence, t Token) (done bool) {
	q.appendID(t)
	sc.load.SampledTokens++
	return processText(sc, q, t)
}

func (q *sequence) appendID(t Token) {
	q.ids = append(q.ids, t.ID)
	q.tokens = append(q.tokens, t)
}

// isComplete says that no token follows the newest one, whatever its text is.
func (q *sequence) isComplete() bool {
	return len(q.tokens) >= q.maxNew || len(q.tokens) > 0 && q.stopIDs[q.tokens[len(q.tokens)-1].ID]
}

// processText takes in the text of the newest token, and ends the sequence where it is done.
func processText(sc *scheduler, q *sequence, t Token) (done bool) {
	if q.emit != nil {
		q.emit(t)
	}
	text, stop, stopped := q.stopped(t.ID)
	ended, full := q.stopIDs[t.ID], len(q.tokens) >= q.maxNew
	if !ended && !stopped && !full {
		return false
	}
	out := q.reply(sc.experts)
	switch {
	case ended:
		out.FinishReason, out.Ended = traj.FinishStop, true
		out.Text = sc.p.tok.Decode(out.IDs[:len(out.IDs)-1], true)
	case stopped:
		out.FinishReason, out.Text, out.StopString = traj.FinishStop, text, stop
	default:
		out.FinishReason, out.Text = traj.FinishLength, sc.p.tok.Decode(out.IDs, true)
	}
	sc.finish(q, out, nil)
	return true
}

// stopped feeds one token to the text and cuts it at the first stop string.
func (q *sequence) stopped(id int32) (before, stop string, found bool) {
	if q.stream == nil {
		return "", "", false
	}
	from := len(q.text)
	q.text += q.stream.Add(id)
	best := -1
	for _, s := range q.stop {
		// A stop string may begin in earlier text.
		at := max(0, from-len(s)+1)
		if i := strings.Index(q.text[at:], s); i >= 0 && (best < 0 || at+i < best) {
			best, stop = at+i, s
		}
	}
	if best < 0 {
		return "", "", false
	}
	return q.text[:best], stop, true
}
