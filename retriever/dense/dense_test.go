package dense

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/internal/vector"
	"agentcli/retriever"
	"agentcli/retriever/best"
	"agentcli/retriever/folder"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clustered makes vectors in clusters, as those of texts are.
func clustered(seed uint64, n, dim int) vectors {
	r := rand.New(rand.NewPCG(seed, 5))
	centres := make([][]float32, 1+n/50)
	for i := range centres {
		centres[i] = make([]float32, dim)
		for j := range centres[i] {
			centres[i][j] = float32(r.NormFloat64())
		}
	}
	v := vectors{make([]float32, n*dim), dim}
	for i := range n {
		at := v.at(uint32(i))
		copy(at, centres[r.IntN(len(centres))])
		for j := range at {
			at[j] += float32(.7 * r.NormFloat64())
		}
		normalize(at)
	}
	return v
}

func never() error { return nil }

// TestExactSearchFindsTheNearest: as sorting all the dot products does.
func TestExactSearchFindsTheNearest(t *testing.T) {
	for _, n := range []int{1, 3, 255, 256, 257, 5000} {
		v := clustered(uint64(n), n, 19)
		queries := [][]float32{clustered(99, 1, 19).data, v.at(0), make([]float32, 19)}
		got, err := v.exact(queries, 7, never)
		if err != nil {
			t.Fatal(err)
		}
		for q, query := range queries {
			var want []best.Scored
			for i := range n {
				want = append(want, best.Scored{Score: vector.Dot(query, v.at(uint32(i))), Doc: uint32(i)})
			}
			slices.SortFunc(want, func(a, b best.Scored) int { return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Doc, b.Doc)) })
			if !slices.Equal(got[q], want[:min(7, n)]) {
				t.Errorf("%d vectors, query %d: %v, want %v", n, q, got[q], want[:min(7, n)])
			}
		}
	}
}

// recall is the share of the k nearest that the graph finds.
func recall(t testing.TB, v vectors, g *graph, queries vectors, k int) float64 {
	t.Helper()
	w, found := &walker{}, 0
	for i := range queries.len() {
		q := queries.at(uint32(i))
		want, err := v.exact([][]float32{q}, k, never)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range g.nearest(v, w, q, k, searchEF) {
			if slices.Contains(want[0], s) {
				found++
			}
		}
	}
	return float64(found) / float64(k*queries.len())
}

func TestTheGraphFindsTheNearest(t *testing.T) {
	v := clustered(1, 4000, 32)
	g, err := buildGraph(v, 16, 128, never)
	if err != nil {
		t.Fatal(err)
	}
	if r := recall(t, v, g, clustered(1, 200, 32), 3); r < .97 {
		t.Errorf("recall at 3 is %.3f", r)
	}
	back, err := readGraph(g.append(nil), v.len())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := back.nearest(v, &walker{}, v.at(7), 5, searchEF), g.nearest(v, &walker{}, v.at(7), 5, searchEF); !slices.Equal(got, want) {
		t.Errorf("from the file %v, want %v", got, want)
	}
}

func TestSmallGraphs(t *testing.T) {
	for n := 1; n < 40; n++ {
		v := clustered(uint64(n), n, 4)
		g, err := buildGraph(v, 2, 8, never)
		if err != nil {
			t.Fatal(err)
		}
		if found := g.nearest(v, &walker{}, v.at(0), 3, 64); len(found) == 0 || found[0].Score < .999 {
			t.Errorf("%d vectors: %v", n, found)
		}
	}
}

// TestEqualVectorsHideNone: many passages of a corpus may say the same. Each is found, and so
// are the others around them.
func TestEqualVectorsHideNone(t *testing.T) {
	const n, copies = 4000, 300
	v := clustered(7, n, 16)
	for i := range copies {
		copy(v.at(uint32(100+i*7)), v.at(100))
	}
	g, err := buildGraph(v, 16, 100, never)
	if err != nil {
		t.Fatal(err)
	}
	missed := 0
	for i := range uint32(n) {
		if found := g.nearest(v, &walker{}, v.at(i), 1, 64); len(found) != 1 || found[0].Score < .9999 {
			missed++
		}
	}
	if missed > n/500 { // a graph is no exact search
		t.Errorf("%d of %d vectors are not found", missed, n)
	}
	found := g.nearest(v, &walker{}, v.at(100), copies+1, 64)
	for i, s := range found[:copies] {
		if s.Doc != uint32(100+i*7) {
			t.Fatalf("copy %d is %d", i, s.Doc)
		}
	}
	if len(found) != copies+1 || found[copies].Score > .9999 {
		t.Errorf("%d found, %v is the last", len(found), found[copies])
	}
	for i := range v.data { // nothing but copies
		v.data[i] = v.at(0)[i%v.dim]
	}
	if g, err = buildGraph(v, 16, 100, never); err != nil || len(g.nearest(v, &walker{}, v.at(5), n, 64)) != n {
		t.Error(err)
	}
}

