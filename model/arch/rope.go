package arch

import (
	"math"
	"slices"
)

// Rope is a rotary embedding (Su et al. 2021): the angles by which pairs of a head's
// dimensions are turned at each position.
type Rope struct {
	Theta       float64
	Dim         int  // how many dimensions are turned, from the first
	Interleaved bool // pairs are neighbours; otherwise i and i + Dim/2
	Scaling     *Scaling
	QueryBeta   float64 // queries grow beyond Original positions (QueryScale); 0: they do not
	Original    int     // of QueryBeta

	// Sections are how many pairs are turned by a token's three positions: of time, row and
	// column (Wang et al. 2024). All 0: a token has one position.
	Sections            [3]int
	SectionsInterleaved bool // pairs are taken in turn; otherwise section by section
}

// Axis is which of a token's three positions turns a pair.
func (r Rope) Axis(pair int) int {
	switch s := r.Sections; {
	case s == [3]int{}:
		return 0
	case r.SectionsInterleaved:
		if axis := pair % 3; pair < 3*s[axis] {
			return axis
		}
		return 0
	case pair < s[0]:
		return 0
	case pair < s[0]+s[1]:
		return 1
	}
	return 2
}

// QueryScale multiplies the queries of a position: 1 + β·log(1 + ⌊position/original⌋), so
// that attention stays sharp in long texts (Llama 4's temperature tuning).
func (r Rope) QueryScale(position int) float64 {
	if r.QueryBeta == 0 {
		return 1
	}
	return 1 + r.QueryBeta*math.Log(1+float64(position/r.Original))
}

// Scaling stretches a rotary embedding to longer texts than it was trained on.
type Scaling struct {
	Type     string // linear, dynamic, llama3, yarn, longrope, proportional
	Factor   float64
	Original int // tokens of the longest text before

	LowFreqFactor, HighFreqFactor float64 // llama3

	AttentionFactor float64 // yarn, longrope: cosines and sines are multiplied by it
	Low, High       float64 // yarn: pairs before Low keep their frequency, from High on it is divided

	Turned int // proportional: only so many pairs, the first ones, are turned

	Short, Long []float64 // longrope: divisors of the frequencies, up to Original tokens and beyond
}

// Reach is the number of positions for which the table holds without further ado: where
// it depends on a text's length, those of texts as long as in training.
func (r Rope) Reach(positions int) int {
	if s := r.Scaling; s != nil && (s.Type == "dynamic" || s.Type == "longrope") && s.Original > 0 {
		return min(positions, s.Original)
	}
	return positions
}

// InverseFrequencies are the angles at position 1, one a pair, for a table of that many
// positions.
func (r Rope) InverseFrequencies(positions int) []float64 {
	inv := make([]float64, r.Dim/2)
	theta := r.Theta
	s := r.Scaling
	if s != nil && s.Type == "dynamic" && positions > s.Original {
		// "NTK-aware" scaling for the longest text of the table (bloc97, 2023).
		d := float64(r.Dim)
		theta *= math.Pow(s.Factor*float64(positions)/float64(s.Original)-(s.Factor-1), d/(d-2))
	}
	for i := range inv {
		inv[i] = math.Pow(theta, -float64(2*i)/float64(r.Dim))
		if s != nil {
			inv[i] = s.scale(i, inv[i], positions)
		}
	}
	return inv
}

// Amplitude multiplies cosines and sines.
func (r Rope) Amplitude() float64 {
	if r.Scaling != nil && r.Scaling.AttentionFactor != 0 {
		return r.Scaling.AttentionFactor
	}
	return 1
}

// scale makes the frequency of pair i slower.
func (s *Scaling) scale(i int, f float64, positions int) float64 {
	switch s.Type {
	case "linear": // Chen et al. 2023
		return f / s.Factor
	case "llama3": // long waves by the factor, short ones not at all, a smooth step between
		wave, old := 2*math.Pi/f, float64(s.Original)
		low, high := old/s.LowFreqFactor, old/s.HighFreqFactor
		switch {
		case wave > low:
			return f / s.Factor
		case wave >= high:
			smooth := (old/wave - s.LowFreqFactor) / (s.HighFreqFactor - s.LowFreqFactor)
			return (1-smooth)*f/s.Factor + smooth*f
		}
	case "yarn": // Peng et al. 2023, "NTK-by-parts"
		ramp := min(max((float64(i)-s.Low)/(s.High-s.Low), 0), 1)
		return f/s.Factor*ramp + f*(1-ramp)
	case "proportional":
		if i >= s.Turned {
			return 0
		}
		return f / s.Factor
	case "longrope": // Ding et al. 2024
		if positions > s.Original {
			return f / s.Long[i]
		}
		return f / s.Short[i]
	}
	return f
}

// readRope reads how positions are rotated, in the old form (rope_theta, rope_scaling) and in
// the new one (rope_parameters), and gives its index.
func readRope(d *Decoder, k *Keys, dim int, theta float64) int {
	theta = k.Positive("rope_theta", theta)
	p := k.Sub("rope_parameters")
	if p == nil {
		p = k.Sub("rope_scaling")
	} else {
		k.Sub("rope_scaling") // an old name for the same
	}
	if p == nil {
		p = &Keys{path: k.path, read: map[string]bool{}, err: k.err}
	}
	partial := k.Float("partial_rotary_factor", 1)
	return ropeOf(d, k, p, dim, theta, partial)
}

