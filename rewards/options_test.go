package rewards

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"agentcli/internal/malformed"
	"agentcli/rewards/code"
	"agentcli/rewards/judge"
	"agentcli/traj"
)

func TestOptionsOfARowAreOverThoseOfTheRun(t *testing.T) {
	run, err := ParseOptions([]byte(`{"strict": true, "profile": "rllm", "length": {"max": 100, "buffer": 10}, "code": {"timeout": 3}}`))
	if err != nil {
		t.Fatal(err)
	}
	row, err := run.With([]byte(`{"strict": false, "length": {"max": 200}, "code": {"memory": 256}}`))
	if err != nil {
		t.Fatal(err)
	}
	if row.Strict || row.Profile != "rllm" || row.Length != (LengthSettings{Max: 200, Buffer: 10}) || row.Code.Timeout != 3 ||
		row.Code.Memory != 256 {
		t.Errorf("%+v", row)
	}
	if !run.Strict || run.Length.Max != 100 || run.Code.Memory != 0 {
		t.Errorf("a row has changed the run's options: %+v", run)
	}
	run, _ = run.With([]byte(`{"cosine": {"max": 9, "r0_wrong": -3}, "json-schema": {"schema": {"type": "array"}}}`))
	text := run.Text()
	if _, err := run.With([]byte(`{"cosine": {"r0_wrong": 5}, "json-schema": {"schema": {"type": "null"}}}`)); err != nil ||
		run.Text() != text {
		t.Errorf("a row has written through the run's options: %s, was %s, %v", run.Text(), text, err)
	}
	if (Options{}).Text() != "{}" || row.Text() == run.Text() {
		t.Errorf("%s, %s", row.Text(), run.Text())
	}
}

func TestOptionsThatMakeNoSenseAreNamed(t *testing.T) {
	for text, want := range map[string]struct {
		kind malformed.Kind
		near string
	}{
		`{"lengt": {}}`:                         {malformed.Unsupported, "length"},
		`{"length": {"maxx": 1}}`:               {malformed.Unsupported, "length.max"},
		`{"code": {"time_out": 1}}`:             {malformed.Unsupported, "code.timeout"},
		`{"Strict": true}`:                      {malformed.Unsupported, "strict"},
		`{"length": 5}`:                         {malformed.Type, "length"},
		`{"length": {"max": "a"}}`:              {malformed.Type, "length.max"},
		`{"length": {"max": 1.5}}`:              {malformed.Type, "length.max"},
		`{"strict": 1}`:                         {malformed.Type, "strict"},
		`{"length": {"max": -1}}`:               {malformed.Range, "length"},
		`{"length": {"max": 10, "buffer": 20}}`: {malformed.Range, "length"},
		`{"code": {"count": "most"}}`:           {malformed.Range, "code"},
		`{"language": {"script": "latn"}}`:      {malformed.Range, "latin"},
		`{"repetition": {"max_penalty": 1}}`:    {malformed.Range, "repetition"},
		`{"strict": tru`:                        {malformed.Syntax, ""},
		`{"strict"`:                             {malformed.Truncated, ""},
		`[]`:                                    {malformed.Type, ""},
		`5`:                                     {malformed.Type, ""},
	} {
		_, err := ParseOptions([]byte(text))
		if f := malformed.Facts(err); f.Field != "options" || f.Kind != want.kind || !strings.Contains(err.Error(), want.near) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %+v, %v", text, f, err)
		}
	}
}

