package trainer

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"agentcli/datasets"
	"agentcli/model/chat"
	"agentcli/parquet"
	"agentcli/trainer/episode"
	"agentcli/traj"
)

// From says where what a file lacks comes from.
type From struct {
	Rewarded bool  // trajectories get their rewards from a model, later
	Score    Score // makes rewards anew; nil: the file's count
	// EvalSplit marks the rows of text whose column split has this value, for
	// Data.HoldOutSplit; "": none. Trajectories have no such column.
	EvalSplit string
	Resumed   *Frozen                 // of a run that goes on: it has the rewards that Score made; nil: the run begins
	Format    func() (*Format, error) // asked once, for rows of text
	// Observations is the format of the model that sampled a file, by the name that the
	// file has for it: where the tool output is that --echo learns. Nil: all that was not
	// sampled counts as such.
	Observations func(model string) (*Format, error)
	// Demonstrations are what the teacher is shown; nil: nothing.
	Demonstrations Demonstrations
	// OnDisk keeps of the rows an index in memory alone, and the rest in a temporary
	// file: the caller closes the Data.
	OnDisk bool
}

// LoadFor reads the files of a run: trajectories, and for the supervised
// algorithms also rows of text. A pattern with *, ? or [ names several files.
func LoadFor(ctx context.Context, patterns []string, c Config, from From) (*Data, error) {
	var disk *Config
	if from.OnDisk {
		disk = &c
	}
	var made *[]madeReward
	if f := from.Resumed; f != nil && f.made != nil && from.Score != nil {
		rest := f.made
		made = &rest
	}
	if !c.IsSupervised() {
		return load(ctx, patterns, needs{reward: !from.Rewarded && c.rewarded(), group: true, score: from.Score, made: made, demonstrate: from.Demonstrations, observe: from.observe(c), onDisk: disk}, nil)
	}
	var r *reader
	d, err := load(ctx, patterns, needs{reward: c.TakesPairs(), group: c.TakesPairs(), score: from.Score, made: made, onDisk: disk}, func(d *Data, path string) (bool, error) {
		if is, err := trajectories(path); err != nil || is {
			if is && err == nil && from.EvalSplit != "" {
				err = fmt.Errorf("%s: --eval-split takes rows of text with a column split, and trajectories have none; give --holdout or --eval-dataset", path)
			}
			if is && err == nil && c.Algo == AlgoPRM {
				err = fmt.Errorf("%s: --algo prm takes rows of prompt, completions and labels, not trajectories", path)
			}
			return false, err
		}
		if r == nil {
			f, err := from.Format()
			if err != nil {
				return false, err
			}
			if r, err = newReader(f, c); err != nil {
				return false, err
			}
			r.evalSplit = from.EvalSplit
		}
		return true, r.file(ctx, d, path)
	})
	if err == nil && c.TakesPairs() {
		if _, err = d.pair(c.Supervised.Pairs); err != nil {
			err = errors.Join(err, d.Close())
		}
	}
	return d, err
}

func (f From) observe(c Config) func(model string) (*Format, error) {
	if c.Echo == 0 {
		return nil
	}
	return f.Observations
}

// trajectories reports whether a file is one of trajectories.
func trajectories(path string) (bool, error) {
	if !strings.EqualFold(filepath.Ext(path), ".parquet") {
		return false, nil
	}
	t, err := parquet.OpenTable(path)
	if err != nil {
		return false, err
	}
	defer t.Close()
	return t.Has("sequences"), nil
}

// reader makes episodes of rows of text.
type reader struct {
	*Format
	c      Config
	marker int32 // prm: the token that ends a step
	tokens []int32
	names  []string // of the reward tokens

	evalSplit string
}

func newReader(f *Format, c Config) (*reader, error) {
	r := &reader{Format: f, c: c}
	if c.Algo != AlgoPRM {
		return r, nil
	}
	var err error
	if r.marker, err = one(f.Tokenizer, "prm-token", c.Supervised.PRMToken); err != nil {
		return nil, err
	}
	if c.Supervised.PRMTokens == "" {
		return r, nil
	}
	for name := range strings.SplitSeq(c.Supervised.PRMTokens, ",") {
		id, err := one(f.Tokenizer, "prm-tokens", name)
		if err != nil {
			return nil, err
		}
		if slices.Contains(r.tokens, id) {
			return nil, fmt.Errorf("--prm-tokens %q: %q is there twice", c.Supervised.PRMTokens, name)
		}
		r.tokens, r.names = append(r.tokens, id), append(r.names, name)
	}
	if len(r.tokens) < 2 {
		return nil, fmt.Errorf("--prm-tokens %q: want two or more, the first for a right step, or none for the whole vocabulary", c.Supervised.PRMTokens)
	}
	return r, nil
}

