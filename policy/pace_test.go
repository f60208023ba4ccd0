package policy

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// machine is how long a step takes on some processor: to decode, for a token of a prompt, and
// for what it looks back at, and for reading that.
type machine struct{ decode, row, token, seen, back float64 }

func (m machine) step(rows, prompt, context int) float64 {
	return m.decode + m.row*float64(rows) + float64(prompt)*(m.token+m.seen*float64(context)) + m.back*float64(context)
}

// A prompt of 30,000 tokens beside sequences that decode, on machines slow and fast: 99 of 100
// steps take at most three times what they took before.
func TestALongPromptDoesNotHoldUpWhoDecodes(t *testing.T) {
	for name, m := range map[string]machine{
		"a processor":      {.008, .0008, .0003, 2e-8, 1e-7},
		"an old processor": {.1, .01, .01, 2e-7, 1e-6},
		"a GPU":            {.003, 2e-5, 2e-6, 1e-10, 1e-9},
	} {
		for _, rows := range []int{1, 8, 32, 256} {
			noise := rand.New(rand.NewPCG(1, 2))
			took := func(prompt, context int) float64 { return m.step(rows, prompt, context) * (1 + .1*noise.Float64()) }
			var p pace
			for range 20 {
				p.took(rows, 0, took(0, 0))
			}
			alone := m.step(rows, 0, 0)
			var steps []float64
			for at := 0; at < 30_000; {
				n := min(p.chunk(rows, 2048), 30_000-at)
				if n < 1 {
					t.Fatalf("%s, %d rows: %d tokens of a prompt in a step", name, rows, n)
				}
				s := took(n, at)
				p.took(rows, n, s)
				steps, at = append(steps, s), at+n
			}
			slices.Sort(steps)
			if slow := steps[len(steps)*99/100] / alone; slow > 3 {
				t.Errorf("%s, %d rows: the slow steps of %d take %.2f times as long as before", name, rows, len(steps), slow)
			}
			if mean := steps[len(steps)/2] / alone; mean < 1.5 && p.chunk(rows, 2048) < 2000 {
				t.Errorf("%s, %d rows: half of the steps take %.2f times as long as before: the prompt could go faster", name, rows, mean)
			}
		}
	}
}

// Where a step with prompts takes long whatever their tokens are, as on a GPU whose other steps are
// recorded, few long chunks hold the others up least.
func TestWhatIsFixedIsPaidFewTimes(t *testing.T) {
	noise := rand.New(rand.NewPCG(3, 4))
	const alone, fixed, token = .0012, .006, 1e-6
	p := pace{hasGraphs: true}
	for range 20 {
		p.took(8, 0, alone*(1+.1*noise.Float64()))
	}
	steps := 0
	for left := 30_000; left > 0; steps++ {
		n := min(p.chunk(8, 2048), left)
		p.took(8, n, (alone+fixed+token*float64(n))*(1+.1*noise.Float64()))
		left -= n
	}
	if steps > 60 { // chunks of eight tokens would be 3,750
		t.Errorf("a prompt of 30,000 tokens takes %d steps", steps)
	}
}

// Where nobody decodes, a step is as large as it may be; before anything is known it is small.
func TestAChunkIsBounded(t *testing.T) {
	var p pace
	if n := p.chunk(0, 2048); n != 2048 {
		t.Errorf("%d tokens where nobody decodes", n)
	}
	if n := p.chunk(3, 2048); n != firstChunk {
		t.Errorf("%d tokens in a first step", n)
	}
	if n := p.chunk(3, 5); n != 5 {
		t.Errorf("%d tokens where 5 are left", n)
	}
	p.took(3, 0, .01)
	for range 20 {
		n := p.chunk(3, 2048)
		p.took(3, n, float64(n))
	}
	if n := p.chunk(3, 2048); n != leastChunk {
		t.Errorf("%d tokens on a machine that is much too slow", n)
	}
	for range 100 {
		p.took(5, p.chunk(5, 2048), .01)
	}
	before := p.chunk(3, 2048)
	if before != 2048 {
		t.Errorf("%d tokens after a hundred fast steps", before)
	}
	p.took(3, 7, .01) // the last tokens of a prompt say nothing of a longer chunk
	if n := p.chunk(3, 2048); n != before {
		t.Errorf("%d tokens after a short chunk, %d before", n, before)
	}
	p.took(3, 2048, 1) // something else had the machine
	if n := p.chunk(3, 2048); n < before/2 {
		t.Errorf("%d tokens after one slow step, %d before", n, before)
	}
	if p.took(1<<20, 0, 1); p.without(1<<20) == 0 {
		t.Error("a step of many rows is forgotten")
	}
}

func TestTheShortestPromptComesFirstAndTheOldestEnds(t *testing.T) {
	for _, x := range []struct {
		left   []int
		tokens int
		want   []int
	}{
		{nil, 10, []int{}},
		{[]int{30_000}, 64, []int{64}},
		{[]int{30_000, 20, 100}, 100, []int{25, 20, 55}},
		{[]int{30_000, 20, 100}, 200, []int{80, 20, 100}},
		{[]int{5, 30_000}, 64, []int{5, 59}},
		{[]int{100, 100, 100}, 100, []int{100, 0, 0}},
		{[]int{100, 100, 100}, 1, []int{1, 0, 0}},
		{[]int{3, 4}, 100, []int{3, 4}},
	} {
		if got := shares(x.left, x.tokens); !slices.Equal(got, x.want) {
			t.Errorf("%d tokens among %v: %v, want %v", x.tokens, x.left, got, x.want)
		}
	}
}
