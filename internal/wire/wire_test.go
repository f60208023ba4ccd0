package wire

import (
	"encoding/json"
	"strings"
	"testing"

	"agentcli/internal/malformed"
	"agentcli/traj"
)

// TestSamplingGoesOverTheRuns: what is given, and nothing else.
func TestSamplingGoesOverTheRuns(t *testing.T) {
	over, err := Sampling(json.RawMessage(`{"temperature":0,"top_k":-1,"max_tokens":7,"stop":["x"]}`))
	if err != nil {
		t.Fatal(err)
	}
	got := over(traj.Sampling{TopP: .5, TopK: 3, MaxTokens: 9, MinP: .1})
	if *got.Temperature != 0 || got.TopP != .5 || got.TopK != -1 || got.MinP != .1 || got.MaxTokens != 7 || got.Stop[0] != "x" {
		t.Errorf("%+v", got)
	}
	for _, nothing := range []string{"", "null"} {
		if over, err := Sampling(json.RawMessage(nothing)); over != nil || err != nil {
			t.Errorf("%q: %v", nothing, err)
		}
	}
}

// TestAKeyOrAValueThatIsWrongIsNamed.
func TestAKeyOrAValueThatIsWrongIsNamed(t *testing.T) {
	for text, want := range map[string]malformed.Kind{`{"temperatur":1}`: malformed.Unsupported, `{"top_p":"x"}`: malformed.Type,
		`{"top_p":2}`: malformed.Range, `{"max_tokens":0}`: malformed.Range, `{"top_k":-2}`: malformed.Range, `{"min_p":-1}`: malformed.Range,
		`{"temperature":-1}`: malformed.Range, `{"stop":"x"}`: malformed.Type, `[1]`: malformed.Type} {
		_, err := Sampling(json.RawMessage(text))
		if facts := malformed.Facts(err); facts.Kind != want || !strings.HasPrefix(facts.Field, "sampling") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
