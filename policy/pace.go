package policy

import "math/bits"

// pace says how many tokens of prompts a step computes beside sequences that decode, from how
// long steps took: the time between two tokens of those sequences shall stay below slowdown
// times what it is without prompts. A chunk of fixed size would be too long behind 30,000
// tokens, whose attention costs many times what the first tokens' does, or on a slow machine,
// and too short for a GPU.
type pace struct {
	alone [16]float64 // seconds of a step without prompts, by the number of its rows: of 2^i to 2^(i+1)−1
	token float64     // seconds that one more token of a prompt took, lately
}

const (
	slowdown   = 2.3 // the aim; 3 must hold for 99 of 100 steps
	firstChunk = 64  // tokens, while nothing has been measured
	leastChunk = 2   // a prompt must come to an end, too
)

// took takes in a step of rows that decode and of prompt tokens.
func (p *pace) took(rows, prompt int, seconds float64) {
	if rows == 0 {
		return // nobody waited
	}
	at := min(bits.Len(uint(rows))-1, len(p.alone)-1)
	if prompt == 0 {
		if p.alone[at] == 0 {
			p.alone[at] = seconds
		}
		p.alone[at] += .3 * (seconds - p.alone[at])
		return
	}
	// A rise is believed at once: the attention of a long prompt becomes dearer with each step.
	now := max(seconds-p.without(rows), 0) / float64(prompt)
	p.token = max(now, p.token+.3*(now-p.token))
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
	if rows == 0 {
		return most
	}
	alone := p.without(rows)
	if alone == 0 || p.token == 0 {
		return min(firstChunk, most)
	}
	return min(max(leastChunk, int((slowdown-1)*alone/p.token)), most)
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
