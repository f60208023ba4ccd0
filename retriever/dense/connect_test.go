package dense

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// smallVectors makes n vectors, as hard for a graph as the kind says.
func smallVectors(kind string, seed uint64, n, dim int) vectors {
	r := rand.New(rand.NewPCG(seed, 11))
	v := vectors{make([]float32, n*dim), dim}
	if kind == "clustered" {
		v = clustered(seed, n, dim)
	}
	for i := range n {
		at := v.at(uint32(i))
		for j := range at {
			switch kind {
			case "random":
				at[j] = float32(r.NormFloat64())
			case "nearly equal":
				at[j] = 1 + 1e-6*float32(r.NormFloat64())
			case "two far clusters":
				at[j] = float32(1-2*(i%2)) + .01*float32(r.NormFloat64())
			case "half copies":
				at[j] = float32(r.NormFloat64())
			}
		}
		normalize(at)
		if kind == "half copies" && i%2 == 1 {
			copy(at, v.at(uint32(r.IntN(i))))
		}
	}
	return v
}

// TestEveryVectorIsReachable: from the entry point in layer 0, so that a search that looks at
// as many vectors as there are finds all of them.
func TestEveryVectorIsReachable(t *testing.T) {
	for _, kind := range []string{"random", "clustered", "nearly equal", "two far clusters", "half copies"} {
		for seed := range uint64(150) {
			r := rand.New(rand.NewPCG(seed, 13))
			n, dim, m, ef := 1+r.IntN(150), 1+r.IntN(6), 2+r.IntN(3), 1+r.IntN(12)
			v := smallVectors(kind, seed, n, dim)
			g, err := buildGraph(v, m, ef, never)
			if err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprintf("%s, seed %d: %d vectors of %d numbers, m %d, ef %d", kind, seed, n, dim, m, ef)
			if !g.sound() {
				t.Fatalf("%s: the lists are damaged", name)
			}
			if missing := unreachable(g, n); len(missing) > 0 {
				t.Fatalf("%s: %d are not reachable from %d", name, len(missing), g.entry)
			}
			for range 5 {
				if found := g.nearest(v, &walker{}, v.at(uint32(r.IntN(n))), n, n); len(found) != n {
					t.Fatalf("%s: a search for all finds %d", name, len(found))
				}
			}
		}
	}
}

// unreachable lists the vectors, other than copies, that no path in layer 0 from the entry
// point comes to.
func unreachable(g *graph, n int) (missing []uint32) {
	seen, open := make([]bool, n), []uint32{g.entry}
	seen[g.entry] = true
	for len(open) > 0 {
		node := open[0]
		open = open[1:]
		list := g.list(node, 0)
		for _, other := range list[1 : 1+list[0]] {
			if !seen[other] {
				seen[other] = true
				open = append(open, other)
			}
		}
	}
	for _, next := range g.equal {
		if next != none {
			seen[next] = true // a copy
		}
	}
	for i := range uint32(n) {
		if !seen[i] {
			missing = append(missing, i)
		}
	}
	return missing
}

// BenchmarkBuild builds the graph of 10,000 vectors, and reports its recall at 3.
func BenchmarkBuild(b *testing.B) {
	v, queries := clustered(1, 10000, 64), clustered(1, 300, 64)
	var g *graph
	for b.Loop() {
		var err error
		if g, err = buildGraph(v, 16, 128, never); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(recall(b, v, g, queries, 3), "recall@3")
}

// BenchmarkSearch asks a graph of 10,000 vectors.
func BenchmarkSearch(b *testing.B) {
	v, queries := clustered(1, 10000, 64), clustered(1, 300, 64)
	g, err := buildGraph(v, 16, 128, never)
	if err != nil {
		b.Fatal(err)
	}
	w := &walker{}
	for i := 0; b.Loop(); i++ {
		g.nearest(v, w, queries.at(uint32(i%300)), 3, searchEF)
	}
}
