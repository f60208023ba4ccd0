package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"agentcli/tokenizer"
)

// How a demonstration is shown (Shenfeld et al. 2026, Self-Distillation Enables
// Continual Learning, arXiv 2601.19897): behind the question, within the same
// message, so that it works with any chat format and any tools.
const (
	beforeDemonstration = "\n\nThis is an example for a response to the question:\n"
	afterDemonstration  = "\n\nNow answer with a response of your own, including the thinking process."
)

var errNoQuestion = errors.New("its question does not stand in its prompt as the file has it, so there is no place for a demonstration")

// demonstrate puts a demonstration behind the last place of a prompt where the
// question stands. Tokens before and behind stay as they are, but for one that
// the question ends within.
func demonstrate(tok *tokenizer.Tokenizer, prompt []int32, question, demonstration string) ([]int32, error) {
	var text strings.Builder
	ends := make([]int, len(prompt)) // of the tokens, in bytes
	for i, id := range prompt {
		text.Write(tok.Bytes(id))
		ends[i] = text.Len()
	}
	question = strings.TrimSpace(question)
	at := strings.LastIndex(text.String(), question)
	if at < 0 || question == "" {
		return nil, errNoQuestion
	}
	end := at + len(question)
	k, _ := slices.BinarySearch(ends, end) // the token that the question ends with or within
	if k == len(prompt) {
		return nil, fmt.Errorf("%w: it ends behind it", errNoQuestion) // cannot be
	}
	insert := beforeDemonstration + strings.TrimSpace(demonstration) + afterDemonstration
	if ends[k] == end {
		return slices.Concat(prompt[:k+1], tok.EncodeOrdinary(insert), prompt[k+1:]), nil
	}
	start := 0
	if k > 0 {
		start = ends[k-1]
	}
	whole := text.String()
	return slices.Concat(prompt[:k], tok.EncodeOrdinary(whole[start:end]+insert+whole[end:ends[k]]), prompt[k+1:]), nil
}
