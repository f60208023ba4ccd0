package parquet

import (
	"fmt"
	"math"

	"agentcli/internal/malformed"
	"agentcli/traj"
)

// Lists of numbers are what a file of trajectories mostly holds: they are taken
// in runs, as many elements at once as a batch of the cursor has of one list.

// runs hands the elements of a list of leaves to f, in order: either values i to
// j of the cursor's current batch, or one element that is null (ok false).
func (n *node) runs(want string, f func(c *cursor, i, j int, ok bool) error) error {
	if n.kind != listKind || n.children[0].kind != leafKind {
		return n.wrong("a list of " + want)
	}
	if n.null() {
		return n.first.err
	}
	c := n.children[0].leaf
	if c.def() < n.listDef { // empty
		n.skipNull()
		return c.err
	}
	for first := true; first || c.rep() == n.rep; first = false {
		before := c.consumed
		run := 0
		if c.def() == c.maxDef {
			run = c.run(n.rep)
		}
		if err := f(c, c.vi, c.vi+run, run > 0); err != nil {
			return err
		}
		if run > 0 {
			c.skip(run)
		} else {
			c.next()
		}
		if c.err != nil {
			return c.err
		}
		if c.consumed == before {
			return fmt.Errorf("column %s: the levels do not advance", n.name)
		}
	}
	return nil
}

func (n *node) ids() ([]int32, error) {
	var out []int32
	err := n.runs("token ids", func(c *cursor, i, j int, ok bool) error {
		if !ok {
			return fmt.Errorf("token %d is null", len(out))
		}
		if out == nil { // most lists are one run
			out = make([]int32, 0, j-i)
		}
		var err error
		switch {
		case c.i32 != nil:
			out, err = appendIDs(out, c.i32[i:j])
		case c.i64 != nil:
			out, err = appendIDs(out, c.i64[i:j])
		default:
			err = n.wrong("a list of whole numbers")
		}
		return err
	})
	return out, err
}

func appendIDs[T int32 | int64](out []int32, values []T) ([]int32, error) {
	for _, v := range values {
		if v < 0 || int64(v) > math.MaxInt32 {
			return out, fmt.Errorf("token %d has the id %d", len(out), v)
		}
		out = append(out, int32(v))
	}
	return out, nil
}

func appendFlags[T int32 | int64](out []bool, values []T) []bool {
	for _, v := range values {
		out = append(out, v != 0)
	}
	return out
}

// versionsOf reads whole numbers of 64 bits; nil: the list is null or empty.
func versionsOf(n *node) ([]int64, error) {
	var out []int64
	err := n.runs("whole numbers", func(c *cursor, i, j int, ok bool) error {
		switch {
		case !ok:
			return fmt.Errorf("entry %d is null", len(out))
		case c.i32 != nil:
			for _, v := range c.i32[i:j] {
				out = append(out, int64(v))
			}
		case c.i64 != nil:
			out = append(out, c.i64[i:j]...)
		default:
			return n.wrong("a list of whole numbers")
		}
		return nil
	})
	return out, err
}

// flags reads a list of about size entries.
func (n *node) flags(size int) ([]bool, error) {
	out := make([]bool, 0, size)
	err := n.runs("true or false", func(c *cursor, i, j int, ok bool) error {
		if !ok {
			return fmt.Errorf("entry %d is null", len(out))
		}
		switch {
		case c.bool != nil:
			out = append(out, c.bool[i:j]...)
		case c.i32 != nil:
			out = appendFlags(out, c.i32[i:j])
		case c.i64 != nil:
			out = appendFlags(out, c.i64[i:j])
		default:
			return n.wrong("a list of true or false")
		}
		return nil
	})
	if len(out) == 0 {
		out = nil
	}
	return out, err
}

// logprobs reads a list of about size entries; nil where it has none.
func (n *node) logprobs(size int) ([]traj.Logprob, error) {
	out := make([]traj.Logprob, 0, size)
	err := n.runs("numbers", func(c *cursor, i, j int, ok bool) error {
		switch {
		case !ok:
			out = append(out, traj.NoLogprob())
		case c.f32 != nil:
			out = appendLogprobs(out, c.f32[i:j])
		case c.f64 != nil:
			out = appendLogprobs(out, c.f64[i:j])
		case c.i32 != nil:
			out = appendLogprobs(out, c.i32[i:j])
		case c.i64 != nil:
			out = appendLogprobs(out, c.i64[i:j])
		default:
			return n.wrong("a list of numbers")
		}
		return nil
	})
	if len(out) == 0 {
		out = nil
	}
	return out, err
}

func appendLogprobs[T int32 | int64 | float32 | float64](out []traj.Logprob, values []T) []traj.Logprob {
	for _, v := range values {
		out = append(out, traj.Logprob(v))
	}
	return out
}

// weightList reads a list of numbers that are at least 0; nil where there is none.
func weightList(n *node) (out []float64, err error) {
	err = n.runs("numbers", func(c *cursor, i, j int, ok bool) error {
		switch {
		case !ok:
			return malformed.Errorf(malformed.Range, "token %d has no weight", len(out))
		case c.f32 != nil:
			out = appendWeights(out, c.f32[i:j])
		case c.f64 != nil:
			out = appendWeights(out, c.f64[i:j])
		case c.i32 != nil:
			out = appendWeights(out, c.i32[i:j])
		case c.i64 != nil:
			out = appendWeights(out, c.i64[i:j])
		default:
			return n.wrong("a list of numbers")
		}
		return nil
	})
	for k, w := range out {
		if err == nil && !(w >= 0 && w <= math.MaxFloat64) {
			err = malformed.Errorf(malformed.Range, "token %d has the weight %v; want a number of at least 0", k, w)
		}
	}
	return out, err
}

func appendWeights[T int32 | int64 | float32 | float64](out []float64, values []T) []float64 {
	for _, v := range values {
		out = append(out, float64(v))
	}
	return out
}
