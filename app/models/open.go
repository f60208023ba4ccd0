package models

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"agentcli/agent"
	"agentcli/internal/cachedir"
	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/llm"
	"agentcli/model/chat"
	"agentcli/traj"
)

// Options says which model to ask, and how to reach it.
type Options struct {
	Backend      Backend // that runs local models
	Model        string
	BaseURL      Addresses
	SwiftRollout string // the address of a `swift rollout` that samples, in place of BaseURL
	APIKey       string
	Parser       string
	DType        string
	Device       string
	Threads      int
	MaxContext   int    // tokens of the longest text of a local model; 0: the model's own
	KVCache      string // memory for its keys and values (policy.ParseCache); "": the default
	KVHost       string // memory of the host for those that a GPU's cache forgets; "": none
	AsStored     bool   // matrices of a GGUF are multiplied as they are (policy.Config)
	RouterReplay bool   // replies say which experts were chosen for their tokens
	Retries      int
	Parallel     int
	ModelTimeout time.Duration
	Patience     time.Duration // with a server that has answered and is gone now; 0: none
	StreamIdle   time.Duration // between two parts of a stream
	Tools        []traj.ToolSpec
	OnRetry      func(reason string)            // hears of requests to a server that are tried again; nil: nobody
	OnServers    func(func() []llm.ServerState) // is told how to look at the servers; nil: nobody
	TokenMode    string                         // chat, completions or auto; "": chat
	Tokenizer    string
	Trained      string // a model's folder, here, whose weights the servers are given: their model has its tokenizer; "": none
	ChatTemplate string // a file or the name of a chat format, in place of the model's own; "": its own
	Stream       bool
	Temperature  float64 // of the run; 0: greedy
	BaseFromEnv  bool
	Answered     bool   // the server has, in an earlier part of the run
	Image        string // the first task with an image; "": there is none
	ToolImages   bool   // tools may give images, of which a model of text alone is given descriptions
	RowImages    bool   // rows that are not known yet may have images (Source.TakesImages)
	MinPixels    int    // of the area at which a local model is shown images; 0: its own
	MaxPixels    int
}

var validDevice = regexp.MustCompile(`^(auto|cpu|cuda(:[0-9]{1,3})?)?$`)

// CheckComputation refuses what a local model cannot be computed with.
func CheckComputation(o LocalOptions) error {
	switch o.DType {
	case "", "auto", "float32", "f32", "fp32", "bfloat16", "bf16", "float64":
	default:
		return exit.Usagef("%s %q is unknown; it is float32 or bfloat16", setting.Name("DType"), o.DType)
	}
	if !validDevice.MatchString(o.Device) {
		return exit.Usagef("%s %q is unknown; it is auto, cpu, cuda or cuda:N", setting.Name("Device"), o.Device)
	}
	if o.Threads < 0 {
		return exit.Usagef("%s is %d; it must not be negative", setting.Name("Threads"), o.Threads)
	}
	if o.MaxContext < 0 {
		return exit.Usagef("%s is %d; it must not be negative", setting.Name("MaxContext"), o.MaxContext)
	}
	if _, _, err := o.cacheSizes(); err != nil {
		return exit.UsageError{Err: err}
	}
	return nil
}

