package parquet

import (
	"encoding/json"
	"fmt"

	"agentcli/internal/malformed"
	"agentcli/traj"
)

// decodeColumn takes one record of a column into a trajectory.
func decodeColumn(n *node, t *traj.Trajectory, links *imageLinks) (err error) {
	str := func(p *string) { *p, _, err = n.text() }
	num := func(p *int) {
		var v int64
		v, err = n.integer()
		*p = int(v)
	}
	big := func(p *int64) { *p, err = n.integer() }
	switch n.name {
	case "id":
		str(&t.ID)
	case "task_id":
		str(&t.Task.ID)
	case "dataset":
		str(&t.Task.Dataset)
	case "split":
		str(&t.Task.Split)
	case "group_id":
		str(&t.GroupID)
	case "attempt":
		num(&t.Attempt)
	case "seed":
		big(&t.Seed)
	case "policy":
		str(&t.Policy)
	case "policy_version":
		big(&t.PolicyVersion)
	case "question":
		str(&t.Task.Question)
	case "answer":
		t.Task.Answers, err = n.texts()
	case "extracted":
		t.Extracted, err = n.optText()
	case "messages":
		t.Messages, err = decodeMessages(n, links)
	case "steps":
		t.Steps, err = decodeSteps(n)
	case "sequences":
		t.Sequences, err = decodeSequences(n)
	case "reward":
		t.Reward, err = n.optNumber()
	case "reward_parts":
		t.RewardParts, err = decodeParts(n)
	case "correct":
		t.Correct, err = n.optFlag()
	case "verdict":
		str(&t.Verdict)
	case "extraction_rule":
		str(&t.ExtractionRule)
	case "env":
		str(&t.Task.Env)
	case "termination":
		var s string
		str(&s)
		t.Termination = traj.Termination(s)
	case "error":
		str(&t.Error)
	case "prompt_tokens":
		num(&t.PromptTokens)
	case "completion_tokens":
		num(&t.CompletionTokens)
	case "turns":
		_, err = n.value() // told by the steps
	case "duration_ms":
		big(&t.DurationMS)
	case "started_at":
		t.StartedAt, err = n.instant()
	case ColumnInfos:
		t.Infos, err = decodeInfos(n)
	case ColumnLossWeights:
		err = decodeWeights(n, t)
	case ColumnExperts:
		err = decodeExperts(n, t)
	case ColumnImages:
		t.Images, err = decodeImages(n)
	case "meta":
		var s string
		if s, err = n.json(); s != "" && s != "{}" {
			if !json.Valid([]byte(s)) {
				return fmt.Errorf("is not JSON: %.60q", s)
			}
			t.Task.Meta = json.RawMessage(s)
		}
	default:
		_, err = n.value()
	}
	return err
}

func decodeMessages(n *node, links *imageLinks) ([]traj.Message, error) {
	type read struct {
		traj.Message
		refs []imageRef
	}
	all, err := structs(n, func(f *node, m *read) (err error) {
		switch f.name {
		case "role":
			m.Role, _, err = f.text()
		case "content":
			m.Content, _, err = f.text()
		case "reasoning", "reasoning_content":
			m.Reasoning, _, err = f.text()
		case "name":
			m.Name, _, err = f.text()
		case "tool_call_id":
			m.ToolCallID, _, err = f.text()
		case "tool_calls":
			m.ToolCalls, err = structs(f, func(f *node, c *traj.ToolCall) (err error) {
				switch f.name {
				case "id":
					c.ID, _, err = f.text()
				case "name":
					c.Name, _, err = f.text()
				case "arguments":
					c.Arguments, err = f.json()
				default:
					_, err = f.value()
				}
				return err
			})
		case "images":
			m.Images, err = structs(f, func(f *node, im *traj.Image) (err error) {
				switch f.name {
				case "path":
					im.Path, _, err = f.text()
				case "bytes":
					im.Bytes, err = f.blob()
				default:
					_, err = f.value()
				}
				return err
			})
		case "image_refs":
			m.refs, err = structs(f, decodeRef)
		default:
			_, err = f.value()
		}
		return err
	})
	if all == nil {
		return nil, err
	}
	messages := make([]traj.Message, len(all))
	for i := range all {
		messages[i] = all[i].Message
		for place, r := range all[i].refs {
			r.message, r.place = i, place
			links.refs = append(links.refs, r)
		}
	}
	return messages, err
}

func decodeRef(f *node, r *imageRef) (err error) {
	var v int64
	switch f.name {
	case "image":
		v, err = f.integer()
		r.image = int(v)
	case "at":
		v, err = f.integer()
		r.at = int(v)
	default:
		_, err = f.value()
	}
	return err
}

func decodeSteps(n *node) ([]traj.Step, error) {
	steps, err := structs(n, decodeStepField)
	for i := range steps {
		s := &steps[i]
		if v := len(s.PolicyVersions); err == nil && v > 1 && v != s.End-s.Start {
			err = malformed.Field("policy_versions", malformed.Mismatch, "step %d has %d versions of %d tokens", i, v, s.End-s.Start)
		}
	}
	return steps, err
}

