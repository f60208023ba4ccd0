//go:build libtorch

package policy

import (
	"fmt"

	"agentcli/internal/torch"
)

// Adopt takes over the weights of a model in training, in memory, once nothing
// is being sampled; replies from then on carry the version. The two must be of
// one shape, and t must not be trained meanwhile.
func (p *Policy) Adopt(t *Trainable, version int64) error {
	if p.model.HiddenSize != t.model.HiddenSize || len(p.model.Layers) != len(t.model.Layers) ||
		p.model.VocabSize != t.model.VocabSize || p.model.Architecture != t.model.Architecture {
		return fmt.Errorf("%s and %s are not models of one shape", p.path, t.path)
	}
	return askFor(p.sched, &change{how: ExchangeWait, make: func(s *torch.Scope) error {
		n, err := describe(p.model, false)
		if err != nil {
			return err
		}
		fresh := torch.NewScope()
		n.dtype, n.device = p.net.dtype, p.net.device
		// The masters are read on this thread, while their own is kept busy.
		err = t.worker.Do(func(*torch.Scope) error {
			at := map[string]torch.Tensor{}
			for _, q := range t.net.params {
				at[q.parts[0].name] = *q.tensor
			}
			for _, q := range n.params {
				from, ok := at[q.parts[0].name]
				if !ok {
					return fmt.Errorf("%s has no tensor %s", t.path, q.parts[0].name)
				}
				*q.tensor = s.Keep(s.Clone(from, n.dtype, n.device), fresh)
				if t.lora != nil {
					c := s.Child()
					t.lora.merge(c, n, q, *q.tensor, from)
					c.Close()
				}
			}
			return s.Err()
		})
		if err == nil {
			n.tie()
			n.ropes, n.maxSeen = p.net.ropes, p.net.maxSeen
			if packs(n) {
				pack(n, s, fresh)
			}
			err = s.Err()
		}
		if err != nil {
			fresh.Close()
			return err
		}
		take(p, n, fresh, version)
		return nil
	}})
}
