package eval

import "fmt"

// estimates are all numbers of a report with their errors, taken in two passes over
// the problems.
type estimates struct {
	metrics []metric // the reward first
	rates   []rate
	looks   []rate // in the order of Looks' fields; nothing counts in them where there are no images
}

// metric is a mean of one number a problem.
type metric struct {
	name string
	of   func(*Problem) (v float64, ok bool)
	mean mean
}

// rate is a ratio of two numbers of each problem.
type rate struct {
	name  string
	of    func(*Problem) (sum, count int)
	ratio ratio
}

func newEstimates(passK int) *estimates {
	e := &estimates{}
	e.metrics = append(e.metrics, metric{name: "reward", of: func(p *Problem) (float64, bool) {
		return p.rewardSum / float64(p.rewardN), p.rewardN > 0
	}})
	add := func(name string, k int, f func(*Problem) float64) {
		e.metrics = append(e.metrics, metric{name: fmt.Sprintf("%s%d", name, k), of: func(p *Problem) (float64, bool) {
			if p.N < k { // a problem short of attempts has no such number
				return 0, false
			}
			return f(p), true
		}})
	}
	for _, k := range Ks(passK) {
		add("pass@", k, func(p *Problem) float64 { return PassAtK(p.N, p.C, k) })
	}
	if k := passK; k > 1 {
		add("maj@", k, func(p *Problem) float64 { return p.maj })
		add("pass^", k, func(p *Problem) float64 { return PassHatK(p.N, p.C, k) })
	}
	e.rates = []rate{
		{name: "no_answer", of: func(p *Problem) (int, int) { return p.sums.unanswered, p.N - p.sums.unread }},
		{name: "undecided", of: func(p *Problem) (int, int) { return p.sums.undecided, p.N }},
		{name: "truncated", of: func(p *Problem) (int, int) { return p.sums.cut, p.N }},
		{name: "tool_error", of: func(p *Problem) (int, int) { return p.sums.callErrors, p.sums.calls }},
		{name: "answered", of: func(p *Problem) (int, int) { return p.sums.answered, p.N }},
		{name: "valid_action", of: func(p *Problem) (int, int) { return p.sums.turns - p.sums.badTurns, p.sums.turns }},
		{name: "observation_tokens", of: func(p *Problem) (int, int) { return p.sums.observed, p.sums.observed + p.sums.completion }},
		{name: "infrastructure_error", of: func(p *Problem) (int, int) { return p.Failed, p.N + p.Failed + p.Cancelled }},
		{name: tokensRate, of: func(p *Problem) (int, int) { return p.sums.completion, p.N }},
		{name: turnsRate, of: func(p *Problem) (int, int) { return p.sums.turns, p.N }},
		{name: callsRate, of: func(p *Problem) (int, int) { return p.sums.validCalls, p.N }},
	}
	e.looks = looksRates()
	return e
}

// Rates that a report shows as means.
const tokensRate, turnsRate, callsRate = "tokens", "turns", "valid_calls"

// add is the first pass.
func (e *estimates) add(p *Problem) { e.each(p, (*mean).add, (*ratio).add) }

// again is the second.
func (e *estimates) again(p *Problem) { e.each(p, (*mean).again, (*ratio).again) }

func (e *estimates) each(p *Problem, toMean func(*mean, float64), toRatio func(_ *ratio, sum, n float64)) {
	for i := range e.metrics {
		m := &e.metrics[i]
		if v, ok := m.of(p); ok {
			toMean(&m.mean, v)
		}
	}
	for _, rates := range [][]rate{e.rates, e.looks} {
		for i := range rates {
			a, b := rates[i].of(p)
			toRatio(&rates[i].ratio, float64(a), float64(b))
		}
	}
}

// into fills a report in.
func (e *estimates) into(r *Report) {
	r.Reward = share(e.metrics[0].mean.estimate())
	for _, m := range e.metrics[1:] {
		r.Metrics[m.name] = share(m.mean.estimate())
		r.MetricOrder = append(r.MetricOrder, m.name)
	}
	r.Looks = looksOf(e.looks)
	for i := range e.rates {
		x := e.rates[i].ratio.estimate()
		switch name := e.rates[i].name; name {
		case tokensRate:
			r.Tokens.PerTrajectory, r.Tokens.StdErr = x.Value, x.StdErr
		case turnsRate:
			r.Turns, r.TurnsStdErr = x.Value, x.StdErr
		case callsRate:
			r.Calls, r.CallsStdErr = x.Value, x.StdErr
		default:
			r.Rates[name], r.RatesStdErr[name] = x.Value, x.StdErr
			if x.Value == nil {
				continue
			}
			if bound := Bound(*x.Value, x.Problems); bound != nil {
				r.RatesBound[name] = *bound
			}
		}
	}
}
