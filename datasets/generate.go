package datasets

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"agentcli/internal/setting"
	"agentcli/internal/splitmix"
	"agentcli/media"
	"agentcli/media/album"
	"agentcli/traj"
)

// generator makes problems out of nothing but a seed. Its problems are
// numbered; a seeded permutation of the numbers gives each problem once, in
// the seed's order, without a memory of those that were given. The hash of a
// problem decides its split, whatever the seed: train and test cannot meet.
type generator struct {
	name     string
	levels   int
	space    func(level int) uint64                 // how many numbers there are
	make     func(level int, i uint64) (made, bool) // problem number i; false: the number has none
	examples func(level int) []made                 // worked examples, none of which is a problem
	turns    func(m made) []traj.Message            // a worked example as real turns, its question first
	corpus   func(level int) iter.Seq[Passage]      // where the answers are found; nil: there is none
	splits   []demonstration                        // beside train and test
}

// demonstration is a split: problems of train with replies that a model is to be shown, which
// may be drawn by the seed.
type demonstration struct {
	name string
	make func(level int, i, seed uint64) (made, bool)
}

// made is one generated problem.
type made struct {
	id       string // unique within the generator, and readable
	key      string // the same for problems that are the same but for order: 3+4 and 4+3
	question string
	answer   string
	reply    string // of a worked example, where it is not the answer
	steps    []call // of a worked example

	image        func() []byte // of the question, as a file; nil: it has none
	demonstrated []string      // replies, one a turn; nil: it is a problem
}

// call is one tool call of a worked example, with its result.
type call struct{ expression, result string }

// testShare is the part of the problems that is held out: 1 in testShare.
const testShare = 5

func generatorNamed(name string) *generator {
	for i := range generators {
		if generators[i].name == name {
			return &generators[i]
		}
	}
	return nil
}

func generatorNames() []string {
	var names []string
	for i := range generators {
		names = append(names, generators[i].name)
	}
	return names
}

// levelNames are the levels from 1, as Options has them.
func levelNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = strconv.Itoa(i + 1)
	}
	return names
}

// levelOf reads a level; "" is 1.
func (g *generator) levelOf(level string) (int, error) {
	if level == "" {
		return 1, nil
	}
	n, err := strconv.Atoi(level)
	if err != nil || n < 1 || n > g.levels {
		return 0, misfitOf("Level", levelNames(g.levels), "dataset %s has no level %q; it has 1 to %d", g.name, level, g.levels)
	}
	return n, nil
}

// open makes a dataset of the generator, with the suggestions of an entry.
func (g *generator) open(e *entry, o Options) (*Dataset, error) {
	split := o.Split
	if split == "" {
		split = "train"
	}
	from, makes := split, func(level int, i, _ uint64) (made, bool) { return g.make(level, i) }
	splits := []string{"train", "test"}
	for _, d := range g.splits {
		if splits = append(splits, d.name); d.name == split {
			from, makes = "train", d.make
		}
	}
	if !slices.Contains(splits, split) {
		return nil, misfitOf("Split", splits, "dataset %s has no split %q; it has %s and %s", e.Name, split,
			strings.Join(splits[:len(splits)-1], ", "), splits[len(splits)-1])
	}
	level, err := g.levelOf(cmp.Or(o.Level, e.Level))
	if err != nil {
		return nil, err
	}
	shots := e.Shots
	examples := g.examples(level)
	if o.Shots != nil {
		shots = *o.Shots
	}
	if shots < 0 || shots > len(examples) {
		return nil, misfitOf("Shots", nil, "dataset %s has 0 to %d worked examples (%s), not %d", e.Name, len(examples), setting.Name("Shots"),
			shots)
	}
	d := &Dataset{Name: e.Name, Split: split, Shots: shots, Source: "generated", n: -1, limit: o.Limit}
	d.suggest(e, o)
	env := cmp.Or(o.Env, e.Env)
	d.Envs = []string{env}
	prompt := cmp.Or(e.Prompt, "{question}")
	if text := o.EnvDefaults[env].Prompt; text != "" && env != e.Env {
		prompt = text
	}
	if o.Prompt != nil {
		prompt = *o.Prompt
	}
	opening := withSystem(d.System, nil)
	for i, e := range examples[:shots] {
		turns := g.turns(e)
		turns[0].Content = strings.ReplaceAll(prompt, "{question}", turns[0].Content)
		opening = append(opening, numbered(turns, i)...)
	}
	space := g.space(level)
	d.tasks = func(ctx context.Context) iter.Seq2[traj.Task, error] {
		return func(yield func(traj.Task, error) bool) {
			p := newPermutation(space, uint64(o.Seed))
			for i := uint64(0); i < space; i++ {
				if i%1024 == 0 && ctx.Err() != nil {
					yield(traj.Task{}, ctx.Err())
					return
				}
				m, ok := makes(level, p.at(i), uint64(o.Seed))
				if !ok || splitOf(g.name, m.key) != from {
					continue
				}
				if m.demonstrated != nil {
					m.id = split + "-" + m.id
				}
				t := traj.Task{ID: e.Name + "/" + m.id, Dataset: e.Name, Split: split, Question: m.question,
					Answers: []string{m.answer}, Env: env, Tools: e.Tools, Reward: e.Reward}
				if !yield(m.asked(t, opening, prompt, map[string]any{"level": level, "shots": shots})) {
					return
				}
			}
		}
	}
	for t, err := range d.Tasks(context.Background()) {
		if err != nil {
			return nil, err
		}
		if d.HasImages = slices.ContainsFunc(t.Messages, func(m traj.Message) bool { return len(m.Images) > 0 }); d.HasImages {
			d.FirstImage = t.ID
		}
		break
	}
	return d, nil
}

