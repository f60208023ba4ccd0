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
			p := pace{depth: 4000}
			for range 20 {
				p.took(rows, promptWork{}, took(0, 0))
			}
			alone := m.step(rows, 0, 0)
			var steps []float64
			for at := 0; at < 30_000; {
				n, work := p.next(30_000-at, at)
				if n < 1 {
					t.Fatalf("%s, %d rows: %d tokens of a prompt in a step", name, rows, n)
				}
				s := took(n, at)
				p.took(rows, work, s)
				steps, at = append(steps, s), at+n
			}
			slices.Sort(steps)
			if slow := steps[len(steps)*99/100] / alone; slow > 3 {
				t.Errorf("%s, %d rows: the slow steps of %d take %.2f times as long as before", name, rows, len(steps), slow)
			}
			if mean := steps[len(steps)/2] / alone; mean < 1.5 && p.room() < 2000 {
				t.Errorf("%s, %d rows: half of the steps take %.2f times as long as before: the prompt could go faster", name, rows, mean)
			}
		}
	}
}

// Where a step with prompts takes long whatever their tokens are, as on a GPU whose other steps are
// recorded, few long chunks hold the others up least.
func TestWhatIsFixedIsPaidFewTimes(t *testing.T) {
	for _, depth := range []float64{0, 1500} {
		noise := rand.New(rand.NewPCG(3, 4))
		const alone, fixed, token = .0012, .006, 1e-6
		p := pace{hasGraphs: true, depth: depth}
		for range 20 {
			p.took(8, promptWork{}, alone*(1+.1*noise.Float64()))
		}
		steps := 0
		for at := 0; at < 30_000; steps++ {
			n, work := p.next(30_000-at, at)
			p.took(8, work, (alone+fixed+token*float64(n))*(1+.1*noise.Float64()))
			at += n
		}
		if steps > 60 { // chunks of eight tokens would be 3,750
			t.Errorf("a prompt of 30,000 tokens takes %d steps", steps)
		}
	}
}

// Before anything is known a chunk is small; later it is as long as the machine is fast, and a step allows.
func TestAChunkIsBounded(t *testing.T) {
	var p pace
	if n := p.room(); n != firstChunk {
		t.Errorf("%v tokens in a first step", n)
	}
	p.took(3, promptWork{}, .01)
	for range 20 {
		n, work := p.next(30_000, 0)
		p.took(3, work, float64(n))
	}
	if n := p.room(); n != leastChunk {
		t.Errorf("%v tokens on a machine that is much too slow", n)
	}
	for range 100 {
		_, work := p.next(30_000, 0)
		p.took(5, work, .01)
	}
	before := p.room()
	if n, _ := p.next(30_000, 0); n != 2048 || before > 2*2048 {
		t.Errorf("%d tokens after a hundred fast steps, room for %v", n, before)
	}
	p.took(3, promptWork{7, 1}, .01) // the last tokens of a prompt say nothing of a longer chunk
	if n := p.room(); n != before {
		t.Errorf("%v tokens after a short chunk, %v before", n, before)
	}
	p.took(3, promptWork{2048, 1}, 1) // something else had the machine
	if n := p.room(); n < before/2 {
		t.Errorf("%v tokens after one slow step, %v before", n, before)
	}
	if p.took(1<<20, promptWork{}, 1); p.without(1<<20) == 0 {
		t.Error("a step of many rows is forgotten")
	}
}

// Short prompts, which are fast, do not make the chunks of a long one longer than a step allows.
func TestShortPromptsDoNotLengthenTheChunksOfALongOne(t *testing.T) {
	m := machine{.008, .0008, .0003, 1e-7, 1e-7}
	const rows, behind = 8, 28_000
	p := pace{depth: m.token / m.seen}
	alone := m.step(rows, 0, 0)
	for range 20 {
		p.took(rows, promptWork{}, alone)
	}
	slow, steps := 0, 0
	for i := range 2000 {
		if i%4 < 3 { // new replies: prompts that take all that there is
			n, work := p.next(400, 0)
			p.took(rows, work, m.step(rows, n, 0))
			continue
		}
		n, work := p.next(1000, behind)
		s := m.step(rows, n, behind)
		p.took(rows, work, s)
		if steps++; s > 3*alone {
			slow++
		}
	}
	if slow > steps/20 {
		t.Errorf("%d of %d steps with tokens behind %d take more than three times as long as before", slow, steps, behind)
	}
}

// next is what a step computes of one prompt beside rows that decode.
func (p *pace) next(left, behind int) (n int, work promptWork) {
	each := p.tokenWork(behind)
	n = shares([]int{left}, []float64{each}, p.room(), 2048)[0]
	work.add(n, each)
	return n, work
}

func TestTheShortestPromptComesFirstAndTheOldestEnds(t *testing.T) {
	for _, x := range []struct {
		left []int
		each []float64 // nil: 1
		work float64
		want []int
	}{
		{nil, nil, 10, []int{}},
		{[]int{30_000}, nil, 64, []int{64}},
		{[]int{30_000}, nil, 5000, []int{2048}},
		{[]int{30_000, 100}, nil, 5000, []int{1948, 100}},
		{[]int{30_000, 20, 100}, nil, 100, []int{25, 20, 55}},
		{[]int{30_000, 20, 100}, nil, 200, []int{80, 20, 100}},
		{[]int{5, 30_000}, nil, 64, []int{5, 59}},
		{[]int{100, 100, 100}, nil, 100, []int{100, 0, 0}},
		{[]int{100, 100, 100}, nil, 1, []int{2, 0, 0}},
		{[]int{3, 4}, nil, 100, []int{3, 4}},
		{[]int{30_000, 20, 100}, []float64{8, 1, 1}, 100, []int{4, 20, 48}},
		{[]int{30_000, 20}, []float64{8, 1}, 100, []int{10, 20}},
		{[]int{30_000, 20}, []float64{50, 1}, 40, []int{2, 0}},
		{[]int{30_000}, []float64{50}, 40, []int{2}},
	} {
		each := x.each
		if each == nil {
			each = slices.Repeat([]float64{1}, len(x.left))
		}
		if got := shares(x.left, each, x.work, 2048); !slices.Equal(got, x.want) {
			t.Errorf("%v work among %v of %v each: %v, want %v", x.work, x.left, each, got, x.want)
		}
	}
}
