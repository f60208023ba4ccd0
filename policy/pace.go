package policy

import (
	"math"
	"math/bits"

	"agentcli/model/arch"
)

// pace says how much of prompts a step computes beside sequences that decode, from how long
// steps took: the time between two tokens of those sequences shall stay below three times what
// it is without prompts. It counts in the work of a prompt's first token. A token behind others
// attends to them, and is more of that: what was learned from short prompts holds behind 30,000
// tokens, and the other way round.
type pace struct {
	depth     float64                      // tokens of context whose attention costs what the products of a token do; 0: it costs nothing
	alone     [16]float64                  // seconds of a step without prompts, by the number of its rows: of 2^i to 2^(i+1)−1
	size      float64                      // work of the next step; 0: nothing is known
	hasGraphs bool                         // steps without prompts are CUDA graphs; a step with prompts then has a high fixed cost
	fixed     float64                      // seconds that a step with prompts takes longer, however little their work is
	last      struct{ work, cost float64 } // of a step with prompts: the next of other work shows what is fixed
}

const (
	slowdown        = 2.2 // the aim, of a step's time: 3 must hold for 99 of 100 steps
	firstChunk      = 64  // work, while nothing has been measured
	firstGraphChunk = 512 // the same where steps are graphs: its fixed cost is the largest part there
	leastChunk      = 2   // tokens: a prompt must come to an end, too
)

// costDepth is the depth of a network, by the multiplications of its products and of its attention
// to all tokens. Attention reaches about half the speed of the products.
func costDepth(c arch.Decoder) float64 {
	products, attention := 0, 0
	for _, l := range c.Layers {
		a := l.Attention
		products += c.HiddenSize * (2*(a.Heads+a.KVHeads)*a.HeadDim + 3*l.Width())
		if a.Window == 0 {
			attention += 2 * a.Heads * a.HeadDim
		}
	}
	if attention == 0 {
		return 0
	}
	return float64(products) / float64(2*attention)
}

// tokenWork is the work of one token of a prompt behind others.
func (p *pace) tokenWork(behind int) float64 {
	if p.depth == 0 {
		return 1
	}
	return 1 + float64(behind)/p.depth
}

// promptWork is what a step computes of prompts, and the least that could be added to it.
type promptWork struct{ sum, more float64 }

// add takes in more of that, of which one piece is each.
func (w *promptWork) add(pieces int, each float64) {
	if w.sum += float64(pieces) * each; pieces > 0 && (w.more == 0 || each < w.more) {
		w.more = each
	}
}

// took takes in a step of rows that decode, and of prompts.
func (p *pace) took(rows int, prompts promptWork, seconds float64) {
	if rows == 0 {
		return // nobody waited
	}
	if prompts.sum == 0 {
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
	// What prompts cost has a part that does not depend on their work: what they look back at is
	// read. So the size is corrected and not computed, and one step that something else has held up
	// counts little. A step that did not use all of its size shows only that it was too large.
	cost := max(seconds-alone, alone/100)
	fits := (slowdown - 1) * alone / cost // times the work of this step
	by := math.Sqrt(prompts.sum * fits / p.size)
	if fits < 1 {
		by = min(max(by, .63), 1)
	} else {
		by = min(max(by, 1), 1.27)
	}
	// Where what is fixed is too long alone, shorter chunks hold the others up more often and hardly
	// less: what depends on the length then costs as much.
	if p.hasGraphs {
		p.learnFixed(prompts.sum, cost)
		by = max(by, min(2*p.fixed/cost, 2))
	}
	if full := prompts.sum+prompts.more > p.size; full || by < 1 {
		p.size = max(p.size*by, leastChunk)
	}
}

// first is the work of the first step with prompts, of which nothing is known.
func (p *pace) first() float64 {
	if p.hasGraphs {
		return firstGraphChunk
	}
	return firstChunk
}

// learnFixed updates the fixed cost from one step with prompts, in seconds.
func (p *pace) learnFixed(work, cost float64) {
	const apart = 1.5 // steps that are nearer than that say nothing
	if p.last.work == 0 {
		p.last.work, p.last.cost = work, cost
		return
	}
	if ratio := work / p.last.work; ratio < apart && ratio > 1/apart {
		return
	}
	each := max((cost-p.last.cost)/(work-p.last.work), 0)
	if now := max(cost-each*work, 0); p.fixed == 0 {
		p.fixed = now
	} else {
		p.fixed += .3 * (now - p.fixed)
	}
	p.last.work, p.last.cost = work, cost
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

// room is the work that a step beside rows that decode has for prompts.
func (p *pace) room() float64 {
	if p.size == 0 {
		return p.first()
	}
	return p.size
}

// shares divides the work of a step, of at most so many tokens, among prompts, of which `left` tokens are to
// be computed and a token is `each` work, the oldest first. A short prompt does not wait for a long one: the
// shortest comes first. That the oldest ends too, however many short ones follow it, a quarter is its own.
func shares(left []int, each []float64, work float64, tokens int) []int {
	out := make([]int, len(left))
	if len(left) == 0 {
		return out
	}
	take := func(i, n int) {
		out[i], work, tokens = out[i]+n, work-float64(n)*each[i], tokens-n
	}
	take(0, min(left[0], tokens, max(leastChunk, int(math.Ceil(work/4/each[0])))))
	for {
		next := -1
		for i, n := range left {
			if n > out[i] && each[i] <= work && tokens > 0 && (next < 0 || n < left[next]) {
				next = i
			}
		}
		if next < 0 {
			return out
		}
		take(next, min(left[next]-out[next], int(work/each[next]), tokens))
	}
}
