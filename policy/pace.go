package policy

import (
	"math"
	"math/bits"
)

// pace says how many tokens of prompts a step computes beside sequences that decode, from how
// long steps took: the time between two tokens of those sequences shall stay below three times
// what it is without prompts. A chunk of fixed size would be too long behind 30,000 tokens,
// whose attention costs many times what the first tokens' does, or on a slow machine, and too
// short for a GPU.
type pace struct {
	alone     [16]float64                    // seconds of a step without prompts, by the number of its rows: of 2^i to 2^(i+1)−1
	size      float64                        // tokens of the next chunk; 0: nothing is known
	hasGraphs bool                           // steps without prompts are CUDA graphs; a step with prompts then has a high fixed cost
	fixed     float64                        // seconds that a step with prompts takes longer, however few their tokens are
	last      struct{ tokens, cost float64 } // of a step with prompts: the next of another length shows what is fixed
}

const (
	slowdown        = 2.2 // the aim, of a step's time: 3 must hold for 99 of 100 steps
	firstChunk      = 64  // tokens, while nothing has been measured
	firstGraphChunk = 512 // the same where steps are graphs: its fixed cost is the largest part there
	leastChunk      = 2   // a prompt must come to an end, too
)

// took takes in a step of rows that decode and of prompt tokens.
func (p *pace) took(rows, prompt int, seconds float64) {
	if rows == 0 {
		return // nobody waited
	}
	if prompt == 0 {
		at := min(bits.Len(uint(rows))-1, len(p.alone)-1)
		if p.alone[at] == 0 {
			p.alone[at] = seconds
		}
		p.alone[at] += .3 * (seconds - p.alone[at])
		return
	}
	alone := p.without(rows)
	if alone == 0 {
		return
	}
	if p.size == 0 {
		p.size = p.first()
	}
	cost := max(seconds-alone, alone/100)
	// What a chunk costs has a part that does not depend on its length: what the prompt looks back
	// at is read. So the length is corrected and not computed, and one step that something else
	// has held up counts little.
	by := math.Sqrt(min(max((slowdown-1)*alone/cost, .4), 1.6))
	// Where what is fixed is too long alone, shorter chunks hold the others up more often and hardly
	// less: what depends on the length then costs as much.
	if p.hasGraphs {
		p.learnFixed(float64(prompt), cost)
		by = max(by, min(2*p.fixed/cost, 2))
	}
	if full := float64(prompt) >= math.Floor(p.size); full || by < 1 {
		size := p.size
		if !full {
			size = float64(prompt)
		}
		p.size = min(max(size*by, leastChunk), defaultStepTokens)
	}
}

// first is the length of the first chunk, of which nothing is known.
func (p *pace) first() float64 {
	if p.hasGraphs {
		return firstGraphChunk
	}
	return firstChunk
}

// learnFixed updates the fixed cost from one step with prompt tokens, in seconds.
func (p *pace) learnFixed(tokens, cost float64) {
	const apart = 1.5 // lengths that are nearer than that say nothing
	if p.last.tokens == 0 {
		p.last.tokens, p.last.cost = tokens, cost
		return
	}
	if ratio := tokens / p.last.tokens; ratio < apart && ratio > 1/apart {
		return
	}
	each := max((cost-p.last.cost)/(tokens-p.last.tokens), 0)
	if now := max(cost-each*tokens, 0); p.fixed == 0 {
		p.fixed = now
	} else {
		p.fixed += .3 * (now - p.fixed)
	}
	p.last.tokens, p.last.cost = tokens, cost
}

// without is how long a step takes that decodes rows and computes no prompt; 0: unknown.
func (p *pace) without(rows int) float64 {
	at := min(bits.Len(uint(rows))-1, len(p.alone)-1)
	for i := at; i >= 0; i-- { // fewer rows take less
		if p.alone[i] > 0 {
			return p.alone[i]
		}
	}
	for _, s := range p.alone[at:] {
		if s > 0 {
			return s
		}
	}
	return 0
}

// chunk is how many tokens of prompts a step computes beside rows that decode, of at most most.
func (p *pace) chunk(rows, most int) int {
	switch {
	case rows == 0:
		return most
	case p.size == 0:
		return min(int(p.first()), most)
	}
	return min(int(p.size), most)
}

// shares divides a step's tokens among prompts, of which `left` tokens are to be computed, the
// oldest first. A short prompt does not wait for a long one: the shortest comes first. That the
// oldest ends too, however many short ones follow it, a quarter is its own.
func shares(left []int, tokens int) []int {
	out := make([]int, len(left))
	if len(left) == 0 {
		return out
	}
	out[0] = min(left[0], (tokens+3)/4)
	tokens -= out[0]
	for tokens > 0 {
		next := -1
		for i, n := range left {
			if n > out[i] && (next < 0 || n < left[next]) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		more := min(left[next]-out[next], tokens)
		out[next] += more
		tokens -= more
	}
	return out
}
