package tokenizer

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/internal/goldenfile"
)

// TestRealTokenizers compares the tokenizers of a folder (scripts/tokenizers.sh
// fetches some) with the tokenizers library on the hard strings, and what a GGUF
// of each gives, where llama.cpp has such a tokenizer.
func TestRealTokenizers(t *testing.T) {
	dir, python := os.Getenv("AGENTCLI_TOKENIZERS"), os.Getenv("AGENTCLI_PYTHON")
	if dir == "" || python == "" {
		t.Skip("set AGENTCLI_TOKENIZERS to a folder of NAME/tokenizer.json and AGENTCLI_PYTHON to a Python with tokenizers 0.23")
	}
	var texts []string
	goldenfile.Load(t, "hard.json", &texts)
	files, err := filepath.Glob(filepath.Join(dir, "*", "tokenizer.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no NAME/tokenizer.json in %s: %v", dir, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			out, err := exec.Command(python, "../../scripts/golden/hard.py", file, "testdata/hard.json").Output()
			if err != nil {
				t.Fatal(err)
			}
			var g golden
			if err := json.Unmarshal(out, &g); err != nil {
				t.Fatal(err)
			}
			tok, err := Open(file)
			if err != nil {
				t.Fatal(err)
			}
			compareHard(t, tok, g, texts)
			kv, err := ToGGUF(tok, tok.VocabSize())
			if err != nil {
				t.Log(err)
				return
			}
			t.Logf("%d keys of a GGUF", len(kv))
			back := again(t, tok, tok.VocabSize())
			for _, s := range texts {
				if a, b := tok.EncodeOrdinary(s), back.EncodeOrdinary(s); !slices.Equal(a, b) {
					t.Errorf("in a GGUF %+q\n gives %v %q\nnot %v %q", s, b, words(tok, b), a, words(tok, a))
				}
			}
		})
	}
}

// compareHard holds ids and texts against the library's.
func compareHard(t *testing.T, tok *Tokenizer, g golden, texts []string) {
	t.Helper()
	for i, s := range texts {
		for what, c := range map[string][2][]int32{"Encode": {tok.Encode(s, false), g.Encode[i]},
			"Encode special": {tok.Encode(s, true), g.Special[i]},
			"EncodeOrdinary": {tok.EncodeOrdinary(s), g.Ordinary[i]}} {
			if !slices.Equal(c[0], c[1]) {
				t.Errorf("%s(%+q)\n got %v %q\nwant %v %q", what, s, c[0], words(tok, c[0]), c[1], words(tok, c[1]))
			}
		}
	}
	for i, ids := range g.IDs {
		if got := tok.Decode(ids, false); got != g.Decode[i] {
			t.Errorf("Decode(%v) = %+q, want %+q", ids, got, g.Decode[i])
		}
		if got := tok.Decode(ids, true); got != g.DecodeSkip[i] {
			t.Errorf("Decode(%v, skip) = %+q, want %+q", ids, got, g.DecodeSkip[i])
		}
		st, sb := tok.NewStream(false), strings.Builder{}
		for _, id := range ids {
			sb.WriteString(st.Add(id))
		}
		if sb.WriteString(st.Flush()); sb.String() != g.Decode[i] {
			t.Errorf("stream of %v = %+q, want %+q", ids, sb.String(), g.Decode[i])
		}
	}
}