// ropeOf reads one object of rope parameters. Partial is the share of a head that is
// rotated where the object does not say it.
func ropeOf(d *Decoder, k, p *Keys, dim int, theta, partial float64) int {
	r := Rope{Theta: p.Positive("rope_theta", theta)}
	partial = p.Float("partial_rotary_factor", partial)
	if !(partial > 0 && partial <= 1) {
		p.fail("partial_rotary_factor", "%v is not above 0 and at most 1", partial)
	}
	kind := p.String("rope_type", p.String("type", "default"))
	turned := int(partial * float64(dim) / 2)
	if kind == "proportional" { // the others have an angle of 0
		partial = 1
	}
	if r.Dim = int(float64(dim) * partial); r.Dim%2 != 0 || r.Dim == 0 {
		p.refuse("partial_rotary_factor", "%v of a head of %d is %d, which is no even number", partial, dim, r.Dim)
		r.Dim = 2
	}
	p.String("type", "")
	r.Scaling = readScaling(d, k, p, kind, r)
	if kind == "proportional" {
		r.Scaling.Turned = turned
	}
	if beta := p.Float("llama_4_scaling_beta", 0); beta != 0 {
		r.QueryBeta, r.Original = beta, p.Size("original_max_position_embeddings", 1<<30)
	}
	p.Has("max_position_embeddings") // the model's own, once more
	if i := slices.IndexFunc(d.Ropes, r.equal); i >= 0 {
		return i
	}
	d.Ropes = append(d.Ropes, r)
	return len(d.Ropes) - 1
}

func (r Rope) equal(o Rope) bool {
	if r.Scaling == nil || o.Scaling == nil {
		return r == o
	}
	a, b := *r.Scaling, *o.Scaling
	same := slices.Equal(a.Short, b.Short) && slices.Equal(a.Long, b.Long)
	r.Scaling, o.Scaling = nil, nil
	a.Short, a.Long, b.Short, b.Long = nil, nil, nil, nil
	return same && r == o && a.Type == b.Type && a.Factor == b.Factor && a.Original == b.Original && a.AttentionFactor == b.AttentionFactor &&
		a.Turned == b.Turned && a.Low == b.Low && a.High == b.High && a.LowFreqFactor == b.LowFreqFactor && a.HighFreqFactor == b.HighFreqFactor
}

func readScaling(d *Decoder, k, p *Keys, kind string, r Rope) *Scaling {
	s := &Scaling{Type: kind}
	original := k.SizeOr("original_max_position_embeddings", 1<<30, max(d.MaxPositions, 1))
	s.Original = p.SizeOr("original_max_position_embeddings", 1<<30, original)
	switch kind {
	case "", "default":
		p.Float("factor", 1)
		return nil
	case "linear":
		s.Factor = p.Positive("factor", 0)
	case "proportional":
		s.Factor = p.Positive("factor", 1)
	case "dynamic": // stretched beyond the model's own context, whatever original_max_position_embeddings says
		s.Factor, s.Original = p.Positive("factor", 0), max(d.MaxPositions, 1)
	case "llama3":
		s.Factor = p.Positive("factor", 0)
		s.LowFreqFactor, s.HighFreqFactor = p.Positive("low_freq_factor", 1), p.Positive("high_freq_factor", 4)
	case "yarn":
		s.yarn(d, p, r)
	case "longrope", "su":
		s.Type = "longrope"
		s.Short, s.Long = p.Floats("short_factor"), p.Floats("long_factor")
		for _, f := range []struct {
			key string
			v   []float64
		}{{"short_factor", s.Short}, {"long_factor", s.Long}} {
			if len(f.v) != r.Dim/2 || slices.ContainsFunc(f.v, func(x float64) bool { return !(x > 0) }) {
				p.mismatch(f.key, "%d positive numbers are needed, one for each pair of rotated dimensions", r.Dim/2)
			}
		}
		s.Factor = p.Positive("factor", float64(d.MaxPositions)/float64(max(s.Original, 1)))
		amplitude := 1.0
		if s.Factor > 1 {
			amplitude = math.Sqrt(1 + math.Log(s.Factor)/math.Log(float64(s.Original)))
		}
		s.AttentionFactor = p.Positive("attention_factor", amplitude)
	default:
		p.refuse("rope_type", "%q is not supported; linear, dynamic, llama3, yarn, longrope and proportional are", kind)
	}
	return s
}

// yarn reads what "NTK-by-parts" needs: between which pairs frequencies change over.
func (s *Scaling) yarn(d *Decoder, p *Keys, r Rope) {
	s.Factor = p.Positive("factor", float64(d.MaxPositions)/float64(max(s.Original, 1)))
	scale := func(m float64) float64 {
		if s.Factor <= 1 {
			return 1
		}
		return .1*m*math.Log(s.Factor) + 1
	}
	amplitude := scale(1)
	if m, all := p.Float("mscale", 0), p.Float("mscale_all_dim", 0); m != 0 && all != 0 {
		amplitude = scale(m) / scale(all)
	}
	s.AttentionFactor = p.Positive("attention_factor", amplitude)
	pair := func(turns float64) float64 { // the pair that turns so often within the original length
		return float64(r.Dim) * math.Log(float64(s.Original)/(turns*2*math.Pi)) / (2 * math.Log(r.Theta))
	}
	s.Low, s.High = pair(p.Positive("beta_fast", 32)), pair(p.Positive("beta_slow", 1))
	if p.Bool("truncate", true) {
		s.Low, s.High = math.Floor(s.Low), math.Ceil(s.High)
	}
	s.Low, s.High = max(s.Low, 0), min(s.High, float64(r.Dim-1))
	if s.Low == s.High {
		s.High += .001
	}
}
