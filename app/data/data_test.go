package data

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/datasets"
	"agentcli/datasets/registry"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t *testing.T, path string) *datasets.Dataset {
	t.Helper()
	d, err := datasets.Open(context.Background(), path, datasets.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestVerifyFindsWhatIsWrong(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HF_HUB_OFFLINE", "1")
	for _, x := range []struct {
		what, rows string
		faults     int
	}{
		{"nothing", `{"question":"Q?","answer":"\\frac{1}{2}"}` + "\n" + `{"question":"R?","answer":["3","4"]}` + "\n", 0},
		{"an answer that is no formula", `{"question":"Q?","answer":"}{"}` + "\n" + `{"question":"R?","answer":"3"}` + "\n", 1},
		{"a row without an answer", `{"question":"Q?","answer":""}` + "\n" + `{"question":"R?","answer":"3"}` + "\n", 1},
		{"ids that occur twice", `{"id":1,"question":"Q?","answer":"1"}` + "\n" + `{"id":1,"question":"R?","answer":"3"}` + "\n", 1},
		{"a row that is cut off", `{"question":"Q?","answer":"1"}` + "\n" + `{"question":`, 1},
		{"no rows", "", 1},
	} {
		r, err := Verify(context.Background(), write(t, "a.jsonl", x.rows), "", Checks{})
		if err != nil || len(r.Faults) != x.faults {
			t.Errorf("%s: %+v, %v", x.what, r, err)
		}
	}
	for _, name := range []string{"arith", "largest"} {
		if r, err := Verify(context.Background(), name, "", Checks{}); err != nil || len(r.Faults) > 0 || r.Rows != generatedRows || !r.Pinned {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	if r, err := Verify(context.Background(), "gsm8k", "", Checks{}); err != nil || !r.Missing || r.Split != "test" {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := Verify(context.Background(), "nosuch", "", Checks{}); err == nil {
		t.Error("a name that is not there was verified")
	}
}

func TestVerifyComparesSumsAndNumbers(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir := t.TempDir()
	t.Setenv(registry.FoldersVariable, dir)
	entry := func(sum string, n int) {
		t.Helper()
		text := fmt.Sprintf("name: mine\nsplits: {test: {problems: %d, files: [rows.jsonl], sha256: {rows.jsonl: %s}}}\n", n, sum)
		if err := os.WriteFile(filepath.Join(dir, "mine.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const rows = `{"question":"Q?","answer":"1"}` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "rows.jsonl"), []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	right := fmt.Sprintf("%x", sha256.Sum256([]byte(rows)))
	for _, x := range []struct {
		what, sum          string
		n, faults, matched int
	}{{"all right", right, 1, 0, 1}, {"another sum", strings.Repeat("ab", 32), 1, 1, 0}, {"another number of rows", right, 2, 1, 1}} {
		entry(x.sum, x.n)
		r, err := Verify(context.Background(), "mine", "", Checks{})
		if err != nil || len(r.Faults) != x.faults || r.Sums != x.matched || r.Rows != 1 {
			t.Errorf("%s: %+v, %v", x.what, r, err)
		}
	}
}

func TestWordsAreInNormalForm(t *testing.T) {
	for text, want := range map[string]string{
		"What is  the SUM, of 3.5 and x_1?": "what is the sum of 3 5 and x 1",
		`$\frac{1}{2}$ Äpfel`:               "frac 1 2 äpfel",
		"東京 is big":                         "東 京 is big",
		"...":                               "",
	} {
		if got := strings.Join(words(text), " "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestOverlapFindsSharedWords(t *testing.T) {
	const long = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
	a := open(t, write(t, "a.jsonl", `{"id":"x","question":"Now: `+strings.ToUpper(long)+`!","answer":"1"}`+"\n"+
		`{"id":"y","question":"one two three four five six seven eight nine ten eleven twelve and no more","answer":"1"}`+"\n"+
		`{"id":"z","question":"Short, this is.","answer":"1"}`+"\n"))
	b := open(t, write(t, "b.jsonl",
		`{"id":"p","question":"other","answer":"1"}`+"\n"+`{"id":"q","question":"`+long+` fifteen","answer":"1"}`+"\n"+
			`{"id":"r","question":"short this is","answer":"1"}`+"\n"+`{"id":"s","question":"short this is not","answer":"1"}`+"\n"))
	o, err := Overlap(context.Background(), a, b, DefaultWords)
	if err != nil || o.RowsA != 3 || o.RowsB != 4 || o.InA != 2 || o.InB != 2 {
		t.Fatalf("%+v, %v", o, err)
	}
	if m := o.Matches[0]; m.A != "a/x" || m.B != "b/q" || m.Shared != 2 || m.Of != 3 || !strings.HasPrefix(m.Words, "one two") ||
		len(strings.Fields(m.Words)) != 13 || !strings.HasSuffix(m.QuestionB, "fifteen") {
		t.Errorf("%+v", m)
	}
	if m := o.Matches[1]; m.A != "a/z" || m.B != "b/r" || m.Words != "short this is" {
		t.Errorf("%+v", m)
	}
	if o, err = Overlap(context.Background(), a, b, 12); err != nil || o.InA != 3 {
		t.Errorf("with 12 words: %+v, %v", o, err)
	}
}

// TestOverlapOfManyRowsIsExact plants rows of one in the other.
func TestOverlapOfManyRowsIsExact(t *testing.T) {
	if testing.Short() {
		t.Skip("100,000 rows")
	}
	var a, b strings.Builder
	planted := []string{}
	for i := range 100_000 {
		const second = `{"id":"b%d","question":"row %d of the second file is about the number %d and the number %d and about nothing else %d",` +
			`"answer":"1"}` + "\n"
		fmt.Fprintf(&b, second,
			i, i*7, i*13, i*17, i)
		if i%10 == 0 {
			question := fmt.Sprintf("item %d of the first file speaks of %d apples and of %d pears in a basket of wood %d", i, i*3, i*5, i)
			if i%1000 == 0 {
				question += fmt.Sprintf(": row %d of the second file is about the number %d and the number %d and about nothing", i*7, i*13, i*17)
				planted = append(planted, fmt.Sprintf("b/b%d", i))
			}
			fmt.Fprintf(&a, `{"id":"a%d","question":"%s","answer":"1"}`+"\n", i, question)
		}
	}
	o, err := Overlap(context.Background(), open(t, write(t, "a.jsonl", a.String())), open(t, write(t, "b.jsonl", b.String())), DefaultWords)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range o.Matches {
		got = append(got, m.B)
	}
	if !slices.Equal(got, planted) || o.RowsB != 100_000 {
		t.Errorf("%d matches, want %d: %.200v", len(got), len(planted), got)
	}
}

// Every row that cannot be a task is reported, and those behind it are read.
func TestVerifyGoesOnBehindBadRows(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	var rows strings.Builder
	for i := range 40 {
		kinds := []string{`{"question":"Q?","answer":"1"}`, `{"question":`, `{"answer":"1"}`, `{"question":"Q?","answer":"}{"}`}
		rows.WriteString(kinds[i%4] + "\n")
	}
	r, err := Verify(t.Context(), write(t, "a.jsonl", rows.String()), "", Checks{})
	if err != nil || r.Rows != 20 || r.Bad != 20 || len(r.Faults) != maxFaults || len(r.Faults)+r.More != 30 {
		t.Errorf("%+v, %v", r, err)
	}
}

// An imported copy of a benchmark has as many rows as the benchmark, whatever its repository
// calls the split.
func TestVerifyCountsTheRowsOfAnImportedCopy(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	path := write(t, "a.jsonl", `{"question":"Q?","answer":"1"}`+"\n")
	if _, _, err := datasets.Import(t.Context(), "aime2024", path, datasets.Options{}); err != nil {
		t.Fatal(err)
	}
	if r, err := Verify(t.Context(), "aime2024", "test", Checks{}); err != nil || r.Rows != 1 || len(r.Faults) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A file of the hub that the entry has no SHA-256 for is compared with the hash of its download.
func TestVerifySaysWhichChecksumsAreUnknown(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	home, dir := t.TempDir(), t.TempDir()
	t.Setenv("HF_HOME", home)
	t.Setenv("HF_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv(registry.FoldersVariable, dir)
	const row = `{"question":"Q?","answer":"1"}` + "\n"
	commit := strings.Repeat("ab", 20)
	entry := "name: mine\nhub: [{id: a/b, revision: " + commit + "}]\nsplits: {test: {problems: 1, files: [rows.jsonl]}}\n"
	repo := filepath.Join(home, "hub", "datasets--a--b")
	blob := filepath.Join(repo, "blobs", fmt.Sprintf("%x", sha256.Sum256([]byte(row))))
	snapshot := filepath.Join(repo, "snapshots", commit)
	for _, folder := range []string{filepath.Dir(blob), snapshot} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for path, content := range map[string]string{filepath.Join(dir, "mine.yaml"): entry, blob: row} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(blob, filepath.Join(snapshot, "rows.jsonl")); err != nil {
		t.Fatal(err)
	}
	r, err := Verify(t.Context(), "mine", "", Checks{})
	if err != nil || r.Files != 1 || r.Sums != 0 || r.HubSums != 1 || len(r.Faults) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if notes := r.unknownSums(); len(notes) != 1 || !strings.Contains(notes[0], "checksum of 1 file unknown to the entry") {
		t.Error(notes)
	}
}

// A local file is pinned by the hash that its entry has, and not without.
func TestALocalFileWithoutAHashIsNotPinned(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	const row = `{"question":"Q?","answer":"1"}` + "\n"
	path := write(t, "rows.jsonl", row)
	entry := filepath.Join(filepath.Dir(path), "mine.yaml")
	for files, pinned := range map[string]bool{
		"files: [rows.jsonl]": false,
		fmt.Sprintf("files: [rows.jsonl], sha256: {rows.jsonl: %x}", sha256.Sum256([]byte(row))): true,
	} {
		if err := os.WriteFile(entry, []byte("name: mine\nsplits: {test: {"+files+"}}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := Verify(t.Context(), entry, "", Checks{}); err != nil || r.Pinned != pinned || !r.Local {
			t.Errorf("%s: %+v, %v", files, r, err)
		}
	}
	if r, err := Verify(t.Context(), path, "", Checks{}); err != nil || r.Pinned || !r.Local {
		t.Errorf("%+v, %v", r, err)
	}
}

// The names that the checks know are looked up in the entry and in the rows, and the gold
// answers are graded with the entry's options.
func TestVerifyChecksNamesAndOptions(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	path := write(t, "rows.jsonl", `{"question":"Q?","answer":"1","env":"nosuch"}`+"\n"+`{"question":"Q?","answer":"0.334"}`+"\n")
	entry := filepath.Join(filepath.Dir(path), "mine.yaml")
	text := "name: mine\nsplits: {test: {files: [rows.jsonl]}}\nreward: em\noptions: {strict: true}\n"
	if err := os.WriteFile(entry, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	checks := Checks{Envs: []string{"tool"}, Entry: func(e registry.Entry) []error { return []error{errors.New("of " + e.Name)} }}
	r, err := Verify(t.Context(), entry, "", checks)
	if err != nil || r.Bad != 1 || r.Rows != 1 || len(r.Faults) != 2 || !strings.Contains(r.Faults[0], "of mine") {
		t.Errorf("%+v, %v", r, err)
	}
}