// TestADamagedGraphIsRefused: what is read can be searched without leaving it.
func TestADamagedGraphIsRefused(t *testing.T) {
	v := clustered(3, 60, 4)
	g, err := buildGraph(v, 2, 8, never)
	if err != nil {
		t.Fatal(err)
	}
	b := g.append(nil)
	refused := 0
	for at := 0; at < len(b); at += 4 {
		for _, x := range []uint32{0, 1, 59, 60, 1 << 31, math.MaxUint32} {
			changed := bytes.Clone(b)
			binary.LittleEndian.PutUint32(changed[at:], x)
			g, err := readGraph(changed, v.len())
			if err == nil {
				g.nearest(v, &walker{}, v.at(5), 3, 16)
			} else if errors.Is(err, retriever.ErrDamaged) {
				refused++
			} else {
				t.Fatal(err)
			}
		}
	}
	for n := range b {
		if g, err := readGraph(b[:n], v.len()); err == nil { // the last list, which no other names
			g.nearest(v, &walker{}, v.at(5), 3, 16)
		} else if !errors.Is(err, retriever.ErrDamaged) {
			t.Fatalf("%d of %d bytes: %v", n, len(b), err)
		}
	}
	if refused < len(b)/8 {
		t.Errorf("%d changes were refused", refused)
	}
}

// letters encodes a text by its letters.
type letters struct {
	err  error
	size int
}

func (l letters) Encode(_ context.Context, texts []string, role Role) ([][]float32, error) {
	var out [][]float32
	for _, text := range texts {
		v := make([]float32, 26+l.size)
		for _, c := range strings.ToLower(text) {
			if c >= 'a' && c <= 'z' {
				v[c-'a']++
			}
		}
		out = append(out, v)
	}
	return out, l.err
}

func writeCorpus(t *testing.T, texts ...string) string {
	t.Helper()
	var b strings.Builder
	for i, text := range texts {
		fmt.Fprintf(&b, `{"id":"%d","contents":%q}`+"\n", i, text)
	}
	path := filepath.Join(t.TempDir(), "corpus.jsonl")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// manifest has what another part has found out of a corpus.
func manifest(t *testing.T, corpus string, n int) *folder.Manifest {
	t.Helper()
	c, err := retriever.OpenCorpus(corpus)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for err == nil {
		_, err = c.Next(1 << 20)
	}
	return &folder.Manifest{Kind: Kind, Corpus: folder.Corpus{Passages: n, SHA256: c.SHA256()}}
}

func TestPassagesAreFoundByTheirVectors(t *testing.T) {
	corpus := writeCorpus(t, "apple", "zoo", "papal plea", "", "zzz")
	for _, search := range []string{Exact, HNSW} {
		dir := filepath.Join(t.TempDir(), "x")
		w, err := folder.Create(dir, false)
		if err != nil {
			t.Fatal(err)
		}
		m := manifest(t, corpus, 5)
		if err := errors.Join(Write(t.Context(), corpus, w, m, letters{}, Options{Search: search, Batch: 1}), w.Commit(m)); err != nil {
			t.Fatal(err)
		}
		f, err := folder.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		x, err := Open(f, letters{})
		if err != nil {
			t.Fatal(err)
		}
		ranked, err := x.Rank(t.Context(), []string{"zz", "lapel", ""}, 2)
		if err != nil {
			t.Fatal(err)
		}
		if ranked[0][0].Number != 4 || ranked[0][0].Score < .999 || ranked[0][1].Number != 1 || ranked[1][0].Number != 2 || len(ranked[2]) != 2 {
			t.Errorf("%s: %v", search, ranked)
		}
		x.encoder = letters{size: 1}
		if _, err := x.Rank(t.Context(), []string{"a"}, 1); err == nil {
			t.Error("vectors of another length were taken")
		}
		f.Close()
	}
}

func TestAnEncoderThatFailsEndsTheBuild(t *testing.T) {
	corpus := writeCorpus(t, "a", "b")
	w, err := folder.Create(filepath.Join(t.TempDir(), "x"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	want := errors.New("no")
	if err := Write(t.Context(), corpus, w, manifest(t, corpus, 2), letters{err: want}, Options{Search: Exact}); !errors.Is(err, want) {
		t.Error(err)
	}
	if err := Write(t.Context(), corpus, w, manifest(t, corpus, 3), letters{}, Options{Search: Exact}); err == nil {
		t.Error("a corpus that has changed was taken")
	}
	if err := Write(t.Context(), corpus, w, manifest(t, corpus, 2), letters{}, Options{Search: "fast"}); err == nil {
		t.Error("an unknown search was taken")
	}
}