// Nobody can score by a reward that lacks its settings, and the error shows them.
func TestRewardsThatNeedSettingsSaySo(t *testing.T) {
	for _, name := range []string{"length", "cosine", "math:1,length:.5", "math:1,cosine"} {
		if _, err := New(name, Options{}); err == nil || !strings.Contains(err.Error(), `"max"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"cosine", "cosine:1", "length:1,cosine:1"} {
		if _, err := New(name, Options{Length: LengthSettings{Max: 9, Buffer: 1}, Cosine: CosineSettings{Max: 9}}); err == nil {
			t.Errorf("%s follows nothing", name)
		}
	}
	if _, err := New("exec:true", Options{Length: LengthSettings{Max: 9}}); err == nil {
		t.Error("a grader's options were taken for a program")
	}
}

func TestATaskHasOptionsOfItsOwn(t *testing.T) {
	s := NewScorer(func(*traj.Trajectory) string { return "length" }, Options{Length: LengthSettings{Max: 100, Buffer: 50}})
	defer s.Close()
	for meta, want := range map[string]float64{
		``: -.5, `{"reward_options": {"length": {"max": 80}}}`: -.9, `{"reward_options": null}`: -.5, `{"x": "\"reward_options\""}`: -.5,
	} {
		a := attempt("x")
		a.CompletionTokens, a.Task.Meta = 75, []byte(meta)
		if err := s.Score(t.Context(), a); err != nil || *a.Reward != want || a.Correct != nil {
			t.Errorf("%s: %v, %v", meta, a.Reward, err)
		}
	}
	a := attempt("x")
	a.CompletionTokens, a.Task.Meta = 75, []byte(`{"reward_options": {"lenth": 1}}`)
	err := s.Score(t.Context(), a)
	if f := malformed.Facts(err); !errors.Is(err, malformed.Unsupported) || !strings.HasPrefix(f.Field, "meta.reward_options") {
		t.Error(err)
	}
	var _ io.Closer = s
}

func TestNamesTellWhatTheyNeed(t *testing.T) {
	for name, want := range map[string][3]bool{ // answers, meta, known
		"math": {true, false, true}, "length": {false, false, true}, "math:1,length:.2": {true, false, true}, "choice": {true, true, true},
		"length:1,language:1": {false, false, true}, "exec:x": {false, true, true}, "http://x": {false, true, true},
		"maths":          {true, false, false},
		"math:1,lenth:2": {true, false, false}, "code": {true, true, true},
	} {
		if got := [3]bool{NeedsAnswers(name, Options{}), ReadsMeta(name), Known(name)}; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// What is no option of a row stays: a judge, programs, messages.
func TestOptionsOfARowTakeNothingAway(t *testing.T) {
	j, err := judge.New(judge.Config{})
	if err != nil {
		t.Fatal(err)
	}
	o, err := Options{Judge: j, Notice: func(string) {}, Pass: []string{"X"}, Runner: noPrograms{}}.With([]byte(`{"strict":true}`))
	if err != nil {
		t.Fatal(err)
	}
	v := reflect.ValueOf(o)
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.Tag.Get("json") == "-" && v.Field(i).IsZero() {
			t.Errorf("%s is gone", f.Name)
		}
	}
}

type noPrograms struct{ code.Runner }

// An option that no reward reads is found, whatever rewards there are.
func TestAnOptionWithoutAReaderIsFound(t *testing.T) {
	for _, x := range []struct {
		options string
		names   []string
		want    string
	}{
		{`{}`, []string{"em"}, ""},
		{`{"profile": "rllm"}`, []string{"em", "math:1,length:.5"}, ""},
		{`{"profile": "rllm"}`, []string{"em"}, "profile"},
		{`{"strict": true}`, []string{"em"}, ""},
		{`{"strict": true}`, []string{"exact"}, "strict"},
		{`{"length": {"max": 9}, "strict": true}`, []string{"math"}, "length"},
		{`{"length": {"max": 9}}`, []string{"exact:1,length:.5"}, ""},
		{`{"float_rounding": 2}`, []string{"exec:x"}, "float_rounding"},
	} {
		o, err := ParseOptions([]byte(x.options))
		if got := o.Idle(x.names...); err != nil || got != x.want {
			t.Errorf("%s of %v: %q, %v, want %q", x.options, x.names, got, err, x.want)
		}
	}
	for name := range kinds {
		if one := (Options{}).settings(); one[name] != nil && !Reads(name, name) {
			t.Errorf("%s does not read its own settings", name)
		}
	}
	if Reads("exact", judgeName) || !Reads("judge:1,length:.5", judgeName) {
		t.Error("the judge is asked by the reward judge")
	}
}

// n = 0 is no n-gram, and does not stand for the usual one.
func TestAnNGramOfNoWordsIsRefused(t *testing.T) {
	if _, err := ParseOptions([]byte(`{"repetition": {"n": 0}}`)); malformed.Facts(err).Kind != malformed.Range {
		t.Error(err)
	}
}
