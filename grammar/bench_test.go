package grammar

import (
	"bufio"
	"encoding/base64"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// benchVocabulary is the vocabulary of the tiktoken file that AGENTCLI_VOCABULARY names (a token
// in base64 and its number a line), or a synthetic one of 150,000 tokens.
func benchVocabulary(b *testing.B) *Vocabulary {
	path := os.Getenv("AGENTCLI_VOCABULARY")
	if path == "" {
		v, _ := testVocabulary(150_000)
		return v
	}
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	var tokens [][]byte
	for s := bufio.NewScanner(f); s.Scan(); {
		word, _, _ := strings.Cut(s.Text(), " ")
		text, err := base64.StdEncoding.DecodeString(word)
		if err != nil {
			b.Fatal(err)
		}
		tokens = append(tokens, text)
	}
	end := int32(len(tokens))
	tokens = append(tokens, []byte("<|im_end|>"))
	special := make([]bool, len(tokens))
	special[end] = true
	return NewVocabulary(tokens, special, []int32{end})
}

// longest cuts a text into the longest tokens that fit.
func (v *Vocabulary) longestTokens(text []byte) (ids []int32) {
	for len(text) > 0 {
		at, id := int32(0), int32(-1)
		for _, c := range text {
			child := at + 1
			for child < v.tokenAt.nodes[at].end && v.tokenAt.nodes[child].char != c {
				child = v.tokenAt.nodes[child].end
			}
			if child == v.tokenAt.nodes[at].end {
				break
			}
			if at = child; v.tokenAt.nodes[at].count > 0 {
				id = v.tokenAt.at(at)[0]
			}
		}
		ids = append(ids, id)
		text = text[len(v.tokens[id]):]
	}
	return ids
}

// BenchmarkMask measures Fill and Accept for each token of the valid documents of testdata,
// in schemas that have not been used before (cold) and then again (warm). It reports µs a
// token: the median, 99 % and the greatest; and ms to compile a schema.
func BenchmarkMask(b *testing.B) {
	v := benchVocabulary(b)
	schemas := realSchemas(b)
	r := rand.New(rand.NewPCG(1, 1))
	mask := make([]uint32, (v.Size()+31)/32)
	for b.Loop() {
		var compile, cold, warm []float64
		grammars := map[int]*Grammar{}
		docs := documents(b)
		r.Shuffle(len(docs), func(i, j int) { docs[i], docs[j] = docs[j], docs[i] })
		for _, took := range []*[]float64{&cold, &warm, &warm} {
			for _, d := range docs {
				if !d.Valid {
					continue
				}
				g := grammars[d.Schema]
				if g == nil {
					start := time.Now()
					g, _ = JSONSchema(schemas[d.Schema], Options{})
					compile = append(compile, micros(start))
					grammars[d.Schema] = g
				}
				m := g.Matcher(v)
				for _, id := range v.longestTokens([]byte(d.Text)) {
					start := time.Now()
					m.Fill(mask)
					if !m.Accept(id) {
						b.Fatalf("%s: %q is refused", d.Text, v.tokens[id])
					}
					*took = append(*took, micros(start))
				}
			}
		}
		for name, of := range map[string][]float64{"compile": compile, "cold": cold, "warm": warm} {
			slices.Sort(of)
			b.ReportMetric(of[len(of)/2], name+"-median-µs")
			b.ReportMetric(of[len(of)*99/100], name+"-99%-µs")
			b.ReportMetric(of[len(of)-1], name+"-max-µs")
		}
		b.ReportMetric(float64(len(cold)), "tokens")
	}
}

// BenchmarkToolCalls measures the same for a reply with text and a call, in a grammar made for each
// reply, as a server makes it; µs to make one, too.
func BenchmarkToolCalls(b *testing.B) {
	v := benchVocabulary(b)
	mask := make([]uint32, (v.Size()+31)/32)
	reply := strings.Repeat("Let me look at the weather in Oslo. ", 20) +
		"\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 3}}\n</tool_call>"
	var compile, took []float64
	for b.Loop() {
		start := time.Now()
		g, err := ToolCalls(Calls{Format: "hermes", Tools: weather}, Options{})
		if err != nil {
			b.Fatal(err)
		}
		compile = append(compile, micros(start))
		m := g.Matcher(v)
		for _, id := range v.longestTokens([]byte(reply)) {
			start := time.Now()
			m.Fill(mask)
			if !m.Accept(id) {
				b.Fatalf("%q is refused", v.tokens[id])
			}
			took = append(took, micros(start))
		}
	}
	for name, of := range map[string][]float64{"compile": compile, "token": took} {
		slices.Sort(of)
		b.ReportMetric(of[len(of)/2], name+"-median-µs")
		b.ReportMetric(of[len(of)*99/100], name+"-99%-µs")
		b.ReportMetric(of[len(of)-1], name+"-max-µs")
	}
}

func micros(start time.Time) float64 { return float64(time.Since(start).Nanoseconds()) / 1000 }

// BenchmarkNewMask measures the mask of the inside of a string and of free text, which a
// vocabulary has once.
func BenchmarkNewMask(b *testing.B) {
	v := benchVocabulary(b)
	text := common().text
	free := (&budget{states: 1 << 20, work: 1 << 28}).thought(textOf("</think>"))
	b.Run("string", func(b *testing.B) {
		for b.Loop() {
			newTermMask(v, text, text.step(text.begin, '"'), true)
		}
	})
	b.Run("free", func(b *testing.B) {
		for b.Loop() {
			newTermMask(v, free, free.begin, true)
		}
	})
}
