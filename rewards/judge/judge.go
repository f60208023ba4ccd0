// Package judge has a language model grade replies (LLM as a judge: Zheng et al., arXiv
// 2306.05685). It is in layer 1 and imports traj and internal packages only; the model is
// an interface.
package judge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"agentcli/internal/text"
	"agentcli/traj"

	"golang.org/x/sync/singleflight"
)

// Verdicts of a Grade.
const (
	Right     = "right"
	Wrong     = "wrong"
	NoAnswer  = "no_answer" // the reply did not attempt one
	Undecided = "undecided" // as many votes for one verdict as for another
)

// ErrUnreadable is in the error of a judge whose replies name no verdict and no score.
var ErrUnreadable = errors.New("the judge's reply has no verdict that can be read")

// Model is what is asked: llm.Client is one.
type Model interface {
	Generate(ctx context.Context, r *traj.Request) (*traj.Response, error)
}

// Config of a Judge.
type Config struct {
	Model  Model
	Name   string // of the model; the cache keeps its replies apart from those of others
	Rubric Rubric // the zero value: the first of Rubrics, and of WithDefault the one that it names
	Votes  int    // replies for a grade; 0: 1. One is greedy, several are sampled at temperature 1
	Cache  string // folder of the replies that were given; "": none
}

// Judge grades replies. It is safe for concurrent use.
type Judge struct {
	c     Config
	given bool // whoever made it named the rubric
	*asked
}

// asked is what judges of one model with several rubrics share.
type asked struct {
	cache cache
	same  singleflight.Group // questions that are asked at this moment
	mu    sync.Mutex
	usage Usage
}

// Usage is what a judge was asked so far.
type Usage struct {
	Replies     int // of the judge, those of the cache included
	Cached      int // of them from the cache
	Prompt, Out int // tokens of the others
	Pairs       int // pairs that were judged in both orders
	Flipped     int // of them: another verdict for another order
}

// New makes a judge.
func New(c Config) (*Judge, error) {
	if c.Votes == 0 {
		c.Votes = 1
	}
	if c.Votes < 0 || c.Votes > maxVotes {
		return nil, fmt.Errorf("a judge has %d votes; want 1 to %d", c.Votes, maxVotes)
	}
	given := c.Rubric.text != ""
	if !given {
		c.Rubric = builtin[0]
	}
	return &Judge{c, given, &asked{cache: cache{c.Cache}}}, nil
}

// WithDefault is the judge with a built-in rubric, where none was named. Both ask the same
// model, and Usage of either counts both. It is nil for nil.
func (j *Judge) WithDefault(rubric string) *Judge {
	i := slices.IndexFunc(builtin, func(r Rubric) bool { return r.Name == rubric })
	if j == nil || j.given || i < 0 {
		return j
	}
	other := *j
	other.c.Rubric = builtin[i]
	return &other
}

// Limits of a judge.
const (
	maxVotes   = 101
	tries      = 3       // replies that are asked for until one can be read
	maxTokens  = 4096    // of a judge's reply
	maxBytes   = 100_000 // of a text that is judged; the middle of a longer one is left out
	maxAnswers = 100     // gold answers that are shown
)

// NeedsAnswer reports whether its rubric compares with gold answers.
func (j *Judge) NeedsAnswer() bool { return j.c.Rubric.NeedsAnswer() }

// Usage tells what the judge was asked so far.
func (j *Judge) Usage() Usage {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.usage
}

// Attempt is what is to be graded.
type Attempt struct {
	Question string
	Answers  []string // gold; the rubric says what they are for
	Reply    string
}

// Grade is what the votes come to.
type Grade struct {
	Value     float64 // in [0, 1]
	Verdict   string  // "" of a rubric that asks for scores
	Agreement float64 // share of the votes that the grade rests on; 1 of scores
}

// Grade grades one reply. Its errors are the model's and ErrUnreadable; a reply without
// text has no answer, and the model is not asked.
func (j *Judge) Grade(ctx context.Context, a Attempt) (Grade, error) {
	if strings.TrimSpace(a.Reply) == "" {
		return Grade{Verdict: NoAnswer, Agreement: 1}, nil
	}
	if j.c.Rubric.pair {
		return j.gradePair(ctx, a)
	}
	prompt := j.c.Rubric.prompt(a)
	votes := tally{of: j.c.Votes}
	for i := 0; i < j.c.Votes && !votes.settled(); i++ {
		o, err := j.vote(ctx, prompt, i)
		if err != nil {
			return Grade{}, err
		}
		votes.add(o)
	}
	return votes.grade(), nil
}

