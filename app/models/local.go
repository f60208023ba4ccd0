package models

import (
	"os"

	"agentcli/internal/malformed"
	"agentcli/internal/setting"
	"agentcli/media/processor"
	"agentcli/model/arch"
	"agentcli/model/weights"
	"agentcli/policy"
	"agentcli/trainer"
)

// LocalOptions is how a local model is to be opened.
type LocalOptions struct {
	DType    string
	Device   string
	Threads  int
	Parallel int // trajectories at once: how many sequences to expect

	Temperature float64 // that it will be sampled at: what the log-probs are of

	ChatTemplate string // a file or the name of a chat format; "": the model's own
	MaxContext   int    // tokens of the longest text; 0: the model's own
	KVCache      string // memory for keys and values (policy.ParseCache); "": the default
	KVHost       string // memory of the host for those that a GPU's cache forgets; "": none
	AsStored     bool   // matrices of a GGUF are multiplied as they are (policy.Config)
	RouterReplay bool   // replies say which experts were chosen for their tokens

	MinPixels, MaxPixels int // of the area at which it is shown images; 0: its own
}

func (o LocalOptions) cacheSizes() (cache, host policy.CacheSize, err error) {
	if cache, err = policy.ParseCache(setting.Name("KVCache"), o.KVCache); err != nil {
		return cache, host, err
	}
	host, err = policy.ParseCache(setting.Name("KVHost"), o.KVHost)
	return cache, host, err
}

// Trainable is the model that train works on.
type Trainable interface {
	trainer.Actor
	trainer.Saver
	trainer.Stater
	TokenizerHash() string
	ChatTemplate() string
	VocabSize() int
	DType() string
	Parameters() int64
	KeepAverage() error
	SaveAverage(dir string, dtype weights.DType) error
	Base() trainer.Scorer // the weights under the adapters; nil without
	Bytes() int64         // of weights, gradients and moments
	Close()
}

// TrainableOptions is how a model is opened for training.
type TrainableOptions struct {
	DType, Device string
	Threads       int
	Head          string // "", "score" or "both", as policy.Head
	LoRA          policy.LoRA
	Vision        policy.VisionTraining // which part of an encoder of images is trained
	Checkpoint    bool                  // --grad-checkpoint
	Deterministic bool
	Frozen        bool   // asked, never trained
	MaxContext    int    // tokens of the longest text; 0: the model's own
	ChatTemplate  string // a file whose template is saved with the model, or the name of a family, which is not; "": its own is
}

// Vision describes a model's encoder of images, an adapter's base's among them. Errors of a model of text
// alone are of kind malformed.
func Vision(path string) (*arch.Vision, error) {
	path, err := weights.BaseOf(path)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if info.IsDir() { // a .gguf has none
		c, err := weights.ReadConfig(path)
		if err != nil || c.Vision != nil {
			return c.Vision, err
		}
	}
	return nil, malformed.Field("images", malformed.Unsupported, "the model takes text alone; open one with an encoder of images")
}

// ImageProcessor is the image processor of a model, whose area is bounded where the bounds are
// above 0. Errors of a model that takes no images are of kind malformed or fs.ErrNotExist.
func ImageProcessor(path string, minPixels, maxPixels int) (*processor.Processor, error) {
	v, err := Vision(path)
	if err != nil {
		return nil, err
	}
	return policy.OpenProcessor(path, v, minPixels, maxPixels)
}

// VocabSize is the number of the model's logits; the tokenizer may have fewer
// tokens.
func VocabSize(path string) (int, error) {
	m, err := weights.Open(path)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	return m.Config().VocabSize, nil
}
