package lossscale

import (
	"math"
	"strings"
	"testing"
)

// Whatever a file says, it is refused or cuts a reply into pieces that are the reply, with
// weights that are numbers.
func FuzzAFileOfARule(f *testing.F) {
	for _, name := range Names() {
		data, err := builtin.ReadFile("rules/" + name + ".json")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, "Thought: a\nAction: b <tool_call>c</tool_call> <think>\n</think>\xff")
	}
	f.Add([]byte(`{"\\d{,3}[^\\s\\]]*?(?i:ab|c)\\Z": [0.5], "(?P<x>\\w)\\x41": [2]}`), "1a 22Ab")
	f.Fuzz(func(t *testing.T, data []byte, reply string) {
		r, err := readRule("fuzz", data)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("the error has several lines: %v", err)
			}
			return
		}
		var joined strings.Builder
		for _, p := range (&Rules{list: []*rule{r, r}}).Pieces(reply, []string{reply}) {
			joined.WriteString(p.Text)
			if p.Text == "" || !(p.Weight >= 0) || math.IsNaN(p.Weight) {
				t.Errorf("%+v", p)
			}
		}
		if joined.String() != reply {
			t.Errorf("%q came back as %q", reply, joined.String())
		}
	})
}
