package lossscale

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentcli/internal/malformed"
	"agentcli/internal/setting"
)

func TestAScaleIsAStrategyAndRules(t *testing.T) {
	for scale, want := range map[string][2]string{
		"default": {"default", ""}, "last_round": {"last_round", ""}, "all+react": {"all", "react"}, "hermes": {"default", "hermes"},
		"hermes+qwen": {"default", "hermes+qwen"}, "last_round+hermes+a/b.json": {"last_round", "hermes+a/b.json"},
		"last_rounds": {"default", "last_rounds"},
	} {
		strategy, rules := Split(scale)
		if [2]string{strategy, rules} != want {
			t.Errorf("%s: %q and %q", scale, strategy, rules)
		}
	}
	if _, rules := Split("all+"); rules == "" {
		t.Error("a + without a rule is passed over")
	}
	if got := MapFiles("hermes+a.json+./b", strings.ToUpper); got != "hermes+A.JSON+./B" || len(Files(got)) != 1 {
		t.Errorf("%s, files %v", got, Files(got))
	}
}

func TestAnUnknownRuleIsRefused(t *testing.T) {
	for _, rules := range []string{"hermess", "hermes+nonsense", "hermes+last_round", "hermes++react", "hermes+", "+", "Hermes"} {
		_, err := Open(rules)
		var s *setting.Error
		if !errors.Is(err, ErrUnknownRule) || !errors.As(err, &s) || s.Names[0] != "LossScale" {
			t.Errorf("%s: %v", rules, err)
		}
	}
	if _, err := Open("no/such.json"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for _, rules := range []string{"", "base"} {
		if r, err := Open(rules); r != nil || err != nil {
			t.Errorf("%q: %v, %v", rules, r, err)
		}
	}
	if _, err := Open("hermess"); !strings.Contains(err.Error(), "mean hermes?") {
		t.Errorf("the nearest name is not in: %v", err)
	}
}

func TestABadFileOfARuleIsRefused(t *testing.T) {
	for text, want := range map[string]malformed.Error{
		"":                                 {Kind: malformed.Missing},
		" \n":                              {Kind: malformed.Missing},
		"{}":                               {Kind: malformed.Missing},
		"[]":                               {Kind: malformed.Syntax},
		"nonsense":                         {Kind: malformed.Syntax},
		`{"a":[1]`:                         {Kind: malformed.Syntax},
		`{"a":[1]} {}`:                     {Kind: malformed.Syntax},
		`{"a":[1,]}`:                       {Field: "a", Kind: malformed.Syntax},
		`{"a":[-1]}`:                       {Field: "a", Kind: malformed.Range},
		`{"a":[NaN]}`:                      {Field: "a", Kind: malformed.Range},
		`{"a":[1, -Infinity]}`:             {Field: "a", Kind: malformed.Range},
		`{"a":Infinity}`:                   {Field: "a", Kind: malformed.Range},
		`{"a":[1e999]}`:                    {Field: "a", Kind: malformed.Range},
		`{"a":["2"]}`:                      {Field: "a", Kind: malformed.Type},
		`{"a":null}`:                       {Field: "a", Kind: malformed.Type},
		`{"a":[null]}`:                     {Field: "a", Kind: malformed.Type},
		`{"a":[]}`:                         {Field: "a", Kind: malformed.Mismatch},
		`{"a":[1,2,3]}`:                    {Field: "a", Kind: malformed.Mismatch},
		`{"a":[1],"b":[1,2]}`:              {Field: "b", Kind: malformed.Mismatch},
		`{"a":[1],"a":[2]}`:                {Field: "a", Kind: malformed.Duplicate},
		`{"":[1]}`:                         {Field: `""`, Kind: malformed.Range},
		`{"Act":[1,2],"Action:":[1,2]}`:    {Field: "Action:", Kind: malformed.Mismatch},
		`{"response":{},"other":{}}`:       {Field: "other", Kind: malformed.Unsupported},
		`{"response":{"a":[-1]}}`:          {Field: "a", Kind: malformed.Range},
		`{"query":{"a":[1,2]}}`:            {Field: "a", Kind: malformed.Mismatch},
		`{"response":{"a":[1]},"query":1}`: {Field: "query", Kind: malformed.Syntax},
		`{"a*":[1]}`:                       {Field: "a*", Kind: malformed.Range},
		`{"(?=a)b":[1]}`:                   {Field: "(?=a)b", Kind: malformed.Unsupported},
		`{"(a)\\1":[1]}`:                   {Field: `(a)\1`, Kind: malformed.Unsupported},
		`{"(a":[1]}`:                       {Field: "(a", Kind: malformed.Syntax},
	} {
		path := filepath.Join(t.TempDir(), "rule.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(path)
		want.Path = path
		if malformed.Facts(err) != want {
			t.Errorf("%s: %v: %+v", text, err, malformed.Facts(err))
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: the error has several lines: %v", text, err)
		}
	}
	// The longer one first is no overlap.
	if r := rulesOf(t, "own", `{"Action:":[1,2],"Act":[3,4]}`); len(r.Pieces("Act Action: x", nil)) != 4 {
		t.Errorf("%v", r.Pieces("Act Action: x", nil))
	}
}

// What Python and RE2 write or mean in different ways.
func TestPatternsArePythons(t *testing.T) {
	for pattern, want := range map[string]string{ // what it finds first of the text below
		`\s`: "\u2003", `\S+`: "ab]é٣", `[\s]`: "\u2003", `[^\S]`: "\u2003", `\d`: "٣", `[^\D]`: "٣", `\w+`: "ab", `[\w]+`: "ab", `\W`: "]",
		`é{,2}`: "", `é{1,}`: "é", `\u00e9`: "é", `\U000000e9`: "é", `\xe9`: "é", `\351`: "é", `[\]]`: "]", `[]]`: "]", `[^]a]`: "b",
		`(?P<x>b)`: "b", `(?:b)`: "b", `(?#note)b`: "b", `(?i:B)`: "b", `[[b]`: "b", `b\]`: "b]", `[a\-z]`: "a", `é.*\Z`: "é٣\u2003{x",
		`{x`:    "{x",
		`(?i)B`: "b", `(?sm)^A|b`: "b",
		`[\S]`: "a", `a+?`: "a", `^a`: "a", `\Aa`: "a", `b{1}`: "b", `[\d]`: "٣",
	} {
		const text = "ab]é٣\u2003{x"
		one, err := translate(pattern)
		if want == "" {
			if err == nil {
				t.Errorf("%s: %s", pattern, one)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", pattern, err)
			continue
		}
		r := &rule{keys: []*key{{text: pattern, weights: []float64{1}}}}
		if err := r.compile(); err != nil {
			t.Errorf("%s: %v", pattern, err)
			continue
		}
		if got := r.any.FindString(text); got != want {
			t.Errorf("%s as %s: %q, want %q", pattern, one, got, want)
		}
	}
	for pattern, want := range map[string]malformed.Kind{
		`a(?=b)`: malformed.Unsupported, `a(?!b)`: malformed.Unsupported, `(?<=a)b`: malformed.Unsupported, `(?<!a)b`: malformed.Unsupported,
		`(?P<x>a)(?P=x)`: malformed.Unsupported, `(a)\1`: malformed.Unsupported, `(?>a)`: malformed.Unsupported,
		`(a)?(?(1)b|c)d`: malformed.Unsupported,
		`a*+b`:           malformed.Unsupported, `a{2}+`: malformed.Unsupported, `a$`: malformed.Unsupported, `[\W]`: malformed.Unsupported,
		`(?x:a b)`: malformed.Unsupported, `(?x)a`: malformed.Unsupported, `a(?i)b`: malformed.Unsupported,
		`\pL`: malformed.Syntax, `\Qa\E`: malformed.Syntax,
		`\C`: malformed.Syntax,
		`[a`: malformed.Syntax, `a\`: malformed.Syntax, `*a`: malformed.Syntax, `a{2000}`: malformed.Syntax, `(?#a`: malformed.Syntax,
		`a|`: malformed.Range, `(?:a?){3}`: malformed.Range, `^`: malformed.Range, `\ba`: malformed.Unsupported, `[\B]`: malformed.Unsupported,
	} {
		if _, err := translate(pattern); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", pattern, err, want)
		}
	}
}

// A pattern on which Python's module re takes time exponential in the text.
func TestNoPatternBacktracksForEver(t *testing.T) {
	r := rulesOf(t, "own", `{"(a+)+b": [2], "(?:a|aa)+c": [2], "<x>.*?.*?.*?</x>": [2]}`)
	reply := strings.Repeat("a", 1<<16) + strings.Repeat("<x>", 1<<12)
	if p := r.Pieces(reply, nil); len(p) != 1 || p[0].Weight != 1 {
		t.Errorf("%d pieces", len(p))
	}
}

func TestWhatMatchesNothingIsKnown(t *testing.T) {
	r, err := Open("hermes+react")
	if err != nil {
		t.Fatal(err)
	}
	if r.Unmatched() != nil {
		t.Error("before a reply was read")
	}
	r.Pieces("Action: a", nil)
	if u := r.Unmatched(); len(u) != 1 || u[0].Rule != "hermes" || u[0].Patterns != nil || u[0].Replies != 1 {
		t.Errorf("%+v", u)
	}
	own := rulesOf(t, "own", `{"a": [1], "b": [2]}`)
	own.Pieces("bcb", nil)
	if u := own.Unmatched(); len(u) != 1 || len(u[0].Patterns) != 1 || u[0].Patterns[0] != "a" {
		t.Errorf("%+v", u)
	}
	own.Pieces("a", nil)
	if u := own.Unmatched(); u != nil {
		t.Errorf("%+v", u)
	}
}