// one is the id of a text that is one token.
func one(tok chat.Tokenizer, flag, text string) (int32, error) {
	if id, ok := tok.ID(text); ok {
		return id, nil
	}
	if ids := tok.EncodeOrdinary(text); len(ids) == 1 {
		return ids[0], nil
	}
	return 0, fmt.Errorf("--%s: %q is not one token of this model", flag, text)
}

func (r *reader) file(ctx context.Context, d *Data, path string) error {
	for row, err := range datasets.ReadRows(ctx, path) {
		if err != nil {
			return err
		}
		id, before := fmt.Sprintf("%s:%d", path, row.Number), len(d.Episodes)
		switch r.c.Algo {
		case AlgoSFT:
			err = r.sft(d, id, row.Fields)
		case AlgoPRM:
			err = r.steps(d, id, row.Fields)
		default:
			err = r.pair(d, id, row.Fields)
		}
		if errors.Is(err, errNothingSaid) {
			d.Skipped.Add("without an assistant turn to train on", id)
		} else if err != nil {
			return fmt.Errorf("%s: row %d: %w", path, row.Number, err)
		}
		for _, e := range d.Episodes[before:] {
			e.HeldOut = r.evalSplit != "" && row.Fields["split"] == any(r.evalSplit)
		}
	}
	return nil
}

// sft reads {messages, tools?}, {prompt, completion|response} or {question,
// answer}, each with an optional weight.
func (r *reader) sft(d *Data, id string, row map[string]any) error {
	tools, err := toolsOf(row["tools"])
	if err != nil {
		return err
	}
	weights, err := weightsOf(row["weight"])
	if err != nil {
		return err
	}
	var msgs []traj.Message
	from := 0
	if v := row["messages"]; v != nil {
		if msgs, err = datasets.ReadMessages(v); err != nil {
			return fmt.Errorf("messages: %w", err)
		}
	} else {
		q, a := "", ""
		for _, pair := range [][2]string{{"prompt", "completion"}, {"prompt", "response"}, {"question", "answer"}} {
			if row[pair[0]] != nil && row[pair[1]] != nil {
				q, a = pair[0], pair[1]
				break
			}
		}
		if q == "" {
			return fmt.Errorf("has neither messages, nor prompt and completion (or response), nor question and answer; it has %s", keys(row))
		}
		if msgs, err = said(row[q], traj.RoleUser); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
		from = len(msgs)
		answer, err := said(row[a], traj.RoleAssistant)
		if err != nil {
			return fmt.Errorf("%s: %w", a, err)
		}
		msgs = append(msgs, answer...)
	}
	e, err := r.text(id, msgs, from, tools, weights)
	if err == nil {
		err = d.add(e)
	}
	return err
}

