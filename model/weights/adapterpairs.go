package weights

import (
	"path/filepath"

	"agentcli/internal/malformed"
)

// Pairs are the low-rank pairs in an adapter's folder, beside a model that is open already.
type Pairs struct{ x *adaptedTensors }

// OpenPairs reads the adapter in a folder for a model of this configuration, whichever base the folder names, and holds
// the shapes of its pairs to it.
func OpenPairs(dir string, base Config) (*Pairs, error) {
	a, err := readAdapter(dir)
	if err != nil {
		return nil, err
	}
	infos := map[string]TensorInfo{}
	for _, t := range base.Tensors() {
		infos[t.Name] = t
	}
	x := &adaptedTensors{path: dir, base: &Model{config: base, infos: infos}, adapter: a, stored: map[string]string{}}
	found := map[string]bool{}
	if a.Score {
		err = malformed.At(filepath.Join(dir, adapterConfigFile), "task_type", malformed.Unsupported,
			"it is a critic's or a reward model's: those write nothing")
	} else {
		found, err = x.takePairs(&Model{infos: map[string]TensorInfo{}})
	}
	if err != nil {
		a.shard.m.Close()
		return nil, err
	}
	a.setTargets(found)
	return &Pairs{x}, nil
}

// Config is what the folder says of the adapter, with the targets that its tensors have.
func (p *Pairs) Config() AdapterConfig { return p.x.adapter.AdapterConfig }

// Tensor is one of the pairs', by the name without PEFT's prefix; ok is false where it has none.
func (p *Pairs) Tensor(name string) (t Tensor, ok bool) { return p.x.low(name) }

// Close gives the file back. Tensors are not to be used behind it.
func (p *Pairs) Close() error { return p.x.adapter.shard.m.Close() }