// Open finds the model that the options name.
func Open(ctx context.Context, o Options, notice func(string)) (agent.Model, Source, io.Closer, error) {
	if err := o.checkImages(); err != nil {
		return nil, Source{}, nil, err
	}
	if o.SwiftRollout != "" || strings.HasPrefix(o.Model, ReplayPrefix) {
		if o.RouterReplay {
			return nil, Source{}, nil, exit.Usagef("%s: swift rollout and replays send no experts; leave it out", setting.Name("RouterReplay"))
		}
		if err := o.checkLocalOnly(); err != nil {
			return nil, Source{}, nil, err
		}
	}
	if o.SwiftRollout != "" {
		return openSwiftRollout(o, notice)
	}
	if folder, ok := strings.CutPrefix(o.Model, ReplayPrefix); ok {
		m, source, closer, err := openReplay(folder, o)
		if err == nil && o.Image != "" && source.noImages != nil {
			err = o.noImages(text.Line(source.noImages))
		}
		return m, source, closer, err
	}
	local := false
	if o.Model != "" && (len(o.BaseURL) == 0 || o.BaseFromEnv) {
		if _, err := os.Stat(o.Model); err == nil {
			local = true
			if o.BaseFromEnv {
				notice(fmt.Sprintf("%s is here, so OPENAI_BASE_URL is not used; %s asks the server", o.Model, setting.Name("BaseURL")))
			}
		}
	}
	if len(o.BaseURL) > 0 && !local {
		if err := o.checkLocalOnly(); err != nil {
			return nil, Source{}, nil, err
		}
		if o.ChatTemplate != "" && o.TokenMode != TokenModeCompletions {
			return nil, Source{}, nil, exit.Usagef("%s: this server renders the messages; with %s completions agentcli does",
				setting.Name("ChatTemplate"), setting.Name("TokenMode"))
		}
		return openServer(ctx, o, notice)
	}
	if o.TokenMode == TokenModeCompletions || o.Tokenizer != "" || o.Stream {
		return nil, Source{}, nil, exit.Usagef("%s completions, %s and %s are for servers (%s): a local model is always asked in token ids",
			setting.Name("TokenMode"), setting.Name("Tokenizer"), setting.Name("Stream"), setting.Name("BaseURL"))
	}
	if o.Parser != "" && o.Parser != chat.ParserAuto && o.Parser != chat.ParserHermes {
		return nil, Source{}, nil, exit.Usagef("%s %s is for servers: a local model's calls are read as its chat format writes them; "+
			"%s none offers it no tools", setting.Name("Parser"), o.Parser, setting.Name("Tools"))
	}
	path := o.Model
	if path == "" {
		path = DefaultPath()
		if _, err := os.Stat(path); err != nil {
			return nil, Source{}, nil, exit.Usagef("no model is named: give a server by %s (or OPENAI_BASE_URL), a model folder or .gguf by %s, "+
				"or run `make setup`, which fetches a small one", setting.Name("BaseURL"), setting.Name("Model"))
		}
		if o.Backend.Available() == nil {
			notice("no model is named: taking " + path)
		}
	} else if !local && !IsHubName(path) {
		return nil, Source{}, nil, exit.Usagef("there is no model folder or file %q; for a server's model add %s (or OPENAI_BASE_URL)",
			path, setting.Name("BaseURL"))
	}
	if o.Backend.Available() != nil { // before it is fetched
		_, _, _, err := o.Backend.OpenPolicy(ctx, path, LocalOptions{})
		return nil, Source{}, nil, setting.Errorf("%w, or name a server with %s", err, setting.Name("BaseURL"))
	}
	path, err := Find(ctx, path, true, notice)
	if err != nil {
		return nil, Source{}, nil, setting.Errorf("%w (for a server's model add %s)", err, setting.Name("BaseURL"))
	}
	m, source, closer, err := o.Backend.OpenPolicy(ctx, path, LocalOptions{DType: o.DType, Device: o.Device, Threads: o.Threads,
		Parallel: o.Parallel, Temperature: o.Temperature, ChatTemplate: o.ChatTemplate, MaxContext: o.MaxContext, KVCache: o.KVCache,
		KVHost: o.KVHost, AsStored: o.AsStored, RouterReplay: o.RouterReplay, MinPixels: o.MinPixels, MaxPixels: o.MaxPixels})
	if err == nil && o.Image != "" {
		if source.noImages != nil {
			_ = closer.Close()
			return nil, Source{}, nil, o.noImages(text.Line(source.noImages))
		}
	}
	if err == nil && source.Images != nil && o.mayShow() {
		source.ImageRule = json.RawMessage(source.Images.Rule())
	}
	if err == nil {
		for _, note := range source.Notes {
			notice(note)
		}
		source.noteTools(o, false, notice)
	}
	return m, source, closer, err
}

// checkLocalOnly refuses the settings that a local model alone takes.
func (o *Options) checkLocalOnly() error {
	if o.AsStored {
		return exit.Usagef("%s has no effect here: it multiplies the weights of a local model; leave it out", setting.Name("AsStored"))
	}
	return nil
}

// noImages is what can be done about images that a model does not take.
func (o Options) noImages(why string) error {
	return exit.Usagef("%s has an image, and %s; leave images out with %s images=", o.Image, why, setting.Name("Fields"))
}

// errSwiftText says why such a server is sent no images.
var errSwiftText = errors.New("a swift rollout server is asked in text")

// mayShow reports whether the model may be shown images.
func (o *Options) mayShow() bool { return o.Image != "" || o.ToolImages || o.RowImages }

// checkImages refuses what is known to take no images.
func (o Options) checkImages() error {
	switch {
	case o.Image == "":
	case o.SwiftRollout != "":
		return o.noImages(errSwiftText.Error())
	}
	return nil
}

// DefaultPath is the small model that set-up fetches.
func DefaultPath() string {
	return cachedir.Path("models", "SmolLM2-135M-Instruct.Q4_1.gguf")
}
