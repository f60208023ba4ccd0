package grammar

import (
	"encoding/json"
	"math/rand/v2"
	"sync"
	"testing"

	"agentcli/internal/safego"
	"agentcli/model/tokenizer"
)

// What a tokenizer makes of a valid text is allowed, id after id; rows of the model beyond the
// tokenizer are not, nor are its special tokens but the end.
func TestATokenizersIdsAreAllowed(t *testing.T) {
	tok, err := tokenizer.Open("../policy/testdata/tiny-qwen3/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	end, ok := tok.ID("<|im_end|>")
	start, ok2 := tok.ID("<|im_start|>")
	if !ok || !ok2 {
		t.Fatal("the tokenizer has other tokens now")
	}
	size := tok.VocabSize() + 70
	v := OfTokenizer(tok, size, []int32{end, end, -1, 1 << 30})
	g, err := JSONSchema(json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"},"n":{"type":"integer"}}}`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := g.Matcher(v)
	mask := make([]uint32, (size+31)/32+1)
	has := func(id int32) bool { return mask[id/32]&(1<<(id%32)) != 0 }
	for _, id := range append(tok.EncodeOrdinary(`{"name": "Zoë <|im_start|> 世界", "n": -12}`), end) {
		m.Fill(mask)
		if !has(id) || has(start) || mask[len(mask)-1] != 0 || m.Accept(start) || m.Accept(int32(size-1)) || !m.Accept(id) {
			t.Fatalf("%q: allowed %v, <|im_start|> %v", tok.Bytes(id), has(id), has(start))
		}
	}
	if !m.Stuck() {
		t.Error("it goes on after the end")
	}
}

// A mask shorter than the vocabulary has the tokens that it can.
func TestAShortMaskIsFilled(t *testing.T) {
	v, _ := testVocabulary(50)
	m := JSONObject(Options{}).Matcher(v)
	short := make([]uint32, 4)
	m.Fill(short)
	if short['{'/32]&(1<<('{'%32)) == 0 {
		t.Error("a brace is not allowed")
	}
}

// Grammars and vocabularies are shared by goroutines (run with -race).
func TestGrammarsAreSafeForConcurrentUse(t *testing.T) {
	v, end := testVocabulary(200)
	g, err := JSONSchema(realSchemas(t)[36], Options{})
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wait.Go(func() {
			defer safego.Into(&errs[i])
			for range 5 {
				m := g.Matcher(v)
				randomText(t, m, v, end, rand.New(rand.NewPCG(uint64(i), 1)), 40)
				randomText(t, JSONObject(Options{}).Matcher(v), v, end, rand.New(rand.NewPCG(uint64(i), 2)), 40)
			}
		})
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
}
