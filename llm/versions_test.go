package llm

import (
	"encoding/json"
	"slices"
	"testing"
)

// TestVersionsOfAReplyAreItsTokens: pieces of one version and of several, one that says nothing,
// and fields that are not what agentcli serve means by them.
func TestVersionsOfAReplyAreItsTokens(t *testing.T) {
	type piece struct {
		said string
		n    int
	}
	for name, x := range map[string]struct {
		pieces []piece
		want   []int64
	}{
		"one version":              {[]piece{{`{"policy_version":3}`, 2}, {`{"policy_version":3}`, 1}}, []int64{3}},
		"as text":                  {[]piece{{`{"policy_version":"4"}`, 2}}, []int64{4}},
		"exchanged between pieces": {[]piece{{`{"policy_version":3}`, 2}, {`{"policy_version":4}`, 1}}, []int64{3, 3, 4}},
		"exchanged within a piece": {[]piece{{`{"policy_version":3,"token_versions":[3,4,4]}`, 3}}, []int64{3, 4, 4}},
		"a piece without tokens":   {[]piece{{`{}`, 0}, {`{"policy_version":3}`, 1}}, []int64{3}},
		"a piece that is silent":   {[]piece{{`{"policy_version":3}`, 1}, {`{}`, 1}}, nil},
		"a version in words":       {[]piece{{`{"policy_version":"step-3"}`, 1}}, nil},
		"other fields":             {[]piece{{`{"policy_version":3,"token_versions":"new"}`, 2}}, []int64{3}},
		"another number of them":   {[]piece{{`{"policy_version":3,"token_versions":[3,4]}`, 3}}, []int64{3}},
		"nothing":                  {nil, nil},
	} {
		var all tokenVersions
		n := 0
		for _, p := range x.pieces {
			var d versionFields
			if err := json.Unmarshal([]byte(p.said), &d); err != nil {
				t.Fatal(name, err)
			}
			all.add(d, p.n)
			n += p.n
		}
		if got := all.of(n); !slices.Equal(got, x.want) {
			t.Errorf("%s: %v, want %v", name, got, x.want)
		}
	}
}
