package eval

import (
	"maps"
	"slices"
)

// Environment is what a report says of the problems of one environment.
type Environment struct {
	Env      string   `json:"env"` // "": the tool environment
	Problems int      `json:"problems"`
	Attempts int      `json:"attempts"` // that count
	PassAt1  Estimate `json:"pass@1"`
	Reward   Estimate `json:"reward"`
}

// apart are the estimates of each environment.
type apart map[string]*environmentEstimates

type environmentEstimates struct {
	Environment
	*estimates
}

// of are those of a problem's environment.
func (a apart) of(p *Problem) *environmentEstimates {
	x := a[p.env]
	if x == nil {
		x = &environmentEstimates{Environment{Env: p.env}, newEstimates(1)}
		a[p.env] = x
	}
	return x
}

// add is the first pass.
func (x *environmentEstimates) add(p *Problem) {
	x.Problems++
	x.Attempts += p.N
	x.estimates.add(p)
}

// into fills a report in, where there are several environments.
func (a apart) into(r *Report) {
	if len(a) < 2 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(a)) {
		x := a[name]
		own := &Report{Metrics: map[string]Estimate{}, Rates: map[string]*float64{}, RatesStdErr: map[string]*float64{},
			RatesBound: map[string]float64{}}
		x.into(own)
		x.Reward, x.PassAt1 = own.Reward, own.Metrics["pass@1"]
		r.Environments = append(r.Environments, x.Environment)
	}
}
