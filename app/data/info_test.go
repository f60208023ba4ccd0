package data

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"agentcli/datasets"

	"github.com/google/go-cmp/cmp"
)

func TestABenchmarkThatIsNotHereIsDescribedByItsEntry(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HF_HOME", t.TempDir())
	t.Setenv("HF_ENDPOINT", "http://127.0.0.1:1") // an address where nobody is: nothing is fetched
	d, err := Describe(context.Background(), "gpqa-diamond", datasets.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if d.Here || !d.Shuffled || len(d.Choices) != 4 || d.Prompt == "" || d.Licence == "" || d.Citation == "" || !d.Pinned {
		t.Errorf("%+v", d)
	}
	if diff := cmp.Diff([]Split{{Role: "test", Name: "train", Problems: 198}}, d.Splits); diff != "" {
		t.Error(diff)
	}
	if len(d.Hub) != 1 || len(d.Hub[0].Revision) != 40 {
		t.Errorf("%+v", d.Hub)
	}
	var out strings.Builder
	for _, kv := range d.lines() {
		fmt.Fprintln(&out, kv[0], kv[1])
	}
	if want := "checksum unknown: the hub's is recorded at the download"; !strings.Contains(out.String(), want) {
		t.Errorf("%s\nlacks %q", out.String(), want)
	}
	for split, want := range map[string]int{"": 1319, "train": 7473} {
		if d, err := Describe(context.Background(), "gsm8k", datasets.Options{Split: split}); err != nil || d.Problems != want {
			t.Errorf("split %q: %+v, %v", split, d, err)
		}
	}
}

func TestADatasetThatIsHereIsDescribedAsItIs(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	path := write(t, "a.jsonl", `{"question":"Q?","answer":"1"}`+"\n"+`{"question":"R?","answer":"2"}`+"\n")
	if d, err := Describe(context.Background(), path, datasets.Options{}); err != nil || !d.Here || d.Problems != 2 || d.Source != path {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := Describe(context.Background(), "arith", datasets.Options{}); err != nil || !d.Here || d.Problems != 0 || d.MaxTurns == 0 {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := Describe(context.Background(), "nosuch", datasets.Options{}); !errors.Is(err, datasets.ErrUnknown) {
		t.Error(err)
	}
}