// gradePair compares the reply with the reference, the first gold answer, in both orders:
// models prefer what stands first (arXiv 2306.05685, section 3.3). Only a verdict that
// does not depend on the order counts; otherwise it is a tie.
func (j *Judge) gradePair(ctx context.Context, a Attempt) (Grade, error) {
	if len(a.Answers) == 0 {
		return Grade{}, fmt.Errorf("the rubric %s compares a reply with a reference, and there is none", j.c.Rubric.Name)
	}
	var sum float64
	agreed := 0
	for i := range j.c.Votes {
		first, err := j.vote(ctx, j.c.Rubric.pairPrompt(a.Question, a.Reply, a.Answers[0]), i)
		if err != nil {
			return Grade{}, err
		}
		second, err := j.vote(ctx, j.c.Rubric.pairPrompt(a.Question, a.Answers[0], a.Reply), i)
		if err != nil {
			return Grade{}, err
		}
		won, swapped := first.value, 1-second.value // of the reply
		flipped := won != swapped
		if flipped {
			won = .5
		} else {
			agreed++
		}
		sum += won
		j.mu.Lock()
		j.usage.Pairs++
		if flipped {
			j.usage.Flipped++
		}
		j.mu.Unlock()
	}
	n := float64(j.c.Votes)
	return Grade{Value: sum / n, Agreement: float64(agreed) / n}, nil
}

// vote is one reply of the judge's that can be read.
func (j *Judge) vote(ctx context.Context, prompt string, vote int) (opinion, error) {
	last := ""
	for try := range tries {
		r, err := j.ask(ctx, prompt, int64(vote+try*maxVotes), j.c.Votes > 1 || try > 0)
		if err != nil {
			return opinion{}, err
		}
		if o, ok := j.c.Rubric.read(r); ok {
			return o, nil
		}
		last = r
	}
	return opinion{}, fmt.Errorf("%w: want a last line like %q, got %q (%d times)", ErrUnreadable, j.c.Rubric.example(),
		text.Harmless(text.Cut(text.OneLine(tail(last)), 120)), tries)
}

// tail is the end of a reply, where the verdict was to be.
func tail(reply string) string {
	const n = 400
	if len(reply) > n {
		reply = "…" + strings.ToValidUTF8(reply[len(reply)-n:], "")
	}
	return reply
}

// ask is the model's reply, or the one that it gave before. Attempts of one group often
// end alike: the same question that comes meanwhile waits for the same reply.
func (j *Judge) ask(ctx context.Context, prompt string, seed int64, sampled bool) (string, error) {
	temperature := 0.
	if sampled {
		temperature = 1
	}
	k := key(j.c.Name, prompt, seed, temperature)
	for {
		mine := false
		reply, err, _ := j.same.Do(k, func() (any, error) {
			mine = true
			return j.generate(ctx, k, prompt, seed, temperature)
		})
		if err == nil {
			if !mine {
				j.count(Usage{Replies: 1, Cached: 1})
			}
			return reply.(string), nil
		}
		ended := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
		if mine || ctx.Err() != nil || !ended { // else whoever asked had less time than we
			return "", err
		}
	}
}

func (j *Judge) generate(ctx context.Context, key, prompt string, seed int64, temperature float64) (string, error) {
	if reply, ok := j.cache.get(key); ok {
		j.count(Usage{Replies: 1, Cached: 1})
		return reply, nil
	}
	resp, err := j.c.Model.Generate(ctx, &traj.Request{
		Messages: []traj.Message{{Role: traj.RoleUser, Content: prompt}},
		Sampling: traj.Sampling{Temperature: &temperature, MaxTokens: maxTokens}, Seed: seed})
	if err != nil {
		return "", err
	}
	j.count(Usage{Replies: 1, Prompt: resp.PromptTokens, Out: resp.OutputTokens})
	return resp.Message.Content, j.cache.put(key, resp.Message.Content)
}

func (j *Judge) count(u Usage) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.usage.Replies += u.Replies
	j.usage.Cached += u.Cached
	j.usage.Prompt += u.Prompt
	j.usage.Out += u.Out
}

// tally counts votes.
type tally struct {
	of    int // votes in all
	cast  int
	sum   float64
	names map[string]int
}

func (t *tally) add(o opinion) {
	if t.names == nil {
		t.names = map[string]int{}
	}
	t.cast++
	t.sum += o.value
	t.names[o.verdict]++
}

// leader is the verdict with the most votes, and how many more it has than the next; ""
// where two share the most.
func (t *tally) leader() (verdict string, votes, ahead int) {
	second := 0
	for v, n := range t.names {
		switch {
		case n > votes:
			verdict, second, votes = v, votes, n
		case n > second:
			second = n
		}
	}
	if votes == second {
		verdict = ""
	}
	return verdict, votes, votes - second
}

// settled reports whether no further vote can change the verdict. Of scores each counts.
func (t *tally) settled() bool {
	if t.cast == 0 || t.names[""] > 0 {
		return false
	}
	_, _, ahead := t.leader()
	return ahead > t.of-t.cast
}

func (t *tally) grade() Grade {
	if t.names[""] > 0 { // scores
		return Grade{Value: t.sum / float64(t.cast), Agreement: 1}
	}
	verdict, votes, _ := t.leader()
	g := Grade{Verdict: verdict, Agreement: float64(votes) / float64(t.cast)}
	switch verdict {
	case Right:
		g.Value = 1
	case "":
		g.Verdict = Undecided
	}
	return g
}
