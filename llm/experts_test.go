package llm

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"testing"

	"agentcli/internal/npy"
	"agentcli/internal/setting/settingtest"
	"agentcli/llm/llmtest"
	"agentcli/traj"

	"github.com/google/go-cmp/cmp"
)

// chosen are the experts of a prompt of two ids and a reply of two, of which the last was not
// read: two layers, two experts each. One is not known.
var chosen = []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, -1, 300}

var wantChosen = &traj.Experts{Layers: 2, Active: 2, IDs: traj.ExpertIDs{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, traj.NoExpert, 300}}

func inNumPy(shape ...int) string {
	return base64.StdEncoding.EncodeToString(npy.Encode(shape, chosen))
}

func numbersAlone(values []int32) string {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return base64.StdEncoding.EncodeToString(b)
}

func TestExpertsOfEveryServerAreKept(t *testing.T) {
	prompt := []int32{3, 4}
	for name, c := range map[string]struct {
		o       llmtest.Options
		sglang  bool
		stream  bool
		chat    bool
		experts string
	}{
		"vLLM's completions":       {o: llmtest.Options{Completions: true}, experts: inNumPy(3, 2, 2)},
		"vLLM's chats":             {chat: true, experts: inNumPy(3, 2, 2)},
		"SGLang's generate":        {o: llmtest.Options{SGLang: true}, sglang: true, experts: numbersAlone(chosen)},
		"SGLang's stream":          {o: llmtest.Options{SGLang: true}, sglang: true, stream: true, experts: numbersAlone(chosen)},
		"SGLang's chats":           {o: llmtest.Options{SGLang: true}, chat: true, experts: numbersAlone(chosen)},
		"NumPy's file from SGLang": {o: llmtest.Options{SGLang: true}, sglang: true, experts: inNumPy(3, 2, 2)},
		"the last token's as padding": {chat: true,
			experts: base64.StdEncoding.EncodeToString(npy.Encode([]int{4, 2, 2}, append(chosen[:12:12], -1, -1, -1, -1)))},
	} {
		t.Run(name, func(t *testing.T) {
			s := llmtest.NewWith(t, c.o, func(*llmtest.Request) llmtest.Reply {
				return llmtest.Reply{Content: "hi", PromptIDs: prompt, IDs: []int32{5, 9}, Logprobs: []float64{-1, -2}, Stop: 9, Experts: c.experts}
			})
			r := newRig(t, s.BaseURL(), func(conf *Config) { conf.WantExperts, conf.Stream = true, c.stream })
			SetFacts(r.Client, ModelFacts{ActiveExperts: 2})
			var got *traj.Experts
			if c.chat {
				resp, err := r.Generate(t.Context(), ask())
				if err != nil {
					t.Fatal(err)
				}
				got = resp.Experts
			} else {
				out, err := (&Tokens{Client: r.Client, SGLang: c.sglang, Stops: []int32{9}}).Sample(t.Context(), prompt, traj.Sampling{MaxTokens: 4}, 1)
				if err != nil {
					t.Fatal(err)
				}
				got = out.Experts
			}
			if diff := cmp.Diff(wantChosen.IDs, got.Head(3).IDs); diff != "" || got.Layers != 2 || got.Active != 2 {
				t.Errorf("%+v: %s", got, diff)
			}
		})
	}
}

func TestAServerThatSendsNoUsableExpertsEndsTheRun(t *testing.T) {
	for name, experts := range map[string]string{
		"none":              "",
		"no base64":         "%%%",
		"of the reply":      base64.StdEncoding.EncodeToString(npy.Encode([]int{1, 2, 2}, chosen[:4])),
		"two dimensions":    inNumPy(6, 2),
		"no layers":         base64.StdEncoding.EncodeToString(npy.Encode([]int{3, 0, 2}, nil)),
		"a number too many": numbersAlone(append(chosen[:12:12], 1)),
		"empty":             base64.StdEncoding.EncodeToString(npy.Encode([]int{3, 2, 0}, nil)),
		"beyond 16 bits":    base64.StdEncoding.EncodeToString(npy.Encode([]int{3, 2, 2}, append(chosen[:11:11], 70000))),
		"a cut file":        base64.StdEncoding.EncodeToString(npy.Encode([]int{3, 2, 2}, chosen)[:140]),
	} {
		s := llmtest.NewWith(t, llmtest.Options{Completions: true}, func(*llmtest.Request) llmtest.Reply {
			return llmtest.Reply{Content: "hi", PromptIDs: []int32{3, 4}, IDs: []int32{5, 9}, Stop: 9, Experts: experts}
		})
		r := newRig(t, s.BaseURL(), func(c *Config) { c.WantExperts = true })
		SetFacts(r.Client, ModelFacts{ActiveExperts: 2})
		_, chat := r.Generate(t.Context(), ask())
		_, ids := (&Tokens{Client: r.Client, Stops: []int32{9}}).Sample(t.Context(), []int32{3, 4}, traj.Sampling{MaxTokens: 4}, 1)
		for _, err := range []error{chat, ids} {
			if !errors.Is(err, ErrNoExperts) || !errors.Is(err, traj.ErrFatal) || !settingtest.Names(err, "RouterReplay") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := len(s.Requests()); n != 2 {
			t.Errorf("%s: %d requests; want no second try", name, n)
		}
	}
	// SGLang does not say how many are chosen in a layer.
	s := llmtest.NewWith(t, llmtest.Options{SGLang: true}, func(*llmtest.Request) llmtest.Reply {
		return llmtest.Reply{IDs: []int32{5, 9}, Stop: 9, Experts: numbersAlone(chosen)}
	})
	r := newRig(t, s.BaseURL(), func(c *Config) { c.WantExperts = true })
	_, err := (&Tokens{Client: r.Client, SGLang: true}).Sample(t.Context(), []int32{3, 4}, traj.Sampling{MaxTokens: 4}, 1)
	if !errors.Is(err, ErrNoExperts) || !settingtest.Names(err, "Tokenizer") {
		t.Error(err)
	}
}

func TestARefusedRequestForExpertsNamesTheSetting(t *testing.T) {
	s := llmtest.NewWith(t, llmtest.Options{Completions: true}, func(*llmtest.Request) llmtest.Reply {
		return llmtest.Reply{Status: 400, Error: "Extra inputs are not permitted: return_routed_experts"}
	})
	r := newRig(t, s.BaseURL(), func(c *Config) { c.WantExperts = true })
	if _, err := r.Generate(t.Context(), ask()); !errors.Is(err, traj.ErrFatal) || !settingtest.Names(err, "RouterReplay") {
		t.Error(err)
	}
	plain := newRig(t, s.BaseURL(), nil)
	if _, err := plain.Generate(t.Context(), ask()); err == nil || s.Requests()[len(s.Requests())-1].Has("return_routed_experts") {
		t.Error("experts are asked for unasked")
	}
}
