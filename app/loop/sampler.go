package loop

import (
	"context"

	"agentcli/agent"
	"agentcli/app/models"
)

// sampler is what draws a loop's rollouts: a policy in this process, or servers.
type sampler interface {
	// begin gives the sampler the weights that training starts from, where it has others. The
	// run's folder is there.
	begin(ctx context.Context) error
	// adopt gives the sampler the weights as they are in training now, with their version.
	// Nothing is sampled or trained meanwhile.
	adopt(ctx context.Context, version int64) error
	// close removes what the sampler has left in the run's folder.
	close()
}

// localSampler is a policy in this process.
type localSampler struct {
	backend models.Backend
	model   agent.Model
	actor   models.Trainable
}

// begin implements sampler: the policy was opened with these weights.
func (*localSampler) begin(context.Context) error { return nil }

// adopt implements sampler.
func (s *localSampler) adopt(_ context.Context, version int64) error {
	return s.backend.Adopt(s.model, s.actor, version)
}

// close implements sampler.
func (*localSampler) close() {}
