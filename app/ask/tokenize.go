package ask

import (
	"context"
	"io"

	"agentcli/internal/malformed"
	"agentcli/model/tokenizer"
)

type tokenizeLine struct {
	Text       *string `json:"text"`
	AddSpecial *bool   `json:"add_special_tokens"`
	TokenIDs   []int32 `json:"token_ids"`
}

// Tokenize answers {"text"} with {"token_ids"}; decode is the other way, special tokens kept.
func Tokenize(ctx context.Context, path string, decode bool, in io.Reader, out io.Writer) error {
	tok, err := tokenizer.Open(path)
	if err != nil {
		return err
	}
	return EachLine(ctx, in, out, func(q tokenizeLine) (any, error) {
		if decode {
			if q.TokenIDs == nil {
				return nil, malformed.Field("token_ids", malformed.Missing, "there are none")
			}
			for _, id := range q.TokenIDs {
				if tok.Bytes(id) == nil {
					return nil, malformed.Field("token_ids", malformed.Range, "%d is not in the vocabulary of %d tokens", id, tok.VocabSize())
				}
			}
			return struct {
				Text string `json:"text"`
			}{tok.Decode(q.TokenIDs, false)}, nil
		}
		if q.Text == nil {
			return nil, malformed.Field("text", malformed.Missing, "there is none")
		}
		// True is the default of the tokenizers that this is held against.
		ids := tok.Encode(*q.Text, q.AddSpecial == nil || *q.AddSpecial)
		return struct {
			TokenIDs []int32 `json:"token_ids"`
		}{notNil(ids)}, nil
	})
}

func notNil(ids []int32) []int32 {
	if ids == nil {
		return []int32{}
	}
	return ids
}