// asked gives a task its conversation, behind the opening, which tasks share and never write
// to, and what is known beside it.
func (m *made) asked(t traj.Task, opening []traj.Message, prompt string, meta map[string]any) (traj.Task, error) {
	question := traj.Message{Role: traj.RoleUser, Content: strings.ReplaceAll(prompt, "{question}", m.question)}
	if m.image != nil {
		im, err := album.Open(m.image(), "", media.Limits{})
		if err != nil {
			return t, err
		}
		question.Content, question.Images = traj.ImageMark+traj.PlainText(question.Content), []traj.Image{im}
	}
	if m.demonstrated != nil {
		meta["replies"] = m.demonstrated
	}
	t.Messages = append(opening[:len(opening):len(opening)], question)
	b, err := json.Marshal(meta)
	t.Meta = b
	return t, err
}

// numbered gives the tool calls of worked example i ids of their own.
func numbered(turns []traj.Message, i int) []traj.Message {
	n := 0
	for k := range turns {
		for c := range turns[k].ToolCalls {
			turns[k].ToolCalls[c].ID = fmt.Sprintf("call_shot%d_%d", i, n)
			n++
		}
		if turns[k].Role == traj.RoleTool {
			turns[k].ToolCallID = fmt.Sprintf("call_shot%d_%d", i, n-1)
		}
	}
	return turns
}

// splitOf tells which split a problem is in, by its key alone.
func splitOf(name, key string) string {
	h := sha256.Sum256([]byte(name + "\x00" + key))
	if binary.BigEndian.Uint64(h[:8])%testShare == 0 {
		return "test"
	}
	return "train"
}

// permutation is a seeded bijection of 0..n-1: a Feistel network over the next
// even number of bits, walked until the value falls inside.
type permutation struct {
	n    uint64
	half uint // bits of each half
	keys [4]uint64
}

func newPermutation(n, seed uint64) permutation {
	p := permutation{n: n, half: (uint(bits.Len64(max(n, 2)-1)) + 1) / 2}
	for i := range p.keys {
		seed += splitmix.Gamma
		p.keys[i] = splitmix.Mix(seed)
	}
	return p
}

func (p permutation) at(i uint64) uint64 {
	mask := uint64(1)<<p.half - 1
	for {
		l, r := i>>p.half&mask, i&mask
		for _, k := range p.keys {
			l, r = r, l^splitmix.Mix(r^k)&mask
		}
		if i = l<<p.half | r; i < p.n {
			return i
		}
	}
}
