// Package policy is the local model: a decoder-only language model on libtorch
// that samples many conversations together (continuous batching over a paged
// key-value cache with shared prefixes) and is trained by the same forward code.
//
// It imports layers 0 and 1 only. The model itself needs the build tag
// libtorch; packing, the cache's book-keeping and the types are plain Go.
package policy

import (
	"errors"

	"agentcli/model/weights"
	"agentcli/traj"
)

// AutoDevice is the name of the first CUDA device where there is one, else of the CPU.
const AutoDevice = "auto"

// ErrNoLibtorch is what a lite build answers when asked for a local model.
var ErrNoLibtorch = errors.New("this agentcli was built without local models; build the full one with `make build`")

// ErrNoDevice says that libtorch has no such device.
var ErrNoDevice = errors.New("there is no such device")

// LogprobKind says what the log-probs are of that a policy reports for tokens that
// it sampled at a temperature: with sampled (Config.SampledLogprobs), of the
// distribution before any cuts; else of the model itself, without Config.BarImageTokens' ids. A greedy token has no
// distribution, and always the model's.
func LogprobKind(sampled bool, temperature float64) string {
	if !sampled || temperature == 0 || temperature == 1 {
		return traj.LogprobsOfModel
	}
	return traj.LogprobsAfterTemp
}

// Defaults of Config.
const (
	DefaultMaxBatch   = 64
	DefaultCacheBytes = 2 << 30
	DefaultCacheShare = .5   // of a CUDA device's free memory
	defaultStepTokens = 2048 // new tokens a step, where nobody decodes; pace says how many else
	blockSize         = 8    // tokens of a cache block; small, because only whole blocks are shared
)

// Config says how a policy is opened.
type Config struct {
	DType      string // "float32" or "bfloat16" ("float64" for tests); "" is bfloat16 where the processor has it, else float32
	Device     string // "cpu", "cuda", "cuda:1", or AutoDevice; "" is cpu
	Threads    int    // of libtorch; 0: one a processor
	MaxBatch   int    // sequences decoded together; 0: DefaultMaxBatch
	CacheBytes int64  // of the key-value cache; 0: as Cache says
	Cache      CacheSize
	HostCache  CacheSize // memory of the host for what a device's cache forgets; zero: none
	MaxContext int       // tokens; 0: the model's own window
	Version    int64     // stamped on every response
	// SampledLogprobs has Sample report the log-probs of logits/temperature, from
	// which it drew: what training at that temperature compares itself with. Without
	// it they are of the model at temperature 1. top-k, top-p and min-p are in neither.
	SampledLogprobs bool
	// AsStored keeps the matrices of a GGUF as they are, of the types that torch.QuantOf knows, where
	// the processor has products with them (AVX2, AVX-512 VNNI) and a step of the model is one call:
	// a quarter to a half of the memory, and what is read for each token. Inputs of products are
	// rounded to 16 bits instead of weights to bfloat16: another policy than without, as near to
	// the file's numbers.
	AsStored bool
	// NoDrafts has a step draw one token of each sequence, for measurements: replies are the
	// same with drafts and without.
	NoDrafts bool
	// KeepExperts has replies say which experts were chosen for their tokens (traj.Experts). A
	// model without experts has none.
	KeepExperts bool
	Head        Head // of a Trainable

	// ChatTemplate, where set, is the text of a chat template in place of the model's own,
	// ChatFormat the name of one of chat.Families.
	ChatTemplate, ChatFormat string

	// MinPixels and MaxPixels bound the area at which images are shown; 0: as the model's
	// image processor says.
	MinPixels, MaxPixels int

	// BarImageTokens makes the ids of images and around them such that they are never drawn:
	// the log-probs of sampling, of training and of Logprobs are those of the other ids. A
	// model without an encoder has none.
	BarImageTokens bool

	// Of a Trainable.
	LoRA           LoRA // adapters are trained in place of the weights
	Frozen         bool // it is only asked, never trained: no masters
	Vision         VisionTraining
	Deterministic  bool // on CUDA, only algorithms that give the same bits every time; of the whole process
	GradCheckpoint bool // Accumulate keeps each layer's input only, and computes the layer again in backward
}

// VisionTraining says which part of an encoder of images is trained.
type VisionTraining string

// The parts.
const (
	VisionFrozen VisionTraining = ""       // none: features are kept
	VisionMerger VisionTraining = "merger" // what makes features of patches, not the blocks
	VisionAll    VisionTraining = "all"
)

func (v VisionTraining) trains() bool { return v != VisionFrozen }

// Head is what a trained model says of a text.
type Head string

// The heads.
const (
	HeadLM    Head = ""      // the next token
	HeadScore Head = "score" // one number: a critic's or a reward model's value
	HeadBoth  Head = "both"  // a policy and its critic on one backbone
)

// LibtorchInfo is what was found of libtorch and of the devices it can use.
type LibtorchInfo struct {
	Version, Path, CPUCapability, Kernels string
	Threads                               int
	BF16                                  bool // the processor multiplies bfloat16 in hardware
	CUDADevices                           int
	WhyNoCUDA, CUDAFix                    string // CUDAFix: what a user can do, "" for nothing
	HasDriver                             bool   // NVIDIA's
	CUDAPath                              string // libtorch's CUDA part, "" where there is none
	NVRTC                                 string // version and file of what compiles our kernels, where there is a device
	NVRTCErr                              error  // there is a device, and no compiler
	GPUs                                  []GPUInfo
}

// GPUInfo is what was found of a CUDA device.
type GPUInfo struct {
	Name                string
	Memory              int64  // bytes
	Capability          string // "9.0"
	Driver, CUDA, CUDNN string // versions; Driver is the newest CUDA that it knows
	Kernels             error  // why our kernels do not run on it, nil where they do
	Err                 error  // the driver does not tell
}

// Memory is the free and the used memory of a device, in bytes.
type Memory struct {
	Free                int64
	Host                bool  // the device is the processor
	Allocated, Reserved int64 // peaks of this process: of its tensors, and of what libtorch took for them; 0 on the processor
}

// ErrOtherModel is the error of a state that is of a model with other tensors.
var ErrOtherModel = errors.New("the checkpoint is of another model")

// barred are the ids of a model that are never drawn.
func (c Config) barred(m weights.Config) []int32 {
	if !c.BarImageTokens || m.Vision == nil {
		return nil
	}
	return m.Vision.TokenIDs(m.VocabSize)
}
