package eval

import "agentcli/traj"

// Looks says how agents used the images that they were given: each number is over the
// attempts that count and have an image, with its standard error over problems.
type Looks struct {
	Share         Estimate `json:"share"`            // of the attempts: those in which the model was shown a crop
	PerTrajectory Estimate `json:"per_trajectory"`   // crops
	Width         Estimate `json:"width"`            // of a crop, in pixels of its original
	Height        Estimate `json:"height"`           // of a crop, likewise
	Refused       Estimate `json:"refused_calls"`    // share of the calls: those that failed
	With          Estimate `json:"accuracy_with"`    // of the attempts with a crop
	Without       Estimate `json:"accuracy_without"` // of the others
}

// looks are over the attempts that count and have an image.
type looks struct {
	attempts, right      int
	looked, lookedRight  int // attempts with a crop
	crops, width, height int // sums over crops
	calls, refused       int // refused: those that failed
}

// count counts an attempt.
func (l *looks) count(t *traj.Trajectory, correct bool) {
	if len(t.Images) == 0 {
		return
	}
	crops := 0
	for i := range t.Images {
		if c := t.Images[i].Crop; c != nil {
			crops++
			l.width += c.Box[2] - c.Box[0]
			l.height += c.Box[3] - c.Box[1]
		}
	}
	for _, s := range t.Steps {
		l.calls += s.ToolCalls
		l.refused += s.ToolErrors
	}
	l.attempts++
	l.crops += crops
	if crops > 0 {
		l.looked++
	}
	if correct {
		l.right++
		if crops > 0 {
			l.lookedRight++
		}
	}
}

// looksRates are the fields of Looks.
func looksRates() []rate {
	of := func(f func(*looks) (sum, count int)) rate {
		return rate{of: func(p *Problem) (int, int) { return f(&p.looks) }}
	}
	return []rate{
		of(func(l *looks) (int, int) { return l.looked, l.attempts }),
		of(func(l *looks) (int, int) { return l.crops, l.attempts }),
		of(func(l *looks) (int, int) { return l.width, l.crops }),
		of(func(l *looks) (int, int) { return l.height, l.crops }),
		of(func(l *looks) (int, int) { return l.refused, l.calls }),
		of(func(l *looks) (int, int) { return l.lookedRight, l.looked }),
		of(func(l *looks) (int, int) { return l.right - l.lookedRight, l.attempts - l.looked }),
	}
}

// looksOf are the numbers that looksRates came to; nil where no attempt had an image.
func looksOf(rates []rate) *Looks {
	l := &Looks{}
	for i, to := range []*Estimate{&l.Share, &l.PerTrajectory, &l.Width, &l.Height, &l.Refused, &l.With, &l.Without} {
		*to = rates[i].ratio.estimate()
	}
	if l.Share.Value == nil {
		return nil
	}
	for _, e := range []*Estimate{&l.Share, &l.Refused, &l.With, &l.Without} {
		*e = share(*e)
	}
	return l
}
