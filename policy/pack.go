package policy

import "slices"

// A Pack is a set of token sequences laid out as a forest in which every shared
// prefix occurs once: the attempts of a group share their prompt, and all
// prompts of a dataset share system text and shots. A forward pass over the
// pack computes each shared token once; attention lets a token see exactly its
// own sequence, so log-probs and gradients equal those of the separate
// sequences.
type Pack struct {
	IDs       []int32 // the T tokens of the pack
	Positions []int32 // each token's index in its sequences; with images, its position in time
	Nodes     []Node  // tile 0..T in order; parents first
	paths     [][]int // for each sequence, its nodes from the root

	rows, columns []int32 // the other positions (positionsOf); nil where there are no images
	images        []Image // each once for all that share it; Start is the pack's row
}

// positions of the pack's tokens.
func (p *Pack) positions() positions { return positions{p.Positions, p.rows, p.columns} }

// Node is a run of tokens that the same sequences share.
type Node struct{ Start, Len, Parent int32 }

// NewPack lays sequences out. An empty sequence has no tokens in the pack.
func NewPack(seqs [][]int32) *Pack { return newPack(seqs, nil, 1) }

// newPack lays out sequences with their images, where images is not nil. Tokens of an image
// are shared by sequences that have the same pixels there. Merge is the side of a feature in
// patches.
func newPack(seqs [][]int32, images [][]Image, merge int) *Pack {
	p := &Pack{paths: make([][]int, len(seqs))}
	tokens := seqs
	if images != nil {
		seqs = symbols(tokens, images)
	}
	all := make([]int, 0, len(seqs))
	for i, s := range seqs {
		if len(s) > 0 {
			all = append(all, i)
		}
	}
	p.grow(seqs, all, 0, -1)
	if images != nil {
		p.place(tokens, images, merge)
	}
	return p
}

// symbols are sequences whose tokens of images are numbers below 0, which are equal where the
// pixels are.
func symbols(seqs [][]int32, images [][]Image) [][]int32 {
	out, first, next := slices.Clone(seqs), map[imageKey]int32{}, int32(-1)
	for m, of := range images {
		if len(of) > 0 {
			out[m] = slices.Clone(seqs[m])
		}
		for _, i := range of {
			at, seen := first[i.key()]
			if !seen {
				at = next
				first[i.key()] = at
				next -= int32(i.Tokens)
			}
			for k := range i.Tokens {
				out[m][i.Start+k] = at - int32(k)
			}
		}
	}
	return out
}

// place gives the tokens of the pack their ids and positions, and finds its images.
func (p *Pack) place(seqs [][]int32, images [][]Image, merge int) {
	p.rows, p.columns = make([]int32, len(p.IDs)), make([]int32, len(p.IDs))
	seen := map[int32]bool{}
	for m, ids := range seqs {
		rows, pos := p.Rows(m, 0, len(ids)), positionsOf(len(ids), images[m], merge)
		if pos[1] == nil {
			pos[1], pos[2] = pos[0], pos[0]
		}
		for k, r := range rows {
			p.IDs[r], p.Positions[r], p.rows[r], p.columns[r] = ids[k], pos[0][k], pos[1][k], pos[2][k]
		}
		for _, i := range images[m] {
			if r := rows[i.Start]; !seen[r] {
				seen[r] = true
				i.Start = int(r)
				p.images = append(p.images, i)
			}
		}
	}
}

// grow adds the sequences of `members`, which agree on their first depth tokens.
func (p *Pack) grow(seqs [][]int32, members []int, depth int, parent int32) {
	// Children by next token, in order of first appearance: the layout depends
	// on the input alone.
	var order []int32
	children := map[int32][]int{}
	for _, m := range members {
		if len(seqs[m]) == depth {
			continue // ends here
		}
		t := seqs[m][depth]
		if _, seen := children[t]; !seen {
			order = append(order, t)
		}
		children[t] = append(children[t], m)
	}
	for _, t := range order {
		group := children[t]
		end := depth + 1
	run:
		for {
			for _, m := range group {
				if len(seqs[m]) <= end || seqs[m][end] != seqs[group[0]][end] {
					break run
				}
			}
			end++
		}
		id := len(p.Nodes)
		p.Nodes = append(p.Nodes, Node{Start: int32(len(p.IDs)), Len: int32(end - depth), Parent: parent})
		for i := depth; i < end; i++ {
			p.IDs = append(p.IDs, seqs[group[0]][i])
			p.Positions = append(p.Positions, int32(i))
		}
		for _, m := range group {
			p.paths[m] = append(p.paths[m], id)
		}
		p.grow(seqs, group, end, int32(id))
	}
}

// Index is the pack's row of token i of sequence seq.
func (p *Pack) Index(seq, i int) int32 {
	for _, n := range p.paths[seq] {
		node := p.Nodes[n]
		if i < int(node.Len) {
			return node.Start + int32(i)
		}
		i -= int(node.Len)
	}
	return -1
}

// Rows lists the pack's rows of sequence seq's tokens from..to-1.
func (p *Pack) Rows(seq, from, to int) []int32 {
	rows := make([]int32, 0, to-from)
	at := 0
	for _, n := range p.paths[seq] {
		node := p.Nodes[n]
		for j := 0; j < int(node.Len); j++ {
			if at >= from && at < to {
				rows = append(rows, node.Start+int32(j))
			}
			at++
		}
	}
	return rows
}

// Tokens is the number of tokens that a forward pass over the pack computes.
func (p *Pack) Tokens() int { return len(p.IDs) }

// PackedTokens is the size of the pack of seqs, without building it.
func PackedTokens(seqs [][]int32) int { return NewPack(seqs).Tokens() }
