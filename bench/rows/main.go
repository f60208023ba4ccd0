// Command rows writes a large file of trajectories as a rollout would, for
// measuring how train reads one, and a model of next to no size to read it with:
//
//	go run ./bench/rows -o big.parquet [-bytes 1000000000] [-model tiny -like FOLDER]
//
// Most rows are short replies (about 170 tokens of prompt and 60 sampled), the
// others conversations of several turns of up to some thousand tokens, in groups
// of 8 that share their prompt. Words and ids are drawn as rarely as in text
// (Zipf), so that the file compresses as a real one does.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"agentcli/parquet"
	"agentcli/traj"
)

const group = 8 // attempts at one task

func main() {
	out := flag.String("o", "", "the file to write")
	size := flag.Int64("bytes", 1e9, "about how large it is to be")
	vocab := flag.Int("vocab", 49152, "of the model that the ids are for")
	model := flag.String("model", "", "also write a folder with a tiny random model")
	like := flag.String("like", "", "the model folder whose tokenizer and vocabulary that model has")
	flag.Parse()
	err := error(nil)
	if *out != "" {
		err = writeRows(*out, *size, *vocab)
	}
	if err == nil && *model != "" {
		err = writeModel(*model, *like)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// source draws rows.
type source struct {
	r     *rand.Rand
	zipf  *rand.Zipf
	words []string
	vocab int
}

func newSource(vocab int) *source {
	r := rand.New(rand.NewPCG(1, 2))
	s := &source{r: r, zipf: rand.NewZipf(r, 1.1, 8, uint64(vocab-1)), vocab: vocab}
	for range vocab {
		var w strings.Builder
		for range 1 + r.IntN(3) {
			w.WriteByte("bcdfghklmnprstvw"[r.IntN(16)])
			w.WriteByte("aeiou"[r.IntN(5)])
		}
		s.words = append(s.words, w.String())
	}
	return s
}

// say draws n tokens and their text.
func (s *source) say(n int) (ids []int32, text string) {
	var b strings.Builder
	for i := range n {
		id := int(s.zipf.Uint64())
		ids = append(ids, int32(id))
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(s.words[id])
	}
	return ids, b.String()
}

func (s *source) logprobs(n int) []traj.Logprob {
	out := make([]traj.Logprob, n)
	for i := range out {
		out[i] = traj.Logprob(-s.r.ExpFloat64() * .7)
	}
	return out
}

// task draws a task and its attempts.
func (s *source) task(number int) ([]*traj.Trajectory, error) {
	prompt, question := s.say(120 + s.r.IntN(100))
	turns, length := 1, 60
	if s.r.IntN(4) == 0 {
		turns, length = 2+s.r.IntN(6), 150
	}
	id := fmt.Sprintf("bench/train-%07d", number)
	var out []*traj.Trajectory
	for attempt := range group {
		t := &traj.Trajectory{ID: fmt.Sprintf("%s#%d", id, attempt), GroupID: id + "@bench", Attempt: attempt,
			Seed: s.r.Int64(), Policy: "tiny", Termination: traj.Answered,
			Task: traj.Task{ID: id, Dataset: "bench", Split: "train", Question: question, Answers: []string{"42"},
				Meta: json.RawMessage(`{"level":3}`)},
			Messages: []traj.Message{{Role: traj.RoleSystem, Content: "You solve problems with the tools that you have."},
				{Role: traj.RoleUser, Content: question}},
			StartedAt: time.Unix(1.7e9+int64(number), 0).UTC(), DurationMS: int64(s.r.IntN(5000)), PromptTokens: len(prompt)}
		context := prompt
		for turn := range turns {
			n := length/2 + s.r.IntN(length)
			said, reply := s.say(n)
			seq, start, end, err := t.Record(context, nil, said, s.logprobs(n))
			if err != nil {
				return nil, err
			}
			step := traj.Step{Sequence: seq, Start: start, End: end, FinishReason: traj.FinishStop,
				PromptTokens: len(context), CompletionTokens: n, ModelMS: s.r.Float64() * 1e3, EnvMS: s.r.Float64()}
			m := traj.Message{Role: traj.RoleAssistant, Content: reply}
			context = append(append([]int32{}, context...), said...)
			if turn < turns-1 {
				step.FinishReason, step.ToolCalls = traj.FinishToolCalls, 1
				m.ToolCalls = []traj.ToolCall{{ID: "call_0", Name: "search", Arguments: `{"query": "` + reply[:min(40, len(reply))] + `"}`}}
				found, text := s.say(100 + s.r.IntN(400))
				context = append(context, found...)
				t.Messages = append(t.Messages, m, traj.Message{Role: traj.RoleTool, Content: text, ToolCallID: "call_0"})
			} else {
				t.Messages = append(t.Messages, m)
			}
			t.Steps, t.CompletionTokens = append(t.Steps, step), t.CompletionTokens+n
		}
		reward := float64(s.r.IntN(2))
		correct := reward == 1
		t.Reward, t.Correct, t.RewardParts = &reward, &correct, []traj.Part{{Name: "exact", Value: reward}}
		out = append(out, t)
	}
	return out, nil
}

func writeRows(path string, size int64, vocab int) error {
	w, err := parquet.CreateFile(path, parquet.Metadata{
		Run: json.RawMessage(`{"command":"rollout","model":{"name":"tiny","kind":"local"},"sampling":{"temperature":1,"top_p":1}}`)},
		parquet.WriterConfig{})
	if err != nil {
		return err
	}
	defer w.Abort()
	s := newSource(vocab)
	tokens, sampled := 0, 0
	for task := 0; w.Bytes() < size; task++ {
		rows, err := s.task(task)
		if err != nil {
			return err
		}
		for _, t := range rows {
			if err := w.Write(t); err != nil {
				return err
			}
			for i := range t.Sequences {
				tokens += len(t.Sequences[i].TokenIDs)
			}
			sampled += t.CompletionTokens
		}
	}
	rows := w.Rows()
	if err := w.Close(); err != nil {
		return err
	}
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %.2f GB, %d rows in groups of %d, %.1f M tokens, %.1f M of them sampled\n", path,
		float64(st.Size())/1e9, rows, group, float64(tokens)/1e6, float64(sampled)/1e6)
	return nil
}
