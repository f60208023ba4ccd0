package jinja

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// bomb is a template that would run, or grow, without end.
var bombs = map[string]string{
	"loops in loops":    strings.Repeat("{% for x in range(99999) %}", 8) + strings.Repeat("{% endfor %}", 8),
	"a macro of itself": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
	"doubling text":     "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
	"doubling lists":    "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
	"repeated text":     "{{ 'abc' * 10 ** 12 }}",
	"repeated nothing":  "{{ '' * 10 ** 12 }}{{ [] * 10 ** 12 }}",
	"a tree of lists":   "{% set ns = namespace(l=[]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
	"trees compared": "{% set a = namespace(l=[], m=[]) %}{% for i in range(60) %}{% set a.l = [a.l, a.l] %}{% set a.m = [a.m, a.m] %}" +
		"{% endfor %}" +
		"{{ a.l == a.m }}",
	"a tree as JSON": "{% set ns = namespace(l=[]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}" +
		"{% endfor %}{{ ns.l | tojson }}",
	"a deep list":         "{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
	"itself":              "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
	"a large power":       "{{ 9 ** 9 ** 9 }}{{ 99999 ** 99999 }}",
	"a wide field":        "{{ '%99999999999d' % 1 }}",
	"a wide field's twin": "{{ '{:>99999999999}'.format(1) }}",
	"blanks":              "{{ 'x' | center(10 ** 12) }}",
	"indented JSON":       "{{ [[1]] | tojson(indent=10 ** 12) }}",
	"a range":             "{{ range(10 ** 9) | list }}",
	"batches":             "{{ [1] | batch(10 ** 12, 'x') | list }}",
	"slices":              "{{ [1] | slice(10 ** 12) | list }}",
	"zeros":               "{{ 'x'.zfill(10 ** 12) }}",
	"tabs":                "{{ '\\t'.expandtabs(10 ** 12) }}",
	"replaced by more": "{% set ns = namespace(s='x' * 10000) %}{% for i in range(99) %}" +
		"{% set ns.s = ns.s.replace('x', 'x' * 100) %}{% endfor %}",
	"output": "{% set s = 'x' * 1000000 %}{% for i in range(9999) %}{{ s }}{% endfor %}",
	"a large hash": "{% set ns = namespace(t=()) %}{% for i in range(18) %}" +
		"{% set ns.t = (ns.t, ns.t, ns.t) %}{% endfor %}{{ {ns.t: 1} }}",
}

