//go:build libtorch

package serve

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"agentcli/app/console"
	"agentcli/app/models"
	"agentcli/traj"
)

// TestAStreamReadsTheModelsOwnFormat: the chat template says which texts of a reply are
// reasoning and content, so a stream shows them before the reply's end.
func TestAStreamReadsTheModelsOwnFormat(t *testing.T) {
	file, err := os.Open("../../model/chat/testdata/corpus.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var corpus struct {
		Templates map[string]struct{ Template string }
	}
	if err := json.NewDecoder(z).Decode(&corpus); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "template.jinja")
	if err := os.WriteFile(path, []byte(corpus.Templates["gptoss"].Template), 0o600); err != nil {
		t.Fatal(err)
	}
	const reply = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>84. It"
	for template, want := range map[string][2]string{path: {"hm", "84. It"}, "": {"", reply}} {
		o := Options{Path: tiny, Backend: models.NewBackend(),
			Model: models.LocalOptions{DType: "float32", Device: "cpu", Temperature: 1, ChatTemplate: template}}
		engine, source, err := o.Backend.OpenEngine(o.Path, o.Model)
		if err != nil {
			t.Fatal(err)
		}
		s := newServer(engine, source, o, console.Streams{Out: io.Discard, Err: io.Discard})
		x := &sampler{a: &chatAnswer{s: &openAI{s}, c: &chatRequest{}}, exact: &s.exact, req: &traj.Request{}}
		x.begin([]int32{5, 9})
		if reasoning, content := x.stream.Add(reply); reasoning != want[0] || content != want[1] {
			t.Errorf("template %q: %q and %q", template, reasoning, content)
		}
		engine.Close()
	}
}

// TestCallsThatAreWholeAreGivenOfAReplyThatIsCutOff: a reply that must be calls has no text, and
// what is left of the last one is none.
func TestCallsThatAreWholeAreGivenOfAReplyThatIsCutOff(t *testing.T) {
	one, bad := []traj.ToolCall{{Name: "f", Arguments: `{"a": 1}`}}, []traj.CallError{{}}
	said := func(content string, calls []traj.ToolCall) traj.Message {
		return traj.Message{Content: content, ToolCalls: calls}
	}
	for name, x := range map[string]struct {
		r       traj.Response
		must    bool
		calls   int
		content string
	}{
		"cut in the second": {traj.Response{Message: said("<tool_call>", one), FinishReason: "length", CallErrors: bad, Raw: "raw"}, true, 1, ""},
		"cut in a tag":      {traj.Response{Message: said("<too", one), FinishReason: "length"}, true, 1, ""},
		"cut in the one":    {traj.Response{Message: said("", nil), FinishReason: "length", CallErrors: bad, Raw: "raw"}, true, 0, "raw"},
		"it may be text":    {traj.Response{Message: said("Well", one), FinishReason: "length", CallErrors: bad, Raw: "raw"}, false, 0, "raw"},
		"whole":             {traj.Response{Message: said("", slices.Concat(one, one)), FinishReason: "stop"}, true, 2, ""},
	} {
		message, _ := messageOf(&x.r, x.must)
		calls, _ := message["tool_calls"].([]wireCall)
		if len(calls) != x.calls || message["content"] != x.content {
			t.Errorf("%s: %v", name, message)
		}
	}
}
