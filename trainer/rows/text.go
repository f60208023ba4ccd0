package rows

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"agentcli/datasets"
	"agentcli/internal/malformed"
	"agentcli/internal/setting"
	"agentcli/lossscale"
	"agentcli/model/chat"
	"agentcli/parquet"
	"agentcli/trainer/episode"
	"agentcli/traj"
)

// TextKind says which rows of text are read beside trajectories.
type TextKind int

// The kinds of rows of text.
const (
	NoText      TextKind = iota // none: every file is one of trajectories
	TextReplies                 // {messages}, {prompt, completion|response} or {question, answer}
	TextPairs                   // {prompt, chosen, rejected}
	TextSteps                   // {prompt, completions, labels}; trajectories are refused
)

// StepTokens are the tokens of rows of labelled steps.
type StepTokens struct {
	End    string // the text of the token that ends a step
	Labels string // the reward tokens, with commas between them; "": the whole vocabulary
}

// ErrNoLabels is wrapped by the error of a file of trajectories where labelled steps are wanted.
var ErrNoLabels = errors.New("no labelled steps")

// isText reports whether a file is one of rows of text.
func (l *loading) isText(path string) (bool, error) {
	if l.o.Text == NoText {
		return false, nil
	}
	is, err := trajectories(path)
	switch {
	case err != nil || !is:
		return !is, err
	case l.o.Text == TextSteps:
		return false, traj.Mark(
			fmt.Errorf("%s: labelled steps are wanted (rows of prompt, completions and labels), and it has trajectories", path), ErrNoLabels)
	case l.o.EvalSplit != "":
		return false, setting.Errorf("%s: %s takes rows of text with a column split, and trajectories have none; give %s or %s",
			path, setting.Name("Held.Split"), setting.Name("Held.Part"), setting.Name("Held.Dataset"))
	}
	return false, nil
}

