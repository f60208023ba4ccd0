package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"agentcli/agent"
	"agentcli/env"
	"agentcli/model/chat"
	"agentcli/model/chat/chattest"
	"agentcli/traj"

	"pgregory.net/rapid"
)

// said is what a moody scheduler said of one turn.
type said struct {
	text     string // the reply's
	inserted string // what the environment put behind it
	next     Next
	refused  bool // of the next turn nothing is known: it was the last
}

// moody is a scheduler that does whatever it likes.
type moody struct {
	r    *rand.Rand
	said []said
}

func (m *moody) Next(_ context.Context, t Turn) (Next, error) {
	n := Next{Info: traj.Info(fmt.Sprintf(`{"turn":%d}`, t.Number))}
	if m.r.IntN(3) == 0 {
		n.Info = nil
	}
	if m.r.IntN(3) == 0 {
		reward := float64(t.Number)
		n.Reward = &reward
	}
	switch m.r.IntN(3) {
	case 0:
		n.Weights = []float64{float64(m.r.IntN(3)) / 2}
	case 1:
		for range t.Reply.SampledIDs {
			n.Weights = append(n.Weights, float64(m.r.IntN(5))/2)
		}
	}
	words := mark + babble[m.r.IntN(len(babble))] + mark
	answered := t.Env != nil && len(t.Env.Observation.Messages) > 0
	inReply := t.Env != nil && t.Env.Observation.Continue != ""
	mood := m.r.IntN(10)
	switch {
	case mood == 0:
		n.Stop = traj.EnvDone
	case mood < 4 && !inReply:
		n.Messages = []traj.Message{{Role: traj.RoleUser, Content: words}}
	case mood < 5:
		n.History = []traj.Message{{Role: traj.RoleUser, Content: "Who " + words}, {Role: traj.RoleAssistant, Content: "Nobody."},
			{Role: traj.RoleUser, Content: words}}
	case mood < 6 && !answered:
		n.Continue = words
	case !answered && !inReply && t.Text != "":
		at := 1 + m.r.IntN(len(t.Text))
		for at < len(t.Text) && !utf8.RuneStart(t.Text[at]) {
			at++
		}
		n.Cut = &at
		if m.r.IntN(3) > 0 {
			n.Continue = words
		}
	case !answered && !inReply:
		n.Stop = traj.Answered
	}
	was := said{text: t.Text, next: n, refused: t.Last}
	if inReply {
		was.inserted = t.Env.Observation.Continue
	}
	m.said = append(m.said, was)
	return n, nil
}

// quiet is a server that returns ids, and whose tokens nobody can tell apart.
type quiet struct{ agent.Model }

// drawn is a random conversation whose course a scheduler decides.
type drawn struct {
	family   string
	renderer chat.Renderer
	parser   *chat.Parser // nil: the renderer's
	babbler  *babbler
	seed     int64
	insert   bool // the environment goes on with the model's own replies
}

func drawScheduled(t *rapid.T) *drawn {
	d := &drawn{family: rapid.SampledFrom(chat.Families()).Draw(t, "family")}
	parser := rapid.SampledFrom([]string{"", "hermes", "search", "none"}).Draw(t, "parser")
	d.seed = rapid.Int64().Draw(t, "seed")
	d.insert = rapid.Bool().Draw(t, "insert")
	var tok chattest.Tokenizer
	var err error
	if d.renderer, err = chat.For(d.family, tok); err != nil {
		t.Fatal(err)
	}
	if parser != "" {
		if d.parser, err = chat.ParserFor(parser, someTools); err != nil {
			t.Fatal(err)
		}
	}
	d.babbler = &babbler{tok: tok, stops: d.renderer.StopIDs(), drew: map[int64]sampled{}}
	return d
}

