// Package telemetry shows a run to machines: numbers for Prometheus and spans for
// OpenTelemetry, made from what the engine tells its watchers. It is in layer 4:
// it may import layers 0 to 3, and is the only importer of Prometheus and
// OpenTelemetry. Nothing here can fail a run that has begun.
package telemetry

import (
	"time"

	"agentcli/engine"
	"agentcli/traj"
)

// Observe is engine.Config.Observe.
type Observe func(*traj.Trajectory) engine.Watcher

// Join asks each of list; nil ones are left out. It returns nil for none, so that
// the engine makes no events at all.
func Join(list ...Observe) Observe {
	var all []Observe
	for _, o := range list {
		if o != nil {
			all = append(all, o)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return func(t *traj.Trajectory) engine.Watcher {
		var w watchers
		for _, o := range all {
			if one := o(t); one != nil {
				w = append(w, one)
			}
		}
		switch len(w) {
		case 0:
			return nil
		case 1:
			return w[0]
		}
		return w
	}
}

type watchers []engine.Watcher

func (w watchers) Event(at time.Time, e engine.Event) {
	for _, one := range w {
		one.Event(at, e)
	}
}