func decodeStepField(f *node, s *traj.Step) (err error) {
	num := func(p *int) {
		var v int64
		v, err = f.integer()
		*p = int(v)
	}
	float := func(p *float64) {
		var v *float64
		if v, err = f.optNumber(); v != nil {
			*p = *v
		}
	}
	optional := func(p **int) {
		var v *float64
		if v, err = f.optNumber(); v != nil {
			n := int(*v)
			*p = &n
		}
	}
	switch f.name {
	case "sequence":
		num(&s.Sequence)
	case "start":
		num(&s.Start)
	case "end":
		num(&s.End)
	case "finish_reason":
		s.FinishReason, _, err = f.text()
	case "tool_calls":
		num(&s.ToolCalls)
	case "tool_errors":
		num(&s.ToolErrors)
	case "reward":
		s.Reward, err = f.optNumber()
	case "prompt_tokens":
		num(&s.PromptTokens)
	case "completion_tokens":
		num(&s.CompletionTokens)
	case "model_ms":
		float(&s.ModelMS)
	case "env_ms":
		float(&s.EnvMS)
	case "error":
		s.Error, _, err = f.text()
	case "tool_cached":
		optional(&s.ToolCached)
	case "tool_malformed":
		optional(&s.ToolMalformed)
	case "policy_versions":
		s.PolicyVersions, err = versionsOf(f)
	default:
		_, err = f.value()
	}
	return err
}

func decodeSequences(n *node) ([]traj.Sequence, error) {
	seqs, err := structs(n, func(f *node, s *traj.Sequence) (err error) {
		switch f.name {
		case "token_ids":
			s.TokenIDs, err = f.ids()
		case "loss_mask":
			s.LossMask, err = f.flags(len(s.TokenIDs))
		case "logprobs":
			s.Logprobs, err = f.logprobs(len(s.TokenIDs))
		case "images":
			s.Images, err = decodeSpans(f)
		default:
			_, err = f.value()
		}
		return err
	})
	for i := range seqs {
		s := &seqs[i]
		if len(s.Logprobs) == 0 { // none were recorded
			s.Logprobs = make([]traj.Logprob, len(s.TokenIDs))
			for j := range s.Logprobs {
				s.Logprobs[j] = traj.NoLogprob()
			}
		}
		if verr := s.Validate(); err == nil && verr != nil {
			err = malformed.Errorf(malformed.Mismatch, "number %d: %w", i, verr)
		}
	}
	return seqs, err
}

func decodeParts(n *node) ([]traj.Part, error) {
	return structs(n, func(f *node, p *traj.Part) (err error) {
		switch f.name {
		case "name":
			p.Name, _, err = f.text()
		case "value":
			var v *float64
			if v, err = f.optNumber(); v != nil {
				p.Value = *v
			}
		default:
			_, err = f.value()
		}
		return err
	})
}

// decodeInfos reads a list of JSON objects, null where there is none.
func decodeInfos(n *node) (all []traj.Info, err error) {
	if n.kind != listKind {
		return nil, n.wrong("a list of JSON objects")
	}
	if n.null() {
		return nil, n.first.err
	}
	err = n.elements(func() error {
		s, err := n.children[0].json()
		var info traj.Info
		if err == nil && s != "" {
			if err = info.UnmarshalJSON([]byte(s)); err != nil {
				err = malformed.Errorf(malformed.Type, "number %d %w: %.60q", len(all), err, s)
			}
		}
		all = append(all, info)
		return err
	})
	return all, err
}

// decodeWeights reads a list of weights for each sequence, null where all are 1; the
// sequences come first in the file.
func decodeWeights(n *node, t *traj.Trajectory) error {
	if n.kind != listKind {
		return n.wrong("a list of weights for each sequence")
	}
	if n.null() {
		return n.first.err
	}
	i := 0
	err := n.elements(func() error {
		w, err := weightList(n.children[0])
		switch {
		case err != nil || i >= len(t.Sequences):
		case w != nil && len(w) != len(t.Sequences[i].TokenIDs):
			err = malformed.Errorf(malformed.Mismatch, "it has %d weights for the %d tokens of sequence %d", len(w), len(t.Sequences[i].TokenIDs), i)
		default:
			t.Sequences[i].Weights = w
		}
		i++
		return err
	})
	if err == nil && i != len(t.Sequences) && t.Sequences != nil {
		err = malformed.Errorf(malformed.Mismatch, "it has %d lists of weights for %d sequences", i, len(t.Sequences))
	}
	return err
}

// decodeExperts reads those of each sequence, null where they are not known; the sequences come first
// in the file.
func decodeExperts(n *node, t *traj.Trajectory) error {
	all, err := structs(n, func(f *node, e *traj.Experts) (err error) {
		var v int64
		switch f.name {
		case "layers":
			v, err = f.integer()
			e.Layers = int(v)
		case "active":
			v, err = f.integer()
			e.Active = int(v)
		case "ids":
			var b []byte
			if b, err = f.blob(); err == nil {
				e.IDs, err = traj.ExpertIDsOf(b)
			}
		default:
			_, err = f.value()
		}
		return err
	})
	if err != nil || all == nil {
		return err
	}
	if len(all) != len(t.Sequences) && t.Sequences != nil {
		return malformed.Errorf(malformed.Mismatch, "it has experts of %d sequences, there are %d", len(all), len(t.Sequences))
	}
	for i := range t.Sequences {
		e := &all[i]
		if len(e.IDs) == 0 {
			continue
		}
		if err := e.Validate(len(t.Sequences[i].TokenIDs)); err != nil {
			return malformed.Errorf(malformed.Mismatch, "sequence %d: %w", i, err)
		}
		t.Sequences[i].Experts = e
	}
	return nil
}
