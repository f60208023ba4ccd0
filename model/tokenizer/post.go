package tokenizer

import (
	"encoding/json"

	"agentcli/internal/malformed"
)

// postProcessor is the special tokens that are put around a text.
type postProcessor struct{ before, after []int32 }

// theText stands in a list of ids for the text's own.
const theText = -1

// parsePost reads the field of tokenizer.json, for a vocabulary of so many ids.
func parsePost(raw json.RawMessage, size int) (p postProcessor, err error) {
	if isNull(raw) {
		return p, nil
	}
	var s step
	if err := json.Unmarshal(raw, &s); err != nil {
		return p, err
	}
	parts, err := s.process([][]int32{{theText}}, size)
	if err != nil {
		return p, err
	}
	texts := 0
	for _, part := range parts {
		for _, id := range part {
			switch {
			case id == theText:
				texts++
			case texts == 0:
				p.before = append(p.before, id)
			default:
				p.after = append(p.after, id)
			}
		}
	}
	if texts != 1 {
		return p, malformed.Errorf(malformed.Unsupported, "it gives the text %d times instead of once", texts)
	}
	return p, nil
}

// process gives what becomes of a list of parts, as the tokenizers library
// does: a template makes a part of each of its pieces, which the processor after
// it in a sequence takes for texts.
func (s step) process(parts [][]int32, size int) (out [][]int32, err error) {
	switch s.Type {
	case "ByteLevel": // moves offsets only
		return parts, nil
	case "Sequence":
		for _, inner := range s.Processors {
			if parts, err = inner.process(parts, size); err != nil {
				return nil, err
			}
		}
		return parts, nil
	case "BertProcessing", "RobertaProcessing":
		sep, err := s.Sep.inVocabulary(size)
		if err != nil {
			return nil, err
		}
		cls, err := s.Cls.inVocabulary(size)
		if err != nil {
			return nil, err
		}
		for i, part := range parts {
			var p []int32
			if i == 0 {
				p = append(p, cls)
			} else if s.Type == "RobertaProcessing" {
				p = append(p, sep)
			}
			out = append(out, append(append(p, part...), sep))
		}
		return out, nil
	case "TemplateProcessing":
		return s.template(parts, size)
	}
	return nil, unknownType(s.Type, "post-processor")
}

func (s step) template(parts [][]int32, size int) (out [][]int32, err error) {
	pieces := s.Single
	switch len(parts) {
	case 1:
	case 2:
		pieces = s.Pair
	default:
		return nil, malformed.Errorf(malformed.Unsupported, "a template after one of %d parts", len(parts))
	}
	for _, piece := range pieces {
		switch {
		case piece.Sequence != nil && piece.Sequence.ID == "A":
			out = append(out, parts[0])
		case piece.Sequence != nil && piece.Sequence.ID == "B" && len(parts) == 2:
			out = append(out, parts[1])
		case piece.SpecialToken != nil:
			st, ok := s.SpecialTokens[piece.SpecialToken.ID]
			if !ok {
				return nil, malformed.Errorf(malformed.Missing, "the template names %q, which special_tokens lacks", piece.SpecialToken.ID)
			}
			var ids []int32
			for _, id := range st.IDs {
				if id < 0 || id >= int64(size) {
					return nil, malformed.Errorf(malformed.Range, "%q has id %d, which is not in the vocabulary", piece.SpecialToken.ID, id)
				}
				ids = append(ids, int32(id))
			}
			out = append(out, ids)
		default:
			return nil, malformed.Errorf(malformed.Unsupported, "the template has a piece that is neither a special token nor the text")
		}
		if len(out) > maxSteps {
			return nil, malformed.Errorf(malformed.Range, "the template has more than %d pieces", maxSteps)
		}
	}
	return out, nil
}

// tokenID is a pair ["[SEP]", 102].
type tokenID struct {
	token string
	id    int64
}

func (t *tokenID) UnmarshalJSON(b []byte) error {
	var pair []json.RawMessage
	if err := json.Unmarshal(b, &pair); err != nil {
		return err
	}
	if len(pair) != 2 || json.Unmarshal(pair[0], &t.token) != nil || json.Unmarshal(pair[1], &t.id) != nil {
		return malformed.Errorf(malformed.Type, "no pair of a token and its id")
	}
	return nil
}

func (t *tokenID) inVocabulary(size int) (int32, error) {
	if t == nil {
		return 0, malformed.Errorf(malformed.Missing, "no cls or no sep")
	}
	if t.id < 0 || t.id >= int64(size) {
		return 0, malformed.Errorf(malformed.Range, "%q has id %d, which is not in the vocabulary", t.token, t.id)
	}
	return int32(t.id), nil
}

// json is the field of tokenizer.json: nil where nothing is added.
func (p postProcessor) json(tokens []string) any {
	if len(p.before)+len(p.after) == 0 {
		return nil
	}
	single := []any{}
	specials := map[string]any{}
	token := func(ids []int32) {
		for _, id := range ids {
			s := tokens[id]
			single = append(single, map[string]any{"SpecialToken": map[string]any{"id": s, "type_id": 0}})
			specials[s] = map[string]any{"id": s, "ids": []int32{id}, "tokens": []string{s}}
		}
	}
	token(p.before)
	single = append(single, map[string]any{"Sequence": map[string]any{"id": "A", "type_id": 0}})
	token(p.after)
	pair := append(append([]any{}, single...), map[string]any{"Sequence": map[string]any{"id": "B", "type_id": 1}})
	return map[string]any{"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": specials}
}
