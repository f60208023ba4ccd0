package trainer

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"agentcli/trainer/episode"
)

// components are those of the first row's reward, and which row has others: noticed
// as rows are read, for their rewards are not in memory later.
type components struct {
	row    string // the first one; "": none was read
	names  []string
	unlike string // the first row that has others, and which
}

// add looks at a row whose body is in memory.
func (c *components) add(e *episode.Episode) {
	if c.unlike != "" {
		return
	}
	if c.row == "" {
		c.row, c.names = e.Name(), partsOf(e)
		return
	}
	same := len(e.Parts) == len(c.names)
	for i := 0; same && i < len(e.Parts); i++ {
		same = e.Parts[i].Name == c.names[i]
	}
	if same {
		return
	}
	names := partsOf(e) // in another order they are the same
	a, b := slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(c.names))
	if !slices.Equal(a, b) {
		c.unlike = fmt.Sprintf("%s has %s, and %s has %s", e.Name(), listed(names), c.row, listed(c.names))
	}
}

// partsOf are the names of the components of a row's reward.
func partsOf(e *episode.Episode) []string {
	names := make([]string, len(e.Parts))
	for i, p := range e.Parts {
		names[i] = p.Name
	}
	return names
}

// listed says how many there are, and which.
func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return fmt.Sprintf("%d (%s)", len(names), strings.Join(names, ", "))
}

// CheckParts looks whether the rewards have the components that gdpo compares, all the
// same, and as many as --part-weights gives weights.
func (d *Data) CheckParts(c Config) error {
	if c.Advantage != "gdpo" || c.IsSupervised() || c.traits().critic || d.parts.row == "" {
		return nil
	}
	weights, err := parseNumbers("part-weights", c.PartWeights)
	if err != nil {
		return err
	}
	const compares = "--advantage gdpo compares the reward's components (reward_parts)"
	switch n := len(d.parts.names); {
	case d.parts.unlike != "":
		return fmt.Errorf("%s, and the rows have not the same: %s; score the rows anew with --reward, or take another --advantage", compares, d.parts.unlike)
	case n == 0:
		return fmt.Errorf("%s, and %s has none: take another --advantage", compares, d.parts.row)
	case weights != nil && len(weights) != n:
		return fmt.Errorf("--part-weights %s: its weights must be as many as the components of the rewards, here %s", c.PartWeights, listed(d.parts.names))
	}
	return nil
}

// partNames are the components of the first row's reward.
func (s *Session) partNames() (parts []string, err error) {
	first := s.groups[0][:1]
	err = s.loader.With(first, func() error {
		for _, p := range first[0].Parts {
			parts = append(parts, p.Name)
		}
		return nil
	})
	return parts, err
}

// parseNumbers reads numbers with commas between them; "" is nil.
func parseNumbers(flag, text string) ([]float64, error) {
	if text == "" {
		return nil, nil
	}
	var out []float64
	for part := range strings.SplitSeq(text, ",") {
		x, err := strconv.ParseFloat(strings.TrimSpace(part), 64)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
			return nil, fmt.Errorf("--%s %q: want numbers with commas between them, for example 1,.5", flag, text)
		}
		out = append(out, x)
	}
	return out, nil
}
