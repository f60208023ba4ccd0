package trainer

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"agentcli/parquet"
	"agentcli/trainer/algo"
	"agentcli/trainer/episode"
	"agentcli/traj"
)

// A row that was sampled at temperature T was drawn from softmax(logits/T). That is
// the policy whose gradient is taken: the log-probs and entropies of the policy in
// training, of the old one, of the reference and of the teacher are all of logits/T,
// T the row's own, as verl and TRL have it. What a file recorded is mostly of the
// model at temperature 1, and then is the log-prob of no policy that acted.

// LeastTemperature is the lowest at which tokens are taken to be sampled.
const LeastTemperature = episode.LeastTemperature

// temperatureColumn may be in a file whose rows have temperatures of their own.
const temperatureColumn = "temperature"

// temperature of the file's rows; 1 where it says none.
func (r RunSource) temperature() float64 {
	if t := r.Sampling.Temperature; t != nil {
		return *t
	}
	return 1
}

// tempered reports whether the file's log-probs are those of logits/T.
func (r RunSource) tempered() bool {
	kind := strings.TrimPrefix(r.Logprobs, "server: ")
	return kind == traj.LogprobsAfterTemp || kind == traj.LogprobsAfterCuts
}

// recorded says what the file's log-probs are of.
func (r RunSource) recorded() string {
	kind := cmp.Or(strings.TrimPrefix(r.Logprobs, "server: "), "of what the file does not say")
	if kind == traj.LogprobsOfModel {
		kind = "of the model at temperature 1"
	}
	return kind
}

// ownTemperatures are those that a file's rows have themselves, by number; nil where
// it has no column of them, NaN where a row has none.
func ownTemperatures(ctx context.Context, path string) ([]float64, error) {
	t, err := parquet.OpenTable(path)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	if !t.Has(temperatureColumn) {
		return nil, nil
	}
	out := []float64{}
	for row, err := range t.Rows(ctx, temperatureColumn) {
		if err != nil {
			return nil, err
		}
		x, ok := row[temperatureColumn].(float64)
		switch v := row[temperatureColumn].(type) {
		case nil:
			x, ok = math.NaN(), true
		case int64:
			x, ok = float64(v), true
		}
		if !ok || x < 0 || math.IsInf(x, 0) || math.IsNaN(x) && row[temperatureColumn] != nil {
			return nil, fmt.Errorf("%s: row %d: the temperature is %v; want a number above 0", path, len(out)+1, row[temperatureColumn])
		}
		out = append(out, x)
	}
	return out, nil
}

// setTemperature notes the temperature of an episode, and whether the log-probs of its file
// are of that distribution.
func setTemperature(e *episode.Episode, t float64, run *RunSource) {
	e.Temperature, e.SampledGreedily = t, t < LeastTemperature
	e.LogprobsUntempered = !e.SampledGreedily && t != 1 && !run.tempered()
}

// Temperatures are those of the rows, ascending.
func (d *Data) Temperatures() []float64 {
	var all []float64
	for _, e := range d.Episodes {
		if t := e.SamplingTemperature(); !slices.Contains(all, t) {
			all = append(all, t)
		}
	}
	slices.Sort(all)
	return all
}

// Greedy names a row, and its file, that was sampled at temperature 0, or so near that there is no
// distribution to speak of; "" where there is none.
func (d *Data) Greedy() string {
	i := slices.IndexFunc(d.Episodes, func(e *episode.Episode) bool { return e.SampledGreedily })
	if i < 0 {
		return ""
	}
	return d.Episodes[i].Name()
}

// CheckRecorded looks whether the settings ask of the file's log-probs what they
// are not: those of the distribution that a row was sampled from.
func (d *Data) CheckRecorded(c Config) error {
	for _, e := range d.Episodes {
		if err := checkRecorded(e, c); err != nil {
			return err
		}
	}
	return nil
}

func checkRecorded(e *episode.Episode, c Config) error {
	if !e.LogprobsUntempered || c.IsSupervised() {
		return nil
	}
	what := fmt.Sprintf("%s was sampled at temperature %g, but the file's log-probs are not of that distribution", e.Name(), e.SamplingTemperature())
	switch {
	case c.OldLogprobs == OldFile:
		return fmt.Errorf("%s: use --old-logprobs recompute, or roll out with --temperature 1", what)
	case c.OffPolicy.Kind != algo.NoCorrection:
		return fmt.Errorf("%s, so --off-policy %s has nothing to correct by: leave it out, or roll out with --temperature 1", what, c.OffPolicy.Kind)
	}
	return nil
}

// Tempering says in words what is made of rows that were sampled at a temperature
// other than 1; "" where there are none.
func (d *Data) Tempering(c Config) string {
	all := d.Temperatures()
	if c.IsSupervised() || len(all) == 0 || len(all) == 1 && all[0] == 1 {
		return ""
	}
	shown := make([]string, 0, len(all))
	for _, t := range all {
		shown = append(shown, fmt.Sprintf("%g", t))
	}
	text := fmt.Sprintf("the rows were sampled at temperature %s: log-probs, entropy and KL are of the logits divided by it", strings.Join(shown, " and "))
	i := slices.IndexFunc(d.Episodes, func(e *episode.Episode) bool { return e.LogprobsUntempered })
	if i < 0 {
		return text
	}
	text += "; " + d.untold() + " are " + d.recordedOf() + " and are not used: the old ones are recomputed"
	if loss, ok := algo.LossByName(c.Loss); ok && loss.NeedsRollout() {
		text += ", and --loss " + c.Loss + " takes those for the sampled ones"
	}
	return text
}

// untold says of which rows the log-probs are not used.
func (d *Data) untold() string {
	n, files := 0, []string{}
	for _, e := range d.Episodes {
		if !e.LogprobsUntempered {
			continue
		}
		n++
		if f := e.File; f != "" && !slices.Contains(files, f) {
			files = append(files, f)
		}
	}
	if n == len(d.Episodes) || len(files) == 0 {
		return "the file's log-probs"
	}
	return fmt.Sprintf("the log-probs of %d of the %d rows, those of another temperature than 1 in %s,", n, len(d.Episodes), strings.Join(files, " and "))
}

// recordedOf is what the log-probs are of that cannot be used: of the first such file,
// or where rows have temperatures of their own, of the first file.
func (d *Data) recordedOf() string {
	for _, r := range d.Runs {
		if !r.tempered() && r.temperature() != 1 {
			return r.recorded()
		}
	}
	if len(d.Runs) == 0 {
		return RunSource{}.recorded()
	}
	return d.Runs[0].recorded()
}