// play has three attempts played by a model, and each checked.
func (d *drawn) play(t *rapid.T, asked agent.Model, check func(*rapid.T, *traj.Trajectory, *moody)) {
	n := 0
	var moods []*moody
	e, err := New(Config{Model: asked, Seed: d.seed, Samples: 3, MaxTurns: 6, Sampling: traj.Sampling{Stop: stopStrings}, Parallel: 1,
		NewAgent: func(traj.Task) (agent.Agent, error) { return stubborn{agent.New(someTools)}, nil },
		NewEnv: func(traj.Task) (env.Environment, error) {
			n++
			return &whim{r: rand.New(rand.NewPCG(uint64(d.seed), uint64(n))), insert: d.insert, quiet: n%2 == 0, inserted: map[int]string{}}, nil
		},
		NewScheduler: func(traj.Task) (Scheduler, error) {
			m := &moody{r: rand.New(rand.NewPCG(uint64(d.seed), uint64(100+n)))}
			moods = append(moods, m)
			return m, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	task := traj.Task{ID: "t", Messages: []traj.Message{{Role: traj.RoleUser, Content: "Who " + mark + "?"}}}
	i := 0
	_, err = e.Run(context.Background(), func(yield func(traj.Task, error) bool) { yield(task, nil) }, func(x *traj.Trajectory) error {
		if x.Termination.Infrastructure() && !strings.Contains(x.Error, "nothing to go on") &&
			!strings.Contains(x.Error, ErrCallsRead.Error()) {
			t.Fatalf("%s: %s", x.Termination, x.Error)
		}
		check(t, x, moods[i])
		i++
		return nil
	})
	if err != nil || i != 3 {
		t.Fatal(i, err)
	}
}

// scheduled plays random conversations whose course a scheduler decides, and holds each
// trajectory against what the model drew and what the scheduler said.
func scheduled(t *rapid.T, ask func(*babbler) (chat.Sampler, func())) {
	d := drawScheduled(t)
	kind := rapid.SampledFrom([]string{"exact", "exact", "anew", "quiet"}).Draw(t, "kind")
	sampler, done := ask(d.babbler)
	defer done()
	exact := &chat.Exact{Renderer: d.renderer, Tokenizer: d.babbler.tok, Sampler: sampler, Parser: d.parser, Policy: d.family}
	var asked agent.Model = exact
	switch kind {
	case "anew":
		asked = forgetful{exact}
	case "quiet":
		asked = quiet{exact}
	}
	d.play(t, asked, func(t *rapid.T, x *traj.Trajectory, m *moody) { d.babbler.checkScheduled(t, x, m, kind) })
}

// checkScheduled holds the ids, masks, log-probs and weights of each turn against those
// of that turn, and no other.
func (b *babbler) checkScheduled(t *rapid.T, x *traj.Trajectory, m *moody, kind string) {
	covered := make([][]bool, len(x.Sequences)) // by a step, or as what was cut off
	for i := range x.Sequences {
		if err := x.Sequences[i].Validate(); err != nil {
			t.Fatal(err)
		}
		covered[i] = make([]bool, len(x.Sequences[i].TokenIDs))
	}
	spent := 0
	for turn, step := range x.Steps {
		drew := b.drew[onTheWire(turnSeed(x.Seed, turn))]
		s := &x.Sequences[step.Sequence]
		n := step.End - step.Start
		spent += step.CompletionTokens
		drew.ids = drew.ids[:step.CompletionTokens] // the rest is behind a stop string
		if n > len(drew.ids) || !slices.Equal(s.TokenIDs[step.Start:step.End], drew.ids[:n]) || !slices.Equal(s.TokenIDs[:step.Start],
			drew.prompt) {
			t.Fatalf("turn %d: its ids are not what was drawn behind its prompt", turn)
		}
		var said said
		if turn < len(m.said) {
			said = m.said[turn]
		}
		for i := range n {
			covered[step.Sequence][step.Start+i] = true
			lp := traj.NoLogprob()
			if len(drew.logprobs) > 0 {
				lp = drew.logprobs[i]
			}
			if got := s.Logprobs[step.Start+i]; !s.LossMask[step.Start+i] || got != lp && (got.Known() || lp.Known()) {
				t.Fatalf("turn %d: token %d has another mask or log-prob", turn, i)
			}
			want := 1.0
			if k := len(said.next.Weights); k > 0 {
				want = said.next.Weights[min(i, k-1)]
			}
			if (kind == "quiet" || kind == "chat") && said.next.Cut != nil && !said.refused {
				want = 0
			}
			if got := s.Weights; got == nil && want != 1 || got != nil && got[step.Start+i] != want {
				t.Fatalf("turn %d: token %d weighs %v, the scheduler said %v", turn, i, got, want)
			}
		}
		if n < len(drew.ids) {
			b.findCut(t, x, covered, slices.Concat(drew.prompt, drew.ids), len(drew.prompt)+n)
		}
		b.checkSaid(t, x, turn, said)
		cut := said.next.Cut
		if cut == nil || said.refused || turn+1 == len(x.Steps) || kind != "exact" {
			continue
		}
		// A token that ends a reply is taken back where it is the last: what goes on is open.
		open := n
		for open > 0 && slices.Contains(b.stops, drew.ids[open-1]) {
			open--
		}
		rest := said.text[len(b.tok.Decode(drew.ids[:n], false)):*cut]
		want := b.tok.Decode(drew.ids[:open], false) + rest + said.next.Continue
		next := x.Steps[turn+1]
		got := b.tok.Decode(x.Sequences[next.Sequence].TokenIDs[step.Start:next.Start], false)
		if got != want || open == n && next.Sequence != step.Sequence {
			t.Fatalf("turn %d: the model goes on behind %q, want %q", turn, got, want)
		}
		if n < len(drew.ids) && len(b.tok.Decode(drew.ids[:n+1], false)) <= *cut && strings.HasPrefix(want, b.tok.Decode(drew.ids[:n+1], false)) {
			t.Fatalf("turn %d: token %d is wholly before the cut, and was not kept", turn, n)
		}
	}
	if spent != x.CompletionTokens {
		t.Fatalf("%d tokens were sampled, %d are counted", spent, x.CompletionTokens)
	}
	for i := range x.Sequences {
		for k, is := range x.Sequences[i].LossMask {
			if is != covered[i][k] {
				t.Fatalf("sequence %d, token %d: it is of no turn, and trained on", i, k)
			}
		}
	}
}

// checkSaid holds the info and the reward of a turn against what the scheduler said of it.
func (b *babbler) checkSaid(t *rapid.T, x *traj.Trajectory, turn int, said said) {
	var info traj.Info
	if turn < len(x.Infos) {
		info = x.Infos[turn]
	}
	if string(info) != string(said.next.Info) {
		t.Fatalf("turn %d: info %s, the scheduler said %s", turn, info, said.next.Info)
	}
	if r := said.next.Reward; r != nil && (x.Steps[turn].Reward == nil || *x.Steps[turn].Reward != *r) {
		t.Fatalf("turn %d: reward %v, the scheduler said %v", turn, x.Steps[turn].Reward, *r)
	}
}

// findCut finds the sequence that keeps what was cut off.
func (b *babbler) findCut(t *rapid.T, x *traj.Trajectory, covered [][]bool, ids []int32, from int) {
	for i := range x.Sequences {
		s := &x.Sequences[i]
		if !slices.Equal(s.TokenIDs, ids) || s.Weights == nil || slices.Max(s.Weights) > 0 || slices.Contains(covered[i], true) {
			continue
		}
		for k := from; k < len(ids); k++ {
			covered[i][k] = true
		}
		return
	}
	t.Fatalf("what was cut off is in no sequence of weight 0: %q", b.tok.Decode(ids[from:], false))
}

func TestASchedulersTurnsAreTheirOwnInRandomConversations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scheduled(t, func(b *babbler) (chat.Sampler, func()) { return b, func() {} })
	})
}

func TestASchedulersTurnsAreTheirOwnOverAServer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { scheduled(t, completionsServer(t)) })
}
