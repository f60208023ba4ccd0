//go:build libtorch

package serve

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"slices"
	"testing"
)

type trlReply struct {
	Prompt   [][]int32     `json:"prompt_ids"`
	IDs      [][]int32     `json:"completion_ids"`
	Logprobs [][][]float64 `json:"logprobs"`
	Ranked   [][][]int32   `json:"logprob_token_ids"`
}

// TestTRLsClientGetsWhatOthersGet: the same replies as vLLM's path to ids gives, in TRL's form.
// One reply is drawn at a time: on some processors libtorch's products of several rows depend on their number.
func TestTRLsClientGetsWhatOthersGet(t *testing.T) {
	x := start(t, func(o *Options) { o.Model.Parallel = 1 })
	prompts := [][]int32{{5, 9, 22}, {31, 7}}
	var got trlReply
	x.ask("/generate/", map[string]any{"prompts": prompts, "images": nil, "n": 2, "repetition_penalty": 1.0, "temperature": .8, "top_p": 1.0,
		"top_k": 0, "min_p": 0.0, "max_tokens": 99, "logprobs": 2, "structured_outputs_regex": nil,
		"generation_kwargs": map[string]any{"seed": 7, "max_tokens": 6}}, &got)
	if fmt.Sprint(got.Prompt) != fmt.Sprint(prompts) || len(got.IDs) != 4 || len(got.Logprobs) != 4 || len(got.Ranked) != 4 {
		t.Fatalf("%+v", got)
	}
	for i, prompt := range prompts {
		var want struct {
			Choices []struct {
				IDs []int32 `json:"token_ids"`
				LPs struct {
					Content []struct {
						Logprob float64
						ID      int32 `json:"token_id"`
					}
				} `json:"logprobs"`
			}
		}
		x.ask("/inference/v1/generate", map[string]any{"model": "tiny", "token_ids": prompt,
			"sampling_params": map[string]any{"n": 2, "temperature": .8, "seed": 7, "max_tokens": 6, "logprobs": 2}}, &want)
		for k, c := range want.Choices {
			ids := got.IDs[2*i+k]
			if !slices.Equal(ids, c.IDs) || len(ids) > 6 {
				t.Errorf("prompt %d, reply %d: %v, want %v", i, k, ids, c.IDs)
				continue
			}
			for j, own := range c.LPs.Content {
				lps, ranked := got.Logprobs[2*i+k][j], got.Ranked[2*i+k][j]
				at := slices.Index(ranked, own.ID)
				if at < 0 || len(lps) != len(ranked) || len(lps) < 2 || len(lps) > 3 || lps[at] != own.Logprob ||
					!slices.IsSortedFunc(lps, func(a, b float64) int { return int(math.Copysign(1, b-a)) }) {
					t.Errorf("prompt %d, reply %d, token %d: %v of %v, want %v of %d", i, k, j, lps, ranked, own.Logprob, own.ID)
				}
			}
		}
	}
	var texts trlReply // without log-probs
	x.ask("/generate/", map[string]any{"prompts": []string{"ab"}, "max_tokens": 2, "logprobs": nil}, &texts)
	if len(texts.IDs) != 1 || texts.Logprobs != nil || texts.Ranked != nil {
		t.Errorf("%+v", texts)
	}
}

func TestTRLsClientChats(t *testing.T) {
	x := start(t, nil)
	talk := []map[string]any{{"role": "user", "content": "What is 2 + 2?"}}
	tools := []any{map[string]any{"type": "function", "function": map[string]any{"name": "calculator",
		"parameters": map[string]any{"type": "object", "properties": map[string]any{}}}}}
	var got trlReply
	x.ask("/chat/", map[string]any{"messages": []any{talk, talk}, "max_tokens": 3, "tools": tools, "logprobs": 0,
		"chat_template_kwargs": map[string]any{"enable_thinking": false}}, &got)
	var want struct{ Tokens []int32 }
	x.ask("/tokenize", map[string]any{"messages": talk, "tools": tools,
		"chat_template_kwargs": map[string]any{"enable_thinking": false}}, &want)
	if len(got.Prompt) != 2 || !slices.Equal(got.Prompt[1], want.Tokens) || len(got.IDs) != 2 || len(got.Logprobs[0][0]) < 1 {
		t.Errorf("%+v, want the prompt %v", got, want.Tokens)
	}
}

