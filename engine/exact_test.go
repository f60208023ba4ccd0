package engine

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentcli/agent"
	"agentcli/env"
	"agentcli/llm"
	"agentcli/llm/llmtest"
	"agentcli/model/chat"
	"agentcli/model/chat/chattest"
	"agentcli/traj"

	"pgregory.net/rapid"
)

// mark stands in every text of an environment, and a model never writes it.
const mark = "\ue000"

var stopStrings = []string{"</search>", "§"}

// sampled is what a model drew, and after what.
type sampled struct {
	prompt, ids []int32
	logprobs    []traj.Logprob
	over        bool // it went on behind a stop string
}

// babbler is a model that draws tokens at random: calls, thinking, several of
// them, other alphabets, none of it encoded as a tokenizer would. By the seed it
// is known what it drew.
type babbler struct {
	tok   chattest.Tokenizer
	stops []int32
	mu    sync.Mutex
	drew  map[int64]sampled

	stopsAlways bool // at stop strings; else it goes on behind some
}

var babble = []string{"a word ", "世界 ", "é👋", "\n", "<think>hm, ", "</think>\n", "<think>\nlet me see\n</think>\n\n",
	"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"ü 1\"}}\n</tool_call>", "<tool_call>\n{\"name\": \"f\", \"argu", "</tool_call>",
	`{"name": "f", "parameters": {"x": "2"}}`, "<search>who</search>", "§", "</sea", "<|im_end|>", "\\boxed{84}", "  "}

