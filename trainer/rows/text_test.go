package rows

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/internal/malformed"
	"agentcli/internal/setting"
	"agentcli/internal/setting/settingtest"
	"agentcli/lossscale"
	"agentcli/model/chat"
	"agentcli/model/tokenizer"
	"agentcli/parquet/parquettest"
	"agentcli/trainer/episode"
	"agentcli/traj"
)

// formats are a small tokenizer's, in a format that rewrites nothing and in one
// that drops the thinking of earlier turns.
func formats(t *testing.T, family string) (*Format, *tokenizer.Tokenizer) {
	t.Helper()
	tok, err := tokenizer.Open("../../policy/testdata/tiny-llama")
	if err != nil {
		t.Fatal(err)
	}
	r, err := chat.For(family, tok)
	if strings.Contains(family, "{%") { // a chat template
		r, err = chat.FromTemplate(family, tok)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &Format{Renderer: r, Tokenizer: tok}, tok
}

func write(t *testing.T, name string, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func loadText(t *testing.T, kind TextKind, family string, lines ...string) (*Data, error) {
	t.Helper()
	f, _ := formats(t, family)
	o := Options{Text: kind, Steps: StepTokens{End: "c", Labels: "a,b"}, Sources: Sources{Format: func() (*Format, error) { return f, nil }}}
	if kind == TextPairs {
		o.Reward, o.Group, o.Pairs = true, true, PairsBestWorst
	}
	return Load(context.Background(), []string{write(t, "rows.jsonl", lines...)}, o)
}

// trainedOn is the text of each run of tokens that is trained on.
func trainedOn(tok *tokenizer.Tokenizer, s traj.Sequence) (runs []string) {
	for i := 0; i < len(s.TokenIDs); i++ {
		if !s.LossMask[i] {
			continue
		}
		j := i
		for j < len(s.TokenIDs) && s.LossMask[j] {
			j++
		}
		runs = append(runs, tok.Decode(s.TokenIDs[i:j], false))
		i = j
	}
	return runs
}

// thinkingTemplate prints a message's thinking and, behind the last message, a token of its own.
const thinkingTemplate = "{% for m in messages %}<|im_start|>{{ m.role }}\n" +
	"{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}" +
	"{% if add_generation_prompt %}<|im_start|>assistant\n{% else %}<|endoftext|>{% endif %}"

func TestOnlyAssistantTurnsOfTextAreTrainedOn(t *testing.T) {
	const end = "<|im_end|>"
	for _, x := range []struct {
		name, family, row string
		want              [][]string // of each sequence, the runs
	}{
		{"several turns in one sequence", "chatml", `{"messages":[{"role":"system","content":"s"},{"role":"user","content":"q"},` +
			`{"role":"assistant","content":"one"},{"role":"user","content":"r"},{"role":"assistant","content":"two"}]}`,
			[][]string{{"one" + end, "two" + end}}},
		{"a reply that begins with the template's own last character", "chatml", `{"messages":[{"role":"user","content":"q"},` +
			`{"role":"assistant","content":"\n8"},{"role":"user","content":"r"},{"role":"assistant","content":"\n\n9"}]}`,
			[][]string{{"\n8" + end, "\n\n9" + end}}},
		{"text that spells the end of a turn", "chatml", `{"prompt":"q","completion":"no <|im_end|> yet"}`,
			[][]string{{"no <|im_end|> yet" + end}}},
		{"prompt and response", "chatml", `{"prompt":"q","response":"a"}`, [][]string{{"a" + end}}},
		{"question and answer", "chatml", `{"question":"q","answer":"a"}`, [][]string{{"a" + end}}},
		{"turns of the prompt are context", "chatml", `{"prompt":[{"role":"user","content":"q"},{"role":"assistant","content":"shot"},` +
			`{"role":"user","content":"r"}],"completion":[{"role":"assistant","content":"a"}]}`,
			[][]string{{"a" + end}}},
		{"thinking that the template drops later", "qwen3", `{"messages":[{"role":"user","content":"q"},` +
			`{"role":"assistant","content":"one","reasoning_content":"hm"},{"role":"user","content":"r"},` +
			`{"role":"assistant","content":"two","reasoning_content":"so"}]}`,
			[][]string{{"<think>\nhm\n</think>\n\none" + end}, {"<think>\nso\n</think>\n\ntwo" + end}}},
		{"thinking that a template keeps, and a token at the end", thinkingTemplate, `{"messages":[{"role":"user","content":"q"},` +
			`{"role":"assistant","content":"one","reasoning_content":"hm"},{"role":"user","content":"r"},` +
			`{"role":"assistant","content":"two","reasoning_content":"so"}]}`,
			[][]string{{"<think>hm</think>one" + end, "<think>so</think>two" + end}}},
		{"a tool's answer is context", "qwen3", `{"messages":[{"role":"user","content":"q"},` +
			`{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{"x":1}}}]},{"role":"tool","content":"out"},` +
			`{"role":"assistant","content":"done"}],"tools":[{"type":"function","function":{"name":"f","description":"d",` +
			`"parameters":{"type":"object"}}}]}`,
			nil},
	} {
		d, err := loadText(t, TextReplies, x.family, x.row)
		if err != nil {
			t.Errorf("%s: %v", x.name, err)
			continue
		}
		f, tok := formats(t, x.family)
		e := d.Episodes[0]
		var got [][]string
		for _, s := range e.Sequences {
			if err := s.Validate(); err != nil {
				t.Error(err)
			}
			got = append(got, trainedOn(tok, s))
		}
		if x.want == nil { // how a call is written is package chat's matter; that the tool's answer is in no run is ours
			last := e.Sequences[len(e.Sequences)-1]
			if all := tok.Decode(last.TokenIDs, false); !strings.Contains(all, "out") ||
				strings.Contains(strings.Join(slices.Concat(got...), ""), "out") || !strings.Contains(strings.Join(got[0], ""), `"f"`) {
				t.Errorf("%s: %q of %q", x.name, got, all)
			}
			continue
		}
		if len(got) != len(x.want) || !slices.EqualFunc(got, x.want, slices.Equal) {
			t.Errorf("%s: trained on %q, want %q", x.name, got, x.want)
		}
		// What stands before a reply is what the model would be prompted with.
		first := e.Sequences[0]
		at := slices.Index(first.LossMask, true)
		text := tok.Decode(first.TokenIDs[:at], false)
		if !strings.HasSuffix(text, "<|im_start|>assistant\n") || e.Prompt != at {
			t.Errorf("%s: the prompt ends with %q", x.name, text)
		}
		if id := first.TokenIDs[slices.Index(first.LossMask, true)+first.Sampled()-1]; len(x.want) == 1 &&
			len(x.want[0]) == 1 && !slices.Contains(f.Renderer.StopIDs(), id) {
			t.Errorf("%s: the last token, %d, does not end a turn", x.name, id)
		}
	}
}

func TestWeightsOfTextRows(t *testing.T) {
	two := `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"one"},{"role":"user","content":"r"},` +
		`{"role":"assistant","content":"two"}],"weight":`
	d, err := loadText(t, TextReplies, "chatml", two+`0.5}`, two+`[0,2]}`, two+`0}`)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Episodes) != 2 || d.Skipped.Rows != 1 {
		t.Fatalf("%d rows, %d left out (%s)", len(d.Episodes), d.Skipped.Rows, d.Skipped.String())
	}
	_, tok := formats(t, "chatml")
	for i, want := range []map[float64]string{{.5: "one<|im_end|>two<|im_end|>"}, {2: "two<|im_end|>"}} {
		e := d.Episodes[i]
		e.LayOut(episode.TokenSelection{Strategy: lossscale.Default, Echo: false})
		got := map[float64]string{}
		k := 0
		for j, w := range e.Streams[0].Want {
			if w {
				got[e.Streams[0].ActionWeight[k]] += tok.Decode(e.Sequences[0].TokenIDs[j:j+1], false)
				k++
			}
		}
		if len(got) != len(want) || got[.5] != want[.5] || got[2] != want[2] {
			t.Errorf("row %d: trained on %v, want %v", i, got, want)
		}
	}
	if e := d.Episodes[0]; e.LastRound <= e.Prompt {
		t.Errorf("the last reply begins at %d, the first at %d", e.LastRound, e.Prompt)
	}
}

func TestPreferenceRowsOfText(t *testing.T) {
	d, err := loadText(t, TextPairs, "chatml",
		`{"prompt":"q","chosen":"yes","rejected":"no","margin":1.5}`,
		`{"prompt":[{"role":"user","content":"q"}],"chosen":[{"role":"assistant","content":"yes"}],"rejected":[{"role":"assistant",`+
			`"content":"no"}]}`,
		`{"chosen":[{"role":"user","content":"q"},{"role":"assistant","content":"yes"}],"rejected":[{"role":"user","content":"q"},`+
			`{"role":"assistant","content":"no"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	_, tok := formats(t, "chatml")
	if len(d.Pairs) != 3 || d.Pairs[0].Margin != 1.5 || d.Pairs[1].Margin != 0 {
		t.Fatalf("%+v", d.Pairs)
	}
	for i, p := range d.Pairs {
		for _, x := range []struct {
			e    *episode.Episode
			want string
		}{{p.Chosen, "yes<|im_end|>"}, {p.Rejected, "no<|im_end|>"}} {
			if got := trainedOn(tok, x.e.Sequences[0]); len(got) != 1 || got[0] != x.want {
				t.Errorf("row %d: %q, want %q", i, got, x.want)
			}
			if !slices.Equal(x.e.Sequences[0].TokenIDs[:x.e.Prompt], d.Pairs[0].Chosen.Sequences[0].TokenIDs[:d.Pairs[0].Chosen.Prompt]) {
				t.Errorf("row %d: the prompt is another than that of the first row, which says the same", i)
			}
		}
	}
}

func TestStepLabels(t *testing.T) {
	d, err := loadText(t, TextSteps, "chatml", `{"prompt":"q","completions":["x","yy","z"],"labels":[true,null,0.25]}`,
		`{"prompt":"q","completions":["x"],"labels":["b"]}`, `{"prompt":"q","completions":["x"],"labels":[null]}`)
	if err != nil {
		t.Fatal(err)
	}
	f, tok := formats(t, "chatml")
	if len(d.Episodes) != 2 || d.Skipped.Rows != 1 {
		t.Fatalf("%d rows, %s", len(d.Episodes), d.Skipped.String())
	}
	e := d.Episodes[0]
	if len(e.Marks) != 2 || !slices.Equal(e.Marks[0], []float64{1, 0}) || !slices.Equal(e.Marks[1], []float64{.25, .75}) ||
		!slices.Equal(d.Episodes[1].Marks[0], []float64{0, 1}) {
		t.Errorf("labels %v, %v", e.Marks, d.Episodes[1].Marks)
	}
	open, _, err := f.Renderer.Render([]traj.Message{{Role: "user", Content: "q"}}, nil, chat.Options{AddGenerationPrompt: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"xca", "xcb", "xcyyczca", "xcyyczcb"} {
		if got := tok.Decode(e.Sequences[i].TokenIDs, false); got != open+want {
			t.Errorf("sequence %d is %q, want %q", i, got, open+want)
		}
	}
}

func TestTextRowsThatCannotBeReadNameFileAndRow(t *testing.T) {
	for _, x := range []struct {
		kind       TextKind
		row, field string
		fault      malformed.Kind // "": the row is left out
	}{
		{TextReplies, `{"text":"x"}`, "", malformed.Missing},
		{TextReplies, `{"messages":[]}`, "messages", malformed.Missing},
		{TextReplies, `{"prompt":"q","completion":7}`, "completion", malformed.Type},
		{TextReplies, `{"prompt":"q","completion":"a","weight":-1}`, "weight", malformed.Range},
		{TextReplies, `{"prompt":"q","completion":"a","weight":[1,2]}`, "weight", malformed.Mismatch},
		{TextReplies, `{"prompt":"q","completion":"a","tools":7}`, "tools", malformed.Type},
		{TextReplies, `{"messages":[{"role":"user","content":"q"}]}`, "", ""},
		{TextPairs, `{"prompt":"q","chosen":"a"}`, "", malformed.Missing},
		{TextPairs, `{"chosen":"a","rejected":"b"}`, "prompt", malformed.Missing},
		{TextPairs, `{"prompt":"q","chosen":"a","rejected":"b","margin":"x"}`, "margin", malformed.Type},
		{TextSteps, `{"prompt":"q","completions":["a"],"labels":[true,false]}`, "labels", malformed.Mismatch},
		{TextSteps, `{"prompt":"q","completions":["a"],"labels":[2]}`, "labels", malformed.Range},
		{TextSteps, `{"prompt":"q","completions":["a"],"labels":["x"]}`, "labels", malformed.Unsupported},
	} {
		_, err := loadText(t, x.kind, "chatml", x.row)
		if x.fault == "" {
			if !errors.Is(err, ErrNoRows) || !strings.Contains(err.Error(), "rows.jsonl") {
				t.Errorf("%v %s: %v, want %v", x.kind, x.row, err, ErrNoRows)
			}
			continue
		}
		got := malformed.Facts(err)
		if got.Path = filepath.Base(got.Path); got != (malformed.Error{Path: "rows.jsonl", Row: 1, Field: x.field, Kind: x.fault}) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%v %s: %v, want %s: %s", x.kind, x.row, err, x.field, x.fault)
		}
	}
	f, _ := formats(t, "chatml")
	for _, x := range []struct {
		marker, tokens string
		is             setting.Name
	}{{"no such token", "a,b", "PRMToken"}, {"c", "a,no such token", "PRMTokens"}, {"c", "a,a", "PRMTokens"}, {"c", "a", "PRMTokens"}} {
		if _, err := newTextReader(f, &Options{Text: TextSteps, Steps: StepTokens{End: x.marker, Labels: x.tokens}}); !settingtest.Names(err,
			x.is) {
			t.Errorf("%q and %q: %v", x.marker, x.tokens, err)
		}
	}
}

// With --echo the cross-entropy is of what tools said: neither of the template's text
// around it, nor of a user's turn.
func TestEchoLearnsWhatToolsSaidAlone(t *testing.T) {
	f, tok := formats(t, "chatml")
	msgs := []traj.Message{{Role: traj.RoleUser, Content: "2+3 and 5+6?"}, {Role: traj.RoleAssistant, Content: "ask"},
		{Role: traj.RoleTool, Content: "it is 5"}, {Role: traj.RoleTool, Content: "tool"},
		{Role: traj.RoleAssistant, Content: "ok"}, {Role: traj.RoleUser, Content: "tool"}, {Role: traj.RoleAssistant, Content: "bye"}}
	var s traj.Sequence
	add := func(ids []int32, sampled bool) {
		for _, id := range ids[len(s.TokenIDs):] {
			lp := traj.NoLogprob()
			if sampled {
				lp = -1
			}
			s.TokenIDs, s.LossMask, s.Logprobs = append(s.TokenIDs, id), append(s.LossMask, sampled), append(s.Logprobs, lp)
		}
	}
	_, ids, err := f.Renderer.Render(msgs[:1], nil, chat.Options{AddGenerationPrompt: true})
	if err != nil {
		t.Fatal(err)
	}
	add(ids, false)
	var steps []traj.Step
	reply := func(text string, next []traj.Message) {
		start := len(s.TokenIDs)
		add(append(slices.Concat(s.TokenIDs, tok.EncodeOrdinary(text)), f.Renderer.StopIDs()[0]), true)
		steps = append(steps, traj.Step{Start: start, End: len(s.TokenIDs)})
		if next == nil {
			return
		}
		ids, ok := f.Renderer.Bridge(s.TokenIDs, next, chat.Options{AddGenerationPrompt: true})
		if !ok {
			t.Fatal("no bridge")
		}
		add(ids, false)
	}
	reply("ask", msgs[2:4])
	reply("ok", msgs[5:6])
	reply("bye", nil)
	path := parquettest.Write(t, filepath.Join(t.TempDir(), "f.parquet"), `{"model":{"name":"sampler"}}`,
		&traj.Trajectory{ID: "a#0", GroupID: "a", Task: traj.Task{ID: "a"}, Termination: traj.Answered,
			Reward: number(1), Messages: msgs, Steps: steps, Sequences: []traj.Sequence{s}})
	for _, disk := range []bool{false, true} {
		asked := ""
		d, err := Load(t.Context(), []string{path},
			Options{Reward: true, Group: true, Sources: Sources{OnDisk: disk,
				Observations: func(model string) (*Format, error) { asked = model; return f, nil }}})
		if err != nil {
			t.Fatal(err)
		}
		e := d.Episodes[0]
		if disk {
			if e.Body, err = e.Store.ReadBody(e); err != nil {
				t.Fatal(err)
			}
		}
		e.LayOut(episode.TokenSelection{Strategy: lossscale.Default, Echo: true})
		var text []string
		x, n, before := e.Streams[0], 0, false
		for i, want := range x.Want {
			if !want {
				before = false
				continue
			}
			if x.EchoWeight[n] > 0 {
				if !before {
					text = append(text, "")
				}
				text[len(text)-1] += tok.Decode(s.TokenIDs[i:i+1], false)
			}
			before = x.EchoWeight[n] > 0
			n++
		}
		if !slices.Equal(text, []string{"it is 5", "tool"}) && !slices.Equal(text, []string{"it is 5", "ool"}) {
			t.Errorf("on disk %v: the cross-entropy is of %q", disk, text)
		}
		if asked != "sampler" || d.Unmarked != 0 {
			t.Errorf("asked for %q, %d rows without their tool output", asked, d.Unmarked)
		}
		d.Close()
	}
}
