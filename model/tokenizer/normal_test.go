package tokenizer

import (
	"testing"

	"agentcli/internal/goldenfile"

	"golang.org/x/text/unicode/norm"
)

// marks.json: texts with up to 70 combining marks and their four normal forms
// by Python's unicodedata.
func TestNormaliseManyMarks(t *testing.T) {
	var rows [][]string
	goldenfile.Load(t, "marks.json", &rows)
	for _, r := range rows {
		for i, f := range []norm.Form{norm.NFC, norm.NFD, norm.NFKC, norm.NFKD} {
			if got := normalise(f, r[0]); got != r[i+1] {
				t.Errorf("form %d of %+q\n got %+q\nwant %+q", i, r[0], got, r[i+1])
			}
		}
	}
}