func (b *babbler) Sample(_ context.Context, prompt []int32, s traj.Sampling, seed int64) (*traj.Completion, error) {
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	c := &traj.Completion{FinishReason: traj.FinishStop}
	if r.IntN(4) > 0 { // else an empty reply ends most conversations at once
		c.IDs = b.carelessly(r, babble[0])
	}
	for range 1 + r.IntN(6) {
		piece := babble[r.IntN(len(babble))]
		if strings.HasPrefix(piece, "<tool_call>\n{\"name\": \"f\", \"arguments") || r.IntN(3) > 0 {
			c.IDs = append(c.IDs, b.carelessly(r, piece)...)
		} else {
			c.IDs = append(c.IDs, int32(r.IntN(b.tok.Vocabulary())))
		}
	}
	text := b.tok.Decode(c.IDs, false)
	stopped := slices.ContainsFunc(s.Stop, func(stop string) bool { return strings.Contains(text, stop) })
	switch {
	case stopped && (r.IntN(2) == 0 || b.stopsAlways): // as a server that looks for stop strings: it ends with the token that completes one
		n := 1
		for !slices.ContainsFunc(s.Stop, func(stop string) bool { return strings.Contains(b.tok.Decode(c.IDs[:n], false), stop) }) {
			n++
		}
		c.IDs = c.IDs[:n]
		stopped = false
	case r.IntN(12) == 0:
		c.FinishReason = traj.FinishLength
	default:
		c.IDs = append(c.IDs, b.stops[r.IntN(len(b.stops))])
		c.Ended = r.IntN(2) == 0 // not every server says so
	}
	for range c.IDs {
		lp := traj.Logprob(-r.ExpFloat64())
		if r.IntN(20) == 0 {
			lp = traj.NoLogprob()
		}
		c.Logprobs = append(c.Logprobs, lp)
	}
	if r.IntN(8) == 0 {
		c.Logprobs = nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drew[onTheWire(seed)] = sampled{slices.Clone(prompt), slices.Clone(c.IDs), slices.Clone(c.Logprobs), stopped}
	return c, nil
}

// onTheWire is a seed as servers are sent it.
func onTheWire(seed int64) int64 { return (seed ^ seed>>32) & math.MaxInt32 }

// serve is the babbler as a server.
func (b *babbler) serve(r *llmtest.Request) llmtest.Reply {
	var s traj.Sampling
	_ = json.Unmarshal(r.Fields["stop"], &s.Stop)
	c, err := b.Sample(context.Background(), r.Prompt, s, r.Int("seed")+r.Int("sampling_seed"))
	if err != nil {
		return llmtest.Reply{Status: 500, Error: err.Error()}
	}
	reply := llmtest.Reply{IDs: c.IDs, Content: b.tok.Decode(c.IDs, true), Finish: c.FinishReason}
	if c.Ended {
		reply.Stop = c.IDs[len(c.IDs)-1]
	}
	for _, lp := range c.Logprobs {
		x := -9999.0 // as vLLM writes what is no number
		if lp.Known() {
			x = float64(lp)
		}
		reply.Logprobs = append(reply.Logprobs, x)
	}
	return reply
}

// carelessly encodes a text, tokens of the formats and pairs sometimes as bytes.
func (b *babbler) carelessly(r *rand.Rand, s string) (ids []int32) {
	for len(s) > 0 {
		one := b.tok.EncodeOrdinary(s)[0]
		text := b.tok.Decode([]int32{one}, false)
		if r.IntN(2) == 0 && (len(text) == 2 || strings.HasPrefix(text, "<")) || len(text) > len(s) || !strings.HasPrefix(s, text) {
			one, text = int32(s[0]), s[:1]
		}
		ids, s = append(ids, one), s[len(text):]
	}
	return ids
}

// whim is an environment that answers with whatever it likes.
type whim struct {
	r        *rand.Rand
	insert   bool // it goes on with the model's own replies now and then
	quiet    bool // it says nothing but to calls
	turn     int
	asked    int
	answered int
	inserted map[int]string // behind the reply of that turn
}

func (w *whim) Reset(_ context.Context, t traj.Task) (traj.Observation, error) {
	return traj.Observation{Messages: t.Messages}, nil
}
func (w *whim) Close() error { return nil }

func (w *whim) Step(_ context.Context, a traj.Action) (env.Result, error) {
	var o traj.Observation
	defer func() { w.turn++ }()
	text := func() string {
		return mark + babble[w.r.IntN(len(babble))] + mark + babble[w.r.IntN(len(babble))] + mark
	}
	switch {
	case w.insert && w.r.IntN(3) == 0:
		o.Continue = text()
		w.inserted[w.turn] = o.Continue
	case len(a.ToolCalls)+len(a.CallErrors) > 0 && w.r.IntN(4) > 0:
		w.answered++
		for _, c := range a.ToolCalls {
			o.Messages = append(o.Messages, traj.Message{Role: traj.RoleTool, Name: c.Name, ToolCallID: c.ID, Content: text()})
		}
		for range a.CallErrors {
			o.Messages = append(o.Messages, traj.Message{Role: traj.RoleTool, Content: text()})
		}
	case w.quiet:
	default:
		w.asked++
		o.Messages = []traj.Message{{Role: traj.RoleUser, Content: text()}}
	}
	return env.Result{Observation: o, Done: w.r.IntN(8) == 0}, nil
}

// forgetful is a server that makes ids of the text anew for every request.
type forgetful struct{ *chat.Exact }

func (f forgetful) Generate(ctx context.Context, req *traj.Request) (*traj.Response, error) {
	r := *req
	r.PrefixIDs, r.PrefixMessages, r.Inserted = nil, 0, ""
	return f.Exact.Generate(ctx, &r)
}

// stubborn never takes a reply for the last one.
type stubborn struct{ *agent.ToolAgent }

func (s stubborn) Update(r *traj.Response) traj.Action {
	a := s.ToolAgent.Update(r)
	return traj.Action{ToolCalls: a.ToolCalls, CallErrors: a.CallErrors}
}

var someTools = []traj.ToolSpec{
	{Name: "f", Description: "does it", Parameters: json.RawMessage(`{"type":"object","properties":{"x":{"type":"string"}}}`)}}

// conversations plays random ones in a chat format, and holds each trajectory
// against what the model drew.
func conversations(t *rapid.T) {
	converse(t, func(b *babbler) (chat.Sampler, func()) { return b, func() {} })
}

// conversationsOverAServer are the same, with the tokens going over the wire.
func conversationsOverAServer(t *rapid.T) {
	converse(t, completionsServer(t))
}

// completionsServer gives the babbler as a server of one kind.
func completionsServer(t *rapid.T) func(*babbler) (chat.Sampler, func()) {
	o := llmtest.Options{Completions: true, SGLang: rapid.Bool().Draw(t, "sglang"), Incremental: rapid.Bool().Draw(t, "incremental")}
	stream := rapid.Bool().Draw(t, "stream")
	return func(b *babbler) (chat.Sampler, func()) {
		s := llmtest.StartWith(o, b.serve)
		c, err := llm.New(llm.Config{BaseURL: s.BaseURL(), Model: "m", WantIDs: true, Stream: stream})
		if err != nil {
			t.Fatal(err)
		}
		return &llm.Tokens{Client: c, SGLang: o.SGLang, Window: 1 << 20, Stops: b.stops}, func() { _ = c.Close(); s.Close() }
	}
}

// templates of the corpus of model/chat are rendered as any template is. Those of
// keeping leave as they are what came before, thinking too.
var (
	templates = []string{"template qwen3", "template qwen2_5", "template qwen3_instruct_2507", "template qwen3_8", "template qwen3_5_nothink",
		"template lfm2_v2", "template lfm2_2_5", "template gemma4_v5", "template glm4moe", "template phi3_5", "template llama3",
		"template nemotron_3_nano", "template deepseek_r1_distill"}
	keeping = []string{"template qwen2_5", "template qwen3_instruct_2507", "template llama3"}
)

var readTemplates = sync.OnceValues(func() (map[string]string, error) {
	file, err := os.Open("../model/chat/testdata/corpus.json.gz")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	var corpus struct {
		Templates map[string]struct {
			Template string `json:"template"`
		} `json:"templates"`
	}
	if err := json.NewDecoder(z).Decode(&corpus); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name, t := range corpus.Templates {
		out["template "+name] = t.Template
	}
	return out, nil
})

var renderersOf sync.Map // of templates: probing takes a while

// rendererOf is the renderer of a family, or of a template.
func rendererOf(family string) (chat.Renderer, chattest.Tokenizer, error) {
	var tok chattest.Tokenizer
	if !slices.Contains(templates, family) {
		r, err := chat.For(family, tok)
		return r, tok, err
	}
	all, err := readTemplates()
	if err != nil {
		return nil, tok, err
	}
	tok.More = []string{"<|turn>", "<turn|>", "<|tool_response>", "<tool_response|>", "<|tool_call>", "<tool_call|>",
		"<|tool>", "<tool|>", `<|"|>`,
		"<|user|>", "<|assistant|>", "<|system|>", "<|observation|>", "<|end|>", "<|tool_call_start|>", "<|tool_call_end|>",
		"<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "<s>", "</s>"}
	tok.Begins, tok.Ends = "<s>", "</s>"
	if r, ok := renderersOf.Load(family); ok {
		return r.(chat.Renderer), tok, nil
	}
	r, err := chat.FromTemplate(all[family], tok)
	if err == nil {
		renderersOf.Store(family, r)
	}
	return r, tok, err
}

func converse(t *rapid.T, ask func(*babbler) (chat.Sampler, func())) {
	family := rapid.SampledFrom(append(chat.Families(), templates...)).Draw(t, "family")
	parser := rapid.SampledFrom([]string{"", "hermes", "llama3-json", "search", "react", "none"}).Draw(t, "parser")
	seed := rapid.Int64().Draw(t, "seed")
	insert := rapid.Bool().Draw(t, "insert")
	anew := rapid.IntRange(0, 3).Draw(t, "anew") == 0
	r, tok, err := rendererOf(family)
	if err != nil {
		t.Fatal(err)
	}
	model := &babbler{tok: tok, stops: r.StopIDs(), drew: map[int64]sampled{}}
	sampler, done := ask(model)
	defer done()
	exact := &chat.Exact{Renderer: r, Tokenizer: tok, Sampler: sampler, Policy: family}
	if parser != "" {
		if exact.Parser, err = chat.ParserFor(parser, someTools); err != nil {
			t.Fatal(err)
		}
	}
	var asked agent.Model = exact
	if anew {
		asked = forgetful{exact}
	}
	var mu sync.Mutex
	worlds := map[string]*whim{}
	n := 0
	c := Config{Model: asked, Seed: seed, Samples: 3, MaxTurns: 9, Sampling: traj.Sampling{Stop: stopStrings},
		NewAgent: func(traj.Task) (agent.Agent, error) { return stubborn{agent.New(someTools)}, nil },
		NewEnv: func(task traj.Task) (env.Environment, error) {
			mu.Lock()
			defer mu.Unlock()
			w := &whim{r: rand.New(rand.NewPCG(uint64(seed), uint64(n))), insert: insert, inserted: map[int]string{}}
			worlds[fmt.Sprintf("%s#%d", task.ID, n)] = w
			n++
			return w, nil
		},
		Parallel: 1, // so the worlds are numbered as the attempts are
	}
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	task := traj.Task{ID: "t", Messages: []traj.Message{{Role: traj.RoleSystem, Content: "Be " + mark},
		{Role: traj.RoleUser, Content: "Who " + mark + "?"}}}
	var all []*traj.Trajectory
	_, err = e.Run(context.Background(), func(yield func(traj.Task, error) bool) { yield(task, nil) }, func(x *traj.Trajectory) error {
		all = append(all, x)
		return nil
	})
	if err != nil || len(all) != 3 {
		t.Fatal(len(all), err)
	}
	for _, x := range all {
		model.check(t, x, worlds[x.ID], family, anew, parser == "react" || parser == "search")
	}
}

// check holds a trajectory against what was drawn for it.
func (b *babbler) check(t *rapid.T, x *traj.Trajectory, w *whim, family string, anew, shown bool) {
	if x.Termination.Infrastructure() {
		t.Fatalf("%s: %s", x.Termination, x.Error)
	}
	var drawn, trained []int32
	for _, s := range x.Sequences {
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		var run []int32 // the trainable tokens of one reply
		for i, id := range s.TokenIDs {
			if s.LossMask[i] {
				trained, run = append(trained, id), append(run, id)
				continue
			}
			if s.Logprobs[i].Known() {
				t.Fatal("a token that was not sampled has a log-prob")
			}
			if strings.Contains(b.tok.Decode(run, false), mark) {
				t.Fatal("an observation's token is trainable")
			}
			run = nil
		}
	}
	reopened := 0
	for turn, step := range x.Steps {
		drew, ok := b.drew[onTheWire(turnSeed(x.Seed, turn))]
		if !ok {
			t.Fatalf("turn %d was never asked for", turn)
		}
		s := x.Sequences[step.Sequence]
		n := step.End - step.Start
		if drew.over {
			// Cut behind the token that completes the first stop string.
			at := func(n int) int {
				text := b.tok.Decode(drew.ids[:n], false)
				return max(strings.Index(text, stopStrings[0]), strings.Index(text, stopStrings[1]))
			}
			if n > len(drew.ids) || at(n) < 0 || at(n-1) >= 0 {
				t.Fatalf("turn %d: %d tokens of %q were kept", turn, n, b.tok.Decode(drew.ids, false))
			}
			drew.ids = drew.ids[:n]
			drew.logprobs = drew.logprobs[:min(n, len(drew.logprobs))]
		}
		if !slices.Equal(s.TokenIDs[step.Start:step.End], drew.ids) {
			t.Fatalf("turn %d: %v were drawn, %v are kept", turn, drew.ids, s.TokenIDs[step.Start:step.End])
		}
		if !slices.Equal(s.TokenIDs[:step.Start], drew.prompt) {
			t.Fatalf("turn %d: the tokens before it are not the prompt", turn)
		}
		for i := range n {
			lp := traj.NoLogprob()
			if len(drew.logprobs) > 0 {
				lp = drew.logprobs[i]
			}
			if got := s.Logprobs[step.Start+i]; got != lp && (got.Known() || lp.Known()) {
				t.Fatalf("turn %d: token %d has %v, drawn with %v", turn, i, got, lp)
			}
			if !s.LossMask[step.Start+i] {
				t.Fatalf("turn %d: token %d is not trainable", turn, i)
			}
		}
		drawn = append(drawn, drew.ids...)
		text, open := w.inserted[turn]
		if !open || anew || turn+1 == len(x.Steps) {
			continue
		}
		if open = !slices.Contains(b.stops, drew.ids[n-1]); !open {
			reopened++ // a turn that the model had ended goes on
			continue
		}
		// The text stands behind what was sampled, as text: it forges no token.
		next := x.Steps[turn+1]
		if next.Sequence != step.Sequence || !slices.Equal(s.TokenIDs[step.End:next.Start], b.tok.EncodeOrdinary(text)) {
			t.Fatalf("turn %d: %q was inserted; sequence %d goes on as %d with %q", turn, text, step.Sequence,
				next.Sequence, b.tok.Decode(s.TokenIDs[step.End:], false))
		}
	}
	if !slices.Equal(drawn, trained) {
		t.Fatalf("drawn %d tokens, trainable %d", len(drawn), len(trained))
	}
	most := 1 + reopened
	if slices.Contains(templates, family) && !slices.Contains(keeping, family) {
		return // it rewrites as it likes
	}
	if family == "qwen3" {
		most += w.asked // its template drops earlier thinking
		if shown {
			most += w.answered // results are told as questions
		}
	}
	if len(x.Sequences) > most && !anew {
		t.Fatalf("%d sequences, at most %d are needed (%d questions)", len(x.Sequences), most, w.asked)
	}
}

func TestWhatWasSampledIsWhatIsTrainedInRandomConversations(t *testing.T) {
	rapid.Check(t, conversations)
}

func TestWhatAServerSampledIsWhatIsTrainedInRandomConversations(t *testing.T) {
	rapid.Check(t, conversationsOverAServer)
}

func FuzzConversations(f *testing.F) {
	for i := range byte(8) { // what the draws are made of
		f.Add(bytes.Repeat([]byte{i, 37 * i, 255 - i}, 200))
	}
	f.Fuzz(rapid.MakeFuzz(conversations))
}
