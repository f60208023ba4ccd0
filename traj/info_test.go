package traj

import (
	"encoding/json"
	"testing"
)

// TestAnInfoIsTheSameBehindAJournal: a run that is resumed has the text that one has which
// was never interrupted.
func TestAnInfoIsTheSameBehindAJournal(t *testing.T) {
	for _, said := range []string{`{"a": 1, "b": [ 2 ]}`, `{"t": "<think> & \u003c \\u003c \\\u003e"}`, "{\"t\":\"\u2028 \\u2029\"}", `{}`,
		`{"n": 1.50, "n": 2}`, `{"b":1,"a":"\\"}`, `{"x":"\u00e9 \"\\\\u0026"}`} {
		row := Trajectory{Steps: make([]Step, 1)}
		row.SetInfo(Info(said))
		kept, err := json.Marshal(&row)
		if err != nil {
			t.Fatal(err)
		}
		var back Trajectory
		if err := json.Unmarshal(kept, &back); err != nil {
			t.Fatal(err)
		}
		if string(back.Infos[0]) != string(row.Infos[0]) {
			t.Errorf("%s is kept as %s, and read as %s", said, row.Infos[0], back.Infos[0])
		}
		var before, after map[string]any
		if json.Unmarshal([]byte(said), &before) != nil || json.Unmarshal(row.Infos[0], &after) != nil {
			t.Fatalf("%s became %s", said, row.Infos[0])
		}
		for k, v := range before {
			if a, _ := json.Marshal(v); string(a) != func() string { b, _ := json.Marshal(after[k]); return string(b) }() {
				t.Errorf("%s says %v, and was %v", k, after[k], v)
			}
		}
	}
}
