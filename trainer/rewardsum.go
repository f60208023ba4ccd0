package trainer

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"

	"agentcli/trainer/episode"
)

// rewardSum is a hash over the rewards of a file's rows, as they were read: a run
// that goes on must not go on with others. 0: not known.
type rewardSum uint64

// add takes in a row whose body is in memory.
func (s *rewardSum) add(e *episode.Episode) {
	h := fnv.New64a()
	number := func(x float64) { _, _ = h.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(x))) }
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(*s)))
	_, _ = h.Write([]byte(e.ID))
	number(e.Score)
	for _, p := range e.Parts {
		_, _ = h.Write([]byte(p.Name))
		number(p.Value)
	}
	for _, r := range e.StepRewards {
		number(float64(r.Sequence))
		number(float64(r.Token))
		number(r.Reward)
	}
	*s = rewardSum(h.Sum64())
}

// sameRewards refuses files whose rewards are not those that a checkpoint was
// written with; a checkpoint that does not know them says nothing.
func (d *Data) sameRewards(then []rewardSum) error {
	if len(then) != len(d.rewards) {
		return nil // of an older version, or the rows are in memory
	}
	for i, was := range then {
		if now := d.rewards[i]; was != 0 && now != 0 && was != now {
			return fmt.Errorf("the rewards of %s are not those that the checkpoint was written with; put the file back as it was, or start afresh without --resume", d.Files[i])
		}
	}
	return nil
}