// pair reads {prompt|messages, chosen, rejected, margin?}. Without a prompt it is
// what chosen and rejected, lists of messages then, begin with.
func (r *reader) pair(d *Data, id string, row map[string]any) error {
	if row["chosen"] == nil || row["rejected"] == nil {
		return fmt.Errorf("wants prompt, chosen and rejected; it has %s", keys(row))
	}
	tools, err := toolsOf(row["tools"])
	if err != nil {
		return err
	}
	margin, err := numeric(row["margin"])
	if err != nil {
		return fmt.Errorf("margin: %w", err)
	}
	var replies [2][]traj.Message
	for i, key := range []string{"chosen", "rejected"} {
		if replies[i], err = said(row[key], traj.RoleAssistant); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	var prompt []traj.Message
	for _, key := range []string{"prompt", "messages"} {
		if prompt == nil && row[key] != nil {
			if prompt, err = said(row[key], traj.RoleUser); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	if prompt == nil {
		n := 0
		for n < min(len(replies[0]), len(replies[1])) && reflect.DeepEqual(replies[0][n], replies[1][n]) {
			n++
		}
		if n == 0 {
			return errors.New("there is no prompt, and chosen and rejected have no message in common")
		}
		prompt, replies[0], replies[1] = replies[0][:n:n], replies[0][n:], replies[1][n:]
	}
	var both [2]*episode.Episode
	for i, key := range []string{"chosen", "rejected"} {
		if both[i], err = r.text(id+"/"+key, slices.Concat(prompt, replies[i]), len(prompt), tools, nil); err != nil {
			return err
		}
		both[i].Group = id
	}
	both[0].Score = 1
	d.Pairs = append(d.Pairs, Pair{Chosen: both[0], Rejected: both[1], Margin: margin})
	if err := d.add(both[0]); err != nil {
		return err
	}
	return d.add(both[1])
}

// steps reads {prompt, completions, labels}: TRL's stepwise supervision.
func (r *reader) steps(d *Data, id string, row map[string]any) error {
	steps, ok := row["completions"].([]any)
	labels, labelled := row["labels"].([]any)
	if !ok || !labelled || row["prompt"] == nil {
		return fmt.Errorf("wants prompt, completions and labels, two lists of one length; it has %s", keys(row))
	}
	if len(steps) != len(labels) {
		return fmt.Errorf("has %d completions and %d labels", len(steps), len(labels))
	}
	prompt, err := said(row["prompt"], traj.RoleUser)
	if err != nil {
		return fmt.Errorf("prompt: %w", err)
	}
	_, ids, err := r.Renderer.Render(prompt, nil, chat.Options{AddGenerationPrompt: true})
	if err != nil {
		return err
	}
	e := &episode.Episode{ID: id, Group: id, Body: &episode.Body{Prompt: len(ids), Turns: 1, LastRound: -1}}
	for i, step := range steps {
		text, ok := step.(string)
		if !ok {
			return fmt.Errorf("completions: entry %d is no text", i)
		}
		ids = append(ids, append(r.Tokenizer.EncodeOrdinary(text), r.marker)...)
		next, y, err := r.label(labels[i])
		if err != nil {
			return fmt.Errorf("labels: entry %d: %w", i, err)
		}
		if y == nil {
			continue
		}
		e.Marks = append(e.Marks, y)
		for _, token := range next {
			n := len(ids) + 1
			s := traj.Sequence{TokenIDs: append(slices.Clone(ids), token), LossMask: make([]bool, n), Logprobs: make([]traj.Logprob, n)}
			for t := range s.Logprobs {
				s.Logprobs[t] = traj.NoLogprob()
			}
			s.LossMask[n-1] = true
			e.Sequences = append(e.Sequences, s)
		}
	}
	if len(e.Marks) == 0 {
		return errNothingSaid
	}
	e.Sampled = len(ids) - e.Prompt
	return d.add(e)
}

// label is a distribution over the tokens that may follow a marker: nil where the
// step has no label.
func (r *reader) label(v any) (next []int32, y []float64, err error) {
	hard := func(i int) ([]int32, []float64, error) {
		y := make([]float64, len(r.tokens))
		y[i] = 1
		return r.tokens, y, nil
	}
	if v == nil {
		return nil, nil, nil
	}
	if s, ok := v.(string); ok {
		if i := slices.Index(r.names, s); i >= 0 {
			return hard(i)
		}
		if len(r.tokens) > 0 {
			return nil, nil, fmt.Errorf("%q is none of --prm-tokens %s", s, r.c.Supervised.PRMTokens)
		}
		id, err := one(r.Tokenizer, "prm-tokens ''", s)
		return []int32{id}, []float64{1}, err
	}
	if len(r.tokens) == 0 {
		return nil, nil, errors.New("without --prm-tokens a label is the text of a token")
	}
	if b, ok := v.(bool); ok {
		if b {
			return hard(0)
		}
		return hard(1)
	}
	p, err := numeric(v)
	switch {
	case err != nil:
		return nil, nil, err
	case !(p >= 0 && p <= 1):
		return nil, nil, fmt.Errorf("%v is no chance from 0 to 1", p)
	case p == 1:
		return hard(0)
	case p == 0:
		return hard(1)
	case len(r.tokens) != 2:
		return nil, nil, fmt.Errorf("%v is a soft label, which needs exactly two --prm-tokens", p)
	}
	return r.tokens, []float64{p, 1 - p}, nil
}