// TestTRLsClientScores: as numbers, and as arrays in base64.
func TestTRLsClientScores(t *testing.T) {
	x := start(t, nil)
	ask := map[string]any{"sequences": [][]int32{{5, 9, 22, 31, 7}, {40, 3}, {8, 12}}, "prompt_lengths": []int{2, 2, 0}, "top_logprobs": 3,
		"temperature": 1.0, "response_format": "json"}
	var plain trlReply
	x.ask("/get_sequence_logprobs/", ask, &plain)
	if len(plain.Logprobs) != 3 || len(plain.Logprobs[0]) != 3 || len(plain.Logprobs[1]) != 0 || len(plain.Logprobs[2]) != 2 ||
		len(plain.Logprobs[2][0]) != 0 {
		t.Fatalf("%+v", plain)
	}
	var echoed struct {
		Choices []struct {
			LPs struct {
				Token []*float64 `json:"token_logprobs"`
			} `json:"logprobs"`
		}
	}
	x.ask("/v1/completions", map[string]any{"model": "tiny", "prompt": []int32{5, 9, 22, 31, 7}, "echo": true, "max_tokens": 0,
		"logprobs": 1}, &echoed)
	ask["response_format"] = "binary"
	var packed struct {
		LPs     string `json:"logprobs_b64"`
		IDs     string `json:"token_ids_b64"`
		Own     string `json:"actual_logprobs_b64"`
		OwnIDs  string `json:"actual_token_ids_b64"`
		Shape   []int
		Lengths []int `json:"completion_lengths"`
	}
	x.ask("/get_sequence_logprobs/", ask, &packed)
	words := func(s string) (out []uint32) {
		b, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(b); i += 4 {
			out = append(out, binary.LittleEndian.Uint32(b[i:]))
		}
		return out
	}
	lps, ids, own, ownIDs := words(packed.LPs), words(packed.IDs), words(packed.Own), words(packed.OwnIDs)
	if fmt.Sprint(packed.Shape) != "[3 3 3]" || fmt.Sprint(packed.Lengths) != "[3 0 2]" || len(lps) != 27 || len(ids) != 27 || len(own) != 9 {
		t.Fatalf("%v %v, %d, %d, %d numbers", packed.Shape, packed.Lengths, len(lps), len(ids), len(own))
	}
	for i, want := range []int32{22, 31, 7} {
		lp := math.Float32frombits(own[i])
		if int32(ownIDs[i]) != want || math.Abs(float64(lp)-*echoed.Choices[0].LPs.Token[2+i]) > 1e-5 {
			t.Errorf("id %d has %v, want %d with %v", ownIDs[i], lp, want, *echoed.Choices[0].LPs.Token[2+i])
		}
		for k := range 3 {
			if int32(ids[3*i+k]) != plain.Ranked[0][i][k] || math.Float32frombits(lps[3*i+k]) != float32(plain.Logprobs[0][i][k]) {
				t.Errorf("position %d, rank %d: %v, %v in numbers", i, k, math.Float32frombits(lps[3*i+k]), plain.Logprobs[0][i][k])
			}
		}
	}
	for _, i := range []int{3, 5, 6, 8} { // no id, or nothing before it
		if !math.IsInf(float64(math.Float32frombits(own[i])), -1) {
			t.Errorf("place %d has a log-prob", i)
		}
	}
}

func TestBadRequestsOfTRLsClient(t *testing.T) {
	x := start(t, nil)
	long := make([]int32, 300)
	for name, c := range map[string]struct {
		path string
		body map[string]any
	}{
		"no prompts":            {"/generate/", map[string]any{}},
		"an empty prompt":       {"/generate/", map[string]any{"prompts": [][]int32{{}}}},
		"an unknown id":         {"/generate/", map[string]any{"prompts": [][]int32{{5, 9999}}}},
		"a prompt too long":     {"/generate/", map[string]any{"prompts": [][]int32{long}}},
		"a penalty":             {"/generate/", map[string]any{"prompts": []string{"a"}, "repetition_penalty": 1.2}},
		"settings of no kind":   {"/generate/", map[string]any{"prompts": []string{"a"}, "generation_kwargs": []int{1}}},
		"a bad regex":           {"/generate/", map[string]any{"prompts": []string{"a"}, "structured_outputs_regex": "("}},
		"images for fewer":      {"/generate/", map[string]any{"prompts": []string{"a"}, "images": []any{[]any{}, []any{}}}},
		"an image for no eyes":  {"/generate/", map[string]any{"prompts": []string{"a"}, "images": []any{[]any{"aGVsbG8="}}}},
		"too many log-probs":    {"/generate/", map[string]any{"prompts": []string{"a"}, "logprobs": 100000}},
		"no conversations":      {"/chat/", map[string]any{}},
		"an empty conversation": {"/chat/", map[string]any{"messages": []any{[]any{}}}},
		"no sequences":          {"/get_sequence_logprobs/", map[string]any{}},
		"lengths of fewer":      {"/get_sequence_logprobs/", map[string]any{"sequences": [][]int32{{5, 9}}, "prompt_lengths": []int{}}},
		"a length beyond":       {"/get_sequence_logprobs/", map[string]any{"sequences": [][]int32{{5, 9}}, "prompt_lengths": []int{3}}},
		"no top": {"/get_sequence_logprobs/", map[string]any{"sequences": [][]int32{{5}}, "prompt_lengths": []int{0},
			"top_logprobs": 0}},
		"another temperature": {"/get_sequence_logprobs/", map[string]any{"sequences": [][]int32{{5}}, "prompt_lengths": []int{0},
			"temperature": 2}},
		"an id of no word": {"/get_sequence_logprobs/", map[string]any{"sequences": [][]int32{{5, -2}}, "prompt_lengths": []int{0}}},
	} {
		if status, raw := x.post(c.path, c.body); status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, status, raw)
		}
	}
	if status, _ := x.post("/init_communicator/", map[string]any{}); status != http.StatusForbidden {
		t.Errorf("without --admin: %d", status)
	}
}