// readText reads a file of rows of text.
func (l *loading) readText(ctx context.Context, path string) error {
	if l.text == nil {
		f, err := l.o.Format()
		if err != nil {
			return err
		}
		if l.text, err = newTextReader(f, l.o); err != nil {
			return err
		}
		l.text.loading = l
	}
	return l.text.file(ctx, path)
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

// textReader makes episodes of rows of text.
type textReader struct {
	*Format
	*loading
	vocabulary lossscale.Vocabulary // of Options.Weigh
	marker     int32                // of TextSteps: the token that ends a step
	tokens     []int32
	names      []string // of the reward tokens
}

func newTextReader(f *Format, o *Options) (*textReader, error) {
	r := &textReader{Format: f}
	var err error
	if o.Weigh != nil {
		if r.vocabulary, err = o.vocabulary(""); err != nil {
			return nil, err
		}
	}
	if o.Text != TextSteps {
		return r, nil
	}
	if r.marker, err = one(f.Tokenizer, setting.Name("PRMToken"), o.Steps.End); err != nil {
		return nil, err
	}
	if o.Steps.Labels == "" {
		return r, nil
	}
	for name := range strings.SplitSeq(o.Steps.Labels, ",") {
		id, err := one(f.Tokenizer, setting.Name("PRMTokens"), name)
		if err != nil {
			return nil, err
		}
		if slices.Contains(r.tokens, id) {
			return nil, setting.Errorf("%s %q: %q is there twice", setting.Name("PRMTokens"), o.Steps.Labels, name)
		}
		r.tokens, r.names = append(r.tokens, id), append(r.names, name)
	}
	if len(r.tokens) < 2 {
		return nil, setting.Errorf("%s %q: want two or more, the first for a right step, or none for the whole vocabulary",
			setting.Name("PRMTokens"), o.Steps.Labels)
	}
	return r, nil
}

// one is the id of a text that is one token.
func one(tok chat.Tokenizer, which setting.Name, text string) (int32, error) {
	if id, ok := tok.ID(text); ok {
		return id, nil
	}
	if ids := tok.EncodeOrdinary(text); len(ids) == 1 {
		return ids[0], nil
	}
	return 0, setting.Errorf("%s: %q is not one token of this model", which, text)
}

func (r *textReader) file(ctx context.Context, path string) error {
	for row, err := range datasets.ReadRows(ctx, path) {
		if err != nil {
			return err
		}
		id, before := fmt.Sprintf("%s:%d", path, row.Number), len(r.Episodes)
		switch r.o.Text {
		case TextReplies:
			err = r.replies(id, row.Fields)
		case TextSteps:
			err = r.steps(id, row.Fields)
		default:
			err = r.pair(id, row.Fields)
		}
		if errors.Is(err, errNothingSaid) {
			r.Skipped.Add("without an assistant turn to train on", id)
		} else if err != nil {
			return &malformed.Error{Path: path, Row: row.Number, Err: err}
		}
		for _, e := range r.Episodes[before:] {
			e.HeldOut = r.o.EvalSplit != "" && row.Fields["split"] == any(r.o.EvalSplit)
		}
	}
	return nil
}

// replies reads {messages, tools?}, {prompt, completion|response} or {question,
// answer}, each with an optional weight.
func (r *textReader) replies(id string, row map[string]any) error {
	tools, err := toolsOf(row["tools"])
	if err != nil {
		return err
	}
	weights, err := weightsOf(row["weight"])
	if err != nil {
		return err
	}
	var msgs []traj.Message
	var own []messageLoss
	from := 0
	if v := row["messages"]; v != nil {
		if msgs, own, err = conversationOf(v); err != nil {
			return &malformed.Error{Field: "messages", Err: err}
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
			return malformed.Errorf(malformed.Missing,
				"has neither messages, nor prompt and completion (or response), nor question and answer; it has %s", keys(row))
		}
		if msgs, _, err = said(row[q], traj.RoleUser); err != nil {
			return &malformed.Error{Field: q, Err: err}
		}
		from = len(msgs)
		answer, losses, err := said(row[a], traj.RoleAssistant)
		if err != nil {
			return &malformed.Error{Field: a, Err: err}
		}
		msgs, own = append(msgs, answer...), append(make([]messageLoss, from), losses...)
	}
	e, err := r.weighed(id, msgs, from, tools, replyWeights{weights, own})
	if err == nil {
		err = r.add(e)
	}
	return err
}

// weighed makes an episode of a conversation, with the weights of its tokens.
func (r *textReader) weighed(id string, msgs []traj.Message, from int, tools []traj.ToolSpec, w replyWeights) (*episode.Episode, error) {
	e, replies, err := r.conversation(id, msgs, from, tools)
	if err == nil {
		err = r.weigh(e, msgs, replies, w)
	}
	return e, err
}

// pair reads {prompt|messages, chosen, rejected, margin?}. Without a prompt it is
// what chosen and rejected, lists of messages then, begin with.
func (r *textReader) pair(id string, row map[string]any) error {
	if row["chosen"] == nil || row["rejected"] == nil {
		return malformed.Errorf(malformed.Missing, "wants prompt, chosen and rejected; it has %s", keys(row))
	}
	tools, err := toolsOf(row["tools"])
	if err != nil {
		return err
	}
	margin, err := numeric(row["margin"])
	if err != nil {
		return &malformed.Error{Field: "margin", Err: err}
	}
	var replies [2][]traj.Message
	var own [2][]messageLoss
	for i, key := range []string{"chosen", "rejected"} {
		if replies[i], own[i], err = said(row[key], traj.RoleAssistant); err != nil {
			return &malformed.Error{Field: key, Err: err}
		}
	}
	var prompt []traj.Message
	for _, key := range []string{"prompt", "messages"} {
		if prompt == nil && row[key] != nil {
			if prompt, _, err = said(row[key], traj.RoleUser); err != nil {
				return &malformed.Error{Field: key, Err: err}
			}
		}
	}
	if prompt == nil {
		n := 0
		for n < min(len(replies[0]), len(replies[1])) && reflect.DeepEqual(replies[0][n], replies[1][n]) {
			n++
		}
		if n == 0 {
			return malformed.Field("prompt", malformed.Missing, "there is none, and chosen and rejected have no message in common")
		}
		prompt, replies[0], replies[1] = replies[0][:n:n], replies[0][n:], replies[1][n:]
		own[0], own[1] = own[0][n:], own[1][n:]
	}
	var both [2]*episode.Episode
	for i, key := range []string{"chosen", "rejected"} {
		w := replyWeights{own: append(make([]messageLoss, len(prompt)), own[i]...)}
		if both[i], err = r.weighed(id+"/"+key, slices.Concat(prompt, replies[i]), len(prompt), tools, w); err != nil {
			return err
		}
		both[i].Group = id
	}
	both[0].Score = 1
	r.Pairs = append(r.Pairs, Pair{Chosen: both[0], Rejected: both[1], Margin: margin})
	if err := r.add(both[0]); err != nil {
		return err
	}
	return r.add(both[1])
}

// steps reads {prompt, completions, labels}: TRL's stepwise supervision.
func (r *textReader) steps(id string, row map[string]any) error {
	steps, ok := row["completions"].([]any)
	labels, labelled := row["labels"].([]any)
	if !ok || !labelled || row["prompt"] == nil {
		return malformed.Errorf(malformed.Missing, "wants prompt, completions and labels, two lists of one length; it has %s", keys(row))
	}
	if len(steps) != len(labels) {
		return malformed.Field("labels", malformed.Mismatch, "%d completions have %d of them", len(steps), len(labels))
	}
	prompt, _, err := said(row["prompt"], traj.RoleUser)
	if err != nil {
		return &malformed.Error{Field: "prompt", Err: err}
	}
	_, ids, err := r.Renderer.Render(prompt, nil, chat.Options{AddGenerationPrompt: true})
	if err != nil {
		return err
	}
	e := &episode.Episode{ID: id, Group: id, Body: &episode.Body{Prompt: len(ids), Turns: 1, LastRound: -1}}
	for i, step := range steps {
		text, ok := step.(string)
		if !ok {
			return malformed.Field("completions", malformed.Type, "entry %d is no text", i)
		}
		ids = append(ids, append(r.Tokenizer.EncodeOrdinary(text), r.marker)...)
		next, y, err := r.label(labels[i])
		if err != nil {
			return malformed.Field("labels", "", "entry %d: %w", i, err)
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
	return r.add(e)
}

// noLabel is the fault of a label that the settings of labels do not take.
func noLabel(format string, args ...any) error {
	return &malformed.Error{Kind: malformed.Unsupported, Err: setting.Errorf(format, args...)}
}

// label is a distribution over the tokens that may follow a marker: nil where the
// step has no label.
func (r *textReader) label(v any) (next []int32, y []float64, err error) {
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
			return nil, nil, noLabel("%q is none of %s %s", s, setting.Name("PRMTokens"), r.o.Steps.Labels)
		}
		id, err := one(r.Tokenizer, setting.Name("PRMTokens"), s)
		return []int32{id}, []float64{1}, err
	}
	if len(r.tokens) == 0 {
		return nil, nil, noLabel("without %s a label is the text of a token", setting.Name("PRMTokens"))
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
		return nil, nil, malformed.Errorf(malformed.Range, "%v is no chance from 0 to 1", p)
	case p == 1:
		return hard(0)
	case p == 0:
		return hard(1)
	case len(r.tokens) != 2:
		return nil, nil, noLabel("%v is a soft label, which needs exactly two %s", p, setting.Name("PRMTokens"))
	}
	return r.tokens, []float64{p, 1 - p}, nil
}