func TestHostileTemplatesEndWithALimit(t *testing.T) {
	for name, source := range bombs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			_, err := render(source, nil)
			if !errors.Is(err, ErrLimit) && !errors.Is(err, ErrValue) {
				t.Errorf("%v", err)
			}
			if took := time.Since(begin); took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func TestHostileTextIsRefusedByParse(t *testing.T) {
	for name, source := range map[string]string{
		"parentheses": "{{ " + strings.Repeat("(", 1e6) + "1" + strings.Repeat(")", 1e6) + " }}",
		"lists":       "{{ " + strings.Repeat("[", 1e6) + " }}",
		"nots":        "{{ " + strings.Repeat("not ", 1e6) + "1 }}",
		"minuses":     "{{ " + strings.Repeat("-", 1e6) + "1 }}",
		"ifs":         strings.Repeat("{% if 1 %}", 1e5),
		"elifs":       "{% if 1 %}" + strings.Repeat("{% elif 1 %}", 1e5) + "{% endif %}",
		"ternaries":   "{{ " + strings.Repeat("1 if 1 else ", 1e5) + "1 }}",
		"targets":     "{% set " + strings.Repeat("(", 1e5) + "x = 1 %}",
		"size":        strings.Repeat(" ", maxSource+1),
	} {
		if _, err := Parse(source); !errors.Is(err, ErrLimit) && !errors.Is(err, ErrSyntax) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestErrorsNameTheirKindAndLine(t *testing.T) {
	for source, want := range map[string]struct {
		kind error
		line int
	}{
		"a\n{{ raise_exception('no\nmore') }}": {ErrRaised, 2},
		"a\n\n{{ x.y }}":                       {ErrValue, 3},
		"{% if x %}\n\n":                       {ErrSyntax, 2},
		"\n{{ 1 + }}":                          {ErrSyntax, 2},
		"{#-\n-#}\n{% for x in [1] %}\n{{ 1 / 0 }}\n{% endfor %}": {ErrValue, 4},
		"{{ 'a' * 10 ** 12 }}": {ErrLimit, 1},
		"{% macro m() %}\n{{ none + 1 }}{% endmacro %}\n{{ m() }}": {ErrValue, 2},
	} {
		_, err := render(source, nil)
		if errors.Is(err, ErrFault) {
			t.Fatal(err)
		}
		var e *Error
		if !errors.As(err, &e) || !errors.Is(err, want.kind) || e.Line != want.line {
			t.Errorf("%q: %v, want %v in line %d", source, err, want.kind, want.line)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: the error has several lines", err)
		}
	}
}

// TestDataStaysData: whatever a template does with a text, its characters are known.
func TestDataStaysData(t *testing.T) {
	vars := map[string]any{"x": Data("[ab,cd]"), "l": NewList(Data("é"), Text("T")), "safe": Text("<own>")}
	for source, want := range map[string]string{ // data in brackets
		"a{{ x }}b":                                    "a«[ab,cd]»b",
		"{{ x[1:3] ~ 'ab' }}":                          "«ab»ab",
		"{{ 'ab' + x.split(',')[0] + 'ab' }}":          "ab«[ab»ab",
		"{{ x.strip('[]') | trim }}!":                  "«ab,cd»!",
		"{{ x.replace(',', '<s>') }}":                  "«[ab»<s>«cd]»",
		"{{ 'a,b'.replace(',', x) }}":                  "a«[ab,cd]»b",
		"{{ l | join('-') }}":                          "«é»-T",
		"{{ x | upper }}{{ safe | upper }}":            "«[AB,CD]»<OWN>",
		"{{ {'k': x} | tojson }}{{ [safe] | tojson }}": "«{\"k\": \"[ab,cd]\"}»[\"<own>\"]",
		"{{ l }}":                                                  "«['é', 'T']»",
		"{{ '%s and %s' % (x, safe) }}":                            "«[ab,cd]» and <own>",
		"{{ '<{}>'.format(x) }}":                                   "<«[ab,cd]»>",
		"{% set y %}({{ x }}){% endset %}{{ y }}":                  "(«[ab,cd]»)",
		"{% macro m(v) %}({{ v }}){% endmacro %}{{ m(x) }}":        "(«[ab,cd]»)",
		"{% for c in x %}{{ c }}.{% endfor %}":                     "«[».«a».«b».«,».«c».«d».«]».",
		"{{ 'a\nb' | indent(2) }}{{ (x ~ '\n' ~ x) | indent(2) }}": "a\n  b«[ab,cd]»\n  «[ab,cd]»",
		"{{ x | reverse }}{{ x[::-2] }}":                           "«]dc,ba[]cb[»",
		"{{ x | replace('ab', 'AB') }}":                            "«[»AB«,cd]»",
		"{{ x | center(11) }}":                                     "  «[ab,cd]»  ",
		"{{ x | escape }}{{ (safe | safe) + '<' }}":                "«[ab,cd]»<own>&lt;",
		"{{ x.partition(',')[2] }}{{ x | first }}{{ x | last }}":   "«cd][]»",
		"{% filter trim %} {{ x }} {% endfilter %}":                "«[ab,cd]»",
		"{{ x | truncate(6, true, '…', 0) }}":                      "«[ab,c»…",
		"{{ 'zz' if x == '[ab,cd]' else x }}":                      "zz",
	} {
		tmpl, err := Parse(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		out, err := tmpl.Render(vars, Options{})
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		text, got, at := out.Text.String(), "", 0
		for _, d := range out.Text.Data() {
			got += text[at:d.From] + "«" + text[d.From:d.To] + "»"
			at = d.To
		}
		if got += text[at:]; got != want {
			t.Errorf("%s\n got %s\nwant %s", source, got, want)
		}
	}
}

func TestFromJSONKeepsTheOrderAndTheLastOfAKey(t *testing.T) {
	v, err := FromJSON([]byte(`{"b": 1, "a": 2.0, "b": [true, null, 12345678901234567890]}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := render("{{ v | tojson }}", map[string]any{"v": v})
	if want := `{"b": [true, null, 12345678901234567890], "a": 2.0}`; got != want || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	for _, bad := range []string{"", "{", "[1,]", "1 2", `{"a":}`, strings.Repeat("[", 5000)} {
		if _, err := FromJSON([]byte(bad)); err == nil {
			t.Errorf("%.20q was read", bad)
		}
	}
}

func TestATemplateIsSafeForConcurrentUse(t *testing.T) {
	tmpl, err := Parse("{% set ns = namespace(n=0) %}{% for x in l %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}" +
		"{{ l | map('string') | join }}")
	if err != nil {
		t.Fatal(err)
	}
	vars := map[string]any{"l": NewList(int64(1), int64(2))}
	errs := make(chan error, 8)
	for range cap(errs) {
		go func() {
			out, err := tmpl.Render(vars, Options{})
			if err == nil && out.Text.String() != "312" {
				err = fmt.Errorf("%q", out.Text.String())
			}
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// FuzzRender: any text ends with a text or an error of this package.
// A fault of the package itself is an error, too, and of a kind of its own.
func TestNoPanicLeavesThePackage(t *testing.T) {
	defer func() {
		if x := recover(); x != nil {
			if err := thrown(x); !errors.Is(err, ErrFault) || strings.Contains(err.Error(), "\n") {
				t.Error(err)
			}
		}
	}()
	var none []int
	_ = none[len(none)]
}

func FuzzRender(f *testing.F) {
	for _, source := range bombs {
		f.Add(source)
	}
	f.Add("{% for m in ms %}{% if m.role == 'user' %}<{{ m['content'] | trim }}>{% endif %}{{ loop.index0 }}{% endfor %}")
	f.Add("{{ '%s{}'.format(d) % (1,) }}{% set x | indent(3) %}a{% endset %}{% call(a) m(*l, **d) %}{% endcall %}")
	message := NewDict()
	message.Set("role", Text("user"))
	message.Set("content", Data("hé"))
	small := Limits{Steps: 20_000, Bytes: 1 << 20, Output: 1 << 18, Depth: 50}
	f.Fuzz(func(t *testing.T, source string) {
		tmpl, err := Parse(source)
		if errors.Is(err, ErrFault) {
			t.Fatal(err)
		}
		if err == nil {
			var out Output
			out, err = tmpl.Render(map[string]any{"ms": NewList(message), "d": message, "l": NewList(int64(1), 2.5, nil)}, Options{Limits: small})
			if err == nil {
				at := 0
				for _, s := range out.Text.Data() {
					if s.From < at || s.To <= s.From || s.To > len(out.Text.String()) {
						t.Fatalf("the marks %v do not fit %q", out.Text.Data(), out.Text.String())
					}
					at = s.To
				}
			}
		}
		var e *Error
		if err != nil && !errors.As(err, &e) {
			t.Fatal(err)
		}
	})
}
