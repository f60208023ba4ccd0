package dense

import (
	"agentcli/internal/vector"
	"agentcli/retriever/best"
)

// connector makes every vector reachable in layer 0. An insertion may push the last edge to
// another vector out of a full list; no walk would find that vector again.
//
// The reached vectors are a breadth-first tree from the entry point. An edge of the tree is
// never replaced, so what is reached stays reached.
type connector struct {
	*graph
	v       vectors
	parent  []uint32 // in the tree, by vector; of the entry point itself; none: not reached
	reached []uint32 // in the order of the walk
	walked  int      // of reached: those whose neighbours are reached too
	full    int      // of reached: the first ones, in whose lists every edge is of the tree
}

// connect gives each vector that no walk from the entry point reaches in layer 0 a place in
// the list of a near vector that is reached. ef is how many near vectors are considered.
func (g *graph) connect(v vectors, copies []bool, ef int, cancelled func() error) error {
	c := &connector{graph: g, v: v, parent: make([]uint32, v.len()), reached: make([]uint32, 0, v.len())}
	for i := range c.parent {
		c.parent[i] = none
	}
	c.reach(g.entry, g.entry)
	c.walk()
	w, changes := &walker{}, 0
	for node := range uint32(v.len()) {
		if c.parent[node] != none || copies[node] {
			continue
		}
		c.attach(w, node, ef)
		c.walk()
		if changes++; changes%1024 == 0 {
			if err := cancelled(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *connector) reach(node, parent uint32) {
	c.parent[node] = parent
	c.reached = append(c.reached, node)
}

// walk reaches the neighbours of all that is reached.
func (c *connector) walk() {
	for ; c.walked < len(c.reached); c.walked++ {
		node := c.reached[c.walked]
		list := c.list(node, 0)
		for _, other := range list[1 : 1+list[0]] {
			if c.parent[other] == none {
				c.reach(other, node)
			}
		}
	}
}

// attach puts an edge to a vector into the list of the nearest reached vector that has a
// place for it. There is always one: r reached vectors have r - 1 edges of the tree and
// 2m·r places.
func (c *connector) attach(w *walker, node uint32, ef int) {
	query := c.v.at(node)
	entry := best.Scored{Score: vector.Dot(query, c.v.at(c.entry)), Doc: c.entry}
	for _, s := range w.layer(c.v, query, []best.Scored{entry}, ef, 0, c.copyList) {
		if c.addEdge(s.Doc, node) {
			return
		}
	}
	for !c.addEdge(c.reached[c.full], node) {
		c.full++
	}
}

// addEdge adds an edge from a reached vector. In a full list it replaces the farthest
// neighbour whose edge is not of the tree; without one it reports false.
func (c *connector) addEdge(from, to uint32) bool {
	list := c.list(from, 0)
	if int(list[0]) < len(list)-1 {
		list[0]++
		list[list[0]] = to
		c.reach(to, from)
		return true
	}
	at, farthest := -1, best.Scored{}
	for i, other := range list[1:] {
		s := best.Scored{Score: vector.Dot(c.v.at(from), c.v.at(other)), Doc: other}
		if c.parent[other] != from && (at < 0 || best.Worse(s, farthest)) {
			at, farthest = 1+i, s
		}
	}
	if at < 0 {
		return false
	}
	list[at] = to
	c.reach(to, from)
	return true
}
